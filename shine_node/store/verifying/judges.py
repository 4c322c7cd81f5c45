"""Which judge looks at the rows of which table, in which order; and a fresh look at one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shine_node.protocol.logins import is_login
from shine_node.protocol.signatures import is_signed_by
from shine_node.store.environment import Transaction
from shine_node.store.layout import SCHEMA_VERSION, Table, unpack_number
from shine_node.store.owner import OWNER_KEY
from shine_node.store.schema import SCHEMA_KEY
from shine_node.store.usage import REACH_KEY
from shine_node.store.verifying.context import UNREADABLE, Context
from shine_node.store.verifying.findings import Check, Finding, Problem, Verdict
from shine_node.store.verifying.items import (
    judge_container,
    judge_due,
    judge_history,
    judge_outbox,
    judge_read_mark,
)
from shine_node.store.verifying.people import (
    judge_access_current,
    judge_access_history,
    judge_access_record,
    judge_resync,
    judge_session,
    judge_session_of_user,
    judge_setting,
    judge_setting_unsynced,
    judge_user,
)
from shine_node.store.verifying.sums import judge_usage

__all__ = ["JUDGES", "check_signature", "judge_again"]

Judge = Callable[[Context, bytes, bytes], None]

_NUMBERS = (b"access_seq ", b"peer_doubt ", b"peer_doubt_before ", b"refill ", REACH_KEY)
_TEXTS = (b"peer_mark ", b"peer_run ")
_LINEAGE_ENTRY_BYTES = 16


def judge_meta(context: Context, key: bytes, value: bytes) -> None:
    """Judge a row of ``meta`` whose form is known here."""
    try:
        name = key.decode("ascii")  # an export names every row
        if not name.isprintable():
            readable = False
        elif key == SCHEMA_KEY:
            readable = unpack_number(value) <= SCHEMA_VERSION
        elif key == OWNER_KEY:
            readable = is_login(value.decode())
        elif key == b"lineage":
            readable = len(value) % _LINEAGE_ENTRY_BYTES == 0
        elif key.startswith(_NUMBERS):
            readable = unpack_number(value) >= 0
        else:
            readable = not key.startswith(_TEXTS) or value.decode().isprintable()
    except UNREADABLE:
        readable = False
    if not readable:
        context.findings.append(
            Finding(Problem.UNREADABLE, Table.META, key, "cannot be read", drop=((Table.META, key),))
        )


JUDGES: Mapping[Table, Judge] = {
    Table.META: judge_meta,
    Table.ACCESS_RECORDS: judge_access_record,
    Table.ACCESS_HISTORY: judge_access_history,
    Table.USERS: judge_user,
    Table.ACCESS_CURRENT: judge_access_current,
    Table.SETTINGS: judge_setting,
    Table.SETTINGS_UNSYNCED: judge_setting_unsynced,
    Table.RESYNC: judge_resync,
    # Contents come before the history: see ``Scan`` for what is empty.
    Table.CONTAINERS: judge_container,
    Table.HISTORY: judge_history,
    Table.READ_MARKS: judge_read_mark,
    Table.DUE_ATTEMPTS: lambda context, key, value: judge_due(context, Table.DUE_ATTEMPTS, key, value),
    Table.DUE_SETTLING: lambda context, key, value: judge_due(context, Table.DUE_SETTLING, key, value),
    Table.OUTBOX_UNSYNCED: judge_outbox,
    Table.SESSIONS: judge_session,
    Table.SESSIONS_OF_USER: judge_session_of_user,
    Table.USAGE: judge_usage,
}
"""In the order in which the tables are looked through."""


def check_signature(check: Check) -> Verdict:
    """Check one signature; the interpreter's lock is free for most of it."""
    first, *others = check.keys
    if is_signed_by(first, check.text, check.signature):
        return Verdict.GOOD
    if any(is_signed_by(key, check.text, check.signature) for key in others):
        return Verdict.OTHER_KEY
    return Verdict.FORGED


def judge_again(txn: Transaction, own_login: str | None, finding: Finding) -> list[Finding]:
    """Look at the row of a finding in another snapshot, and return what is still found of the same kind."""
    value = txn.get(finding.table, finding.key)
    if value is None:
        return []
    context = Context(txn, own_login)
    JUDGES[finding.table](context, finding.key, value)
    later = (check.finding(check_signature(check)) for check in context.checks)
    found = [*context.findings, *(one for one in later if one is not None)]
    return [one for one in found if one.problem is finding.problem]
