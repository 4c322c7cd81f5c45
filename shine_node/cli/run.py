"""``run``: the node itself."""

from __future__ import annotations

import argparse

from shine_node.cli.common import SubCommands, add_config_option

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "run",
        help="run the node",
        description="Runs the node until SIGTERM or SIGINT. Prints one line for each address it listens on.",
    )
    add_config_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the node and return its exit status.

    Raises:
        ConfigError: before anything has been started.
    """
    from shine_node.config import load_config

    config = load_config(arguments.config)

    from shine_node.process import run_node  # only now: a wrong configuration is told without loading the node

    return run_node(config, config_path=arguments.config)
