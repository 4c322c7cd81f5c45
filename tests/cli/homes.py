"""A node as a process of its own for the commands of people, which wait for it themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shine_node.cli.commands import run_command
from tests.cli.program import LAUNCHER, SECONDS
from tests.support.nodes import node_settings, toml_text

__all__ = ["Person", "home"]


@contextmanager
def home(folder: Path, **sections: Mapping[str, Any]) -> Iterator[str]:
    """Run a node called ``home`` for the block, and yield where it listens."""
    folder.mkdir(exist_ok=True)
    config = folder / "node.toml"
    config.write_text(toml_text(node_settings("home", folder, **sections)))
    with (folder / "node.log").open("w") as log:
        node = subprocess.Popen(
            [sys.executable, str(LAUNCHER), "run", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with node:
        try:
            assert node.stdout is not None
            found = re.fullmatch(r"listening on (\S+)\n", node.stdout.readline())
            assert found is not None, (folder / "node.log").read_text()
            yield found[1]
        finally:
            node.terminate()
            assert node.wait(SECONDS) == 0


class Person:
    """Somebody with an account at a node, who types commands."""

    def __init__(self, login: str, folder: Path, url: str, capsys: Any) -> None:
        self.login = login
        self.keys = folder / f"{login.lower()}.json"
        self.capsys = capsys
        status, self.shown_at_first = self("account", "new", login, "--server", url)
        assert status == 0, self.said

    def __call__(self, *words: str) -> tuple[int, str]:
        """Run a command, and return its status and what it printed; what it complained of is in ``said``."""
        status = run_command([*words, "--keys", str(self.keys)])
        shown, self.said = self.capsys.readouterr()
        return status, shown
