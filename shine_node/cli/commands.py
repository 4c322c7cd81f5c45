"""All commands: reads the command line, runs one of them, and turns its end into an exit status (PROTOCOL.md §10)."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from shine_node import __version__
from shine_node.cli import (
    account,
    backup,
    block,
    check,
    export,
    import_,
    inbox,
    init,
    recover,
    reload,
    restore,
    run,
    send,
    status,
    user,
    verify,
    watch,
)
from shine_node.cli.common import REFUSED, UNUSABLE, SubCommands, complain, drop_output

__all__ = ["build_parser", "run_command"]

INTERRUPTED = 130
"""What shells call the end by Ctrl-C."""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: the words after the program's name; those of this process where left out.

    Returns:
        0: done. 1: refused; of ``check``: warnings. 2: the command line or the configuration is wrong.
    """
    _never_fail_to_print()
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed the help that was asked for
        return int(end.code or 0)
    return _guarded(arguments)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line: ``arguments.run(arguments)`` does what was asked for."""
    parser = argparse.ArgumentParser(prog="shine-node", description="A server for signed direct messages.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run.add_parser(commands)
    init.add_parser(commands)
    check.add_parser(commands)
    _add_demo(commands)
    user.add_parser(commands)
    status.add_parser(commands)
    reload.add_parser(commands)
    backup.add_parser(commands)
    restore.add_parser(commands)
    export.add_parser(commands)
    import_.add_parser(commands)
    verify.add_parser(commands)
    recover.add_parser(commands)
    account.add_parser(commands)
    send.add_parser(commands)
    inbox.add_parser(commands)
    watch.add_parser(commands)
    block.add_parser(commands)
    return parser


def _guarded(arguments: argparse.Namespace) -> int:
    from shine_node.config import ConfigError  # not above: --help is to need no libraries
    from shine_node.protocol.errors import ShineError

    try:
        status = int(arguments.run(arguments))
    except ConfigError as error:
        complain(str(error))
        status = UNUSABLE
    except ShineError as error:
        complain(str(error))
        status = REFUSED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:  # such as `shine-node user list | head -1`
        drop_output()
        return REFUSED
    except OSError as error:  # of a file that no command has thought of, or the standard output of one that goes on
        complain(_described(error))
        status = REFUSED
    return _flushed(status)


def _flushed(status: int) -> int:
    """Write what is still to be printed, here, where its failure is still handled, and return the exit status then."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return REFUSED
    except OSError as error:
        complain(f"the standard output cannot be written: {error.strerror or error}")
        drop_output()
        return status or REFUSED
    return status


def _described(error: OSError) -> str:
    names = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    reason = error.strerror or str(error) or type(error).__name__
    return f"{names}: {reason}" if names else f"it was not done: {reason}"


def _add_demo(commands: SubCommands) -> None:
    def run_demo(arguments: argparse.Namespace) -> int:
        from shine_node.cli import demo  # it loads the client and all that it needs

        return demo.run(arguments)

    text = "show four servers and two users on this machine: messages, cuts, catching up, ticks"
    commands.add_parser("demo", help=text, description=text).set_defaults(run=run_demo)


def _never_fail_to_print() -> None:
    """Let a terminal that lacks a letter show an escape for it, for names of files may hold any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
