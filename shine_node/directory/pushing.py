"""Tells an owner's other server the owner's newest record: one restored from a backup may not know of the move (§3)."""

from __future__ import annotations

import logging
from functools import partial

from shine_node.clock import Clock
from shine_node.directory.users import Users
from shine_node.peers.asking import Peers
from shine_node.peers.directory import KnownPeer
from shine_node.peers.repeats import Repeats
from shine_node.peers.turns import Ending, Turn
from shine_node.protocol.access import AccessRecord, AccessServer, record_order, record_payload
from shine_node.protocol.errors import PeerRefused
from shine_node.store.readers import Readers
from shine_node.store.users import shared_after

__all__ = ["AccessPush", "tell_record"]

log = logging.getLogger(__name__)

OWNERS_A_TURN = 200
ROWS_AT_ONCE = 500
"""Records that are looked at in one read of the store."""
MAX_REMEMBERED = 10_000
"""Peers of which it is remembered what they were told; as many as are known at most."""

_SAME = "told on this connection"
"""What a session keeps of the push: a lost link empties it."""
_NONE = (-1, b"")
"""Before every record."""


async def tell_record(peers: Peers, server: AccessServer, record: AccessRecord) -> bool:
    """Tell a server a record with ``SetUserAccess``, and return whether it became the newest of its user there.

    Raises:
        LinkError: as of ``Peers.request``.
    """
    answer = await peers.request(server, "SetUserAccess", record_payload(record))
    return answer.get("applied") is True


class _Round:
    """How far a peer has been told; it outlives the link, so that one that comes and goes makes no more of it."""

    def __init__(self) -> None:
        self.begun_at: float | None = None
        self.under_way = False
        self.anew = False
        """Whether the next round begins with the first record: the connection is another, and the store may be."""
        self.place = 0
        """Up to which of this server's records the round has come."""
        self.owed: dict[str, tuple[int, bytes]] = {}
        """The owners of whom the peer has yet to be told older records, and after which one."""

    def begin(self, now: float) -> None:
        self.begun_at, self.under_way = now, True
        if self.anew:
            self.place, self.anew = 0, False


class _Told:
    """What came of one turn."""

    def __init__(self) -> None:
        self.owners = 0
        self.new = 0
        self.refused = 0
        self.first: tuple[str, PeerRefused] | None = None

    def refuse(self, login: str, refused: PeerRefused) -> None:
        self.refused += 1
        self.first = self.first or (login, refused)


class AccessPush:
    """Makes sure that a peer knows the newest record of each owner whom it shares with this server.

    A server that was restored to before an owner took this one as the other server does not know whom to ask. It is
    told the newest record of each such owner; where that is news to it, the older ones too, oldest first, since what
    they signed stays signed by the keys of its time.

    What it costs: a round is one request for each shared owner, one after the other, each about a kilobyte and, where
    the peer knows the record, one signature check and no write there. On one connection the next rounds tell only what
    this server has learned since the one before. A new connection has a whole round, yet no two rounds begin within
    the interval, and one that was cut goes on where it was: with 1,000 shared owners and 300 s, a link that comes and
    goes makes at most 1,000 requests in 300 s, about 3 a second on average. A whole round also reads all records here
    once, a page at a time in a thread: half a second in all for 100,000.

    Args:
        interval_seconds: a round with a peer begins no more often than this, ``sync.accessIntervalSeconds``.
    """

    def __init__(self, *, readers: Readers, users: Users, peers: Peers, clock: Clock, interval_seconds: float) -> None:
        self._readers = readers
        self._users = users
        self._peers = peers
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._rounds: dict[str, _Round] = {}
        self._repeats = Repeats(clock)

    async def step(self, peer: KnownPeer, turn: Turn) -> Ending:
        """Tell a peer with a permanent link what it may not know, as a part of a session.

        What the peer refuses for good is logged and passed over until the next connection.

        Raises:
            PeerRefused: the peer can take nothing now; the next session goes on with the same owner.
            LinkError: the peer could not be told to the end; the next session goes on with the next owner.
            ServerBusy: the store is read by too many.
        """
        if not peer.permanent:
            return Ending.DONE
        round_, now = self._round_with(peer.server_login.lower()), self._clock.monotonic()
        if _SAME not in turn.kept:
            turn.kept[_SAME] = ""
            round_.anew = True
        if not round_.under_way:
            if round_.begun_at is not None and now - round_.begun_at < self._interval_seconds:
                return Ending.DONE
            round_.begin(now)
        told = _Told()
        try:
            round_.under_way = await self._go_on(AccessServer(peer.server_login, peer.url), round_, turn, told)
        finally:
            self._log(peer.server_login, told)
        return Ending.AT_ONCE if round_.under_way else Ending.DONE

    def _round_with(self, login: str) -> _Round:
        round_ = self._rounds.pop(login, None) or _Round()  # so that the one not needed for longest stands first
        if len(self._rounds) >= MAX_REMEMBERED:
            del self._rounds[next(iter(self._rounds))]
        self._rounds[login] = round_
        return round_

    async def _go_on(self, server: AccessServer, round_: _Round, turn: Turn, told: _Told) -> bool:
        """Tell of one owner after the other, and return whether the round has more for the next turn."""
        shared = partial(
            shared_after, server=server.server_login.lower(), own_login=self._users.own_login, rows=ROWS_AT_ONCE
        )
        while True:
            page = await self._readers.run(partial(shared, seq=round_.place))
            for seq, record in page.records:
                round_.place = seq  # whatever comes of it: a record that ends the link must not hold up those behind it
                try:
                    if not await self._tell(server, record, round_, turn, told):
                        round_.place = seq - 1
                        return True
                except PeerRefused as refused:
                    if self._takes_nothing_now(refused):
                        round_.place = seq - 1
                        raise
                    told.refuse(record.login, refused)
                    if refused.code == "UNKNOWN_OP":
                        return False
                told.owners += 1
                if told.owners >= OWNERS_A_TURN or turn.over():
                    return True
            round_.place = page.seq
            if not page.more or turn.over():
                return page.more

    async def _tell(self, server: AccessServer, record: AccessRecord, round_: _Round, turn: Turn, told: _Told) -> bool:
        """Tell of one owner, and return whether that was all; of the older records each turn tells one at least."""
        owed = round_.owed
        if await tell_record(self._peers, server, record):
            told.new += 1
            owed.setdefault(record.key, _NONE)
        if record.key not in owed:
            return True
        for older in self._users.records(record.key):
            order = record_order(older)
            if owed[record.key] < order < record_order(record):
                try:
                    await tell_record(self._peers, server, older)
                except PeerRefused as refused:
                    if refused.retryable:
                        raise
                    told.refuse(older.login, refused)
                owed[record.key] = order
                if turn.over():
                    return False
        del owed[record.key]
        return True

    def _takes_nothing_now(self, refused: PeerRefused) -> bool:
        """Say whether a refusal is about the moment. ``RATE_LIMITED`` for long is about an owner with many records."""
        if refused.code == "RATE_LIMITED":
            after_ms = refused.payload.get("retryAfterMs")
            return not (isinstance(after_ms, int | float) and after_ms > self._interval_seconds * 1000)
        return refused.code in ("SERVER_BUSY", "STORAGE_FULL")

    def _log(self, server_login: str, told: _Told) -> None:
        if told.new:
            log.info("%s did not know the newest records of %d of its users", server_login, told.new)
        if told.first is not None:
            level = self._repeats.level(logging.WARNING, server_login, "refused")
            text = "%s does not take %d records of its users, the first one of %s: %s"
            log.log(level, text, server_login, told.refused, *told.first)
