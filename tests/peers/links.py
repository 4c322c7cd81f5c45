"""Links and pools to scripted peers, which end with the test that made them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from shine_node.clock import Clock
from shine_node.peers.dial import Dialer, Resolver, make_tls_context
from shine_node.peers.link import Link
from shine_node.peers.priorities import priority_of
from shine_node.peers.settings import PoolSettings
from shine_node.peers.snapshot import LinkState
from tests.support.clock import settle
from tests.support.scripted_peer import PATIENCE, ScriptedPeer

OWN_LOGIN = "server1"
STATUS = "GetDmDeliveryStatus"
BATCH = "DmSyncBatch"
BLOCKS = "GetBlocks"


def make_settings(**changes: Any) -> PoolSettings:
    """Return the default settings, but for loopback without TLS, and with changes."""
    return PoolSettings(**{"allow_insecure_peers": True, "allow_private_peers": True, **changes})


@contextlib.asynccontextmanager
async def link_to(
    url: str,
    clock: Clock,
    *,
    login: str = "server2",
    permanent: bool = True,
    on_connected: Callable[[Link], None] = lambda link: None,
    random: Callable[[], float] = lambda: 1.0,
    not_before: float = -math.inf,
    **changes: Any,
) -> AsyncIterator[Link]:
    """Make a link, start it, and stop it in the end."""
    settings = make_settings(**changes)
    dialer = Dialer(
        clock=clock,
        tls=make_tls_context(settings.ca_file),
        allow_insecure=settings.allow_insecure_peers,
        allow_private=settings.allow_private_peers,
        max_frame_bytes=settings.max_frame_bytes,
        resolve=Resolver(),
    )
    link = Link(
        server_login=login,
        url=url,
        permanent=permanent,
        own_login=OWN_LOGIN,
        settings=settings,
        clock=clock,
        dialer=dialer,
        random=random,
        on_connected=on_connected,
        not_before=not_before,
    )
    link.start()
    try:
        yield link
    finally:
        link.stop("the test is over")
        await link.wait_stopped()


async def until_state(link: Link, *states: LinkState) -> None:
    """Wait until a link is in one of some states."""
    await until(lambda: link.state in states)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so that no event tells of."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.002)


def ask(link: Link, op: str = STATUS, *, seconds: float = 35, **payload: Any) -> asyncio.Task[dict[str, Any]]:
    """Begin a request."""
    return start(link.request(op, payload, priority_of(op), seconds))


def start(work: Coroutine[Any, Any, dict[str, Any]]) -> asyncio.Task[dict[str, Any]]:
    """Begin something that is waited for later; its failure is looked at by then."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def failure(task: asyncio.Task[dict[str, Any]]) -> BaseException:
    """Return how a request failed."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((task,))
    error = task.exception()
    assert error is not None, f"it did not fail: {task.result()}"
    await settle()
    return error


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def narrow(peer: ScriptedPeer) -> None:
    """Let little hide behind the sockets of the connections that a peer takes from now on, if it does not read."""
    assert peer._server is not None
    peer._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
