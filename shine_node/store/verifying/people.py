"""Judges of what is kept of users beside their history: access records, settings, sessions, unfinished resyncs."""

from __future__ import annotations

from shine_node.protocol.access import is_newer, record_order
from shine_node.protocol.logins import check_login, is_login
from shine_node.protocol.sessions import Session
from shine_node.protocol.settings import Setting, setting_text
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.resync import decode_work
from shine_node.store.sessions import decode_session
from shine_node.store.settings import decode_setting
from shine_node.store.users import Registration, encode_servers, history_key
from shine_node.store.verifying.context import UNREADABLE, Context, Record, is_entry_of
from shine_node.store.verifying.findings import Check, Finding, Problem, Put
from shine_node.store.verifying.records import is_signed, needs_no_signature, read_record

__all__ = [
    "judge_access_current",
    "judge_access_history",
    "judge_access_record",
    "judge_resync",
    "judge_session",
    "judge_session_of_user",
    "judge_setting",
    "judge_setting_unsynced",
    "judge_user",
]

MOST_RECORDS = 2**53
"""Numbers from here on are none that were given: a bit of them is flipped."""


def judge_access_record(context: Context, key: bytes, value: bytes) -> None:
    """Judge one access record: itself, its signature, and whether the user's indexes know it.

    One that does not hold goes by itself: what it says of its user, its time and its number may be the damage.
    """
    registration = read_record(value)
    if registration is None or len(key) != 8:
        context.findings.append(_drop(Problem.UNREADABLE, Table.ACCESS_RECORDS, key, "cannot be read"))
        return
    record = registration.record
    if not context.holds(key, value, registration):
        if needs_no_signature(registration):
            problem, text = (
                Problem.CONTRADICTION,
                f"it needs no signature, and is not what else is known of {record.login}",
            )
        else:
            problem, text = Problem.FORGED, f"the record of {record.login} is not signed by its root key"
        context.findings.append(_drop(problem, Table.ACCESS_RECORDS, key, text))
        return
    entry = history_key(record.key, record.time_ms, unpack_number(key))
    known = context.records(record.key)
    if known and known[0][2].record.solana_key != record.solana_key:
        text = f"its root key is not the one that was seen first for {record.login}"
        drop = ((Table.ACCESS_RECORDS, key), (Table.ACCESS_HISTORY, entry))
        context.findings.append(Finding(Problem.CONTRADICTION, Table.ACCESS_RECORDS, key, text, drop=drop))
        return
    _judge_indexes_of(context, (key, value, registration), entry)


def _judge_indexes_of(context: Context, found: Record, entry: bytes) -> None:
    key, value, registration = found
    record = registration.record
    if unpack_number(key) >= MOST_RECORDS:
        text = "its number is none that was given"
        drop = ((Table.ACCESS_RECORDS, key), (Table.ACCESS_HISTORY, entry))
        put = _put_back(context, value, registration)
        context.findings.append(Finding(Problem.CONTRADICTION, Table.ACCESS_RECORDS, key, text, drop, put))
        return
    if context.txn.get(Table.ACCESS_HISTORY, entry) != record.device_key:
        text = f"the keys of {record.login} do not name it"
        put = ((Table.ACCESS_HISTORY, entry, record.device_key),)
        context.findings.append(Finding(Problem.NO_INDEX, Table.ACCESS_RECORDS, key, text, put=put))
    if context.txn.get(Table.USERS, record.key.encode()) is None:
        newest = context.newest(record.key) or found
        text = f"{record.login} is not among the users"
        put = ((Table.USERS, record.key.encode(), newest[1]),)
        context.findings.append(Finding(Problem.NO_INDEX, Table.ACCESS_RECORDS, key, text, put=put))


def judge_access_history(context: Context, key: bytes, value: bytes) -> None:
    """Judge an entry of the keys that a user has had.

    Where the record is gone, the entry stays: it is all that tells what the user signed with that key from forgeries.
    """
    record = context.record(key[-8:])
    if record is not None and is_entry_of(key, record):
        return
    if context.is_lost(key, value):
        text = "its access record is gone"
        context.findings.append(Finding(Problem.LOST_RECORD, Table.ACCESS_HISTORY, key, text))
    else:
        context.findings.append(_drop(Problem.DANGLING, Table.ACCESS_HISTORY, key, "there is no such record"))


