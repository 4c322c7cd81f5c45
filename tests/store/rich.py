"""Stores with something of everything in them, made step by step by the store's own functions."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from hypothesis import strategies as st

from shine_node.client.identity import KeyPair
from shine_node.client.settings import make_setting
from shine_node.protocol.access import AccessRecord, AccessServer
from shine_node.protocol.errors import Refusal
from shine_node.protocol.keys import MessageId
from shine_node.protocol.sessions import Session
from shine_node.store.deliveries import claim_due, record_result, reschedule
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import ItemKey, Table
from shine_node.store.lineage import begin_run, note_doubt, put_peer_mark, put_peer_run, settle_doubt
from shine_node.store.messages import get_blobs, get_row, store_incoming, store_pair
from shine_node.store.outbox import acknowledge, signatures_of
from shine_node.store.resync import begin_resync, step_resync
from shine_node.store.sessions import add_session, close_sessions, list_sessions
from shine_node.store.settings import put_setting, read_unsynced
from shine_node.store.users import add_record, get_registration, other_server
from tests.store.rooms import (
    NOW,
    OWN,
    SCHEDULE,
    first_delivery,
    identity,
    make_copy,
    make_pair,
    receipt_of,
    servers,
    tombstone_of,
)

__all__ = ["EVERYTHING", "MEMORY", "Step", "do", "found", "steps"]

MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""Where folders are that need no disk."""
CHATS = (("alice", "carol"), ("bob", "carol"), ("alice", "dave"), ("alice", "alice"))
MESSAGES = [MessageId(sender, to, NOW, nonce) for sender, to in CHATS for nonce in (1, 2)]
OTHERS = ("other.one", "Other.Two", "")
PARAMS = ("theme", "lang")


class Step(NamedTuple):
    """One thing that happens, with three small numbers that say how."""

    what: str
    a: int = 0
    b: int = 0
    c: int = 0


WHAT = (
    "send",
    "send",
    "arrive",
    "remove",
    "read",
    "settle",
    "attempt",
    "give up",
    "restart",
    "acknowledge",
    "set",
    "know setting",
    "log in",
    "move",
    "step",
    "new device",
    "peer",
    "run",
)
steps = st.lists(st.builds(Step, st.sampled_from(WHAT), st.integers(0, 7), st.integers(0, 2), st.integers(0, 2)))
"""Any number of things in any order; ``do`` does them."""

EVERYTHING = [
    Step("run"),
    Step("send", 0, 0, 0),
    Step("send", 0, 1, 1),
    Step("send", 1, 0, 0),
    Step("send", 2, 0, 2),
    Step("send", 4, 0, 0),
    Step("send", 6, 0, 0),
    Step("attempt", 0, 0),
    Step("attempt", 0, 1),
    Step("give up", 1),
    Step("arrive", 0),
    Step("arrive", 1),
    Step("remove", 1),
    Step("remove", 3),
    Step("remove", 4, 1),
    Step("read", 7),
    Step("read", 0),
    Step("settle", 5),
    Step("acknowledge", 0),
    Step("set", 0, 0),
    Step("set", 1, 1),
    Step("know setting", 0),
    Step("log in", 0),
    Step("log in", 1),
    Step("peer", 0),
    Step("peer", 1),
    Step("move", 0, 1),
    Step("step", 1),
    Step("step", 1),
    Step("peer", 2),
]
"""Open, delivered, failed, settling and removed items, some of them with a resync that is half done."""


def found(store: Store) -> None:
    """Register those who take part; alice has another server, and dave is of this server alone."""

    def work(txn: Transaction) -> None:
        for login, names in (("alice", [OWN, OTHERS[0]]), ("bob", [OWN]), ("carol", ["far"])):
            add_record(txn, identity(login).access_record(servers(*names), time_ms=NOW - 1000), bch_limit=9)
        dave = identity("dave").access_record(servers(OWN), time_ms=NOW)
        add_record(txn, dave._replace(time_ms=0, signature=b""), local=True)

    store.write_now(work)


def do(store: Store, number: int, step: Step) -> None:
    """Do one thing; what is refused, or has nothing to happen to, does nothing."""
    now = NOW + 10_000 * (number + 1)

    def work(txn: Transaction) -> None:
        _do(txn, store, step, now)

    with contextlib.suppress(Refusal):
        store.write_now(work)


