"""``reload``: lets the running node read its configuration and certificate again, and says what came of it."""

from __future__ import annotations

import argparse

from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_config_option, complain

__all__ = ["add_parser", "run"]

SECONDS = 30.0


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "reload",
        help="let the running node read its configuration again",
        description="Lets the running node read its configuration and its certificate again, as SIGHUP does, and says"
        " what has changed and what waits for a restart. Exit status: 0 done; 1 the node has refused, such as for a"
        " certificate that it cannot use; 2 a mistake in the configuration, or nobody answers: the node does not run,"
        " or cannot be asked. With 1 and 2 all stays as it was.",
    )
    add_config_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Have it reloaded and print what has changed.

    Raises:
        ConfigError: of a configuration so wrong that the place of the node's socket cannot be found in it.
    """
    from shine_node.cli.control import AskRefused, ask
    from shine_node.config import load_config
    from shine_node.protocol.errors import ShineError

    config = load_config(arguments.config)
    try:
        done = ask(config, arguments.config, "Reload", {}, seconds=SECONDS)
    except AskRefused as refused:
        complain(f"nothing was reloaded, all stays as it was: {refused.message}")
        return REFUSED
    except ShineError as error:
        complain(str(error))
        return UNUSABLE
    values = done.get("values", {})
    for title, names in (("changed", done["changed"]), ("for a restart", done["needRestart"])):
        for name in names:
            print(f"{title}: {name} ({values.get(name, 'changed')})")
    if not done["changed"] and not done["needRestart"]:
        print("nothing has changed")
    return OK
