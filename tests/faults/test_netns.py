"""Two real nodes on two network namespaces, and every packet between them dropped for a while, without a word.

Nothing is lost, nothing is shown twice, and no tick lies: at no moment does a sender's server say ``delivered`` of a
message that the recipient's server has not stored, and no state goes back.

``SHINE_CUT_SECONDS`` says for how long packets are dropped, 20 s without it. Where it is set, a machine that cannot
make network namespaces fails the test instead of skipping it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli.node_process import NodeProcess
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_message
from shine_node.protocol.access import AccessServer
from tests.control.conftest import Asker
from tests.faults.wires import End, Wire, why_no_wires
from tests.support.devices import Device, copy_of
from tests.support.nodes import PATIENCE, Server, eventually, now_ms, register, run, toml_text

WANTED_SECONDS = os.environ.get("SHINE_CUT_SECONDS", "")
CUT_SECONDS = float(WANTED_SECONDS or 20)
CALM_SECONDS = 3.0
"""With the wire whole, before the cut and after it."""
PORT = 7070
WRITE_EVERY_SECONDS = 0.5
WATCH_EVERY_SECONDS = 0.25

POOL = {
    "pingIdleSeconds": 5,
    "pongTimeoutSeconds": 3,
    "requestTimeoutSeconds": 3,
    "connectTimeoutSeconds": 3,
    "callerTimeoutSeconds": 6,
    "refreshSeconds": 2,
    "allowInsecurePeers": True,
    "allowPrivatePeers": True,
}
DELIVERY = {
    "scheduleSeconds": [0, 2, 5, 10, 15, 20, 30, 40, 50, 60, 75, 90, 105, 120, 150, 3600],
    "workerIntervalMs": 200,
    "firstAttemptTimeoutMs": 1000,
    "leaseMs": 10_000,
}


class FarServer(Server):
    """A node at one end of the wire. Clients reach it by the test's own wire, the other node by the one that is cut."""

    def __init__(self, login: str, parent: Path, end: End, other_login: str, other_end: End) -> None:
        self.end = end
        super().__init__(login, parent, delivery=DELIVERY, sync_servers=[place(other_login, other_end)])  # type: ignore[arg-type]
        listen = [f"{address}:{PORT}" for address in (end.watch_address, end.address)]
        self.settings["server"] |= {"url": self.access.url, "listen": listen, "pool": POOL}
        self._process: NodeProcess | None = None

    @property
    def url(self) -> str:
        return f"ws://{self.end.watch_address}:{PORT}/ws"

    @property
    def access(self) -> AccessServer:
        return AccessServer(self.login, place(self.login, self.end)["url"])

    async def start(self) -> None:
        config_file = self.folder / "node.toml"
        config_file.write_text(toml_text(self.settings), encoding="utf-8")
        self._process = await NodeProcess.start(config_file, through=self.end.within)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def link_state(self) -> str:
        """Return the state of its link to the other node, as its operator sees it."""
        async with Asker(self.folder / "data" / "control.sock") as asker:
            [link] = (await asker.ask("Status"))["payload"]["peers"]["links"]
        return str(link["state"])


def place(login: str, end: End) -> dict[str, str]:
    """Return a server of one end as the configuration of the other names it."""
    return {"login": login, "url": f"ws://{end.address}:{PORT}/ws"}


class Writer:
    """Somebody who writes at one node all the time, and watches what is said of it."""

    def __init__(self, user: Identity, home: FarServer, friend: str) -> None:
        self.user = user
        self.home = home
        self.friend = friend
        self.pairs: dict[str, SignedPair] = {}
        """What was answered, by ``baseKey``."""
        self.ticks: dict[str, list[str]] = {}
        """The states that were seen of each message, each once, in the order in which they were seen."""
        self.reader: Writer
        self.eyes: Device
        """Where it is looked up what came."""
        self.enough = False

    async def writes(self, device: Device) -> SignedPair:
        """Submit a message; every one is answered, whatever the wire does."""
        pair = make_message(self.user, self.friend, f"number {len(self.pairs)}", time_ms=now_ms())
        answer = await device.request("SendMessagePair", **pair.payload)
        self.pairs[pair.base_key] = pair
        await self._see(pair.base_key, answer["deliveryState"])
        return pair

    async def writes_on(self, device: Device) -> None:
        """Submit messages until it is enough; whatever is submitted is answered."""
        while not self.enough:
            await self.writes(device)
            await asyncio.sleep(WRITE_EVERY_SECONDS)

    async def watches_on(self, device: Device) -> None:
        """Look at the ticks of all messages until cancelled."""
        while True:
            await self.looks(device)
            await asyncio.sleep(WATCH_EVERY_SECONDS)

    async def looks(self, device: Device) -> dict[str, str]:
        """Return the tick of each message, and compare it with those that were seen before it was asked for."""
        before = {base_key for base_key, ticks in self.ticks.items() if ticks[-1] == "delivered"}
        shown = {
            message["baseKey"]: message["deliveryState"]
            for message in await device.chat(self.friend)
            if message["direction"] == "out"
        }
        for base_key, state in shown.items():
            assert state == "delivered" or base_key not in before, f"{base_key} went back to {state}"
            await self._see(base_key, state)
        return shown

    async def _see(self, base_key: str, state: str) -> None:
        assert state in ("accepted", "delivered"), f"{base_key} is {state}"
        seen = self.ticks.setdefault(base_key, [])
        if state == "delivered" and state not in seen:
            seen.append(state)
            assert base_key in await self.reader.has(), f"{base_key} is said to be delivered, and is not"
        elif not seen:
            seen.append(state)

    async def has(self) -> dict[str, Mapping[str, Any]]:
        """Return the messages that came to this user, as a session reads them at the user's own node."""
        listed = await self.eyes.chat(self.friend)
        came: dict[str, Mapping[str, Any]] = {m["baseKey"]: m for m in listed if m["direction"] == "in"}
        assert len({message["messageKey"] for message in listed}) == len(listed), "something is shown twice"
        assert len({message["baseKey"] for message in listed}) == len(listed), "something is shown twice"
        return came


