"""The whole of it: verify a store beside a running node, or repair one that nobody uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shine_node.store.environment import Store
from shine_node.store.files import StoreError, examine_file
from shine_node.store.verifying.findings import Finding, Report
from shine_node.store.verifying.judges import judge_again
from shine_node.store.verifying.repair import Quarantine, Repair
from shine_node.store.verifying.scan import Readable, Scan
from shine_node.store.view import open_view

__all__ = ["Progress", "mend_store", "repair_store", "verify_file", "verify_store"]

Progress = Callable[[int, int], None]
"""Is told how many rows are done, of how many."""

MOST_PASSES: Final = 8
"""What one pass mends can bring to light something else: contents that no row claims any more."""


def verify_file(
    path: Path,
    own_login: str | None,
    *,
    progress: Progress = lambda done, total: None,
    threads: int | None = None,
    lock: bool = True,
) -> Report:
    """Look through a store that another process may have open; nothing is changed.

    Args:
        own_login: this server's login in lower case; ``None`` where it is not known, as of somebody's backup: then the
            outbox may name any server of its owner.
        threads: that check signatures, as many as there are processors by default; 0 checks those of access records
            only.
        lock: whether others may have it open. Without it nothing is written beside the file.

    Raises:
        StoreError: it cannot be looked into; StoreDamaged: its pages are damaged, which no repair mends.
    """
    with open_view(path, lock=lock) as view:
        view.check_pages()
        return verify_store(view, own_login, progress=progress, threads=threads)


def verify_store(
    store: Readable,
    own_login: str | None,
    *,
    progress: Progress = lambda done, total: None,
    threads: int | None = None,
) -> Report:
    """Look through a store that is open."""
    report = Report()

    def look_again(finding: Finding) -> None:
        with store.read() as txn:
            found = [finding] if finding.whole else judge_again(txn, own_login, finding)
        if found:
            report.add(found[0])

    scan = Scan(store, own_login, found=look_again, progress=progress, threads=threads)
    scan.run()
    report.rows, report.signatures = scan.rows, scan.signatures
    return report


def repair_store(
    path: Path,
    own_login: str,
    *,
    map_size: int,
    now_ms: int,
    quarantine: Path,
    copy: Path | None,
    progress: Progress = lambda done, total: None,
    threads: int | None = None,
) -> Report:
    """Mend a store that nobody uses, pass by pass, until nothing is found any more.

    Args:
        map_size: its greatest size, bytes.
        now_ms: Unix milliseconds.
        quarantine: the file that takes what does not fit; it is made when there is any.
        copy: where the store is copied to first; ``None`` makes no copy.

    Returns:
        What the first pass found, with how much of it was mended.

    Raises:
        StoreError: it is in use, cannot be opened, or something is found however often it is mended.
        StoreDamaged: its pages are damaged, which no repair mends.
        StorageFull: there is no room; OSError: the copy or the quarantine cannot be written.
    """
    if not path.exists():
        raise StoreError(f"{path} is not there")
    store = Store(path, map_size=map_size, now_ms=now_ms)
    try:
        examine_file(path, thorough=True)  # nobody writes it now
        if copy is not None:
            copy_store(path, copy)
        with Quarantine(quarantine, now_ms=now_ms) as kept:
            return mend_store(store, own_login, kept, progress=progress, threads=threads)
    finally:
        store.close()


def mend_store(
    store: Store,
    own_login: str,
    quarantine: Quarantine,
    *,
    progress: Progress = lambda done, total: None,
    threads: int | None = None,
) -> Report:
    """Mend a store that is open and whose writer does not run; arguments and result as of ``repair_store``.

    Raises:
        StoreError: something is found however often it is mended.
        StorageFull: there is no room; OSError: the quarantine cannot be written.
    """
    repair = Repair(store, own_login, quarantine)
    first: Report | None = None
    mended = 0
    for _ in range(MOST_PASSES):
        report = Report()

        def mend(finding: Finding, report: Report = report) -> None:
            nonlocal mended
            found = finding if finding.problem.note else repair.mend(finding)
            if found is not None:
                report.add(found)
                mended += not found.problem.note

        scan = Scan(store, own_login, found=mend, progress=progress, threads=threads)
        scan.run()
        if first is None:
            first = report
            first.rows, first.signatures = scan.rows, scan.signatures
        if report.clean:
            first.repaired = mended
            return first
    raise StoreError(f"{store.path} has been mended {MOST_PASSES} times, and something is still found: keep a backup")


def copy_store(path: Path, copy: Path) -> None:
    """Copy a store that nobody writes, private to its owner, and have the copy on the disk.

    Raises:
        OSError: there is a file of that name, or no room.
    """
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with path.open("rb") as source, open(descriptor, "wb", closefd=False) as target:
            shutil.copyfileobj(source, target, 2**20)
        os.fsync(descriptor)
    except BaseException:
        copy.unlink()
        raise
    finally:
        os.close(descriptor)
