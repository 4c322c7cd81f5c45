"""``kill -9`` of a node under load, again and again on one store: what was answered is there, and whole."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from shine_node.client.connection import ClientError, Connection, ConnectionLost, RequestTimedOut
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message, make_tombstone
from shine_node.protocol.keys import parse_message_key
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey
from shine_node.store.messages import get_blobs, get_row
from shine_node.store.view import view_store
from tests.store.rooms import check_indexes
from tests.support.nodes import PATIENCE, LocalServer, ServerProcess, eventually, now_ms, register, run

SEED = 20_260_330
KILLS = 22
"""Under load; every fourth round the node is killed while it starts, too."""
CONNECTIONS = 2
WINDOW = 12
MESSAGES_A_ROUND = 240
LOAD_SECONDS = (0.02, 0.45)
START_SECONDS = (0.05, 0.8)

UNHURRIED = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 3600]
HURRIED = [*range(15), 604_800]
"""Whatever was tried before under the other schedule, the next attempt is now, or within a second."""


class Sent:
    """One message: its revisions in the order of sending, and what of it was answered."""

    def __init__(self, pair: SignedPair) -> None:
        self.revisions = [pair]
        self.answered = -1
        """The latest revision that was answered."""
        self.state = ""
        self.removal: SignedPair | None = None
        self.removal_answered = False
        self.busy = True
        """A request about it is under way, or was cut off: a client would not yet send the next one."""

    @property
    def incoming(self) -> ItemKey:
        key = parse_message_key(self.revisions[0].incoming_key)
        return ItemKey.incoming(key.message, key.message_type)

    @property
    def outgoing(self) -> ItemKey:
        key = parse_message_key(self.revisions[0].outgoing_key)
        return ItemKey.outgoing(key.message, key.message_type)


class Ledger:
    """All that alice has sent, and what she may count on."""

    def __init__(self, rng: random.Random, alice: Identity) -> None:
        self.messages: list[Sent] = []
        self.refused: list[str] = []
        self._rng = rng
        self._alice = alice

    async def write_on(self, client: Connection, budget: list[int]) -> None:
        """Send messages, edits and tombstones, one after the other, until the connection is lost."""
        with suppress(ConnectionLost):
            while budget[0] > 0:
                budget[0] -= 1
                await self._next(client)

    async def _next(self, client: Connection) -> None:
        dice = self._rng.random()
        settled = [sent for sent in self.messages[-60:] if not sent.busy and sent.removal is None]
        if dice < 0.75 or not settled:
            to_login = "bob" if dice < 0.55 else "carol"
            body = self._rng.randbytes(self._rng.choice((5, 200, 3000)))
            sent = Sent(make_message(self._alice, to_login, body, time_ms=now_ms()))
            self.messages.append(sent)
            await self._submit(client, sent, sent.revisions[0])
            return
        sent = self._rng.choice(settled)
        sent.busy = True
        last = sent.revisions[-1]
        if dice < 0.93:
            edit = make_edit(
                self._alice, last.message, f"edit {dice}", revision_ms=max(last.message.time_ms, last.revision_ms) + 1
            )
            sent.revisions.append(edit)
            await self._submit(client, sent, edit)
        else:
            sent.removal = make_tombstone(self._alice, last.message, time_ms=now_ms())
            await self._submit(client, sent, sent.removal)

    async def _submit(self, client: Connection, sent: Sent, pair: SignedPair) -> None:
        try:
            answer = await client.request("SendMessagePair", pair.payload, timeout=PATIENCE)
        except (ConnectionLost, RequestTimedOut):
            raise
        except ClientError as error:
            self.refused.append(str(error))
            return
        sent.busy = False
        if pair is sent.removal:
            sent.removal_answered = True
        else:
            sent.answered = sent.revisions.index(pair)
            sent.state = answer["deliveryState"]

    # What must be so of a store, whenever the node that wrote it was killed

    def check(self, txn: Transaction) -> int:
        """Compare a snapshot with what was sent and answered; return how many messages are in it."""
        check_indexes(txn, "a1")
        found = 0
        for sent in self.messages:
            found += self._check_message(txn, sent)
        return found

    def _check_message(self, txn: Transaction, sent: Sent) -> bool:
        row = get_row(txn, sent.outgoing)
        if row is None:
            assert sent.answered < 0, f"an answered pair is lost: {sent.revisions[0].base_key}"
            assert not sent.removal_answered
            assert get_row(txn, sent.incoming) is None, "half a pair"
            return False
        blobs = get_blobs(txn, row)
        if row.removed:
            assert sent.removal is not None, "nobody removed it"
            assert blobs == (b"", b"")
        else:
            assert not sent.removal_answered, "an answered removal is lost"
            kept = [index for index, pair in enumerate(sent.revisions) if (pair.incoming, pair.outgoing) == blobs]
            assert kept, "not one of the pairs that were sent"
            assert kept[0] >= sent.answered, "an answered edit is lost"
        if sent.outgoing.peer == "carol":  # a user of the same server has the copy by the same transaction
            copy = get_row(txn, sent.incoming)
            assert copy is not None, "half a pair"
            assert (copy.removed, get_blobs(txn, copy)[0]) == (row.removed, blobs[0])
            assert row.state is DeliveryState.DELIVERED
        return True

    def check_recipient(self, txn: Transaction) -> None:
        """What was answered ``delivered`` has arrived at the recipient's server, which was never killed."""
        for sent in self.messages:
            if sent.state == "delivered" and sent.outgoing.peer == "bob" and sent.removal is None:
                row = get_row(txn, sent.incoming)
                assert row is not None
                assert row.revision_ms >= sent.revisions[sent.answered].revision_ms

    def all_arrived(self, own: Transaction, recipients: Transaction) -> bool:
        """Whether every message to bob that the sender's server has is delivered, and has arrived as it is there."""
        for sent in self.messages:
            row = get_row(own, sent.outgoing)
            if row is None or row.removed or sent.outgoing.peer != "bob":
                continue
            assert row.state is not DeliveryState.FAILED
            if row.state is DeliveryState.ACCEPTED:
                return False
            copy = get_row(recipients, sent.incoming)
            assert copy is not None
            assert get_blobs(recipients, copy)[0] == get_blobs(own, row)[0]
        return True