async def calm(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Let time pass; what a task found to be wrong is raised at once."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    assert not done, "nobody stops writing or watching"


def test_packets_are_dropped_both_ways_for_a_while(tmp_path: Path) -> None:
    reason = why_no_wires()
    if reason and not WANTED_SECONDS:
        pytest.skip(f"{reason} (with SHINE_CUT_SECONDS this would be a failure)")
    assert not reason

    async def story(wire: Wire, stack: AsyncExitStack) -> None:
        a1 = FarServer("a1", tmp_path, wire.one, "b1", wire.two)
        b1 = FarServer("b1", tmp_path, wire.two, "a1", wire.one)
        for server in (a1, b1):
            stack.push_async_callback(server.discard)
            await server.start()
        alice = Writer(Identity.generate("alice"), a1, "bob")
        bob = Writer(Identity.generate("bob"), b1, "alice")
        alice.reader, bob.reader = bob, alice
        await register(alice.user, [a1], known_at=[b1])
        await register(bob.user, [b1], known_at=[a1])

        async def linked() -> bool:
            return [await server.link_state() for server in (a1, b1)] == ["connected"] * 2

        async def unlinked() -> bool:
            return "connected" not in [await server.link_state() for server in (a1, b1)]

        await eventually(linked)
        at_a1, at_b1 = [await stack.enter_async_context(Device(who.home, who.user)) for who in (alice, bob)]
        alice.eyes, bob.eyes = [await stack.enter_async_context(Device(w.home, w.user)) for w in (alice, bob)]
        writing, watching = [], []
        for who, device in ((alice, at_a1), (bob, at_b1)):
            watch = await stack.enter_async_context(Device(who.home, who.user))
            writing.append(asyncio.create_task(who.writes_on(device)))
            watching.append(asyncio.create_task(who.watches_on(watch)))
        tasks = [*writing, *watching]
        stack.push_async_callback(asyncio.wait, tasks)
        for task in tasks:
            stack.callback(task.cancel)
        await calm(tasks, CALM_SECONDS)
        before = {who: set(who.pairs) for who in (alice, bob)}
        assert all(before.values())

        # What b1 says is lost, and it still hears: a message is stored there, and a1 cannot know.
        wire.one.deafen()
        lost_answer = await alice.writes(at_a1)

        async def stored() -> bool:
            return lost_answer.base_key in await bob.has()

        await eventually(stored)
        assert alice.ticks[lost_answer.base_key] == ["accepted"]
        wire.two.deafen()
        cut_off = {who: set(who.pairs) for who in (alice, bob)}
        await calm(tasks, 1)  # what had come is stored by then
        have = {who: set(await who.reader.has()) for who in (alice, bob)}
        await calm(tasks, CUT_SECONDS - 1)
        assert await unlinked(), "a dead wire is found without a word from it"
        assert all(end.dropped > 0 for end in wire.ends)
        for who in (alice, bob):
            during = set(who.pairs) - cut_off[who]
            assert len(during) >= CUT_SECONDS / 5, "the nodes go on taking messages"
            assert all(who.ticks[base_key] == ["accepted"] for base_key in during)
            assert set(await who.reader.has()) == have[who], "no packet came through"

        wire.mend()
        await calm(tasks, CALM_SECONDS)
        alice.enough = bob.enough = True
        await asyncio.gather(*writing)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result

        async def all_delivered() -> bool:
            await asyncio.sleep(WATCH_EVERY_SECONDS)
            shown = [await who.looks(device) for who, device in ((alice, at_a1), (bob, at_b1))]
            return all(state == "delivered" for states in shown for state in states.values())

        await eventually(all_delivered, timeout=4 * PATIENCE)
        assert await linked()
        for who in (alice, bob):
            who.reader.eyes = await stack.enter_async_context(Device(who.reader.home, who.reader.user))
            came = await who.reader.has()
            assert set(came) == set(who.pairs), "every message that was answered came, and no other"
            for message in came.values():
                copy_of(dict(message), who.pairs)
            assert set(who.ticks) == set(who.pairs)
            assert all(ticks in (["accepted", "delivered"], ["delivered"]) for ticks in who.ticks.values())
        assert alice.ticks[lost_answer.base_key] == ["accepted", "delivered"]

    async def told() -> None:
        with Wire() as wire:
            async with AsyncExitStack() as stack:
                await story(wire, stack)

    run(told(), timeout=CUT_SECONDS + 300)
