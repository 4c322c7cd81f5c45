"""A small real WebSocket server whose answers a test writes down: for what no good server answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from websockets.asyncio.server import ServerConnection, serve

from shine_node.client.connection import Connection

__all__ = ["Refuse", "Script", "Silence", "scripted", "scripted_url", "served"]


class Refuse(NamedTuple):
    """An answer that is an error."""

    status: int
    code: str
    payload: Mapping[str, object] = MappingProxyType({})


class Silence(NamedTuple):
    """No answer, and no end of the connection either."""


Script = Mapping[str, Callable[[dict[str, Any]], "dict[str, Any] | Refuse | Silence | None"]]
"""By operation, the payload of the answer to a payload; ``None`` cuts the connection."""


@asynccontextmanager
async def scripted_url(script: Script, links: list[ServerConnection] | None = None) -> AsyncIterator[str]:
    """Serve a script, and yield where; each connection that is made is added to ``links``."""

    async def handle(link: ServerConnection) -> None:
        if links is not None:
            links.append(link)
        async for frame in link:
            request = orjson.loads(frame)
            answer = script[request["op"]](request["payload"])
            if answer is None:
                await link.close(1011)
                return
            if isinstance(answer, Silence):
                continue
            head = {"op": request["op"], "requestId": request["requestId"]}
            if isinstance(answer, Refuse):
                error = {"status": answer.status, "ok": False, "error": answer.code, "message": "as the script says"}
                await link.send(orjson.dumps({**head, **error, "payload": dict(answer.payload)}).decode())
            else:
                await link.send(orjson.dumps({**head, "status": 200, "ok": True, "payload": answer}).decode())

    async with serve(handle, "127.0.0.1", 0, compression=None) as listening:
        yield f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/ws"


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Connection]:
    """Serve a script, and yield a connection to it."""
    async with scripted_url(script) as url, await Connection.open(url) as connection:
        yield connection


@contextmanager
def served(script: Script) -> Iterator[str]:
    """Serve a script on a thread of its own, for what runs an event loop itself, and yield where."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = scripted_url(script)
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
