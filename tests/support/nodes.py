"""Real nodes for tests: in this process or in their own, with real sockets on loopback and their data in a folder.

A server keeps its port and its folder from start to stop to start, as a machine that is switched off and on does.
"""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from shine_node.cli.node_process import NodeProcess, ReservedPort
from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair
from shine_node.clock import Clock, SystemClock
from shine_node.config import config_from_mapping
from shine_node.configuration.toml import toml_value
from shine_node.node import Node
from shine_node.protocol.access import AccessRecord, AccessServer, record_payload

__all__ = [
    "PATIENCE",
    "LocalServer",
    "Server",
    "ServerProcess",
    "delivery_state",
    "eventually",
    "node_settings",
    "now_ms",
    "register",
    "run",
    "servers",
    "toml_text",
]

T = TypeVar("T")
S = TypeVar("S", bound="Server")

PATIENCE = 30.0
"""Seconds after which a wait that should have ended is a failure; generous, for slow and busy machines."""

STORY_SECONDS = 240.0
_POLL_SECONDS = 0.02


def run(story: Coroutine[Any, Any, T], *, timeout: float = STORY_SECONDS) -> T:
    """Run a test's story on an event loop of its own, with a bound."""

    async def bounded() -> T:
        return await asyncio.wait_for(story, timeout)

    return asyncio.run(bounded())


def now_ms() -> int:
    """The clock of the machine, Unix milliseconds."""
    return SystemClock().now_ms()


async def eventually(check: Callable[[], Awaitable[T]], *, timeout: float = PATIENCE) -> T:
    """Ask again and again until the answer is true, and return it; for what cannot be awaited, with a bound."""
    deadline = time.monotonic() + timeout
    while True:
        answer = await check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(check, '__name__', check)} was not true within {timeout:g} s: {answer!r}")
        await asyncio.sleep(_POLL_SECONDS)


