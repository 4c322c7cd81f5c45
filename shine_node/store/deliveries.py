"""Open deliveries: due rows, claims by lease and version, results (PROTOCOL.md §5.3).

A row is in ``due_attempts`` exactly while its delivery is open, at the time of its next look: the end of its lease, or
its next attempt. Each function is called in a transaction and has no other effect than its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shine_node.protocol.schedule import Decision, DeliveryState, Schedule
from shine_node.store.changes import ItemChange
from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, ItemKey, OpenDelivery, Row, Table, time_key, unpack_number
from shine_node.store.unreadable import UnreadableRow
from shine_node.store.users import access_servers

__all__ = [
    "LOOK_AHEAD",
    "POSTPONED_MS",
    "Claim",
    "Route",
    "claim_due",
    "count_open",
    "due_table",
    "end_delivery",
    "finish_delivery",
    "record_result",
    "renew_claims",
    "reschedule",
]

Route = tuple[str, ...]
"""The access servers of a recipient: their logins in lower case, in order."""
LOOK_AHEAD = 500
"""Due rows that are looked at where some are passed over."""
POSTPONED_MS = 60_000
_INDEX_BYTES = 16


class Claim(NamedTuple):
    """The right to make one attempt: whoever holds it writes the result, as long as the version is still this one."""

    key: ItemKey
    seq: int
    version: int
    revision_ms: int
    decision: Decision
    route: Route = ()
    """The servers that it is for, as they stood when it was claimed; of one that was not due, none."""


def due_keys(
    txn: Transaction, now_ms: int, limit: int, table: Table = Table.DUE_ATTEMPTS
) -> list[tuple[bytes, ItemKey]]:
    """Return at most ``limit`` due rows of a table, earliest first: the index key and the item."""
    found: list[tuple[bytes, ItemKey]] = []
    for index_key, item_key in txn.scan(table):
        try:
            if _due_at_ms(index_key) > now_ms or len(found) == limit:
                break
            found.append((index_key, ItemKey.decode(item_key)))
        except UnreadableRow as error:
            txn.pass_over(error)
    return found


def claim_due(
    txn: Transaction,
    schedule: Schedule,
    *,
    now_ms: int,
    lease_ms: int,
    limit: int,
    table: Table = Table.DUE_ATTEMPTS,
    slow: Collection[Route] = (),
    slow_limit: int = 0,
) -> tuple[list[Claim], list[tuple[ItemKey, Row]]]:
    """Claim due rows for one attempt each.

    A row with no attempt to make now (the clock went back) goes to its next time; one whose schedule is over, because
    the configuration has a shorter one than its last attempt, becomes ``failed``.

    Args:
        limit: how many claims at most.
        table: ``due_attempts`` or ``due_settling``.
        slow: the routes of whose rows at most ``slow_limit`` are claimed. The others are passed over; so many that
            those behind them cannot be seen are put off for ``POSTPONED_MS``.

    Returns:
        The claims, and the rows that became ``failed``.
    """
    claims: list[Claim] = []
    failed: list[tuple[ItemKey, Row]] = []
    passed: list[tuple[ItemKey, Row, OpenDelivery]] = []
    look_at = max(limit, LOOK_AHEAD) if slow else limit
    for index_key, key in due_keys(txn, now_ms, look_at, table):
        if len(claims) == limit:
            break
        row = _open_row(txn, key)
        if row is None or row.delivery is None or index_key != time_key(row.delivery.due_at_ms, row.seq):
            txn.delete(table, index_key)  # an index row without its row; `verify` would report it
            continue
        delivery = row.delivery
        decision = schedule.decide(
            accepted_at_ms=delivery.accepted_at_ms, last_attempt=delivery.attempts, now_ms=now_ms
        )
        if decision.attempt is not None:
            route = _route(txn, key.peer)
            is_slow = route in slow
            if is_slow and slow_limit <= 0:
                passed.append((key, row, delivery))
                continue
            slow_limit -= is_slow
            claimed = delivery._replace(accepted_at_ms=decision.accepted_at_ms, lease_until_ms=now_ms + lease_ms)
            row = _update(txn, key, row, claimed)
            claims.append(Claim(key, row.seq, row.version, row.revision_ms, decision, route))
        elif decision.next_at_ms is not None:
            _update(txn, key, row, OpenDelivery(decision.accepted_at_ms, delivery.attempts, decision.next_at_ms, 0))
        else:
            failed.append((key, finish_delivery(txn, key, row, DeliveryState.FAILED)))
    if len(passed) == look_at:
        for key, row, delivery in passed:
            _update(txn, key, row, delivery._replace(next_at_ms=now_ms + POSTPONED_MS, lease_until_ms=0))
    return claims, failed


def renew_claims(txn: Transaction, claims: Collection[Claim], *, now_ms: int, lease_ms: int) -> None:
    """Move the end of the leases of attempts that are still running; a claim that was lost is left alone."""
    for claim in claims:
        row = held_row(txn, claim)
        if row is not None and row.delivery is not None:
            _update(txn, claim.key, row, row.delivery._replace(lease_until_ms=now_ms + lease_ms), version=row.version)


def record_result(txn: Transaction, claim: Claim, *, delivered: bool, now_ms: int, schedule: Schedule) -> Row | None:
    """Write the result of an attempt, if the claim still holds.

    Returns:
        The row as it stands now, ``None`` if somebody else has changed it meanwhile: nothing was written.
    """
    row = held_row(txn, claim)
    if row is None or row.delivery is None:
        return None
    if delivered:
        return finish_delivery(txn, claim.key, row, DeliveryState.DELIVERED)
    attempt = claim.decision.attempt
    if attempt is None:
        raise AssertionError("a claim is for an attempt")
    # The clock may have gone back during the attempt, and the next time with it; one that has passed is now.
    decision = schedule.decide(accepted_at_ms=claim.decision.accepted_at_ms, last_attempt=attempt, now_ms=now_ms)
    next_at_ms = now_ms if decision.attempt is not None else decision.next_at_ms
    if next_at_ms is None:
        return finish_delivery(txn, claim.key, row, DeliveryState.FAILED)
    return _update(txn, claim.key, row, OpenDelivery(decision.accepted_at_ms, attempt, next_at_ms, 0))


def reschedule(
    txn: Transaction,
    schedule: Schedule,
    *,
    now_ms: int,
    held: Collection[tuple[int, int]],
    after: bytes,
    limit: int,
    table: Table = Table.DUE_ATTEMPTS,
) -> bytes | None:
    """Put a stretch of the open rows at their right times: at the start, and after the clock went back.

    Claims that nobody in this process holds are void.

    Args:
        held: ``seq`` and ``version`` of each claim that an attempt of this process holds; its row is left alone.
        after: the index key where the last stretch ended, ``b""`` to begin.
        limit: how many rows at most.
        table: ``due_attempts`` or ``due_settling``.

    Returns:
        Where to go on, or ``None`` when all rows were seen.
    """
    seen = 0
    last = after
    rows: list[tuple[bytes, ItemKey]] = []
    for index_key, item_key in txn.scan(table, after):
        if index_key == after:
            continue
        if seen == limit:
            break
        seen += 1
        last = index_key
        try:
            rows.append((index_key, ItemKey.decode(item_key)))
        except UnreadableRow as error:
            txn.pass_over(error)
    for _, key in rows:
        row = _open_row(txn, key)
        if row is None or row.delivery is None or (row.seq, row.version) in held:
            continue
        delivery = row.delivery
        decision = schedule.decide(
            accepted_at_ms=delivery.accepted_at_ms, last_attempt=delivery.attempts, now_ms=now_ms
        )
        due_at_ms = now_ms if decision.attempt is not None or decision.next_at_ms is None else decision.next_at_ms
        wanted = OpenDelivery(decision.accepted_at_ms, delivery.attempts, due_at_ms, 0)
        # A row that waits in the past is due already: moving it to "now" at each start would write for nothing.
        if wanted != delivery and not (due_at_ms == now_ms >= delivery.due_at_ms and not delivery.lease_until_ms):
            _update(txn, key, row, wanted)
    return last if seen == limit else None


def end_delivery(txn: Transaction, row: Row) -> None:
    """Take a row out of the due rows, because it is about to be replaced or removed."""
    if row.delivery is not None:
        txn.delete(due_table(row), time_key(row.delivery.due_at_ms, row.seq))


def due_table(row: Row) -> Table:
    """Return the table that an open row is due in."""
    return Table.DUE_SETTLING if row.flags & Flag.SETTLING else Table.DUE_ATTEMPTS


def held_row(txn: Transaction, claim: Claim) -> Row | None:
    """Return the row of a claim while the claim holds."""
    row = _open_row(txn, claim.key)
    return row if row is not None and (row.seq, row.version) == (claim.seq, claim.version) else None


def count_open(txn: Transaction) -> int:
    """Return how many deliveries are open."""
    return txn.count(Table.DUE_ATTEMPTS) + txn.count(Table.DUE_SETTLING)


def _route(txn: Transaction, login: str) -> Route:
    try:
        return tuple(sorted(server.server_login.lower() for server in access_servers(txn, login)))
    except UnreadableRow as error:  # the attempt will say so; here it must hold up no other
        txn.pass_over(error)
        return ()


def _open_row(txn: Transaction, key: ItemKey) -> Row | None:
    value = txn.get(Table.HISTORY, key.encode())
    try:
        row = Row.decode(value) if value is not None else None
    except UnreadableRow as error:
        txn.pass_over(error.named(f"the row of {key.message.base_key}"))
        return None
    return row if row is not None and row.delivery is not None else None


def _due_at_ms(index_key: bytes) -> int:
    if len(index_key) != _INDEX_BYTES:
        raise UnreadableRow("a row of open work", index_key)
    return unpack_number(index_key[:8])


def _update(txn: Transaction, key: ItemKey, row: Row, delivery: OpenDelivery, *, version: int | None = None) -> Row:
    end_delivery(txn, row)
    updated = row._replace(delivery=delivery, version=row.version + 1 if version is None else version)
    encoded = key.encode()
    txn.put(Table.HISTORY, encoded, updated.encode())
    txn.put(due_table(row), time_key(delivery.due_at_ms, row.seq), encoded)
    return updated


def finish_delivery(txn: Transaction, key: ItemKey, row: Row, state: DeliveryState) -> Row:
    """End an open delivery with a terminal state, and return the row as it is then."""
    end_delivery(txn, row)
    flags = row.flags & ~Flag.SETTLING
    finished = row._replace(flags=flags, state=state, delivery=None, version=row.version + 1)
    txn.put(Table.HISTORY, key.encode(), finished.encode())
    txn.changes.append(ItemChange(key, finished, b"", True, txn.origin))
    return finished
