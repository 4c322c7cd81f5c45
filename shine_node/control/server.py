"""Serves the control socket: one JSON object a line in, one line out, with a bound on everything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from shine_node.control.place import Place
from shine_node.protocol.envelope import BadEnvelope, decode_request, encode_answer, encode_refusal
from shine_node.protocol.errors import BadJson, BadRequestFormat, InternalError, Refusal, ServerBusy, TooLarge

__all__ = ["ControlServer", "Operation"]

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 256 * 1024
MAX_CONNECTIONS = 16
IDLE_SECONDS = 30.0
"""How long a connection may take for its next request, and to read an answer."""
BACKLOG = 16


class Operation(NamedTuple):
    """One operation of the socket: takes the payload of a request and returns that of its answer, or refuses.

    ``seconds`` is how long it may take; it is cancelled then, and refused as ``503 SERVER_BUSY``.
    """

    run: Callable[[dict[str, Any]], Awaitable[Mapping[str, object]]]
    seconds: float = 30.0


class ControlServer:
    """Answers those whom the system lets open the socket; requests and answers have the form of §2.

    The requests of one connection are worked on one after the other. A line that is too long ends its connection.

    Args:
        operations: operation → what does it.
        idle_seconds: how long a connection may take for its next request, and to read an answer.
    """

    def __init__(self, *, operations: Mapping[str, Operation], idle_seconds: float = IDLE_SECONDS) -> None:
        self._operations = operations
        self._idle_seconds = idle_seconds
        self._place: Place | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, place: Place) -> None:
        """Listen at a place, which is the server's from now on.

        Raises:
            OSError: the system does not let it listen.
        """
        self._place = place
        self._server = await asyncio.start_unix_server(
            self._accept, sock=place.socket, limit=MAX_LINE_BYTES, backlog=BACKLOG
        )

    async def close(self) -> None:
        """End all connections, also those that wait for an answer, and leave the place; harmless if not started."""
        if self._server is not None:
            self._server.close()
        if self._place is not None:
            self._place.leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        too_many = len(self._tasks) >= MAX_CONNECTIONS
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, too_many=too_many))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:  # also of one that was cancelled before it began
            self._tasks.discard(task)
            writer.transport.abort()

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, too_many: bool) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # so that what was sent has left when `drain` returns
        try:
            if too_many:
                refusal = ServerBusy("too many ask at once: try again in a moment", {"retryAfterMs": 1000})
                await self._send(writer, encode_refusal(None, None, refusal))
                return
            while line := await self._read(reader, writer):
                await self._send(writer, await self._answer(line))
        except OSError:  # TimeoutError is one
            log.debug("somebody left the control socket before the answer")

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Return the next line, ``b""`` where there will be none."""
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await reader.readline()
        except TimeoutError:
            refusal: Refusal = BadRequestFormat(f"no line within {self._idle_seconds:g} s: connect again")
        except ValueError:
            refusal = TooLarge(f"a line is at most {MAX_LINE_BYTES} bytes long")
        await self._send(writer, encode_refusal(None, None, refusal))
        return b""

    async def _send(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(text.encode() + b"\n")
        async with asyncio.timeout(self._idle_seconds):
            await writer.drain()

    async def _answer(self, line: bytes) -> str:
        try:
            request = decode_request(line.decode(), self._operations)
        except BadEnvelope as bad:
            return encode_refusal(bad.op, bad.request_id, bad.refusal)
        except UnicodeDecodeError:
            return encode_refusal(None, None, BadJson("the line is not UTF-8"))
        operation = self._operations[request.op]
        try:
            async with asyncio.timeout(operation.seconds):
                payload = await operation.run(request.payload)
            return encode_answer(request.op, request.request_id, payload)
        except TimeoutError:
            detail = f"{request.op} was not done within {operation.seconds:g} s: look whether it was, then ask again"
            refusal: Refusal = ServerBusy(detail, {"retryAfterMs": 1000})
        except Refusal as refused:
            refusal = refused
        except Exception:
            log.exception("a defect in %s", request.op)
            refusal = InternalError("the node could not do this: its log has the cause")
        return encode_refusal(request.op, request.request_id, refusal)
