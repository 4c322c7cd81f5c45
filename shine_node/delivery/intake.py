"""The way in: a pair or an incoming copy is checked and stored, together with all others of the moment.

Submissions go to the signature pool as they come; what a thread has checked in one go is committed in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from shine_node.clock import Clock
from shine_node.crypto.pool import Check, CryptoPool, Submission
from shine_node.delivery.admission import bad_signature, find_stored, known_user, must_be_here, parse_timely_pair
from shine_node.delivery.quotas import Quotas
from shine_node.directory.lookup import Lookup
from shine_node.directory.users import Users
from shine_node.protocol.access import User
from shine_node.protocol.container import CLIENT_AHEAD_MS, PEER_AHEAD_MS, Container, check_clock
from shine_node.protocol.errors import BadSignature, Refusal, ServerBusy, UserNotFound
from shine_node.protocol.pair import Pair, parse_incoming
from shine_node.protocol.revisions import Arrival
from shine_node.protocol.schedule import Schedule
from shine_node.store.environment import Job, Store, Transaction
from shine_node.store.layout import OpenDelivery
from shine_node.store.messages import Stored, store_incoming, store_pair

__all__ = ["Accepted", "Intake"]

MAX_TURN = 32
"""Submissions of one turn that wait for each other: so few are checked within some milliseconds."""


class Accepted(NamedTuple):
    """A pair that is stored, by this submission or before it."""

    pair: Pair
    stored: Stored


class Intake:
    """Checks submissions in the order of §5.2 and stores them; nothing is stored of what is refused.

    Args:
        lease_ms: how long the first attempt of a new pair may take until its claim ends.
        max_body_bytes: ``limits.maxBodyBytes``.
        quotas: what users may store and send.
    """

    def __init__(
        self,
        *,
        store: Store,
        crypto: CryptoPool,
        users: Users,
        lookup: Lookup,
        clock: Clock,
        schedule: Schedule,
        lease_ms: int,
        max_body_bytes: int,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._crypto = crypto
        self._users = users
        self._lookup = lookup
        self._clock = clock
        self._schedule = schedule
        self._lease_ms = lease_ms
        self._max_body_bytes = max_body_bytes
        self._quotas = quotas
        self._gathered: list[_Checked] = []

    async def send_pair(
        self, incoming_blob: bytes, outgoing_blob: bytes, *, origin: object = None, source: Hashable = None
    ) -> Accepted:
        """Take a pair from a client: ``SendMessagePair``, steps 1 and 2 (§5.2).

        Args:
            origin: whose request it is, for those who are told of what it changes.
            source: from where it comes: sources take turns.

        Raises:
            Refusal: any of §2's; nothing was stored.
        """
        pair = self._parse(incoming_blob, outgoing_blob, CLIENT_AHEAD_MS)
        sender = await self._find(pair.incoming.message.from_login, "the sender")
        await self._find(pair.incoming.message.to_login, "the recipient")
        must_be_here(self._users, sender)
        key = sender.fresh_key_at(pair.incoming.effective_ms)
        work = self._pair_work(pair, from_client=True)
        return Accepted(pair, await self._take(pair, key, work, origin=origin, source=source))

    async def receive_pair(
        self, incoming_blob: bytes, outgoing_blob: bytes, *, from_server: str | None, source: Hashable = None
    ) -> Accepted:
        """Take a pair from a server: ``ReceiveOutcomingMessage`` (§5.4).

        The recipient may be unknown here: both signatures are the sender's.

        Args:
            from_server: the login of the peer that the connection's ``ServerHello`` names. The owner's other server
                need not learn from here what it brought (§6).
            source: as for ``send_pair``.

        Raises:
            Refusal: any of §2's; nothing was stored.
        """
        pair = self._parse(incoming_blob, outgoing_blob, PEER_AHEAD_MS)
        sender = known_user(self._users, pair.incoming.message.from_login, "the sender")
        must_be_here(self._users, sender)
        key = sender.device_key_at(pair.incoming.effective_ms)
        work = self._pair_work(pair, from_client=False, from_server=from_server)
        return Accepted(pair, await self._take(pair, key, work, source=source))

    async def receive_incoming(self, blob: bytes, *, source: Hashable = None) -> tuple[Container, Stored]:
        """Take a recipient's copy from a server: ``ReceiveIncomingMessage`` (§5.4).

        Args:
            source: as for ``send_pair``.

        Raises:
            Refusal: any of §2's; nothing was stored.
        """
        container = parse_incoming(blob, max_body_bytes=self._max_body_bytes)
        now_ms = self._clock.now_ms()
        check_clock(container, now_ms=now_ms, ahead_ms=PEER_AHEAD_MS)
        sender = known_user(self._users, container.message.from_login, "the sender")
        must_be_here(self._users, known_user(self._users, container.message.to_login, "the recipient"))
        key = sender.device_key_at(container.effective_ms)
        own_login, gate = self._users.own_login, self._quotas.gate(own=True, live=True)

        def work(txn: Transaction) -> Stored:
            return store_incoming(txn, container, now_ms=now_ms, own_login=own_login, gate=gate)

        return container, await self._take((container,), key, work, source=source)

    def _parse(self, incoming_blob: bytes, outgoing_blob: bytes, ahead_ms: int) -> Pair:
        return parse_timely_pair(
            incoming_blob,
            outgoing_blob,
            max_body_bytes=self._max_body_bytes,
            now_ms=self._clock.now_ms(),
            ahead_ms=ahead_ms,
        )

    async def _find(self, login: str, who: str) -> User:
        """Return a user that a client names; peers are asked for one that is not known here (§3)."""
        user = self._users.get(login) or await self._lookup.find(login)
        if user is None:
            raise UserNotFound(f"{who} is known neither here nor at a server that was asked")
        return user

    async def _take(
        self,
        copies: Sequence[Container],
        key: bytes | None,
        work: Callable[[Transaction], Stored],
        *,
        origin: object = None,
        source: Hashable = None,
    ) -> Stored:
        """Check the signatures of all copies and store them.

        Bytes that are stored already are a success whatever the keys are now (§5.2); as the transaction finds them by
        itself, they are looked for here only where a signature does not hold.
        """
        try:
            if key is None:
                raise BadSignature("the device key of that time has been replaced: sign with the newest one")
            checks = [(key, copy.signed_part, copy.signature) for copy in copies]
            job = Job(
                work,
                asyncio.get_running_loop().create_future(),
                origin,
                size=sum(len(copy.blob) for copy in copies),
            )
            return await self._check_and_store(_Checked(checks, job, source))
        except BadSignature:
            row = find_stored(self._store, copies)
            if row is None:
                raise
            return Stored(Arrival.SAME, row)

    def _pair_work(
        self, pair: Pair, *, from_client: bool, from_server: str | None = None
    ) -> Callable[[Transaction], Stored]:
        now_ms = self._clock.now_ms()
        first = self._schedule.decide(accepted_at_ms=now_ms, last_attempt=0, now_ms=now_ms)
        delivery = OpenDelivery(now_ms, 0, now_ms, now_ms + self._lease_ms)
        unrouted = None if first.next_at_ms is None else OpenDelivery(now_ms, 1, first.next_at_ms, 0)
        own_login = self._users.own_login
        # The sender's other server has accepted it; who that is is taken on trust, as all that a peer says of itself.
        trusted = from_server is not None and self._users.shares(pair.incoming.message.from_login, from_server)
        gate = self._quotas.gate(own=not trusted, live=True)

        def work(txn: Transaction) -> Stored:
            return store_pair(
                txn,
                pair,
                now_ms=now_ms,
                from_client=from_client,
                delivery=delivery,
                own_login=own_login,
                unrouted=unrouted,
                from_server=from_server,
                gate=gate,
                counts=not trusted,
            )

        return work

    def _check_and_store(self, submission: _Checked) -> asyncio.Future[Stored]:
        if not self._gathered:
            # What arrives within this turn of the loop goes to the pool together.
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._gathered.append(submission)
        return submission.job.future

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if 1 < len(gathered) <= MAX_TURN:
            turn = _Turn(len(gathered))
            for submission in gathered:
                submission.turn = turn
        try:
            self._crypto.submit(gathered, self)
        except ServerBusy:
            for submission in gathered:  # not all fit: those that do shall pass
                submission.turn = None
                try:
                    self._crypto.submit([submission], self)
                except ServerBusy as busy:
                    _fail([(submission, busy)])

    def checked(self, batch: list[Submission]) -> None:
        """Take a batch that the pool has checked; called in one of its threads."""
        passed: list[_Checked] = []
        refused: list[tuple[_Checked, Refusal]] = []
        for submission in batch:
            if not isinstance(submission, _Checked):
                raise AssertionError("the pool returns what it was given")
            if submission.failed is not None:
                refused.append((submission, bad_signature(submission.failed)))
            if submission.turn is not None:
                passed += submission.turn.take(submission)
            elif submission.failed is None:
                passed.append(submission)
        try:
            self._store.submit([submission.job for submission in passed])
        except ServerBusy as busy:
            refused.extend((submission, busy) for submission in passed)
        if refused:
            loop = refused[0][0].job.future.get_loop()
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(_fail, refused)


class _Checked(Submission):
    """A submission with the write that follows if its signatures hold."""

    __slots__ = ("job", "turn")

    def __init__(self, checks: list[Check], job: Job[Any], source: Hashable = None) -> None:
        super().__init__(checks, source)
        self.job = job
        self.turn: _Turn | None = None


class _Turn:
    """A few submissions that came together: several threads check them, and one commit takes those that pass.

    Args:
        size: how many they are.
    """

    def __init__(self, size: int) -> None:
        self._missing = size
        self._passed: list[_Checked] = []
        self._lock = threading.Lock()

    def take(self, submission: _Checked) -> list[_Checked]:
        """Take one that is checked; return all that have passed when it is the last one, none before."""
        with self._lock:
            self._missing -= 1
            if submission.failed is None:
                self._passed.append(submission)
            return [] if self._missing else self._passed


def _fail(refused: list[tuple[_Checked, Refusal]]) -> None:
    for submission, refusal in refused:
        if not submission.job.future.done():
            submission.job.future.set_exception(refusal)
