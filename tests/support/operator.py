"""What the operator of a server does at its command line."""

from __future__ import annotations

import asyncio

from tests.cli.program import run_program
from tests.support.nodes import Server, toml_text

__all__ = ["operator_adds"]


async def operator_adds(server: Server, record: str) -> str:
    """Hand a record, as the page or a command shows it, to ``user add --record -``, and return what it prints."""
    config_file = server.folder / "operator.toml"
    config_file.write_text(toml_text(server.settings), encoding="utf-8")
    words = ("user", "add", "--config", config_file, "--record", "-")
    done = await asyncio.to_thread(run_program, *words, stdin=None, input=record)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
