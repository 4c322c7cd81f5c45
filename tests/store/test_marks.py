"""Up to when the messages of a chat are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shine_node.store.layout import Direction, Table, pack_number
from shine_node.store.marks import move_mark, read_mark_key, read_up_to_ms
from tests.store.rooms import NOW, opened


def test_a_mark_goes_forward_only_and_one_that_cannot_be_read_is_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = read_mark_key("alice", "bob", Direction.IN)
    with opened(tmp_path / "shine.mdb") as store:

        def read() -> int | None:
            with store.read() as txn:
                assert read_up_to_ms(txn, "alice", "bob", Direction.OUT) is None
                return read_up_to_ms(txn, "alice", "bob", Direction.IN)

        assert read() is None
        for time_ms, wanted in ((NOW, NOW), (NOW - 1, NOW), (NOW + 1, NOW + 1)):
            store.write_now(lambda txn, time_ms=time_ms: move_mark(txn, "alice", "bob", Direction.IN, time_ms))
            assert read() == wanted
        store.write_now(lambda txn: txn.put(Table.READ_MARKS, key, pack_number(NOW)[1:]))
        assert read() is None
        assert "the read mark of alice for bob cannot be read" in caplog.text
        store.write_now(lambda txn: move_mark(txn, "alice", "bob", Direction.IN, NOW - 5))
        assert read() == NOW - 5