def node_settings(login: str, folder: Path, *, port: int = 0, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, shaped as in TOML, of a node on loopback that anybody may register at.

    Args:
        folder: where ``data`` is to lie.
        port: 0 for a free one.
        sections: what differs, by section: ``delivery={"workerIntervalMs": 50}``; ``server`` may hold ``pool``.
    """
    settings: dict[str, Any] = {
        "server": {
            "login": login,
            "url": f"ws://127.0.0.1:{port}/ws" if port else "ws://127.0.0.1/ws",
            "listen": f"127.0.0.1:{port}",
            "dataDir": str(folder / "data"),
            "pool": {"allowInsecurePeers": True, "allowPrivatePeers": True},
        },
        "storage": {"mapSizeMiB": 256},
        "registration": {"mode": "open"},
    }
    return _merged(settings, sections)


def toml_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a TOML document."""
    return "\n".join(_toml_lines("", settings)) + "\n"


class Server(abc.ABC):
    """A server of a test, running or not; it keeps its port and its data.

    Args:
        login: its ``serverLogin``; also the name of its folder.
        parent: the folder that its folder is made in.
        sections: as for ``node_settings``.
    """

    def __init__(self, login: str, parent: Path, **sections: Mapping[str, Any]) -> None:
        self.login = login
        self.folder = parent / login
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = ReservedPort()
        self.settings = node_settings(login, self.folder, port=self._port.number, **sections)

    @property
    def port(self) -> int:
        """The port that it has, also while it does not run."""
        return self._port.number

    @property
    def url(self) -> str:
        """Where it listens while it runs."""
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def access(self) -> AccessServer:
        """Its entry in an access record."""
        return AccessServer(self.login, self.url)

    @property
    def store_file(self) -> Path:
        """The file of its store."""
        return self.folder / "data" / "shine.mdb"

    async def connect(self) -> Connection:
        """Return a new connection of a client."""
        return await Connection.open(self.url, open_timeout=PATIENCE)

    async def request(self, op: str, payload: Mapping[str, object]) -> dict[str, Any]:
        """Make one request on a connection of its own."""
        async with await self.connect() as client:
            return await client.request(op, payload, timeout=PATIENCE)

    async def send(self, pair: SignedPair) -> str:
        """Submit a pair and return the delivery state that is answered."""
        return str((await self.request("SendMessagePair", pair.payload))["deliveryState"])

    async def restart(self) -> None:
        """Stop it in order and start it again."""
        await self.stop()
        await self.start()

    async def discard(self) -> None:
        """Stop it if it runs, and give back its port; its data stays."""
        try:
            await self.stop()
        finally:
            self._port.close()

    @abc.abstractmethod
    async def start(self) -> None:
        """Start it; it listens afterwards."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop it in order; harmless if it does not run."""


class LocalServer(Server):
    """A server whose node runs in this process."""

    def __init__(self, login: str, parent: Path, *, clock: Clock | None = None, **sections: Mapping[str, Any]) -> None:
        super().__init__(login, parent, **sections)
        self._clock = clock or SystemClock()
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The running node."""
        assert self._node is not None, f"{self.login} is stopped"
        return self._node

    async def start(self) -> None:
        assert self._node is None, f"{self.login} is running already"
        node = Node(config_from_mapping(self.settings), self._clock)
        await node.start()
        self._node = node

    async def stop(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.stop()


class ServerProcess(Server):
    """A server whose node runs as a process of its own, which can be killed; on one ``core`` only, if wanted."""

    def __init__(self, login: str, parent: Path, *, core: int | None = None, **sections: Mapping[str, Any]) -> None:
        super().__init__(login, parent, **sections)
        self._core = core
        self._process: NodeProcess | None = None

    @property
    def process(self) -> NodeProcess:
        """The running process."""
        assert self._process is not None, f"{self.login} is stopped"
        return self._process

    async def start(self) -> None:
        assert self._process is None, f"{self.login} is running already"
        config_file = self.folder / "node.toml"
        config_file.write_text(toml_text(self.settings), encoding="utf-8")
        self._process = await NodeProcess.start(config_file, core=self._core)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def kill(self) -> None:
        """End it as a loss of power would."""
        process, self._process = self.process, None
        await process.kill()


@asynccontextmanager
async def servers(
    kind: type[S], parent: Path, *logins: str, **sections: Mapping[str, Any]
) -> AsyncIterator[tuple[S, ...]]:
    """Start servers with the same settings; whatever runs at the end is stopped."""
    async with AsyncExitStack() as stack:
        started: list[S] = []
        for login in logins:
            server = kind(login, parent, **sections)
            stack.push_async_callback(server.discard)
            await server.start()
            started.append(server)
        yield tuple(started)


async def register(
    identity: Identity,
    access: Iterable[Server],
    *,
    known_at: Iterable[Server] = (),
    time_ms: int | None = None,
) -> AccessRecord:
    """Register a user at its access servers, with a signed record, and make it known at others.

    Args:
        access: its access servers, at most two, all running.
        known_at: further servers that get the record.
        time_ms: the record's time; now by default.
    """
    homes = tuple(access)
    record = identity.access_record(
        (server.access for server in homes), time_ms=now_ms() if time_ms is None else time_ms
    )
    for server in (*homes, *known_at):
        try:
            await server.request("AddUser", record_payload(record))
        except RequestRefused as refused:
            # Servers tell each other of users: this one may know the record before it is brought here.
            if refused.code != "USER_ALREADY_EXISTS":
                raise
            await server.request("SetUserAccess", record_payload(record))
    return record


async def delivery_state(server: Server, pair: SignedPair) -> str:
    """Ask for the state of a pair that is stored there: the same bytes again are answered with it (§5.2)."""
    known = await server.request("GetDmDeliveryStatus", {"messageKey": pair.outgoing_key})
    assert known["known"], f"{server.login} does not know {pair.outgoing_key}: sending it again would begin anew"
    return await server.send(pair)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged


def _toml_lines(section: str, settings: Mapping[str, Any]) -> Iterable[str]:
    tables = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in settings.items() if isinstance(value, list) and _holds_tables(value)}
    for key, value in settings.items():
        if key not in tables and key not in lists:
            yield f"{key} = {toml_value(value)}"
    for key, value in lists.items():
        for entry in value:
            yield f"[[{section}{key}]]"
            yield from _toml_lines(f"{section}{key}.", entry)
    for key, value in tables.items():
        yield f"[{section}{key}]"
        yield from _toml_lines(f"{section}{key}.", value)


def _holds_tables(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(entry, Mapping) for entry in value)
