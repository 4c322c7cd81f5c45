"""The head of an HTTP request, taken apart strictly and within bounds; pure (RFC 9112)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

__all__ = ["MAX_HEADERS", "MAX_HEADERS_BYTES", "MAX_LINE_BYTES", "Refused", "Request", "RequestLine"]

MAX_LINE_BYTES = 8192
MAX_HEADERS_BYTES = 32768
"""Of all headers together: a browser sends a node all cookies of other services on the same machine, too."""
MAX_HEADERS = 128

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_BEGINNING = re.compile(_TOKEN)
_LINE = re.compile(rb"(" + _TOKEN + rb"+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_ORIGIN = re.compile(r"https?://[^/?#]+", re.IGNORECASE)
_NAME = re.compile(_TOKEN + rb"+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class Refused(Exception):
    """A request is answered with this status, and a text that tells a person why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class RequestLine(NamedTuple):
    """The first line of a request."""

    method: str
    target: str
    version: tuple[int, int]
    length: int
    """Bytes of the line, without its end."""

    @property
    def path(self) -> str:
        """The path that is asked for. Nothing in it is decoded: ``/%77s`` is another path than ``/ws``.

        A target may be a whole URL (RFC 9112 §3.2.2); whose host it names is not looked at, as with ``Host``.
        """
        target = self.target
        if (origin := _ORIGIN.match(target)) is not None:
            target = target[origin.end() :]
            if not target.startswith("/"):
                target = f"/{target}"
        return target.partition("?")[0]

    @classmethod
    def read(cls, come: bytes | bytearray) -> RequestLine | None:
        """Read the line from what has come; return ``None`` while its end has not.

        Raises:
            Refused: it is none, is too long, or is of another version than HTTP/1.0 and HTTP/1.1.
        """
        if come and not _BEGINNING.match(come):  # such as TLS, whose client would wait for an answer
            raise Refused(HTTPStatus.BAD_REQUEST, "This is no HTTP request.")
        length = come.find(b"\r\n", 0, MAX_LINE_BYTES + 2)
        if length < 0:
            if len(come) >= MAX_LINE_BYTES + 2:
                raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, "The first line of the request is too long.")
            if b"\n" in come:
                raise Refused(HTTPStatus.BAD_REQUEST, "The first line of the request does not end in CR LF.")
            return None
        found = _LINE.fullmatch(come, 0, length)
        if found is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "The first line of the request is not METHOD, path, HTTP/1.1.")
        method, target = found[1].decode("ascii"), found[2].decode("ascii")
        version = int(found[3]), int(found[4])
        if version not in {(1, 0), (1, 1)}:
            raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Ask with HTTP/1.1.")
        return cls(method, target, version, length)


class Request(NamedTuple):
    """A request up to its body."""

    line: RequestLine
    headers: Mapping[str, str]
    """By their names in lower case; of one that stands several times the values are joined by commas."""

    @property
    def has_body(self) -> bool:
        """Whether it says that a body follows."""
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0"

    def words(self, header: str) -> set[str]:
        """Return what a header lists, in lower case."""
        return {word.strip().lower() for word in self.headers.get(header, "").split(",")} - {""}

    @classmethod
    def read(cls, line: RequestLine, come: bytes | bytearray) -> Request | None:
        """Read the headers after a line from what has come, line included; return ``None`` while their end has not.

        Raises:
            Refused: they are none, are too many or too long, or there is not exactly one ``Host`` with HTTP/1.1.
        """
        end = come.find(b"\r\n\r\n", line.length, line.length + MAX_HEADERS_BYTES)
        if end < 0:
            if len(come) >= line.length + MAX_HEADERS_BYTES:
                raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too long.")
            return None
        lines = bytes(come[line.length + 2 : end]).split(b"\r\n") if end > line.length else []
        if len(lines) > MAX_HEADERS:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "There are too many headers.")
        values: dict[str, list[str]] = {}
        for text in lines:
            name, colon, value = text.partition(b":")
            value = value.strip(b" \t")
            if not (colon and _NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise Refused(HTTPStatus.BAD_REQUEST, "One of the headers is malformed.")
            values.setdefault(name.decode("ascii").lower(), []).append(value.decode("iso-8859-1"))
        if line.version == (1, 1) and len(values.get("host", [])) != 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "A request has exactly one header Host.")
        return cls(line, {name: ", ".join(found) for name, found in values.items()})
