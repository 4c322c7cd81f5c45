"""Judges what is counted of owners: each sum is that of the items up to the number that it names."""

from __future__ import annotations

import contextlib
from collections import Counter

from shine_node.protocol.logins import is_login
from shine_node.store.environment import Transaction
from shine_node.store.layout import ItemKey, Row, Table, decode_containers, pack_number, unpack_number
from shine_node.store.usage import REACH_KEY, Used, decode_used, encode_used, rows_reach
from shine_node.store.verifying.context import UNREADABLE, Context
from shine_node.store.verifying.findings import Finding, Problem

__all__ = ["find_wrong_sums", "judge_usage"]


def judge_usage(context: Context, key: bytes, value: bytes) -> None:
    """Judge a sum by itself: it is one of a login. Whether it is right ``find_wrong_sums`` says."""
    if _decode(key, value) is None:
        text = "cannot be read"
        context.findings.append(Finding(Problem.UNREADABLE, Table.USAGE, key, text, drop=((Table.USAGE, key),)))


def find_wrong_sums(txn: Transaction) -> list[Finding]:
    """Compare all sums with the items, in one snapshot: of items behind the number of a sum nothing is known yet."""
    known = {key: sums for key, value in txn.scan(Table.USAGE) if (sums := _decode(key, value)) is not None}
    reach = _reach(txn)
    last = txn.last_key(Table.CONTAINERS)
    last_seq = unpack_number(last) if last is not None and len(last) == 8 else 0
    if reach > last_seq:
        text = f"the sums are said to reach to number {reach}, and the last one is {last_seq}"
        put = (Table.META, REACH_KEY, pack_number(last_seq))
        return [Finding(Problem.CONTRADICTION, Table.META, REACH_KEY, text, put=(put,), whole=True)]
    stored: Counter[bytes] = Counter()
    for key, value in txn.scan(Table.HISTORY):
        with contextlib.suppress(*UNREADABLE):  # of which there is a finding already
            owner, row = ItemKey.decode(key).owner.encode(), Row.decode(value)
            upto = max(reach, known[owner][1] if owner in known else 0)
            if 0 < row.seq <= upto and (content := txn.get(Table.CONTAINERS, pack_number(row.seq))):
                stored[owner] += sum(map(len, decode_containers(content)))
    found: list[Finding] = []
    for owner in sorted(known.keys() | stored.keys()):
        used, seq = known.get(owner, (Used(0, 0, 0), reach))
        if used.stored_bytes != stored[owner]:
            text = f"{used.stored_bytes} bytes are counted, and {stored[owner]} are stored"
            put = (Table.USAGE, owner, encode_used(used._replace(stored_bytes=stored[owner]), seq))
            problem = Problem.CONTRADICTION if owner in known else Problem.NO_INDEX
            found.append(Finding(problem, Table.USAGE, owner, text, put=(put,), whole=True))
    return found


def _reach(txn: Transaction) -> int:
    with contextlib.suppress(*UNREADABLE):
        return rows_reach(txn)
    return 0


def _decode(key: bytes, value: bytes) -> tuple[Used, int] | None:
    with contextlib.suppress(*UNREADABLE):
        if is_login(key.decode()):
            return decode_used(value)
    return None
