"""The whole history beside a model in plain Python: whatever is done in whatever order, the store holds what it has to.

The model knows nothing of tables, keys or indexes. After each step every row is compared with it, every index with its
rows (``check_indexes``), and every terminal state with what it was before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shine_node.protocol.container import SIGNATURE_BYTES, Container
from shine_node.protocol.errors import KeyConflict, Refusal, StaleRevision
from shine_node.protocol.keys import MessageId
from shine_node.protocol.pair import Pair
from shine_node.protocol.revisions import Arrival
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import Claim, claim_due, count_open, record_result, renew_claims, reschedule
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Direction, Flag, ItemKey, Kind, OpenDelivery
from shine_node.store.marks import read_up_to_ms
from shine_node.store.messages import get_blobs, store_incoming, store_pair
from shine_node.store.outbox import acknowledge, signatures_of
from tests.store.rooms import (
    MAP_SIZE,
    NOW,
    OWN,
    SCHEDULE,
    check_indexes,
    first_delivery,
    make_pair,
    receipt_of,
    register,
    tombstone_of,
)

LEASE = 60_000
HERE = {"alice": "alices.other", "dave": "daves.other", "bob": None}
"""Who is on this server, and the other server of each. carol is elsewhere."""
CHATS = [("alice", "carol"), ("bob", "carol"), ("alice", "dave"), ("dave", "bob"), ("alice", "alice")]
MESSAGES = [MessageId(sender, recipient, NOW, nonce) for sender, recipient in CHATS for nonce in (1, 2)]
FOREIGN = [MessageId("carol", "alice", NOW, nonce) for nonce in (1, 2)]
"""Messages whose sender is elsewhere: only their incoming copies come here."""

revisions = st.sampled_from([0, NOW + 1, NOW + 2])
bodies = st.sampled_from([(b"a", b"a"), (b"b", b"b"), (b"b", b"c")])


def pair_of(message: MessageId, revision_ms: int, body: tuple[bytes, bytes]) -> Pair:
    return make_pair(
        message.from_login,
        message.to_login,
        nonce=message.nonce,
        revision_ms=revision_ms,
        body=body[0],
        own_body=body[1],
    )


@dataclasses.dataclass
class Item:
    """What the model knows of an item. ``blobs`` is ``None`` where a tombstone came before the message."""

    revision_ms: int
    blobs: tuple[bytes, bytes] | None
    removed: bool
    unsynced: bool
    state: DeliveryState
    version: int
    delivery: OpenDelivery | None

    @property
    def rank(self) -> tuple[int, bytes, bytes]:
        """What of two revisions the greater one has."""
        assert self.blobs is not None
        return rank(self.revision_ms, self.blobs)


def rank(revision_ms: int, blobs: tuple[bytes, bytes]) -> tuple[int, bytes, bytes]:
    return revision_ms, blobs[0][-SIGNATURE_BYTES:], hashlib.sha256(blobs[0] + blobs[1]).digest()


def brought_by(key: ItemKey, synced: bool) -> str:
    """Who brings an item: the owner's other server if that is to know it already."""
    return HERE[key.owner] or "nobody" if synced else "somebody"


