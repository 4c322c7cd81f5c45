"""What the commands share: exit statuses, messages for people, and options that several have."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from shine_node.cli.lines import visible

__all__ = [
    "DEFAULT_CONFIG",
    "OK",
    "REFUSED",
    "UNUSABLE",
    "SubCommands",
    "add_config_option",
    "add_keys_option",
    "complain",
    "drop_output",
    "environ_of_service",
    "key_file",
    "number_between",
]

OK = 0
REFUSED = 1
"""The command was understood and could not be done; of ``check``: there are warnings."""
UNUSABLE = 2
"""The command line or the configuration is wrong; nothing was begun."""

DEFAULT_CONFIG = Path("/etc/shine-node/shine-node.toml")

CREDENTIALS = Path("/run/credentials/shine-node.service")
"""Where systemd keeps what it has handed to the packaged service while that runs; root may look inside."""

SubCommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def complain(text: str) -> None:
    """Write a message for a person to standard error, each line with the program's name before it.

    Part of it may be what a server has said: no character of it acts on the terminal.
    """
    with contextlib.suppress(OSError):  # such as a full disk: the exit status says that something was wrong
        for line in text.splitlines():
            print(f"shine-node: {visible(line)}", file=sys.stderr)


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option ``--config FILE``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=DEFAULT_CONFIG,
        help="the configuration file (default: %(default)s)",
    )


def environ_of_service(config: Path) -> dict[str, str]:
    """Return the environment to judge a configuration in: of this process, with the packaged service's credentials.

    They are added where the configuration is that of the service, which runs, and this user may look at them.
    """
    theirs = config == DEFAULT_CONFIG and os.access(CREDENTIALS, os.R_OK | os.X_OK)
    return {**({"CREDENTIALS_DIRECTORY": str(CREDENTIALS)} if theirs else {}), **os.environ}


def add_keys_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option ``--keys FILE``; ``key_file`` says which it is."""
    parser.add_argument(
        "--keys",
        metavar="FILE",
        type=Path,
        help="the file with the account's keys (default: $XDG_CONFIG_HOME/shine-node/keys.json, or"
        " ~/.config/shine-node/keys.json)",
    )


def key_file(arguments: argparse.Namespace) -> Path:
    """Return the key file that a command is to use."""
    from shine_node.client.keyfile import default_key_file  # not above: --help is to need no libraries

    given: Path | None = arguments.keys
    return default_key_file() if given is None else given


def number_between(least: int, greatest: int) -> Callable[[str], int]:
    """Return what reads a whole number of the command line within a range."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= greatest):
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {greatest}, not {text!r}")
        return int(text)

    return read


def drop_output() -> None:
    """Let what is still to be printed go nowhere, when nobody reads it: else the interpreter's last flush fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
