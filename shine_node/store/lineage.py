"""How far a store has come, in marks that others keep: a store that was restored from a backup lacks some of them.

A *run* begins whenever the store is opened to be served. A *mark* names a run and the number of the last commit in it.
The store remembers its last runs and with which commit each ended; a copy that is restored later begins a new run, and
knows nothing of the runs and commits that came after the copy was made. In a compact copy LMDB numbers the commits
anew, so that such a copy says itself with which commit the run ended that it was made in.

Of each other server are kept the mark that it gave last, the run that it was heard in last, and its *doubt*: since when
entries have changed that it is known to have, but not from a request with a mark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shine_node.protocol.errors import Refusal
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.unreadable import UnreadableRow

__all__ = [
    "LINEAGE",
    "MAX_MARK_CHARACTERS",
    "Lineage",
    "add_runs",
    "begin_lineage",
    "begin_run",
    "end_run",
    "get_doubt",
    "get_peer_mark",
    "get_peer_run",
    "list_runs",
    "note_doubt",
    "put_peer_mark",
    "put_peer_run",
    "settle_doubt",
]

log = logging.getLogger(__name__)

RUN_BYTES: Final = 8
MAX_RUNS = 64
"""Runs that a store remembers. A mark of an earlier one counts as lost; then more is sent than is needed, once."""
MAX_MARK_CHARACTERS: Final = 64
LINEAGE: Final = b"lineage"
"""The name of the row of the runs."""
_ENTRY_BYTES = RUN_BYTES + 8


class Lineage:
    """The runs of this store.

    Args:
        ended: earlier runs, and the last commit of each.
        run: the present one.
        position: returns the number of the last commit.
    """

    def __init__(self, ended: Mapping[str, int], run: str, position: Callable[[], int]) -> None:
        self._ended = ended
        self._run = run
        self._position = position

    def mark(self) -> str:
        """Return where the store is now: all that has been committed lies before it."""
        return f"{self._run}-{self._position():x}"

    def lost(self, mark: str) -> bool:
        """Say whether this store lacks what lay before a mark that it gave once; it never lacks an empty one."""
        if not mark:
            return False
        run, _, number = mark.partition("-")
        end = self._position() if run == self._run else self._ended.get(run)
        try:
            return end is None or int(number, 16) > end
        except ValueError:
            return True  # it is none of this program's


async def begin_lineage(store: Store) -> Lineage | None:
    """Begin a run of a store whose writer has just been started; ``None`` where that cannot be written now."""
    position, run = store.position, os.urandom(RUN_BYTES)
    try:
        ended = await store.write(lambda txn: begin_run(txn, run, position))
    except Refusal as refusal:
        log.warning("other servers are not told how far this store has come: %s", refusal)
        return None
    return Lineage(ended, run.hex(), lambda: store.position)


def begin_run(txn: Transaction, run: bytes, position: int) -> dict[str, int]:
    """Begin a run in a write transaction, and return the earlier ones with the last commit of each.

    Args:
        run: ``RUN_BYTES`` random bytes.
        position: the number of the last commit before this transaction.
    """
    runs = list_runs(txn, position)[-(MAX_RUNS - 1) :]
    _put_runs(txn, [*runs, (run, 0)])
    return {earlier.hex(): end for earlier, end in runs}


def end_run(txn: Transaction, position: int) -> None:
    """Say in a copy with which commit the run ended that it was made in.

    Args:
        position: no more than what the copy holds.
    """
    runs = list_runs(txn, position)
    if runs:
        _put_runs(txn, runs)


def list_runs(txn: Transaction, position: int) -> list[tuple[bytes, int]]:
    """Return all runs that are remembered and the last commit of each, oldest first.

    Where they cannot be read none are: what others have heard of them counts as lost, and more is sent, once.

    Args:
        position: the last commit of a run that has not ended, the last one.
    """
    row = txn.get(Table.META, LINEAGE) or b""
    if len(row) % _ENTRY_BYTES:
        txn.pass_over(UnreadableRow("the runs of this store", row))
        return []
    entries = [row[start : start + _ENTRY_BYTES] for start in range(0, len(row), _ENTRY_BYTES)]
    return [(entry[:RUN_BYTES], unpack_number(entry[RUN_BYTES:]) or position) for entry in entries]


def add_runs(txn: Transaction, runs: Sequence[tuple[bytes, int]]) -> bool:
    """Take note that the store now holds all of these runs too, each up to a commit; what it knows of one stays.

    Returns:
        Whether there was anything to note.
    """
    known = list_runs(txn, 0)
    names = {run for run, _ in known}
    added = [(run, end) for run, end in runs if run not in names]
    if added:
        _put_runs(txn, [*added, *known][-MAX_RUNS:])
    return bool(added)


def get_peer_mark(txn: Transaction, server: str) -> str:
    """Return the mark that a server (in lower case) gave with what it acknowledged last, empty if it gave none.

    One that cannot be read is one that nobody has given: it counts as lost.
    """
    return (txn.get(Table.META, _peer_key(server)) or b"").decode("ascii", "replace")


def put_peer_mark(txn: Transaction, server: str, mark: str) -> None:
    """Keep the mark of a server (in lower case) that has stored something of this one."""
    txn.put(Table.META, _peer_key(server), mark.encode())


def get_peer_run(txn: Transaction, server: str) -> str:
    """Return the run that a server (in lower case) was heard in last, empty if it was never heard."""
    return (txn.get(Table.META, _run_key(server)) or b"").decode("ascii", "replace")


def put_peer_run(txn: Transaction, server: str, run: str) -> None:
    """Keep the run of a server (in lower case)."""
    txn.put(Table.META, _run_key(server), run.encode())


def get_doubt(txn: Transaction, server: str) -> int | None:
    """Return since when entries have changed that a server (in lower case) has outside of what its mark says.

    Returns:
        Unix milliseconds; ``None`` where there are none. 0, which is of all, where it cannot be read.
    """
    doubts = [_read_doubt(txn, key) for key in (_late_doubt_key(server), _early_doubt_key(server))]
    return min((doubt for doubt in doubts if doubt is not None), default=None)


def note_doubt(txn: Transaction, server: str, changed_at_ms: int) -> None:
    """Take note that a server (in lower case) has an entry, in the transaction that says so of the entry.

    It took or brought the entry in an exchange without a mark. Mostly there is nothing to write: one earlier entry
    stands for all that follow.
    """
    doubt = _read_doubt(txn, _late_doubt_key(server))
    if doubt is None or changed_at_ms < doubt:
        txn.put(Table.META, _late_doubt_key(server), pack_number(changed_at_ms))


def settle_doubt(txn: Transaction, server: str) -> None:
    """End the doubt about what had been noted before the last call; what has been since waits for the next one.

    A mark that comes in a request was made after the answer before, and covers what was noted before that answer.
    """
    late = txn.get(Table.META, _late_doubt_key(server))
    if late is not None:
        txn.delete(Table.META, _late_doubt_key(server))
        txn.put(Table.META, _early_doubt_key(server), late)
    else:
        txn.delete(Table.META, _early_doubt_key(server))


def _read_doubt(txn: Transaction, key: bytes) -> int | None:
    value = txn.get(Table.META, key)
    try:
        return unpack_number(value) if value is not None else None
    except UnreadableRow as error:
        txn.pass_over(error)
        return 0


def _put_runs(txn: Transaction, runs: Sequence[tuple[bytes, int]]) -> None:
    txn.put(Table.META, LINEAGE, b"".join(run + pack_number(end) for run, end in runs))


def _peer_key(server: str) -> bytes:
    return b"peer_mark " + server.encode()


def _run_key(server: str) -> bytes:
    return b"peer_run " + server.encode()


def _late_doubt_key(server: str) -> bytes:
    return b"peer_doubt " + server.encode()


def _early_doubt_key(server: str) -> bytes:
    return b"peer_doubt_before " + server.encode()
