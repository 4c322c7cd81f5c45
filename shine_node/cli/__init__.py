"""The command line: ``shine-node COMMAND`` (PROTOCOL.md §10)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    from shine_node.cli.commands import run_command  # later than this module, so that --help needs no libraries

    return run_command(argv)
