"""``reload``: lets the running node read its configuration and its certificate again, and tells what came of it."""

from __future__ import annotations

import argparse

from shine_node.cli.common import OK, SubCommands, add_config_option

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "reload",
        help="let the running node read its configuration again",
        description="Lets the running node read its configuration and its certificate again, whole or, where there is a"
        " mistake, not at all: then it goes on with what it had. Exit status: 0 done, 1 the certificate or its key"
        " cannot be used, or the node cannot be asked, 2 there are mistakes in the configuration.",
    )
    add_config_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reload, and print what has changed and what waits for a restart.

    Raises:
        ConfigError: there are mistakes, and the node has not been asked.
        ControlError: the node does not run, or cannot be asked; AskRefused: it found a mistake that is not in the file,
            such as a certificate that does not belong to its key.
    """
    from shine_node.cli.control import ask
    from shine_node.config import load_config

    done = ask(load_config(arguments.config), arguments.config, "Reload", {})
    print(f"changed: {', '.join(done['changed']) or 'nothing'}")
    if done["needRestart"]:
        print(f"for a restart: {', '.join(done['needRestart'])}")
    return OK
