"""Stores full of messages, written through the store's own rooms and without a node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shine_node.clock import SystemClock
from shine_node.protocol.container import FORMAT_TEXT, MESSAGE_IN, SIGNATURE_BYTES, encode_unsigned
from shine_node.protocol.pair import Pair, check_pair, parse_pair
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import OpenDelivery
from shine_node.store.messages import store_pair
from tests.bench.load import BODY
from tests.bench.server import LOGIN, SETTINGS

__all__ = ["CHATS", "MAX_BODY_BYTES", "PAIRS_A_COMMIT", "add_delivered", "add_due", "open_store"]

CHATS = 1_000
PAIRS_A_COMMIT = 5_000
MAX_BODY_BYTES = 65_536


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open the store of the node of ``pinned_server(folder, …)``, which must not run; make it if it is not there."""
    data = folder / LOGIN / "data"
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(data / "shine.mdb", map_size=SETTINGS["storage"]["mapSizeMiB"] * 2**20)
    try:
        yield store
    finally:
        store.close()


def add_delivered(store: Store, count: int, *, pairs_a_commit: int = PAIRS_A_COMMIT) -> None:
    """Add pairs whose delivery has ended; they are spread over ``CHATS`` chats and over the past."""
    _add(store, count, now_ms=SystemClock().now_ms(), delivery=None, pairs_a_commit=pairs_a_commit)


def add_due(store: Store, count: int) -> None:
    """Add pairs whose next attempt has been due for a second."""
    now_ms = SystemClock().now_ms()
    _add(store, count, now_ms=now_ms, delivery=OpenDelivery(now_ms - 31_000, 1, now_ms - 1_000, 0))


def _add(
    store: Store, count: int, *, now_ms: int, delivery: OpenDelivery | None, pairs_a_commit: int = PAIRS_A_COMMIT
) -> None:
    for first in range(0, count, pairs_a_commit):
        numbers = range(first, min(first + pairs_a_commit, count))

        def write(txn: Transaction, numbers: range = numbers) -> None:
            for number in numbers:
                pair = _pair(number, now_ms - count + number)
                store_pair(txn, pair, now_ms=now_ms, from_client=True, delivery=delivery, own_login=LOGIN)

        store.write_now(write)


def _pair(number: int, time_ms: int) -> Pair:
    """Return a pair with random bytes for signatures: the store does not look at them."""
    copies = [
        encode_unsigned(
            to_login=f"user{number % CHATS:04d}",
            from_login="alice",
            time_ms=time_ms,
            nonce=number,
            message_type=message_type,
            body=BODY.encode(),
            body_format=FORMAT_TEXT,
        )
        + os.urandom(SIGNATURE_BYTES)
        for message_type in (MESSAGE_IN, MESSAGE_IN + 1)
    ]
    return check_pair(*parse_pair(copies[0], copies[1], max_body_bytes=MAX_BODY_BYTES))
