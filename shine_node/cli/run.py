"""``run``: the node itself."""

from __future__ import annotations

import argparse

from shine_node.cli.common import UNUSABLE, SubCommands, add_config_option

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "run",
        help="run the node",
        description="Runs the node until SIGTERM or SIGINT. Prints one line for each address it listens on. Exit"
        " status: 0 after a signal; 1 it could not go on, and may when it is started again; 2 a mistake in the"
        " configuration, or it cannot use what that names, such as the certificate or the data folder; 78 its owner has"
        " to do something about the store.",
    )
    add_config_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the node and return its exit status.

    Raises:
        ConfigError: before anything has been started. Where the log is to be JSON, the mistakes are told so instead.
    """
    from shine_node.config import ConfigError, find_early, load_config

    try:
        config = load_config(arguments.config)
    except ConfigError as error:
        if find_early(arguments.config, "log", "format") != "json":
            raise
        from shine_node.logs import complain

        complain(str(problem) for problem in error.problems)
        return UNUSABLE

    from shine_node.process import run_node  # only now: a wrong configuration is told without loading the node

    return run_node(config, config_path=arguments.config)
