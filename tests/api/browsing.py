"""Requests of HTTP over real sockets, as they come from browsers and from others."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.nodes import PATIENCE

__all__ = ["Browsing", "Fetched", "Visit", "ask"]


@dataclass
class Fetched:
    """An answer as it came."""

    status: int
    reason: str
    headers: dict[str, str]
    """By their names in lower case; none stands twice."""
    body: bytes = b""
    names: list[str] = field(default_factory=list)


class Visit:
    """One connection on which anything can be said."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self, *, body: bool = True) -> Fetched:
        """Read one answer, with its body unless there is none."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        first, *lines = head[:-4].decode("ascii").split("\r\n")
        version, status, reason = first.split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        assert len(headers) == len(pairs), "a header stands twice"
        fetched = Fetched(int(status), reason, headers, names=[name for name, _ in pairs])
        if body and "content-length" in headers:
            length = int(headers["content-length"])
            fetched.body = await asyncio.wait_for(self.reader.readexactly(length), PATIENCE)
        return fetched

    async def end(self) -> bytes:
        """Read to the end; return what was left."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        except ConnectionError:
            return b""

    def leave(self) -> None:
        """Go at once."""
        self.writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class Browsing:
    """Asks one server; with TLS where it is given a context that trusts it."""

    def __init__(self, address: tuple[str, int], trust: ssl.SSLContext | None = None) -> None:
        self._address, self._trust = address, trust

    async def visit(self) -> Visit:
        """Open a connection on which nothing has been said yet."""
        name = "localhost" if self._trust else None
        opening = asyncio.open_connection(*self._address, ssl=self._trust, server_hostname=name)
        return Visit(*await asyncio.wait_for(opening, PATIENCE))

    async def fetch(self, words: bytes, *, body: bool = True) -> Fetched:
        """Say all of something on a new connection, and return the answer."""
        async with await self.visit() as visit:
            visit.writer.write(words)
            return await visit.hear(body=body)

    async def get(self, path: str, *headers: str) -> Fetched:
        """Ask for a path as a browser does."""
        return await self.fetch(ask("GET", path, *headers))


def ask(method: str, path: str, *headers: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: node.example", *headers, "", ""]).encode("iso-8859-1")