class HistoryMachine(RuleBasedStateMachine):
    """A store and its model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="shine-model-"))
        self.store = Store(self.folder / "shine.mdb", map_size=MAP_SIZE)
        self.now = NOW + 10
        self.items: dict[ItemKey, Item] = {}
        self.marks: dict[tuple[str, str, Direction], int] = {}
        self.claims: list[Claim] = []
        self.terminal: dict[tuple[ItemKey, tuple[bytes, bytes]], DeliveryState] = {}

    @initialize()
    def register_users(self) -> None:
        def work(txn: Transaction) -> None:
            for login, other in HERE.items():
                register(txn, login, OWN, *([other] if other else []))
            register(txn, "carol", "far", "away")

        self.store.write_now(work)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    # -- what comes in ----------------------------------------------------------------------------------------------

    @rule(
        message=st.sampled_from(MESSAGES),
        revision_ms=revisions,
        body=bodies,
        from_client=st.booleans(),
        synced=st.booleans(),
    )
    def send_message(
        self, message: MessageId, revision_ms: int, body: tuple[bytes, bytes], from_client: bool, synced: bool
    ) -> None:
        self.send(pair_of(message, revision_ms, body), from_client=from_client, synced=synced and not from_client)

    @rule(message=st.sampled_from(MESSAGES), nonce=st.integers(10, 11), from_client=st.booleans())
    def send_tombstone(self, message: MessageId, nonce: int, from_client: bool) -> None:
        self.send(tombstone_of(message, nonce=nonce * 10 + message.nonce), from_client=from_client, synced=False)

    @rule(message=st.sampled_from([*MESSAGES, *FOREIGN]), from_client=st.booleans())
    def send_receipt(self, message: MessageId, from_client: bool) -> None:
        if message.to_login in HERE:
            self.send(receipt_of(message, nonce=message.nonce), from_client=from_client, synced=False)
        else:
            self.receive(receipt_of(message, nonce=message.nonce).incoming, synced=False)

    @rule(message=st.sampled_from(FOREIGN), revision_ms=revisions, body=bodies, synced=st.booleans())
    def receive_message(self, message: MessageId, revision_ms: int, body: tuple[bytes, bytes], synced: bool) -> None:
        self.receive(pair_of(message, revision_ms, body).incoming, synced=synced)

    @rule(message=st.sampled_from(FOREIGN), synced=st.booleans())
    def receive_tombstone(self, message: MessageId, synced: bool) -> None:
        self.receive(tombstone_of(message, nonce=100 + message.nonce).incoming, synced=synced)

    def send(self, pair: Pair, *, from_client: bool, synced: bool) -> None:
        delivery = first_delivery(self.now, LEASE)
        here = pair.incoming.message.to_login in HERE
        key, blobs = ItemKey.of(pair.outgoing), (pair.incoming.blob, pair.outgoing.blob)
        arrival = self.meet(key, pair.incoming.revision_ms, blobs)
        refusal: type[Refusal] | None = None
        if from_client and arrival is Arrival.OLDER:
            refusal = StaleRevision
        elif from_client and arrival in (Arrival.CONFLICT_WINS, Arrival.CONFLICT_LOSES):
            refusal = KeyConflict

        def work(txn: Transaction) -> Arrival:
            return store_pair(
                txn,
                pair,
                now_ms=self.now,
                from_client=from_client,
                delivery=delivery,
                own_login=OWN,
                from_server=brought_by(key, synced),
            ).arrival

        if refusal is not None:
            with pytest.raises(refusal):
                self.store.write_now(work)
            return
        assert self.store.write_now(work) is arrival
        self.keep(key, pair.outgoing, blobs, arrival, None if here else delivery, synced=synced)
        if here and not self.items[key].removed:
            self.expect_incoming(pair.incoming, synced=False)

    def receive(self, copy: Container, *, synced: bool) -> None:
        def work(txn: Transaction) -> Arrival:
            from_server = brought_by(ItemKey.of(copy), synced)
            return store_incoming(txn, copy, now_ms=self.now, own_login=OWN, from_server=from_server).arrival

        arrival = self.store.write_now(work)
        assert self.expect_incoming(copy, synced=synced) is arrival

    def expect_incoming(self, copy: Container, *, synced: bool) -> Arrival:
        key, blobs = ItemKey.of(copy), (copy.blob, b"")
        arrival = self.meet(key, copy.revision_ms, blobs)
        self.keep(key, copy, blobs, arrival, None, synced=synced)
        return arrival

    def meet(self, key: ItemKey, revision_ms: int, blobs: tuple[bytes, bytes]) -> Arrival:
        item = self.items.get(key)
        if item is None:
            return Arrival.FIRST
        if item.blobs == blobs:
            return Arrival.SAME
        if item.removed:
            if item.blobs is not None and item.revision_ms == revision_ms:
                return Arrival.CONFLICT_LOSES
            return Arrival.REMOVED
        if item.revision_ms != revision_ms:
            return Arrival.NEWER if revision_ms > item.revision_ms else Arrival.OLDER
        return Arrival.CONFLICT_WINS if rank(revision_ms, blobs) > item.rank else Arrival.CONFLICT_LOSES

    def keep(
        self,
        key: ItemKey,
        copy: Container,
        blobs: tuple[bytes, bytes],
        arrival: Arrival,
        delivery: OpenDelivery | None,
        *,
        synced: bool,
    ) -> None:
        if arrival is Arrival.SAME and synced:
            self.items[key].unsynced = False
        if arrival not in (Arrival.FIRST, Arrival.NEWER, Arrival.CONFLICT_WINS):
            return
        version = self.items[key].version + 1 if key in self.items else 1
        state = DeliveryState.ACCEPTED if delivery else DeliveryState.DELIVERED
        unsynced = HERE[key.owner] is not None and not synced
        self.items[key] = Item(copy.revision_ms, blobs, False, unsynced, state, version, delivery)
        reference = copy.reference
        if reference is None:
            return
        if key.kind is Kind.RECEIPT:
            mark = (key.owner, key.peer, Direction.IN if key.direction is Direction.OUT else Direction.OUT)
            self.marks[mark] = max(self.marks.get(mark, 0), reference.time_ms)
            return
        target = ItemKey(key.owner, key.peer, Kind.MESSAGE, reference.time_ms, reference.nonce, key.direction)
        item = self.items.get(target)
        if item is None:
            self.items[target] = Item(0, None, True, False, DeliveryState.DELIVERED, 1, None)
        elif not item.removed:
            item.removed, item.unsynced, item.delivery = True, False, None
            item.version += 1
            if item.state is DeliveryState.ACCEPTED:
                item.state = DeliveryState.DELIVERED

    # -- time and attempts ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 29, 31, 61, 270, 1500, 3600, 100_000]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds * 1000

    @rule(limit=st.integers(1, 5))
    def claim(self, limit: int) -> None:
        claims, failed = self.store.write_now(
            lambda txn: claim_due(txn, SCHEDULE, now_ms=self.now, lease_ms=LEASE, limit=limit)
        )
        assert failed == []  # the schedule never changes here, and no row is left open after its last attempt
        due = sorted(
            self.due_at(item) for item in self.items.values() if item.delivery and self.due_at(item) <= self.now
        )[:limit]
        met = []
        for claim in claims:
            item = self.items[claim.key]
            assert item.delivery is not None
            met.append(self.due_at(item))
            decision = SCHEDULE.decide(
                accepted_at_ms=item.delivery.accepted_at_ms, last_attempt=item.delivery.attempts, now_ms=self.now
            )
            assert claim.decision == decision
            item.version += 1
            assert (claim.version, claim.revision_ms) == (item.version, item.revision_ms)
            item.delivery = item.delivery._replace(
                accepted_at_ms=decision.accepted_at_ms, lease_until_ms=self.now + LEASE
            )
        assert met == due
        self.claims += claims

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delivered=st.booleans(), forget=st.booleans())
    def finish(self, data: st.DataObject, delivered: bool, forget: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        if forget:
            self.claims.remove(claim)
        row = self.store.write_now(
            lambda txn: record_result(txn, claim, delivered=delivered, now_ms=self.now, schedule=SCHEDULE)
        )
        item = self.items[claim.key]
        if item.version != claim.version or item.delivery is None:
            assert row is None
            return
        assert row is not None
        item.version += 1
        attempt = claim.decision.attempt
        assert attempt is not None
        after = SCHEDULE.decide(accepted_at_ms=claim.decision.accepted_at_ms, last_attempt=attempt, now_ms=self.now)
        if delivered or attempt == len(SCHEDULE.offsets_ms):
            item.state = DeliveryState.DELIVERED if delivered else DeliveryState.FAILED
            item.delivery = None
        else:
            next_at_ms = self.now if after.next_at_ms is None or after.attempt else after.next_at_ms
            item.delivery = OpenDelivery(after.accepted_at_ms, attempt, next_at_ms, 0)
        assert row.state is item.state

    @precondition(lambda self: self.claims)
    @rule()
    def renew(self) -> None:
        self.store.write_now(lambda txn: renew_claims(txn, self.claims, now_ms=self.now, lease_ms=LEASE))
        for claim in self.claims:
            item = self.items[claim.key]
            if item.version == claim.version and item.delivery is not None:
                item.delivery = item.delivery._replace(lease_until_ms=self.now + LEASE)

    @rule(seconds=st.sampled_from([5, 40, 4000, 86_400]), limit=st.integers(1, 4))
    def jump_back(self, seconds: int, limit: int) -> None:
        self.now -= seconds * 1000
        self.put_in_time(limit, {(claim.seq, claim.version) for claim in self.claims})

    @rule(limit=st.integers(1, 4))
    def restart(self, limit: int) -> None:
        self.store.close()
        self.store = Store(self.folder / "shine.mdb", map_size=MAP_SIZE)
        self.put_in_time(limit, set())  # the claims stay, to show that they are void

    def put_in_time(self, limit: int, held: set[tuple[int, int]]) -> None:
        seqs = {key: row.seq for key, row in self.rows().items()}
        after: bytes | None = b""
        while after is not None:
            start = after
            after = self.store.write_now(
                lambda txn, start=start: reschedule(txn, SCHEDULE, now_ms=self.now, held=held, after=start, limit=limit)
            )
        for key, item in self.items.items():
            if item.delivery is None or (seqs[key], item.version) in held:
                continue
            delivery = item.delivery
            decision = SCHEDULE.decide(
                accepted_at_ms=delivery.accepted_at_ms, last_attempt=delivery.attempts, now_ms=self.now
            )
            due_now = decision.attempt is not None
            if due_now and delivery.next_at_ms <= self.now and not delivery.lease_until_ms:
                continue  # it is due already
            assert due_now or decision.next_at_ms is not None
            next_at_ms = self.now if due_now or decision.next_at_ms is None else decision.next_at_ms
            wanted = OpenDelivery(decision.accepted_at_ms, delivery.attempts, next_at_ms, 0)
            if wanted != delivery:
                item.delivery = wanted
                item.version += 1

    # -- the other server -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.items)
    @rule(data=st.data(), current=st.booleans())
    def acknowledge(self, data: st.DataObject, current: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.items)))
        item = self.items[key]
        signatures = signatures_of(*item.blobs) if item.blobs is not None and current else bytes(64)
        noted = self.store.write_now(
            lambda txn: acknowledge(txn, HERE[key.owner] or "nobody", key, signatures, marked=True)
        )
        assert noted == (item.unsynced and current)
        if noted:
            item.unsynced = False

    # -- what always holds ------------------------------------------------------------------------------------------

    @staticmethod
    def due_at(item: Item) -> int:
        assert item.delivery is not None
        return item.delivery.lease_until_ms or item.delivery.next_at_ms

    def rows(self) -> dict[ItemKey, object]:
        with self.store.read() as txn:
            return check_indexes(txn)

    @invariant()
    def the_store_is_what_the_model_is(self) -> None:
        with self.store.read() as txn:
            rows = check_indexes(txn)
            assert set(rows) == set(self.items)
            for key, row in rows.items():
                item = self.items[key]
                assert (row.state, row.delivery, row.version) == (item.state, item.delivery, item.version), key
                assert (row.revision_ms, row.removed) == (item.revision_ms, item.removed), key
                assert bool(row.flags & Flag.UNSYNCED) == item.unsynced, key
                blobs = get_blobs(txn, row)
                if item.removed:
                    assert blobs == (b"", b"")
                    expected = b"" if item.blobs is None else hashlib.sha256(b"".join(item.blobs)).digest()
                    assert row.digest == expected
                else:
                    assert blobs == item.blobs
            assert count_open(txn) == sum(item.delivery is not None for item in self.items.values())
            for (owner, peer, direction), time_ms in self.marks.items():
                assert read_up_to_ms(txn, owner, peer, direction) == time_ms

    @invariant()
    def a_terminal_state_stays(self) -> None:
        with self.store.read() as txn:
            for key, row in check_indexes(txn).items():
                blobs = self.items[key].blobs
                if blobs is None:
                    continue
                before = self.terminal.get((key, blobs))
                assert before is None or row.state is before, key
                if row.state is not DeliveryState.ACCEPTED:
                    self.terminal[key, blobs] = row.state


TestHistory = HistoryMachine.TestCase
TestHistory.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