async def kill_under_load(node: ServerProcess, ledger: Ledger, rng: random.Random) -> None:
    clients = [await node.connect() for _ in range(CONNECTIONS)]
    budget = [MESSAGES_A_ROUND]
    load = [asyncio.create_task(ledger.write_on(client, budget)) for client in clients for _ in range(WINDOW)]
    await asyncio.sleep(rng.uniform(*LOAD_SECONDS))
    await node.kill()
    await asyncio.wait_for(asyncio.gather(*load), PATIENCE)
    for client in clients:
        await client.close()


async def kill_while_it_starts(node: ServerProcess, rng: random.Random) -> None:
    """Cancelling the start kills the process; if it was faster than that, it is killed as it stands."""
    starting = asyncio.create_task(node.start())
    await asyncio.wait((starting,), timeout=rng.uniform(*START_SECONDS))
    if starting.cancel():
        await asyncio.wait((starting,))
    else:
        await node.kill()


def test_kill_9_under_load_loses_no_answered_pair_and_leaves_no_half_pair(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    settings = {
        "delivery": {"scheduleSeconds": UNHURRIED, "workerIntervalMs": 100, "leaseMs": 5000},
        "limits": {
            "requestsPerSecond": 100_000,
            "peerRequestsPerSecond": 100_000,
            "messagesPerMinutePerSender": 0,
        },
        "log": {"level": "warning"},
    }

    async def story() -> None:
        a1 = ServerProcess("a1", tmp_path, **settings)
        b1 = LocalServer("b1", tmp_path, **settings)
        try:
            await a1.start()
            await b1.start()
            alice = Identity.generate("alice")
            await register(alice, [a1], known_at=[b1])
            await register(Identity.generate("carol"), [a1])
            await register(Identity.generate("bob"), [b1], known_at=[a1])
            ledger = Ledger(rng, alice)
            recipient_is_on = True
            for number in range(KILLS):
                if number:
                    if number % 4 == 0:
                        await kill_while_it_starts(a1, rng)
                    await a1.start()
                if rng.random() < 0.5:
                    await (b1.stop() if recipient_is_on else b1.start())
                    recipient_is_on = not recipient_is_on
                await kill_under_load(a1, ledger, rng)
                with view_store(a1.store_file) as txn:
                    found = ledger.check(txn)
                if recipient_is_on:
                    with b1.node.store.read() as txn:
                        ledger.check_recipient(txn)
            assert found > KILLS, "there was load"
            assert ledger.refused == []

            if not recipient_is_on:
                await b1.start()
            a1.settings["delivery"]["scheduleSeconds"] = HURRIED
            await a1.start()

            async def everything_has_arrived() -> bool:
                with view_store(a1.store_file) as own, b1.node.store.read() as recipients:
                    return ledger.all_arrived(own, recipients)

            await eventually(everything_has_arrived)
            with b1.node.store.read() as txn:
                ledger.check_recipient(txn)
                check_indexes(txn, "b1")
            await a1.stop()
            with view_store(a1.store_file) as txn:
                assert ledger.check(txn) == found
        finally:
            for server in (a1, b1):
                await server.discard()

    run(story())
