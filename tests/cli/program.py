"""The program as a process of its own, for what only a process has: exit statuses, streams, signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

LAUNCHER = Path(__file__).resolve().parents[2] / "shine_node.py"
SECONDS = 120


def run_program(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and return its end, with what it said."""
    return subprocess.run(
        [sys.executable, str(LAUNCHER), *map(str, words)],
        encoding="utf-8",
        errors="surrogateescape",
        timeout=SECONDS,
        check=False,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def write_config(folder: Path, text: str = "") -> Path:
    """Write a configuration of a server called ``home`` that listens on a free port, and return its path."""
    path = folder / "node.toml"
    head = 'server.login = "home"\nserver.url = "wss://home.example/ws"\nserver.listen = "127.0.0.1:0"\n'
    path.write_text(f'{head}server.dataDir = "data"\n{text}')
    return path
