"""Items: store a pair or an incoming copy with all that follows from it, in one transaction (PROTOCOL.md §4–§6).

What follows: the delivery and its first lease, the outbox entry, the read mark of a receipt, the removal by a
tombstone. Each function is called in a write transaction, has no other effect than its rows, and may run twice.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from shine_node.protocol.container import Container
from shine_node.protocol.errors import RateLimited, Refusal
from shine_node.protocol.pair import Pair
from shine_node.protocol.revisions import Arrival, Known, judge, refuse_conflict
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.changes import ItemChange
from shine_node.store.deliveries import due_table, end_delivery
from shine_node.store.environment import Transaction
from shine_node.store.gate import Gate, removes, target_of
from shine_node.store.layout import (
    Direction,
    Flag,
    ItemKey,
    Kind,
    OpenDelivery,
    Row,
    Table,
    decode_containers,
    encode_containers,
    pack_number,
    time_key,
)
from shine_node.store.lineage import note_doubt
from shine_node.store.marks import move_mark, read_mark_key
from shine_node.store.outbox import acknowledge, clear_entry, put_entry, signatures_of
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.usage import add_item, change_item
from shine_node.store.users import access_servers, other_server

__all__ = [
    "STORED_ARRIVALS",
    "Stored",
    "follow",
    "get_blobs",
    "get_row",
    "identical",
    "judge_copies",
    "read_mark_key",
    "store_incoming",
    "store_pair",
]

STORED_ARRIVALS = (Arrival.FIRST, Arrival.NEWER, Arrival.CONFLICT_WINS)
"""What is stored of what arrives; the rest is acknowledged only."""


class Stored(NamedTuple):
    """What became of a submission: what it met, and the item as it stands now.

    ``remote`` says whether there are other servers to tell of it: the sender's other one, or one of the recipient's.
    """

    arrival: Arrival
    row: Row
    remote: bool = False

    @property
    def state(self) -> DeliveryState:
        """The delivery state to answer with."""
        return self.row.state

    @property
    def changed(self) -> bool:
        """Whether this submission was stored, and not only acknowledged."""
        return self.arrival in STORED_ARRIVALS


def get_row(txn: Transaction, key: ItemKey) -> Row | None:
    """Return what is known of an item.

    Raises:
        UnreadableRow: its row cannot be read.
    """
    value = txn.get(Table.HISTORY, key.encode())
    try:
        return Row.decode(value) if value is not None else None
    except UnreadableRow as error:
        raise error.named(f"the row of {key.message.base_key}") from None


def get_blobs(txn: Transaction, row: Row) -> tuple[bytes, bytes]:
    """Return the copies of an item, the outgoing one empty for a recipient's item; both empty if it is removed."""
    value = txn.get(Table.CONTAINERS, pack_number(row.seq)) if row.seq else None
    return decode_containers(value) if value else (b"", b"")


def identical(txn: Transaction, key: ItemKey, incoming: bytes, outgoing: bytes) -> Row | None:
    """Return the row if exactly these bytes are stored, or were before they were removed."""
    row = get_row(txn, key)
    if row is None:
        return None
    if row.removed:
        return row if row.digest and row.digest == _digest(incoming, outgoing) else None
    return row if get_blobs(txn, row) == (incoming, outgoing) else None


def store_pair(
    txn: Transaction,
    pair: Pair,
    *,
    now_ms: int,
    from_client: bool,
    delivery: OpenDelivery | None,
    own_login: str,
    unrouted: OpenDelivery | None = None,
    settling: bool = False,
    from_server: str | None = None,
    gate: Gate | None = None,
    counts: bool = False,
) -> Stored:
    """Store a sender's pair; also the recipient's copy where this server is one of the recipient's.

    Args:
        now_ms: the time of the change, Unix milliseconds.
        from_client: refuse an older revision and other bytes under one revision instead of settling them (§5.2).
        delivery: the schedule that a new revision begins with; ``None`` begins as ``delivered``.
        own_login: this server's login, in lower case. Where it is an access server of the recipient, the pair is
            delivered by being stored.
        unrouted: the schedule to begin with instead where the recipient has no access server: no route is an attempt
            that has failed, and needs no second transaction to say so.
        settling: it is too old to be sent, also to this server where the recipient has it; the owner's other server is
            asked what became of it (§6).
        from_server: who brought it, where that is a server that says its name: the owner's other server has it then.
        gate: may refuse the pair, or only the recipient's copy: then its delivery goes by the schedule, as where a
            server of the recipient's refuses it; yet a client is told at once that it sends too fast.
        counts: whether a message or an edit is one of those that the sender may send here on a day.

    Raises:
        KeyConflict, StaleRevision, RateLimited: from a client only.
        Refusal: what the gate says of the pair.
    """
    incoming, outgoing = pair
    key = ItemKey.of(outgoing)
    row, arrival = judge_copies(txn, key, incoming.revision_ms, incoming.signature, incoming.blob, outgoing.blob)
    if from_client:
        refuse_conflict(arrival)
    routes = access_servers(txn, incoming.message.to_login)
    here = any(server.server_login.lower() == own_login for server in routes) and not settling
    if gate is not None:
        new = arrival in STORED_ARRIVALS
        frees = new and removes(txn, outgoing, key)
        if new:
            grows = _growth(txn, row, incoming.blob, outgoing.blob)
            gate.sends(txn, key, grows=grows, removes=frees, now_ms=now_ms)
        here = here and _takes(txn, incoming, gate, ask=from_client and new)
        if new:
            gate.sent(key, removes=frees)
    if arrival in STORED_ARRIVALS:
        if here:
            delivery = None
        elif not routes:
            delivery = unrouted or delivery
        row = _replace(
            txn,
            key,
            row,
            incoming.blob,
            outgoing.blob,
            incoming.revision_ms,
            now_ms,
            own_login,
            from_server,
            delivery,
            settling,
            counts and key.kind is Kind.MESSAGE,
        )
        follow(txn, outgoing, key, now_ms, own_login)
    elif arrival is Arrival.SAME and row is not None:
        row = _same(txn, key, row, signatures_of(incoming.blob, outgoing.blob), own_login, from_server)
    if row is None:
        raise AssertionError("a judged pair has a row")
    # What was removed does not come back because its recipient came here.
    if here and not row.removed:
        store_incoming(txn, incoming, now_ms=now_ms, own_login=own_login)
    remote = row.flags & Flag.UNSYNCED or any(server.server_login.lower() != own_login for server in routes)
    return Stored(arrival, row, bool(remote))