def _do(txn: Transaction, store: Store, step: Step, now: int) -> None:
    message = MESSAGES[step.a]
    match step.what:
        case "send" | "settle":
            pair = make_pair(
                message.from_login,
                message.to_login,
                nonce=message.nonce,
                revision_ms=step.b and NOW + step.b,
                body=b"%d" % step.c,
            )
            delivery = first_delivery(now) if step.c < 2 else None
            store_pair(
                txn,
                pair,
                now_ms=now,
                from_client=False,
                delivery=delivery,
                own_login=OWN,
                settling=step.what == "settle",
            )
        case "arrive":
            copy = make_copy("carol", ("alice", "bob")[step.a % 2], 1, nonce=step.b, body=b"%d" % step.c)
            from_server = OTHERS[0] if step.c else None
            store_incoming(txn, copy, now_ms=now, own_login=OWN, from_server=from_server)
        case "remove":
            nonce = 50 + step.a
            if step.b:
                message = message._replace(nonce=7)  # it never came
            store_pair(
                txn,
                tombstone_of(message, nonce=nonce),
                now_ms=now,
                from_client=False,
                delivery=first_delivery(now),
                own_login=OWN,
            )
        case "read":
            copy = receipt_of(message, nonce=70 + step.a)
            store_incoming(txn, copy.incoming, now_ms=now, own_login=OWN)
        case "attempt" | "give up":
            late = now + (10_000_000 if step.what == "give up" else 60_000)  # then it is the last attempt
            claims, _ = claim_due(txn, SCHEDULE, now_ms=late, lease_ms=60_000, limit=1 + step.a % 2)
            for claim in claims if step.b < 2 else []:
                record_result(txn, claim, delivered=step.b == 1, now_ms=late, schedule=SCHEDULE)
        case "restart":
            reschedule(txn, SCHEDULE, now_ms=now, held=(), after=b"", limit=100)
        case "acknowledge":
            key = ItemKey.outgoing(message, 1)
            row = get_row(txn, key)
            other = other_server(txn, key.owner, OWN)
            if row is not None and other is not None:
                acknowledge(txn, other.server_login, key, signatures_of(*get_blobs(txn, row)), marked=bool(step.b))
        case "set":
            setting = make_setting(
                identity(("alice", "bob")[step.a % 2]), PARAMS[step.b % 2], f"é{step.c}", time_ms=NOW + step.c
            )
            put_setting(txn, setting, now_ms=now, own_login=OWN, most=5)
        case "know setting":
            server = OTHERS[step.b % 2]
            page = read_unsynced(
                txn, server, serves=lambda login: True, after=b"", limit=1, max_bytes=2**20, peer_bytes=None
            )
            for entry in page.entries:
                txn.delete(Table.SETTINGS_UNSYNCED, entry.row)
        case "log in":
            login = ("alice", "bob")[step.a % 2]
            session = Session(f"{step.a}{step.b}".ljust(43, "x"), login, "ed25519/k", "pä", "me", "", now, now + step.c)
            if session not in list_sessions(txn, login):
                add_session(txn, session, greatest=2)
        case "move":
            _new_record(txn, "alice", now, *servers(OWN, *filter(None, [OTHERS[step.b]])))
        case "new device":
            _new_record(txn, "bob", now, *servers(OWN), device=step.a)
        case "step":
            step_resync(txn, OWN, limit=1 + step.a)
        case "peer":
            name = OTHERS[step.b % 2].lower()
            put_peer_mark(txn, name, f"aa-{step.a}")
            put_peer_run(txn, name, "aa")
            note_doubt(txn, name, now - step.a)
            if step.c:
                settle_doubt(txn, name)
            txn.put(Table.META, f"access_seq {name}".encode(), bytes(7) + bytes([step.a]))
        case "run":
            begin_run(txn, bytes([step.a]) * 8, 10 + step.a)


def _new_record(
    txn: Transaction, login: str, now: int, *names: AccessServer, device: int | None = None
) -> AccessRecord:
    """Store a record as ``directory.users`` does, with what follows from it."""
    who = identity(login)
    if device is not None:
        who = who.with_device(KeyPair.from_seed(bytes([device + 1]) * 32))
    record = who.access_record(names, time_ms=now)
    before = other_server(txn, login, OWN)
    known = get_registration(txn, login)
    assert known is not None
    if add_record(txn, record) and known.record.device_key != record.device_key:
        close_sessions(txn, login)
    after = other_server(txn, login, OWN)
    if before != after:
        begin_resync(txn, login, former=before.server_login if before is not None else "")
    return record