def judge_user(context: Context, key: bytes, value: bytes) -> None:
    """Judge a user: it is the newest of the user's records, and itself one of them."""
    login = key.decode("ascii", "replace")
    own = _own_record(context, login, value)
    found = context.newest(login)
    newest = (found[1], found[2]) if found is not None else None
    if own is not None and not _is_among_records(context, login, value, own):
        put = _put_back(context, value, own)
        text = f"the record of {own.record.login} is not among the records"
        unreadable = ((Table.ACCESS_RECORDS, put[0][1]),)  # where there is something under its number
        context.findings.append(Finding(Problem.LOST, Table.USERS, key, text, unreadable, put))
        if newest is None or is_newer(own.record, newest[1].record):
            newest = (value, own)
    if newest is None:
        if own is None:
            text = "cannot be read" if read_record(value) is None else "is no record of this user that holds"
            context.findings.append(_drop(Problem.UNREADABLE, Table.USERS, key, text))
        return
    record = newest[1].record
    if value != newest[0]:
        text = f"it is not the newest record of {record.login}"
        drop = () if own is not None and own.record.signature else ((Table.USERS, key),)
        put = ((Table.USERS, key, newest[0]),)
        context.findings.append(Finding(Problem.CONTRADICTION, Table.USERS, key, text, drop, put))
    if not context.has_servers(newest[1]):
        text = f"the current servers of {record.login} are not those of the newest record"
        put = ((Table.ACCESS_CURRENT, key, encode_servers(record.access_servers)),)
        context.findings.append(Finding(Problem.NO_INDEX, Table.USERS, key, text, put=put))


def judge_access_current(context: Context, key: bytes, value: bytes) -> None:
    """Judge the current servers of a user: there must be such a user."""
    if context.txn.get(Table.USERS, key) is None:
        context.findings.append(_drop(Problem.DANGLING, Table.ACCESS_CURRENT, key, "there is no such user"))


def judge_setting(context: Context, key: bytes, value: bytes) -> None:
    """Judge a setting: itself, its key and its signature."""
    try:
        _, setting = decode_setting(value)
        readable = f"{setting.key}\0{setting.param}".encode() == key and is_login(setting.login)
    except UNREADABLE:
        readable = False
    if not readable:
        context.findings.append(_drop(Problem.UNREADABLE, Table.SETTINGS, key, "cannot be read"))
        return
    _judge_setting_signature(context, key, setting)


def judge_setting_unsynced(context: Context, key: bytes, value: bytes) -> None:
    """Judge an entry of the settings that the other server has yet to get."""
    server, _, rest = key.partition(b"\0")
    stored = context.txn.get(Table.SETTINGS, rest[8:]) if len(rest) > 8 else None
    wrong = ""
    if stored is None or stored[:8] != rest[:8]:
        wrong = "is of a revision that is not there"
    else:
        owner, login = rest[8:].partition(b"\0")[0].decode("ascii", "replace"), server.decode("ascii", "replace")
        if login not in context.others(owner) and login not in context.moving(owner):
            wrong = f"is for a server that is not the other one of {owner}"
    if wrong:
        context.findings.append(_drop(Problem.DANGLING, Table.SETTINGS_UNSYNCED, key, wrong))


def judge_session(context: Context, key: bytes, value: bytes) -> None:
    """Judge a session: itself, its user, and whether the user's sessions name it."""
    session = _session(key, value)
    if session is None:
        context.findings.append(_drop(Problem.UNREADABLE, Table.SESSIONS, key, "cannot be read"))
        return
    if context.txn.get(Table.USERS, session.login.encode()) is None:
        text = f"it is a session of {session.login}, who is not known"
        context.findings.append(_drop(Problem.DANGLING, Table.SESSIONS, key, text))
        return
    entry = session.login.encode() + b"\0" + key
    if context.txn.get(Table.SESSIONS_OF_USER, entry) is None:
        text = f"the sessions of {session.login} do not name it"
        put = (Table.SESSIONS_OF_USER, entry, b"")
        context.findings.append(Finding(Problem.NO_INDEX, Table.SESSIONS, key, text, put=(put,)))


