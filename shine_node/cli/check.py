"""``check``: says what is wrong, or may be, before anything is started; it changes nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shine_node.cli.common import SubCommands, add_config_option

if TYPE_CHECKING:
    from pathlib import Path

    from shine_node.cli.findings import Finding

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "check",
        help="say what is wrong before anything is started",
        description="Looks at the configuration and at what it needs, and changes nothing."
        " Exit status: 0 all is well, 1 there are warnings, 2 the node will not work.",
    )
    add_config_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all findings and return the exit status that they amount to."""
    from shine_node.cli.findings import exit_status, report

    findings = find(arguments.config)
    print(report(findings))
    return exit_status(findings)


def find(config_path: Path) -> list[Finding]:
    """Return all findings; without a usable configuration only what is wrong with it."""
    from shine_node.cli import check_configuration, check_machine, check_store
    from shine_node.cli.findings import Finding, Level, Situation
    from shine_node.config import ConfigError, load_config

    try:
        config = load_config(config_path)
    except ConfigError as error:
        return [Finding(Level.ERROR, "configuration", str(problem)) for problem in error.problems]
    situation = Situation(config, config_path)
    producers = (*check_configuration.PRODUCERS, *check_machine.PRODUCERS, *check_store.PRODUCERS)
    return [
        Finding(Level.OK, "configuration", f"{config_path} has no mistakes"),
        *(finding for producer in producers for finding in producer(situation)),
    ]
