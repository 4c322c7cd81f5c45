"""What the commands share: exit statuses, messages for people, and options that several have."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

__all__ = ["DEFAULT_CONFIG", "OK", "REFUSED", "UNUSABLE", "SubCommands", "add_config_option", "complain"]

OK = 0
REFUSED = 1
"""The command was understood and could not be done; of ``check``: there are warnings."""
UNUSABLE = 2
"""The command line or the configuration is wrong; nothing was begun."""

DEFAULT_CONFIG = Path("/etc/shine-node/shine-node.toml")

SubCommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def complain(text: str) -> None:
    """Write a message for a person to standard error, each line with the program's name before it."""
    for line in text.splitlines():
        print(f"shine-node: {line}", file=sys.stderr)


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option ``--config FILE``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=DEFAULT_CONFIG,
        help="the configuration file (default: %(default)s)",
    )