def store_incoming(
    txn: Transaction,
    container: Container,
    *,
    now_ms: int,
    own_login: str,
    from_server: str | None = None,
    gate: Gate | None = None,
) -> Stored:
    """Store a recipient's copy; the same again and an older revision change nothing (§5.4).

    Args:
        now_ms, own_login: as for ``store_pair``.
        from_server: the owner's other server, where the copy came by synchronisation.
        gate: may refuse the copy.

    Raises:
        Refusal: what the gate says.
    """
    key = ItemKey.of(container)
    row, arrival = judge_copies(txn, key, container.revision_ms, container.signature, container.blob, b"")
    if arrival in STORED_ARRIVALS:
        if gate is not None:
            grows = _growth(txn, row, container.blob, b"")
            gate.receives(txn, key, grows=grows, removes=removes(txn, container, key))
        row = _replace(txn, key, row, container.blob, b"", container.revision_ms, now_ms, own_login, from_server, None)
        follow(txn, container, key, now_ms, own_login)
    elif arrival is Arrival.SAME and row is not None:
        row = _same(txn, key, row, signatures_of(container.blob, b""), own_login, from_server)
    if row is None:
        raise AssertionError("a judged copy has a row")
    return Stored(arrival, row)


def _takes(txn: Transaction, incoming: Container, gate: Gate, *, ask: bool) -> bool:
    """Say whether the recipient's copy of a pair passes, or is there already.

    Raises:
        RateLimited: only if ``ask``.
    """
    key = ItemKey.of(incoming)
    row, arrival = judge_copies(txn, key, incoming.revision_ms, incoming.signature, incoming.blob, b"")
    try:
        if arrival in STORED_ARRIVALS:
            grows = _growth(txn, row, incoming.blob, b"")
            gate.receives(txn, key, grows=grows, removes=removes(txn, incoming, key))
    except Refusal as refusal:
        if ask and isinstance(refusal, RateLimited):
            raise
        return False
    return True


def _growth(txn: Transaction, old: Row | None, incoming: bytes, outgoing: bytes) -> int:
    """Return by how many bytes an item grows."""
    before = sum(map(len, get_blobs(txn, old))) if old is not None else 0
    return len(incoming) + len(outgoing) - before


def judge_copies(
    txn: Transaction, key: ItemKey, revision_ms: int, signature: bytes, incoming: bytes, outgoing: bytes
) -> tuple[Row | None, Arrival]:
    """Compare copies of an item, ``outgoing`` empty if it has one, with what is stored: its row, and what to do.

    Args:
        signature: of the incoming copy.
    """
    row = get_row(txn, key)
    if row is None:
        return None, Arrival.FIRST
    if row.removed:
        known = Known(row.revision_ms, b"", row.digest, True)
    else:
        stored_incoming, stored_outgoing = get_blobs(txn, row)
        known = Known(row.revision_ms, stored_incoming[-64:], _digest(stored_incoming, stored_outgoing), False)
    arrival = judge(known, revision_ms=revision_ms, signature=signature, digest=_digest(incoming, outgoing))
    if row.removed and arrival is Arrival.CONFLICT_WINS:
        arrival = Arrival.CONFLICT_LOSES  # there is nothing left to replace
    return row, arrival


