"""A pass over all tables: pages of rows in short snapshots, signatures on all processors, progress as it goes.

A page is read in a snapshot of its own, so that a node that runs is not disturbed: a long one would keep every page
that is freed meanwhile from being used again, and the file would grow. Within one snapshot a row and its indexes fit
together whatever is being written. What is found, also by the signatures, which are checked later, is looked at once
more in another snapshot before it counts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from shine_node.store.environment import Transaction
from shine_node.store.layout import Flag, Table, pack_number, unpack_number
from shine_node.store.verifying.context import UNREADABLE, Author, Context
from shine_node.store.verifying.findings import Check, Finding, Problem, Verdict
from shine_node.store.verifying.items import without_number
from shine_node.store.verifying.judges import JUDGES, check_signature
from shine_node.store.verifying.records import find_forged
from shine_node.store.verifying.sums import find_wrong_sums

__all__ = ["Readable", "Scan"]

ROWS_A_PAGE = 256
BYTES_A_PAGE = 2 * 2**20
CHECKS_AT_ONCE = 32
BATCHES_A_THREAD = 3
_SEQ = slice(2, 10)
"""Where the number of its contents stands in an encoded row."""


class Readable(Protocol):
    """A store that is open: ``Store`` or ``View``."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Open a snapshot of the last commit."""


