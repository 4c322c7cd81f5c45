"""Judges of what is kept of users beside their history: access records, settings, sessions, unfinished resyncs."""

from __future__ import annotations

import orjson

from shine_node.protocol.access import AccessRecord, record_order, signed_text
from shine_node.protocol.logins import check_login, is_login
from shine_node.protocol.sessions import Session
from shine_node.protocol.settings import Setting, setting_text
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.resync import decode_work
from shine_node.store.settings import decode_setting
from shine_node.store.users import Registration, decode_registration, encode_servers, history_key
from shine_node.store.verifying.context import UNREADABLE, Context
from shine_node.store.verifying.findings import Check, Finding, Problem

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


def judge_access_record(context: Context, key: bytes, value: bytes) -> None:
    """Judge one access record: itself, its signature, and whether the user's indexes know it."""
    registration = _registration(value)
    if registration is None or len(key) != 8:
        context.findings.append(_drop(Problem.UNREADABLE, Table.ACCESS_RECORDS, key, "cannot be read"))
        return
    record = registration.record
    entry = history_key(record.key, record.time_ms, unpack_number(key))
    if context.txn.get(Table.ACCESS_HISTORY, entry) != record.device_key:
        text = f"the keys of {record.login} do not name it"
        put = (Table.ACCESS_HISTORY, entry, record.device_key)
        context.findings.append(Finding(Problem.NO_INDEX, Table.ACCESS_RECORDS, key, text, put=(put,)))
    if context.txn.get(Table.USERS, record.key.encode()) is None:
        text = f"{record.login} is not among the users"
        put = (Table.USERS, record.key.encode(), value)
        context.findings.append(Finding(Problem.NO_INDEX, Table.ACCESS_RECORDS, key, text, put=(put,)))
    first = next(iter(context.records(record.key)), None)
    if first is not None and first[2].record.solana_key != record.solana_key:
        text = f"its root key is not the one that was seen first for {record.login}"
        context.findings.append(_drop_record(Problem.CONTRADICTION, key, entry, text))
    _judge_record_signature(context, key, entry, registration)


def judge_access_history(context: Context, key: bytes, value: bytes) -> None:
    """Judge an entry of the keys that a user has had."""
    try:
        registration = _registration(context.txn.get(Table.ACCESS_RECORDS, key[-8:]) or b"")
        record = registration.record if registration is not None else None
        fits = record is not None and history_key(record.key, record.time_ms, unpack_number(key[-8:])) == key
    except UNREADABLE:
        fits = False
    if not fits:
        context.findings.append(_drop(Problem.DANGLING, Table.ACCESS_HISTORY, key, "there is no such record"))


def judge_user(context: Context, key: bytes, value: bytes) -> None:
    """Judge a user: it is the newest of the user's records."""
    login = key.decode("ascii", "replace")
    newest = context.newest(login)
    own = _registration(value)
    if newest is None:
        if own is None or own.record.key != login:
            context.findings.append(_drop(Problem.UNREADABLE, Table.USERS, key, "cannot be read"))
        elif not _is_among_records(context, value):
            text = f"the record of {own.record.login} is not among the records"
            last = context.txn.last_key(Table.ACCESS_RECORDS)
            seq = unpack_number(last) + 1 if last is not None and len(last) == 8 else 1
            put = (Table.ACCESS_RECORDS, pack_number(seq), value)
            context.findings.append(Finding(Problem.LOST, Table.USERS, key, text, put=(put,)))
        return
    if value != newest[1]:
        text = f"it is not the newest record of {newest[2].record.login}"
        context.findings.append(
            Finding(
                Problem.CONTRADICTION, Table.USERS, key, text, ((Table.USERS, key),), ((Table.USERS, key, newest[1]),)
            )
        )
    servers = encode_servers(newest[2].record.access_servers)
    if context.txn.get(Table.ACCESS_CURRENT, key) != servers:
        text = f"the current servers of {newest[2].record.login} are not those of the newest record"
        put = (Table.ACCESS_CURRENT, key, servers)
        context.findings.append(Finding(Problem.NO_INDEX, Table.USERS, key, text, put=(put,)))


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


def _judge_record_signature(context: Context, key: bytes, entry: bytes, registration: Registration) -> None:
    record = registration.record
    if registration.local and not record.signature:
        return
    forged = _drop_record(Problem.FORGED, key, entry, f"the record of {record.login} is not signed by its root key")
    check = Check((record.solana_key,), signed_text(record), record.signature, forged, forged)
    context.checks.append(check)


def _judge_setting_signature(context: Context, key: bytes, setting: Setting) -> None:
    name = f"{setting.param} of {setting.login}"
    owner = context.user(setting.key)
    if owner is None:
        text = f"{name}: no record of {setting.login} is known here"
        context.findings.append(Finding(Problem.UNKNOWN_KEY, Table.SETTINGS, key, text))
        return
    forged = _drop(Problem.FORGED, Table.SETTINGS, key, f"{name} is not signed by {setting.login}")
    if setting.device_key not in [device_key for _, device_key in owner.device_keys]:
        context.findings.append(forged)
        return
    other_key = Finding(Problem.OTHER_KEY, Table.SETTINGS, key, name)
    keys = dict.fromkeys((owner.device_key_at(setting.time_ms), setting.device_key))
    context.checks.append(Check(tuple(keys), setting_text(setting), setting.signature, forged, other_key))


def _is_among_records(context: Context, value: bytes) -> bool:
    """Say whether a record is there, and only its entry among the keys is missing; all records are looked at."""
    return any(stored == value for _, stored in context.txn.scan(Table.ACCESS_RECORDS))


def _registration(value: bytes) -> Registration | None:
    try:
        registration = decode_registration(value)
        record: AccessRecord = registration.record
        signed_text(record)
        record_order(record)
        pack_number(record.time_ms)
    except UNREADABLE:
        return None
    return registration if is_login(record.login) else None


def _session(key: bytes, value: bytes) -> Session | None:
    try:
        session = Session(key.decode("ascii"), *orjson.loads(value))
    except UNREADABLE:
        return None
    return session if isinstance(session.login, str) and is_login(session.login) else None


def _drop(problem: Problem, table: Table, key: bytes, text: str) -> Finding:
    return Finding(problem, table, key, text, drop=((table, key),))


def _drop_record(problem: Problem, key: bytes, entry: bytes, text: str) -> Finding:
    drop = ((Table.ACCESS_RECORDS, key), (Table.ACCESS_HISTORY, entry))
    return Finding(problem, Table.ACCESS_RECORDS, key, text, drop=drop)
