"""What a message makes a node write to its disk, from its acceptance until the sender's other server has it.

Three nodes run as processes of their own: the two servers of the sender, and one of the recipient. The store of the
first one, which the messages are sent to, is full already. What it writes is ``wchar`` of ``/proc/PID/io`` without what
went to its sockets, which relays between the nodes count. (``write_bytes`` would count whole folios of the page cache.)
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import orjson
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.envelope import encode_request
from shine_node.store.layout import Table
from tests.bench.fill import add_delivered, open_store
from tests.bench.load import BODY
from tests.bench.measure import Figure, print_figures
from tests.bench.relay import Relay
from tests.bench.server import LOGIN, SETTINGS
from tests.support.nodes import ServerProcess

__all__ = ["MESSAGES", "main", "measure_wear"]

MESSAGES = 100_000
SMALL = 64
"""Pairs a commit that the store is filled with: great ones would leave more free pages behind than a node ever does."""
SINGLY, TOGETHER = 200, 40
"""Messages that come one by one, and rounds of messages that come together."""
AT_ONCE = 16
SINGLY_KIB, TOGETHER_KIB = 96, 12
KIB = 1024
ROUND_SECONDS = 60.0
LOOK_SECONDS = 0.005


class Written(NamedTuple):
    """What a node has written so far, bytes: in all, and to sockets."""

    all: int
    sockets: int


class Street:
    """The sender's two servers and the recipient's, each behind a relay, and one connection of the sender's."""

    def __init__(
        self, homes: Sequence[ServerProcess], relays: Sequence[Relay], env: Any, link: ClientConnection
    ) -> None:
        self._homes, self._relays, self._env, self.link = homes, relays, env, link
        self._unsynced = env.open_db(Table.OUTBOX_UNSYNCED.value, create=False)
        self._open = env.open_db(Table.DUE_ATTEMPTS.value, create=False)

    @property
    def commits(self) -> int:
        """How many commits the first server has made."""
        return int(self._env.info()["last_txnid"])

    def written(self) -> list[Written]:
        """Return what each server has written."""
        found = []
        for home, own in zip(self._homes, self._relays, strict=True):
            pid = home.process.pid
            counted = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
            [wchar] = [int(line.split()[1]) for line in counted.splitlines() if line.startswith("wchar:")]
            found.append(Written(wchar, own.back + sum(relay.forward[pid] for relay in self._relays)))
        return found

    async def synced(self) -> None:
        """Wait until no delivery is open and no entry unsynced at the first server."""
        while True:
            with self._env.begin() as txn:
                if not any(txn.stat(table)["entries"] for table in (self._unsynced, self._open)):
                    return
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def _street(folder: Path, alice: Identity, people: Sequence[Identity]) -> AsyncIterator[Street]:
    async with AsyncExitStack() as stack:
        homes: list[ServerProcess] = []
        relays: list[Relay] = []
        for login in (LOGIN, "second", "theirs"):
            home = ServerProcess(login, folder, **SETTINGS)
            stack.push_async_callback(home.discard)
            relay = Relay(home.port, lambda: [started.process.pid for started in homes])
            stack.push_async_callback(relay.close)
            await relay.start()
            home.settings["server"]["url"] = f"ws://127.0.0.1:{relay.port}/ws"
            await home.start()
            homes.append(home)
            relays.append(relay)
        places = [AccessServer(home.login, home.settings["server"]["url"]) for home in homes]
        now_ms = SystemClock().now_ms()
        records = [alice.access_record(places[:2], time_ms=now_ms)]
        records += [person.access_record(places[2:], time_ms=now_ms) for person in people]
        for home in homes:
            for record in records:
                await home.request("AddUser", record_payload(record))
        own = places[0].url
        link = await stack.enter_async_context(connect(own, proxy=None, compression=None, ping_interval=None))
        map_size = SETTINGS["storage"]["mapSizeMiB"] * 2**20
        env = lmdb.open(str(homes[0].store_file), subdir=False, readonly=True, max_dbs=len(Table), map_size=map_size)
        stack.callback(env.close)
        yield Street(homes, relays, env, link)


async def _send(street: Street, alice: Identity, to: Sequence[Identity]) -> None:
    """Send a message to each, all in one go, and return when all are answered, delivered and synced."""
    frames = [
        encode_request(
            "SendMessagePair", "r", make_message(alice, person.login, BODY, time_ms=SystemClock().now_ms()).payload
        )
        for person in to
    ]
    for frame in frames:
        await street.link.send(frame)
    for _ in frames:
        answer = orjson.loads(await street.link.recv())
        if answer["status"] != 200 or answer["payload"]["deliveryState"] != "delivered":
            raise AssertionError(f"a message was answered {answer}")
    await street.synced()


async def measure_wear(folder: Path) -> list[Figure]:
    """Send messages one by one, then some together, to one chat and to as many as there are messages.

    Args:
        folder: where the first server's store lies already, as ``open_store`` names it.
    """
    alice = Identity.generate("anna")
    people = [Identity.generate(f"bob{number:02}") for number in range(AT_ONCE)]
    figures: list[Figure] = []
    async with _street(folder, alice, people) as street:
        await asyncio.wait_for(_send(street, alice, people), ROUND_SECONDS)  # links are made, records told
        for name, rounds, to, most in (
            ("singly", SINGLY, people[:1], SINGLY_KIB),
            (f"{AT_ONCE} at once, in one chat", TOGETHER, people[:1] * AT_ONCE, TOGETHER_KIB),
            (f"{AT_ONCE} at once, in as many chats", TOGETHER, people, TOGETHER_KIB),
        ):
            before, commits = street.written(), street.commits
            for _ in range(rounds):
                await asyncio.wait_for(_send(street, alice, to), ROUND_SECONDS)
            written = [
                Written(now.all - then.all, now.sockets - then.sockets)
                for now, then in zip(street.written(), before, strict=True)
            ]
            messages = rounds * len(to)
            figures += _figures(name, written, (street.commits - commits) / messages, messages, most)
    return figures


def _figures(name: str, written: Sequence[Written], commits: float, messages: int, most: int) -> list[Figure]:
    own, second, theirs = [(node.all - node.sockets) / messages / KIB for node in written]
    sockets = written[0].sockets / messages / KIB
    return [
        Figure(
            f"written a message, {name}",
            f"{own:.1f} KiB",
            f"{commits:.2f} commits; {sockets:.1f} KiB more to sockets",
            f"at most {most} KiB",
            own <= most,
        ),
        Figure("    by the sender's other server, the recipient's", f"{second:.1f} KiB, {theirs:.1f} KiB"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the stores lie for the time of the run: the disk to measure")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        folder = Path(name)
        with open_store(folder) as store:
            add_delivered(store, MESSAGES, pairs_a_commit=SMALL)
        print_figures(f"Wear, {MESSAGES:,} messages stored", uvloop.run(measure_wear(folder)))


if __name__ == "__main__":
    main()
