"""Delivery from acceptance to its terminal state: the first attempt of a pair, and the retries (PROTOCOL.md §5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from shine_node.clock import Clock
from shine_node.delivery.attempts import Attempts, Copies
from shine_node.delivery.background import Background
from shine_node.delivery.claims import Claims
from shine_node.delivery.intake import Accepted
from shine_node.delivery.quotas import Quotas
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.peers.waiting import all_results
from shine_node.protocol.access import AccessServer
from shine_node.protocol.container import parse_container
from shine_node.protocol.errors import LinkError, PeerRefused, Refusal
from shine_node.protocol.pair import Pair
from shine_node.protocol.schedule import DeliveryState, Schedule
from shine_node.store.deliveries import Claim, record_result
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Row
from shine_node.store.messages import get_blobs, get_row, store_incoming
from shine_node.store.outbox import acknowledge, signatures_of
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import access_servers

__all__ = ["Deliverer"]

log = logging.getLogger(__name__)

MAX_BACKGROUND = 8192
"""Calls and first attempts under way at once; above it a pair waits for the worker. Memory is what this bounds."""


class Deliverer:
    """Makes attempts and writes their results.

    Args:
        first_attempt_timeout_ms: how long the answer of a request waits for its first attempt.
        lease_ms: ``delivery.leaseMs``.
        quotas: what users of this server take.
    """

    def __init__(
        self,
        *,
        store: Store,
        users: Users,
        peers: Peers,
        lookup: Lookup,
        clock: Clock,
        schedule: Schedule,
        first_attempt_timeout_ms: int,
        lease_ms: int,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._users = users
        self._lookup = lookup
        self._clock = clock
        self._schedule = schedule
        self._first_attempt_timeout_ms = first_attempt_timeout_ms
        self.claims = Claims(store=store, clock=clock, lease_ms=lease_ms)
        self._background = Background()
        self._attempts = Attempts(
            peers=peers, users=users, clock=clock, own_login=users.own_login, background=self._background
        )

    async def send(self, accepted: Accepted) -> DeliveryState:
        """Go on with a client's pair that is stored: steps 3 to 5 of §5.2; a repetition starts nothing.

        Returns:
            The state to answer with, after the first attempt or ``first_attempt_timeout_ms``.
        """
        stored = accepted.stored
        if not stored.changed:
            return stored.state
        attempt = self._begin(accepted, hand_over=True)
        if stored.state is not DeliveryState.ACCEPTED or attempt is None:
            return stored.state
        await asyncio.sleep(0)  # the attempt has its calls on their way before there is a timer to make
        timer = asyncio.ensure_future(self._clock.sleep(self._first_attempt_timeout_ms / 1000))
        try:
            await asyncio.wait((attempt, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if attempt.done() and not attempt.cancelled() and attempt.exception() is None:
            return attempt.result()
        return DeliveryState.ACCEPTED

    def receive(self, accepted: Accepted) -> None:
        """Go on with a pair from the sender's other server: try the routes at once, not waited for (§5.4)."""
        if accepted.stored.changed:
            self._begin(accepted, hand_over=False)

    async def retry(self, claim: Claim) -> DeliveryState | None:
        """Make the attempt of a claimed row and write its result; ``None`` where the claim was lost meanwhile."""
        self.claims.hold(claim)
        try:
            with self._store.read() as txn:
                row = get_row(txn, claim.key)
                blobs = get_blobs(txn, row) if row is not None else (b"", b"")
            if row is None or row.version != claim.version:
                return None
            copies = Copies(claim.key.message, claim.key.kind, row.revision_ms, *blobs)
            delivered = claim.decision.ask_first and await self._attempts.ask_other_server(copies)
            delivered = delivered or await self._reach_recipient(copies)
            if not delivered and not claim.decision.final:
                self._lookup.refresh_soon(copies.message.to_login)
            return await self._settle(claim, delivered, awaited=False)
        except Refusal as refusal:
            # Of this server's own store: the attempt came to no result, so the row is due again after its lease.
            log.warning("an attempt could not be brought to its end, it will be made again: %s", refusal)
            return None
        finally:
            self.claims.release(claim)

    async def settle(self, claims: Sequence[Claim]) -> None:
        """Ask what became of messages that came too old to be sent, and write all answers in one transaction (§6).

        Each other server is asked for one message after the other. One that cannot be reached is not asked for the
        rest: no answer is a no.
        """
        groups: dict[AccessServer | None, list[Claim]] = {}
        for claim in claims:
            self.claims.hold(claim)
            groups.setdefault(self._other_server(claim.key.owner), []).append(claim)
        try:
            answers = await all_results(self._ask_all(other, group) for other, group in groups.items())
            delivered = frozenset().union(*answers)
            now_ms = self._clock.now_ms()

            def work(txn: Transaction) -> None:
                for claim in claims:
                    known = claim.key in delivered
                    row = record_result(txn, claim, delivered=known, now_ms=now_ms, schedule=self._schedule)
                    if known and row is not None:
                        self._give_back(txn, claim.key, row, now_ms)

            await self._store.write(work, later=True)
        except Refusal as refusal:
            log.warning("what became of %d messages was not written, it is asked again: %s", len(claims), refusal)
        finally:
            for claim in claims:
                self.claims.release(claim)

    def _other_server(self, owner: str) -> AccessServer | None:
        try:
            return self._users.other_server(owner)
        except UnreadableRow:  # the store has told of it; the others are asked for
            return None

    async def _ask_all(self, other: AccessServer | None, claims: Sequence[Claim]) -> set[ItemKey]:
        """Ask a server for messages and return those that it has delivered."""
        delivered: set[ItemKey] = set()
        if other is None:
            return delivered
        for claim in claims:
            try:
                if await self._attempts.ask(other, claim.key.message, claim.key.kind, claim.revision_ms):
                    delivered.add(claim.key)
            except PeerRefused as refused:
                log.debug("delivery status not known: %s", refused)
            except LinkError as error:
                log.debug("delivery status not known of what is left: %s", error)
                break
        return delivered

    async def close(self) -> None:
        """End what is under way; its rows become due again by themselves."""
        await self._background.close()

    def _begin(self, accepted: Accepted, *, hand_over: bool) -> asyncio.Task[DeliveryState] | None:
        pair, stored = accepted
        copies = _copies(pair)
        key = ItemKey.of(pair.outgoing)
        if len(self._background) >= MAX_BACKGROUND:
            return None  # an open row is due when its lease ends; the other servers catch up from the outbox
        if stored.state is not DeliveryState.ACCEPTED:
            # Stored here for the recipient already. The recipient's other server is called once all the same.
            if stored.remote:
                self._background.spawn(self._afterwards(copies, key, hand_over=hand_over))
            return None
        if stored.row.delivery is not None and not stored.row.delivery.lease_until_ms:
            # Without a route the first attempt had failed when the pair was stored.
            self._lookup.refresh_soon(copies.message.to_login)
            if hand_over and stored.remote:
                self._background.spawn(self._hand_over(copies, key))
            return None
        return self._background.spawn(self._first(self._first_claim(key, stored.row), copies, hand_over=hand_over))

    def _first_claim(self, key: ItemKey, row: Row) -> Claim:
        if row.delivery is None:
            raise AssertionError("an accepted row has a delivery")
        accepted_at_ms = row.delivery.accepted_at_ms
        decision = self._schedule.decide(accepted_at_ms=accepted_at_ms, last_attempt=0, now_ms=accepted_at_ms)
        return Claim(key, row.seq, row.version, row.revision_ms, decision)

    async def _first(self, claim: Claim, copies: Copies, *, hand_over: bool) -> DeliveryState:
        self.claims.hold(claim)
        try:
            delivered = await self._attempts.call_recipient(copies)
            if hand_over:
                # Beside the writing of the result, so that with many under way one commit takes both results.
                self._background.spawn(self._hand_over(copies, claim.key))
            state = await self._settle(claim, delivered, awaited=hand_over)
        finally:
            self.claims.release(claim)
        if not delivered:
            self._lookup.refresh_soon(copies.message.to_login)
        return state if state is not None else self._state_of(claim.key)

    async def _afterwards(self, copies: Copies, key: ItemKey, *, hand_over: bool) -> None:
        await self._attempts.call_recipient(copies)
        if hand_over:
            await self._hand_over(copies, key)

    async def _hand_over(self, copies: Copies, key: ItemKey) -> None:
        other = self._users.other_server(key.owner)
        if other is None or not await self._attempts.hand_over(other, copies):
            return
        signatures = signatures_of(copies.incoming, copies.outgoing)
        try:
            await self._store.write(
                lambda txn: acknowledge(txn, other.server_login, key, signatures, marked=False), later=True
            )
        except Refusal as refusal:
            log.warning("it was not noted that %s has a pair, it will get it again: %s", other.server_login, refusal)

    def _give_back(self, txn: Transaction, key: ItemKey, row: Row, now_ms: int) -> None:
        """Store the recipient's copy of a message that was delivered, where this server is one of the recipient's.

        It has had the copy, unless it was restored from a backup since, or the recipient has come here.
        """
        own, (incoming, _) = self._users.own_login, get_blobs(txn, row)
        routes = access_servers(txn, key.peer)
        if any(route.server_login.lower() == own for route in routes):
            copy = parse_container(incoming, max_body_bytes=len(incoming))
            store_incoming(txn, copy, now_ms=now_ms, own_login=own)

    async def _reach_recipient(self, copies: Copies) -> bool:
        """Call the recipient's servers; where this one is one of them, storing it here is success enough."""
        own, to_login = self._users.own_login, copies.message.to_login
        if any(route.server_login.lower() == own for route in self._users.routes(to_login)):
            now_ms = self._clock.now_ms()
            copy = parse_container(copies.incoming, max_body_bytes=len(copies.incoming))
            gate = self._quotas.gate(own=True, live=True)

            def work(txn: Transaction) -> bool:
                try:
                    store_incoming(txn, copy, now_ms=now_ms, own_login=own, gate=gate)
                except Refusal as refusal:  # the gate's: nothing was written yet
                    log.debug("not stored here: %s", refusal)
                    return False
                return True

            if await self._store.write(work, size=len(copy.blob)):
                return True
        return await self._attempts.call_recipient(copies)

    async def _settle(self, claim: Claim, delivered: bool, *, awaited: bool) -> DeliveryState | None:
        """Write a result; with others where some are about to come, or where no client waits for it (``awaited``)."""
        now_ms = self._clock.now_ms()
        others_come = self.claims.decide(claim)
        try:
            row = await self._store.write(
                lambda txn: record_result(txn, claim, delivered=delivered, now_ms=now_ms, schedule=self._schedule),
                later=others_come or not awaited,
            )
        except Refusal as refusal:
            log.warning("a result was not written, the attempt will be made again: %s", refusal)
            return None
        return row.state if row is not None else None

    def _state_of(self, key: ItemKey) -> DeliveryState:
        """Return the state as it stands: whoever took the claim, an edit or a tombstone, has written it."""
        with self._store.read() as txn:
            row = get_row(txn, key)
        if row is None:
            raise AssertionError("a row that was stored stays")
        return row.state


def _copies(pair: Pair) -> Copies:
    incoming, outgoing = pair
    return Copies(incoming.message, incoming.message_type, incoming.revision_ms, incoming.blob, outgoing.blob)
