"""Judges of the history: its rows, the containers, and the indexes of open work, of the outbox and of what is read.

Each judge looks at one row of its table, in one snapshot, and says what does not fit. A row is compared with its
indexes and an index with its rows by looking up single rows, so that what a running node writes meanwhile is no
contradiction: it writes both in one transaction.
"""

from __future__ import annotations

import struct
from typing import Final

from shine_node.protocol.container import Container, parse_container
from shine_node.protocol.errors import ShineError
from shine_node.protocol.keys import MessageId
from shine_node.protocol.logins import is_login
from shine_node.protocol.pair import check_pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.store.deliveries import due_table
from shine_node.store.layout import (
    Direction,
    Flag,
    ItemKey,
    Kind,
    OpenDelivery,
    Row,
    Table,
    decode_containers,
    pack_number,
    time_key,
    unpack_number,
)
from shine_node.store.messages import read_mark_key
from shine_node.store.outbox import outbox_key
from shine_node.store.verifying.context import UNREADABLE, Context
from shine_node.store.verifying.findings import Check, Finding, Problem, Put
from shine_node.store.verifying.findings import Row as RowKey

__all__ = ["judge_container", "judge_due", "judge_history", "judge_outbox", "judge_read_mark"]

MAX_BODY_BYTES: Final = 2**32
"""Whatever the limit of today, what was taken in under another one is no damage."""
_DIGEST_BYTES = 32
_HEAD = struct.Struct(">QIHQ")
_HEAD_AT = 9
_LENGTH_BYTES = 4


def judge_history(context: Context, key: bytes, value: bytes) -> None:
    """Judge the row of an item: itself, its contents, and what the indexes have of it."""
    try:
        item, row = ItemKey.decode(key), Row.decode(value)
        readable = row.encode() == value and item.encode() == key and all(map(is_login, (item.owner, item.peer)))
    except UNREADABLE:
        readable = False
    if not readable:
        context.findings.append(_drop(Problem.UNREADABLE, Table.HISTORY, key, "cannot be read"))
        return
    if wrong := contradiction(item, row):
        context.findings.append(_drop_item(context, Problem.CONTRADICTION, Table.HISTORY, key, item, row, wrong))
        return
    _judge_content(context, key, item, row)
    _judge_due_of(context, key, row)
    _judge_outbox_of(context, key, item, row)


def contradiction(item: ItemKey, row: Row) -> str:
    """Say what an item's row says that cannot be, empty if nothing; pure."""
    if item.direction is Direction.IN and row.state is not DeliveryState.DELIVERED:
        return f"was received, and is {row.state.wire}"
    if row.flags & Flag.SETTLING and row.delivery is None:
        return "is asked about, and its delivery has ended"
    if row.removed and row.delivery is not None:
        return "is removed, and is still to be delivered"
    if row.removed and row.flags & Flag.UNSYNCED:
        return "is removed, and is still to be sent to the other server"
    if len(row.digest) != (_DIGEST_BYTES if row.removed and row.seq else 0):
        return "has a digest of a wrong length"
    if not row.seq and not row.removed:
        return "has no contents"
    return ""


def judge_container(context: Context, key: bytes, value: bytes) -> None:
    """Judge contents: whether they can be read, are those of the item that claims them, and are signed.

    Empty ones, of which the message was removed, say nothing of whom they belong to.
    """
    try:
        seq = unpack_number(key)
        if not value:
            return
        copies = [parse_container(blob, max_body_bytes=MAX_BODY_BYTES) for blob in decode_containers(value) if blob]
        if len(copies) == 2:
            check_pair(*copies)
        elif not copies[0].incoming:
            raise ValueError("the sender's copy stands alone")
        item = ItemKey.of(copies[-1])
    except UNREADABLE as error:
        reason = str(error) if isinstance(error, ShineError) else "it is cut off"
        context.findings.append(_drop(Problem.UNREADABLE, Table.CONTAINERS, key, f"cannot be read: {reason}"))
        return
    item_key = item.encode()
    row = context.claims(item_key, seq)
    if row is None or row.removed:
        text = f"is of {item.message.base_key}, which {'was removed' if row else 'has other contents, or no row'}"
        context.findings.append(_drop(Problem.DANGLING, Table.CONTAINERS, key, text))
        return
    for copy in copies:
        _judge_signature(context, key, item_key, item, row, copy)
    if item.kind is Kind.RECEIPT:
        _judge_read_mark_of(context, key, item, copies[-1])
    elif item.kind is Kind.TOMBSTONE:
        _judge_target(context, key, item, copies[-1])


def judge_due(context: Context, table: Table, key: bytes, value: bytes) -> None:
    """Judge an entry of open work."""
    row = context.row(value)
    if row is None or row.delivery is None or due_table(row) is not table or due_key(row, row.delivery) != key:
        context.findings.append(_drop(Problem.DANGLING, table, key, "is of a delivery that is not open then"))