def judge_session_of_user(context: Context, key: bytes, value: bytes) -> None:
    """Judge an entry of the sessions of a user."""
    login, _, session_id = key.partition(b"\0")
    stored = context.txn.get(Table.SESSIONS, session_id) if session_id else None
    session = _session(session_id, stored) if stored is not None else None
    if session is None or session.login.encode() != login:
        context.findings.append(_drop(Problem.DANGLING, Table.SESSIONS_OF_USER, key, "there is no such session"))


def judge_resync(context: Context, key: bytes, value: bytes) -> None:
    """Judge work that is not finished: whether it can be gone on with."""
    try:
        check_login(decode_work(key, value).owner)
        unpack_number(key[-8:])
    except UNREADABLE:
        context.findings.append(_drop(Problem.UNREADABLE, Table.RESYNC, key, "cannot be read"))


def _judge_setting_signature(context: Context, key: bytes, setting: Setting) -> None:
    name = f"{setting.param} of {setting.login}"
    author = context.author(setting.key)
    if author is None:
        text = f"{name}: no record of {setting.login} is known here"
        context.findings.append(Finding(Problem.UNKNOWN_KEY, Table.SETTINGS, key, text))
        return
    forged = _drop(Problem.FORGED, Table.SETTINGS, key, f"{name} is not signed by {setting.login}")
    in_force, *others = author.keys_at(setting.time_ms)
    if setting.device_key not in (in_force, *others):
        context.findings.append(forged)
        return
    other_key = Finding(Problem.OTHER_KEY, Table.SETTINGS, key, name)
    keys = dict.fromkeys((in_force, setting.device_key))
    context.checks.append(Check(tuple(keys), setting_text(setting), setting.signature, forged, other_key))


def _own_record(context: Context, login: str, value: bytes) -> Registration | None:
    """Return the record that a row of a user holds, if it is one of this user that can be relied upon."""
    own = read_record(value)
    if own is None or own.record.key != login:
        return None
    known = context.records(login)
    if known and known[0][2].record.solana_key != own.record.solana_key:
        return None
    if needs_no_signature(own):
        return own if known or context.lost_entry(own) is not None or context.has_servers(own) else None
    return own if is_signed(own.record) else None


def _is_among_records(context: Context, login: str, value: bytes, own: Registration) -> bool:
    """Say whether a record is there, if only without its entry among the keys: then all records are looked at."""
    if any(record_order(record.record) == record_order(own.record) for _, _, record in context.records(login)):
        return True
    return any(stored == value for _, stored in context.txn.scan(Table.ACCESS_RECORDS))


def _put_back(context: Context, value: bytes, own: Registration) -> tuple[Put, ...]:
    """Return the rows that a record has, under the number that it had where that is known, else under a new one."""
    lost = context.lost_entry(own)
    if lost is not None and unpack_number(lost[-8:]) < MOST_RECORDS:
        return ((Table.ACCESS_RECORDS, lost[-8:], value),)
    before = context.txn.scan_back(Table.ACCESS_RECORDS, pack_number(MOST_RECORDS), prefix=b"")
    number = next((unpack_number(key) for key, _ in before if len(key) == 8), 0) + 1
    entry = history_key(own.record.key, own.record.time_ms, number)
    return (Table.ACCESS_RECORDS, pack_number(number), value), (Table.ACCESS_HISTORY, entry, own.record.device_key)


def _session(key: bytes, value: bytes) -> Session | None:
    try:
        session = decode_session(key.decode("ascii"), value)
    except UNREADABLE:
        return None
    return session if is_login(session.login) else None


def _drop(problem: Problem, table: Table, key: bytes, text: str) -> Finding:
    return Finding(problem, table, key, text, drop=((table, key),))