class Scan:
    """One pass.

    Args:
        store: what is looked through.
        own_login: this server's login in lower case, ``None`` where it is not known.
        found: is told each finding, to look at it again.
        progress: is told how many rows are done, of how many.
        threads: that check signatures; 0 checks none but those of access records, on which all else depends.
    """

    def __init__(
        self,
        store: Readable,
        own_login: str | None,
        *,
        found: Callable[[Finding], None],
        progress: Callable[[int, int], None] = lambda done, total: None,
        threads: int | None = None,
    ) -> None:
        self._store = store
        self._own_login = own_login
        self._tell = found
        self._all_well = True
        self._progress = progress
        self._threads = (os.cpu_count() or 1) if threads is None else threads
        self.rows = 0
        self.signatures = 0
        self._authors: dict[str, Author | None] = {}
        self._forged: set[bytes] = set()
        """Access records that are not signed, by their values: they decide nothing about any other row."""
        self._waiting: list[Check] = []
        self._running: deque[tuple[list[Check], Future[list[Verdict]]]] = deque()
        # Empty contents do not say whom they belong to. They are listed before the history is read, where each must be
        # found: a message that is removed meanwhile is in the history only, which is no contradiction.
        self._empty = array("Q")
        self._removed = array("Q")

    def run(self) -> None:
        """Look through everything.

        Raises:
            StoreDamaged: a page is not what it must be.
        """
        with self._store.read() as txn:
            total = sum(txn.count(table) for table in JUDGES)
        with ThreadPoolExecutor(self._threads or 1, thread_name_prefix="verify") as pool:
            self._look_at_records(pool)
            for table in JUDGES:
                for context in self._pages(table):
                    for finding in context.findings:
                        self._found(finding)
                    self._check(pool, context.checks)
                    self._progress(min(self.rows, total), total)
            self._end_checks(pool)
        for finding in self._of_removed():
            self._found(finding)
        if self._all_well:  # sums follow from the rows: those that are wrong need not be counted twice
            for finding in self._of_sums():
                self._found(finding)
        self._progress(total, total)

    def _found(self, finding: Finding) -> None:
        self._all_well = self._all_well and finding.problem.note
        self._tell(finding)

    def _of_removed(self) -> list[Finding]:
        """Find empty contents of no removed message, and removed messages of one number."""
        found: list[Finding] = []
        for seq in sorted(set(self._empty).difference(self._removed)):
            row = (Table.CONTAINERS, pack_number(seq))
            text = "is empty, and no removed message has its number"
            found.append(Finding(Problem.DANGLING, *row, text, drop=(row,), whole=True))
        several = {seq for seq, count in Counter(self._removed).items() if seq and count > 1}
        return [*found, *self._of_one_number(several)] if several else found

    def _of_sums(self) -> list[Finding]:
        with self._store.read() as txn:
            return find_wrong_sums(txn)

    def _of_one_number(self, numbers: set[int]) -> list[Finding]:
        """Find all but the first of the removed messages of each of these numbers."""
        found: list[Finding] = []
        seen: set[int] = set()
        with self._store.read() as txn:
            for key, value in txn.scan(Table.HISTORY):
                if not value[:1] or not value[0] & Flag.REMOVED or len(value) < _SEQ.stop:
                    continue
                seq = unpack_number(value[_SEQ])
                if seq in seen:
                    text = "it has the number of another removed message"
                    with contextlib.suppress(*UNREADABLE):  # of which there is a finding already
                        put = (Table.HISTORY, key, without_number(value))
                        found.append(Finding(Problem.CONTRADICTION, Table.HISTORY, key, text, put=(put,), whole=True))
                elif seq in numbers:
                    seen.add(seq)
        return found

    def _look_at_records(self, pool: ThreadPoolExecutor) -> None:
        """Check the signatures of all access records, before any of them is relied upon."""
        start: bytes | None = b""
        while start is not None:
            with self._store.read() as txn:
                rows = list(itertools.islice(txn.scan(Table.ACCESS_RECORDS, start), ROWS_A_PAGE))
            batches = [rows[first : first + CHECKS_AT_ONCE] for first in range(0, len(rows), CHECKS_AT_ONCE)]
            for forged in pool.map(find_forged, ([value for _, value in batch] for batch in batches)):
                self._forged.update(forged)
            self.signatures += len(rows)
            start = rows[-1][0] + b"\0" if len(rows) == ROWS_A_PAGE else None

    def _pages(self, table: Table) -> Iterator[Context]:
        after: bytes | None = b""
        while after is not None:
            with self._store.read() as txn:
                context = Context(txn, self._own_login, self._authors, detailed=False, forged=self._forged)
                after = self._page(context, table, after)
            yield context

    def _page(self, context: Context, table: Table, after: bytes) -> bytes | None:
        """Judge the rows of a table behind a key; return the last one of them, ``None`` where there are no more."""
        judge, rows, size = JUDGES[table], 0, 0
        for key, value in context.txn.scan(table, after):
            if key == after:
                continue
            if rows == ROWS_A_PAGE or size > BYTES_A_PAGE:
                self.rows += rows
                return after
            self._note_removed(table, key, value)
            judge(context, key, value)
            rows, size, after = rows + 1, size + len(value), key
        self.rows += rows
        return None

    def _note_removed(self, table: Table, key: bytes, value: bytes) -> None:
        if table is Table.CONTAINERS and not value and len(key) == 8:
            self._empty.append(unpack_number(key))
        elif table is Table.HISTORY and value[:1] and value[0] & Flag.REMOVED and len(value) >= _SEQ.stop:
            self._removed.append(unpack_number(value[_SEQ]))

    def _check(self, pool: ThreadPoolExecutor, checks: Sequence[Check]) -> None:
        """Have signatures checked; wait for earlier ones where too many are under way."""
        if not self._threads:
            return
        self._waiting.extend(checks)
        while len(self._waiting) >= CHECKS_AT_ONCE:
            self._begin(pool)
        while len(self._running) > self._threads * BATCHES_A_THREAD:
            self._take()

    def _end_checks(self, pool: ThreadPoolExecutor) -> None:
        if self._waiting:
            self._begin(pool)
        while self._running:
            self._take()

    def _begin(self, pool: ThreadPoolExecutor) -> None:
        batch = self._waiting[:CHECKS_AT_ONCE]
        del self._waiting[:CHECKS_AT_ONCE]
        self._running.append((batch, pool.submit(_check_all, batch)))

    def _take(self) -> None:
        batch, future = self._running.popleft()
        for check, verdict in zip(batch, future.result(), strict=True):
            self.signatures += 1
            finding = check.finding(verdict)
            if finding is not None:
                self._found(finding)


def _check_all(batch: Sequence[Check]) -> list[Verdict]:
    return [check_signature(check) for check in batch]
