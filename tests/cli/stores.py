"""Stores for the commands that copy them: a folder with a configuration, and a store with something of everything."""

from __future__ import annotations

from pathlib import Path

from shine_node.cli.commands import run_command
from shine_node.store.environment import Store
from shine_node.store.layout import Table
from shine_node.store.owner import put_owner
from shine_node.store.view import view_store
from tests.store.rich import EVERYTHING, do, found
from tests.store.rooms import OWN, opened

__all__ = ["Commands", "names", "tables"]


class Commands:
    """Commands on the configuration of a folder, whose server has the login of the tests of the store."""

    def __init__(self, folder, capsys, *, login=OWN, filled=True):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.data = folder / "data"
        self.store = self.data / "shine.mdb"
        self.config = folder / "node.toml"
        self.config.write_text(
            f'server.login = "{login}"\nserver.url = "wss://home.example/ws"\nserver.dataDir = "data"\n'
            "storage.mapSizeMiB = 64\n"
        )
        self.capsys = capsys
        if filled:
            self.fill()

    def fill(self) -> None:
        self.data.mkdir()
        with opened(self.store) as store:
            found(store)
            store.write_now(lambda txn: put_owner(txn, OWN))
            for number, step in enumerate(EVERYTHING):
                do(store, number, step)

    def write(self, *rows: tuple[Table, bytes, bytes]) -> None:
        """Write rows into the store as they are."""
        with opened(self.store) as store:
            for row in rows:
                store.write_now(lambda txn, row=row: txn.put(*row))

    def __call__(self, command: str, *words: str | Path) -> int:
        """Run a command and return its status; ``shown`` and ``said`` are what it printed."""
        status = run_command([command, "--config", str(self.config), *map(str, words)])
        self.shown, self.said = self.capsys.readouterr()
        return status

    def open(self) -> Store:
        """Open the store, as a node does that runs."""
        return Store(self.store, map_size=64 * 2**20)


def tables(path: Path) -> dict[Table, list[tuple[bytes, bytes]]]:
    """All rows of a store, but that in which it says how far it has come."""
    with view_store(path) as txn:
        return {table: [row for row in txn.scan(table) if row[0] != b"lineage"] for table in Table}


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())