def _replace(
    txn: Transaction,
    key: ItemKey,
    old: Row | None,
    incoming: bytes,
    outgoing: bytes,
    revision_ms: int,
    now_ms: int,
    own_login: str,
    from_server: str | None,
    delivery: OpenDelivery | None,
    settling: bool = False,
    sent: bool = False,
) -> Row:
    """Write an item over what there was of it; an earlier revision's delivery and outbox entry end."""
    if old is None:
        add_item(txn, key.owner, size=len(incoming) + len(outgoing), now_ms=now_ms, sent=sent)
    else:
        change_item(txn, key.owner, grows=_growth(txn, old, incoming, outgoing), now_ms=now_ms, sent=sent)
    other = _other_login(txn, key.owner, own_login)
    if old is not None:
        end_delivery(txn, old)
        clear_entry(txn, other, key.owner, old)
    unsynced = other is not None and not _is(other, from_server)
    flags = Flag.UNSYNCED if unsynced else Flag.NONE
    if settling and delivery is not None:
        flags |= Flag.SETTLING
    if sent:
        flags |= Flag.SENT_HERE
    # Two revisions have two times, whatever the clock: an outbox entry names one revision.
    changed_at_ms = now_ms if old is None else max(now_ms, old.changed_at_ms + 1)
    row = Row(
        flags,
        DeliveryState.ACCEPTED if delivery else DeliveryState.DELIVERED,
        old.seq if old is not None else txn.next_seq(Table.CONTAINERS),
        revision_ms,
        changed_at_ms,
        old.version + 1 if old is not None else 1,
        delivery,
    )
    encoded_key = key.encode()
    txn.put(Table.CONTAINERS, pack_number(row.seq), encode_containers(incoming, outgoing))
    txn.put(Table.HISTORY, encoded_key, row.encode())
    if delivery is not None:
        txn.put(due_table(row), time_key(delivery.due_at_ms, row.seq), encoded_key)
    if other is not None:
        if unsynced:
            put_entry(txn, other, key, row)
        else:
            note_doubt(txn, other.lower(), changed_at_ms)
    state_changed = old is not None and old.state is not row.state
    txn.changes.append(ItemChange(key, row, outgoing or incoming, state_changed, txn.origin))
    return row


def _same(txn: Transaction, key: ItemKey, row: Row, signatures: bytes, own_login: str, from_server: str | None) -> Row:
    """Take note that the owner's other server has these very bytes, where it is the one that brought them."""
    other = _other_login(txn, key.owner, own_login)
    if other is not None and _is(other, from_server) and acknowledge(txn, other, key, signatures, marked=False):
        return row._replace(flags=row.flags & ~Flag.UNSYNCED)
    return row


def follow(txn: Transaction, container: Container, key: ItemKey, now_ms: int, own_login: str) -> None:
    """Do what a receipt or a tombstone says, for the owner of its item; nothing where it is neither.

    Args:
        now_ms, own_login: as for ``store_pair``.
    """
    reference = container.reference
    if reference is None:
        return
    if key.kind is Kind.RECEIPT:
        # The receipt's sender has read messages that came in; its recipient's messages that went out are read.
        direction = Direction.IN if key.direction is Direction.OUT else Direction.OUT
        move_mark(txn, key.owner, key.peer, direction, reference.time_ms)
        return
    _remove(txn, target_of(reference, key), now_ms, own_login)


def _remove(txn: Transaction, key: ItemKey, now_ms: int, own_login: str) -> None:
    """Take the bodies of a message away for good, also before it came."""
    row = get_row(txn, key)
    if row is None:
        txn.put(Table.HISTORY, key.encode(), Row(Flag.REMOVED, DeliveryState.DELIVERED, 0, 0, now_ms, 1).encode())
        return
    if row.removed:
        return
    end_delivery(txn, row)
    clear_entry(txn, _other_login(txn, key.owner, own_login), key.owner, row)
    blobs = get_blobs(txn, row)
    change_item(txn, key.owner, grows=-sum(map(len, blobs)), now_ms=now_ms, sent=False)
    digest = _digest(*blobs)
    # The number stays, with no bytes: the greatest number of the table never goes back.
    txn.put(Table.CONTAINERS, pack_number(row.seq), b"")
    state = row.state if row.state is DeliveryState.FAILED else DeliveryState.DELIVERED
    removed = Row(Flag.REMOVED, state, row.seq, row.revision_ms, row.changed_at_ms, row.version + 1, None, digest)
    txn.put(Table.HISTORY, key.encode(), removed.encode())
    if state is not row.state:
        txn.changes.append(ItemChange(key, removed, b"", True, txn.origin))


def _other_login(txn: Transaction, owner: str, own_login: str) -> str | None:
    other = other_server(txn, owner, own_login)
    return other.server_login if other is not None else None


def _is(other: str, from_server: str | None) -> bool:
    return from_server is not None and from_server.lower() == other.lower()


def _digest(incoming: bytes, outgoing: bytes) -> bytes:
    return hashlib.sha256(incoming + outgoing).digest()