def judge_outbox(context: Context, key: bytes, value: bytes) -> None:
    """Judge an entry of the outbox."""
    row = context.row(value)
    server, _, rest = key.partition(b"\0")
    wrong = ""
    if row is None or not row.seq or time_key(row.changed_at_ms, row.seq) != rest:
        wrong = "is of a revision that is not there"
    else:
        owner = ItemKey.decode(value).owner
        moving = context.moving(owner)
        login = server.decode("ascii", "replace")
        if not row.flags & Flag.UNSYNCED and not moving:
            wrong = "is of an item that the other server has"
        elif login not in context.others(owner) and login not in moving:
            wrong = f"is for a server that is not the other one of {owner}"
    if wrong:
        context.findings.append(_drop(Problem.DANGLING, Table.OUTBOX_UNSYNCED, key, wrong))


def judge_read_mark(context: Context, key: bytes, value: bytes) -> None:
    """Judge up to when messages are read: some receipt must have said so."""
    try:
        owner, peer, direction_byte = key.split(b"\0", 2)
        direction = Direction(direction_byte[0])
        unpack_number(value)
        readable = len(direction_byte) == 1 and all(is_login(name.decode()) for name in (owner, peer))
    except UNREADABLE:
        readable = False
    if not readable:
        context.findings.append(_drop(Problem.UNREADABLE, Table.READ_MARKS, key, "cannot be read"))
        return
    receipts = context.txn.scan_keys(Table.HISTORY, prefix=key[:-1] + bytes((Kind.RECEIPT,)))
    if not any(receipt[-1] != direction for receipt in receipts):
        context.findings.append(_drop(Problem.DANGLING, Table.READ_MARKS, key, "no receipt says that this is read"))


def due_key(row: Row, delivery: OpenDelivery) -> bytes:
    """Return the key of an open row in its table of open work."""
    return time_key(delivery.due_at_ms, row.seq)


def without_number(value: bytes) -> bytes:
    """Return the row of a removed message as if it had never come: the number that it has is another one's."""
    return Row.decode(value)._replace(seq=0, digest=b"").encode()


def drop_index_rows(context: Context, item: ItemKey, row: Row) -> tuple[RowKey, ...]:
    """Return what the indexes have of an item, as it goes with it."""
    rows: list[RowKey] = []
    if row.delivery is not None:
        rows += [(table, due_key(row, row.delivery)) for table in (Table.DUE_ATTEMPTS, Table.DUE_SETTLING)]
    servers = {*context.others(item.owner), *context.moving(item.owner)}
    return (*rows, *((Table.OUTBOX_UNSYNCED, outbox_key(server, row)) for server in sorted(servers)))


def _judge_content(context: Context, key: bytes, item: ItemKey, row: Row) -> None:
    if not row.seq:
        return
    content = context.content(row.seq)
    if content is None and row.removed:
        # Its place, with nothing in it, keeps the number from being given a second time.
        put: Put = (Table.CONTAINERS, pack_number(row.seq), b"")
        text = "its number is free to be given again"
        context.findings.append(Finding(Problem.LOST, Table.HISTORY, key, text, put=(put,)))
    elif row.removed:
        if content and _claimed_by_another(context, content, row.seq):
            text, put = "it has the number of another message", (Table.HISTORY, key, without_number(row.encode()))
            context.findings.append(Finding(Problem.CONTRADICTION, Table.HISTORY, key, text, put=(put,)))
        elif content:
            text, put = "is removed, and its contents are there", (Table.CONTAINERS, pack_number(row.seq), b"")
            drop = ((Table.CONTAINERS, pack_number(row.seq)),)
            context.findings.append(Finding(Problem.CONTRADICTION, Table.HISTORY, key, text, drop, (put,)))
    elif not content:
        text = "its contents are gone"
        context.findings.append(_drop_item(context, Problem.LOST, Table.HISTORY, key, item, row, text))
    elif not _is_of(content, item, row):
        text = "the contents under its number are of another item, or another revision"
        context.findings.append(_drop_item(context, Problem.CONTRADICTION, Table.HISTORY, key, item, row, text))


def _claimed_by_another(context: Context, content: bytes, seq: int) -> bool:
    """Say whether contents are those of a message that is there and has their number."""
    try:
        copies = [parse_container(blob, max_body_bytes=MAX_BODY_BYTES) for blob in decode_containers(content) if blob]
        row = context.claims(ItemKey.of(copies[-1]).encode(), seq)
    except UNREADABLE:
        return False
    return row is not None and not row.removed


def _is_of(content: bytes, item: ItemKey, row: Row) -> bool:
    """Compare the heads of the copies with what an item must have, without parsing them again."""
    if len(content) < _LENGTH_BYTES:
        return False
    incoming, outgoing = decode_containers(content)
    if bool(outgoing) != (item.direction is Direction.OUT):
        return False
    message = item.message
    names = b"".join(bytes((len(name),)) + name.encode() for name in (message.to_login, message.from_login))
    for message_type, blob in ((item.kind, incoming), (item.kind + 1, outgoing)):
        end = _HEAD_AT + len(names)
        head = _HEAD.pack(message.time_ms, message.nonce, message_type, row.revision_ms)
        if blob and (blob[_HEAD_AT:end].lower() != names or blob[end : end + _HEAD.size] != head):
            return False
    return True


