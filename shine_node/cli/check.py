"""``check``: says what is wrong, or may be, before anything is started; it changes nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shine_node.cli.common import SubCommands, add_config_option, environ_of_service

if TYPE_CHECKING:
    from pathlib import Path

    from shine_node.cli.findings import Finding
    from shine_node.config import Config

__all__ = ["add_parser", "run"]

ASK_SECONDS = 5.0
"""How long the running node may take to say where it listens."""


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "check",
        help="say what is wrong before anything is started",
        description="Looks at the configuration and at what it needs: certificate, clock, disk, ports, whether this"
        " server answers at its own address if it runs, and its peers. It changes nothing. Root is told what the node's"
        " own user may: that of the packaged service, or else the owner of the data folder."
        " Exit status: 0 all is well, 1 there are warnings, 2 the node will not work.",
    )
    add_config_option(parser)
    parser.add_argument("--offline", action="store_true", help="ask nothing over the network")
    parser.add_argument("--json", action="store_true", help="all findings as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all findings and return the exit status that they amount to."""
    import orjson

    from shine_node.cli.findings import as_json, exit_status, report

    findings = find(arguments.config, offline=arguments.offline)
    if arguments.json:
        print(orjson.dumps(as_json(findings), option=orjson.OPT_INDENT_2).decode())
    else:
        print(report(findings))
    return exit_status(findings)


def find(config_path: Path, *, offline: bool = False) -> list[Finding]:
    """Return all findings; without a usable configuration only what is wrong with it.

    Args:
        offline: ask nothing over the network.
    """
    from shine_node.cli import (
        check_access,
        check_backup,
        check_certificate,
        check_clock,
        check_configuration,
        check_disk,
        check_machine,
        check_network,
        check_ports,
        check_store,
    )
    from shine_node.cli.findings import Finding, Level, Situation
    from shine_node.cli.node_user import as_node, find_node_user, own_user
    from shine_node.cli.owner import NotAllowed
    from shine_node.cli.unit import unit_of
    from shine_node.config import ConfigError, load_config

    try:
        config = load_config(config_path, environ=environ_of_service(config_path))
    except ConfigError as error:
        return [Finding(Level.ERROR, "configuration", str(problem)) for problem in error.problems]
    findings = [Finding(Level.OK, "configuration", f"{config_path} has no mistakes")]
    unit = unit_of(config_path)
    user = find_node_user(config.server.data_dir, unit)
    try:
        with as_node(user):
            pass
    except NotAllowed as error:
        findings.append(Finding(Level.WARNING, "rights", f"what the node may do cannot be told: {error}"))
        user = own_user()
    listening, unreadable_rows = _running(config, config_path)
    situation = Situation(config, config_path, listening, offline, unreadable_rows, user, unit)
    rooms = (
        check_configuration,
        check_access,
        check_machine,
        check_disk,
        check_store,
        check_backup,
        check_certificate,
        check_clock,
        check_ports,
        check_network,
    )
    findings += (finding for room in rooms for producer in room.PRODUCERS for finding in producer(situation))
    return findings


def _running(config: Config, config_path: Path) -> tuple[tuple[str, ...], int]:
    """Return where the running node listens, and how many rows of its store it could not read.

    Nothing and none where it does not run, or cannot be asked.
    """
    from shine_node.cli.control import ask
    from shine_node.protocol.errors import ShineError

    try:
        status = ask(config, config_path, "Status", {}, seconds=ASK_SECONDS)
    except ShineError:
        return (), 0
    listening, store = status.get("listening"), status.get("store")
    rows = store.get("unreadableRows") if isinstance(store, dict) else 0
    urls = tuple(map(str, listening)) if isinstance(listening, list) else ()
    return urls, rows if isinstance(rows, int) else 0
