"""Mends a store: what does not fit goes into a quarantine, and indexes are written anew from their rows."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from types import TracebackType

import orjson

from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.verifying.findings import Finding, Problem
from shine_node.store.verifying.judges import judge_again
from shine_node.store.verifying.names import readable

__all__ = ["Quarantine", "Repair"]


class Quarantine:
    """A file of JSON lines, private to its owner, of every row that a repair has taken out; made when one is."""

    def __init__(self, path: Path, *, now_ms: int) -> None:
        self.path = path
        self.rows = 0
        self._now_ms = now_ms
        self._descriptor: int | None = None

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def keep(self, rows: list[tuple[Table, bytes, bytes]], why: str) -> None:
        """Write rows down, and have them on the disk when this returns.

        Raises:
            OSError: they cannot be written.
        """
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lines = [
            orjson.dumps(
                {
                    "row": readable(table, key),
                    "why": why,
                    "takenOutAtMs": self._now_ms,
                    "table": table.value.decode(),
                    "keyB64": base64.b64encode(key).decode(),
                    "valueB64": base64.b64encode(value).decode(),
                }
            )
            for table, key, value in rows
        ]
        data = b"".join(line + b"\n" for line in lines)
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)
        self.rows += len(rows)


class Repair:
    """Mends findings one after the other, each in a transaction of its own.

    Args:
        store: open, and nobody else uses it.
        own_login: this server's login, in lower case.
        quarantine: takes what goes.
    """

    def __init__(self, store: Store, own_login: str, quarantine: Quarantine) -> None:
        self._store = store
        self._own_login = own_login
        self._quarantine = quarantine

    def mend(self, finding: Finding) -> Finding | None:
        """Mend what is still found, and return it as it was found now; ``None`` if it is gone.

        Raises:
            StorageFull: neither the map nor the disk has room; OSError: the quarantine cannot be written.
        """
        return self._store.write_now(lambda txn: self._mend(txn, finding))

    def _mend(self, txn: Transaction, finding: Finding) -> Finding | None:
        again = self._again(txn, finding)
        for found in again:
            gone: list[tuple[Table, bytes, bytes]] = []
            for table, key in dict.fromkeys(found.drop):
                value = txn.get(table, key) if key else None
                if value is not None:
                    gone.append((table, key, value))
            if gone:
                self._quarantine.keep(gone, found.text)  # first: what is lost on the way is lost to neither
            for table, key, _ in gone:
                txn.delete(table, key)
            for table, key, value in found.put:
                txn.put(table, key, value)
        return again[0] if again else None

    def _again(self, txn: Transaction, finding: Finding) -> list[Finding]:
        if finding.whole:
            lacks_row = finding.problem is Problem.NO_INDEX
            return [finding] if lacks_row or txn.get(finding.table, finding.key) is not None else []
        return judge_again(txn, self._own_login, finding)