def _judge_due_of(context: Context, key: bytes, row: Row) -> None:
    if row.delivery is None:
        return
    table, entry = due_table(row), due_key(row, row.delivery)
    if context.txn.get(table, entry) != key:
        text = f"is open, and not in {table.value.decode()}"
        context.findings.append(Finding(Problem.NO_INDEX, Table.HISTORY, key, text, put=((table, entry, key),)))


def _judge_outbox_of(context: Context, key: bytes, item: ItemKey, row: Row) -> None:
    if not row.flags & Flag.UNSYNCED:
        return
    others, moving = context.others(item.owner), context.moving(item.owner)
    entries = [outbox_key(server, row) for server in (*others, *moving)]
    if any(context.txn.get(Table.OUTBOX_UNSYNCED, entry) == key for entry in entries):
        return
    if others:
        text, put = "is to be sent to the other server, and not in the outbox", (Table.OUTBOX_UNSYNCED, entries[0], key)
    else:
        text = "is to be sent to another server, and there is none"
        put = (Table.HISTORY, key, row._replace(flags=row.flags & ~Flag.UNSYNCED).encode())
    context.findings.append(Finding(Problem.NO_INDEX, Table.HISTORY, key, text, put=(put,)))


def _judge_signature(context: Context, key: bytes, item_key: bytes, item: ItemKey, row: Row, copy: Container) -> None:
    name = f"{item.message.base_key}|{copy.message_type}"
    author = context.author(copy.message.from_login)
    if author is None:
        text = f"{name}: no record of {copy.message.from_login} is known here"
        context.findings.append(Finding(Problem.UNKNOWN_KEY, Table.CONTAINERS, key, text))
        return
    forged = _drop_item(
        context, Problem.FORGED, Table.CONTAINERS, key, item, row, f"{name} is not signed by {copy.message.from_login}"
    )
    other_key = Finding(Problem.OTHER_KEY, Table.CONTAINERS, key, name)
    context.checks.append(Check(author.keys_at(copy.effective_ms), copy.signed_part, copy.signature, forged, other_key))


def _judge_read_mark_of(context: Context, key: bytes, item: ItemKey, copy: Container) -> None:
    direction = Direction.IN if item.direction is Direction.OUT else Direction.OUT
    time_ms = _reference(copy).time_ms
    mark = read_mark_key(item.owner, item.peer, direction)
    known = context.txn.get(Table.READ_MARKS, mark)
    if known is None or known < pack_number(time_ms):
        text = f"the receipt {item.message.base_key} of {item.owner} is not counted"
        put = (Table.READ_MARKS, mark, pack_number(time_ms))
        context.findings.append(Finding(Problem.NO_INDEX, Table.CONTAINERS, key, text, put=(put,)))


def _judge_target(context: Context, key: bytes, item: ItemKey, copy: Container) -> None:
    """A tombstone has removed its message, or stands in its place until it comes."""
    reference = _reference(copy)
    target = ItemKey(item.owner, item.peer, Kind.MESSAGE, reference.time_ms, reference.nonce, item.direction)
    target_key = target.encode()
    row = context.row(target_key)
    if row is not None and row.removed:
        return
    text = f"the message {reference.base_key} of {item.owner} is not removed, and its tombstone is here"
    drop: tuple[RowKey, ...] = ()
    changed_at_ms = max(item.time_ms, 1)
    if row is not None:
        drop = ((Table.HISTORY, target_key), (Table.CONTAINERS, pack_number(row.seq)))
        drop += drop_index_rows(context, target, row)
    empty = Row(Flag.REMOVED, DeliveryState.DELIVERED, 0, 0, changed_at_ms, 1).encode()
    put = (Table.HISTORY, target_key, empty)
    context.findings.append(Finding(Problem.CONTRADICTION, Table.CONTAINERS, key, text, drop, (put,)))


def _reference(copy: Container) -> MessageId:
    if copy.reference is None:
        raise AssertionError("a receipt or tombstone has a reference")
    return copy.reference


def _drop(problem: Problem, table: Table, key: bytes, text: str) -> Finding:
    return Finding(problem, table, key, text, drop=((table, key),))


def _drop_item(
    context: Context, problem: Problem, table: Table, key: bytes, item: ItemKey, row: Row, text: str
) -> Finding:
    if not context.detailed:
        return Finding(problem, table, key, text)
    drop: list[RowKey] = [(Table.HISTORY, item.encode())]
    content = context.content(row.seq) if row.seq else None
    if content and _is_of(content, item, row):  # an empty place may be that of another item, and keeps a number taken
        drop.append((Table.CONTAINERS, pack_number(row.seq)))
    return Finding(problem, table, key, text, drop=(*drop, *drop_index_rows(context, item, row)))
