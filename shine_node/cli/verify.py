"""``verify``: looks through a whole store, also beside a running node, and mends one that nobody uses."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shine_node.cli.common import DEFAULT_CONFIG, OK, REFUSED, UNUSABLE, SubCommands, complain

if TYPE_CHECKING:
    from shine_node.store.verifying.findings import Report

__all__ = ["add_parser", "describe", "run", "told"]


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "verify",
        help="look through the whole store: signatures, rows, indexes",
        description="Looks at every page, every row, every signature and every index of a store, and changes nothing;"
        " the node may run meanwhile. Exit status: 0 all is well, 1 something was found (with --repair: and mended),"
        " 2 it could not be done.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=DEFAULT_CONFIG,
        help="the configuration of the node whose store it is (default: %(default)s)",
    )
    which.add_argument("--store", metavar="FILE", type=Path, help="a store, such as a backup")
    parser.add_argument("--login", metavar="SERVER", help="with --store: the login of the server whose store it is")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="mend what can be mended, while no node runs: indexes are written anew, and rows that cannot be read, are"
        " forged or belong to nothing go into a file beside the store",
    )
    parser.add_argument("--no-copy", action="store_true", help="with --repair: make no copy of the store first")
    parser.add_argument("--json", action="store_true", help="all that was found, as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify, or repair, and print what was found.

    Raises:
        ConfigError: without ``--store``.
    """
    from shine_node.protocol.errors import ShineError
    from shine_node.store.recovery.presence import refuse_gone

    if arguments.login is not None and arguments.store is None:
        complain("--login goes with --store: otherwise the configuration says which server it is")
        return UNUSABLE
    if arguments.repair and arguments.store is not None and arguments.login is None:
        complain("--repair needs to know whose store it is: give --login SERVER, or --config instead of --store")
        return UNUSABLE
    if arguments.no_copy and not arguments.repair:
        complain("--no-copy goes with --repair")
        return UNUSABLE
    path, own_login = _store_of(arguments)
    try:
        refuse_gone(path)
        return _repair(arguments, path, own_login or "") if arguments.repair else _verify(arguments, path, own_login)
    except (ShineError, OSError) as error:
        complain(str(error))
        return UNUSABLE


def _store_of(arguments: argparse.Namespace) -> tuple[Path, str | None]:
    from shine_node.config import load_config
    from shine_node.control.recovery import store_file

    if arguments.store is not None:
        return arguments.store, arguments.login.lower() if arguments.login is not None else None
    config = load_config(arguments.config)
    return store_file(config), config.server.login.lower()


def _verify(arguments: argparse.Namespace, path: Path, own_login: str | None) -> int:
    from shine_node.cli.bar import Bar
    from shine_node.cli.owner import as_owner
    from shine_node.store.verifying.verify import verify_file

    path.stat()  # before a lock file is made for what is not there
    with as_owner(path.parent), Bar("verifying") as bar:
        # Whoever has it open has made this file; without it nobody has, and none need be left beside a backup.
        beside = path.with_name(path.name + "-lock").exists()
        report = verify_file(path, own_login, progress=bar.show, lock=beside)
    _print(arguments, path, report, {})
    return OK if report.clean else REFUSED


def _repair(arguments: argparse.Namespace, path: Path, own_login: str) -> int:
    from datetime import UTC, datetime

    from shine_node.cli.bar import Bar
    from shine_node.cli.owner import as_owner
    from shine_node.clock import SystemClock
    from shine_node.store.recovery.state import clear_damage
    from shine_node.store.structure import read_file_head
    from shine_node.store.verifying.verify import repair_store

    now_ms = SystemClock().now_ms()
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    copy = None if arguments.no_copy else path.with_name(f"{path.name}.before-repair-{at}")
    quarantine = path.with_name(f"{path.name}.quarantine-{at}.jsonl")
    path.stat()
    with as_owner(path.parent), Bar("repairing") as bar:
        report = repair_store(
            path,
            own_login,
            map_size=read_file_head(path).map_size,
            now_ms=now_ms,
            quarantine=quarantine,
            copy=copy,
            progress=bar.show,
        )
        clear_damage(path)
        made = {"copy": copy, "quarantine": quarantine if quarantine.exists() else None}
    _print(arguments, path, report, {name: str(file) for name, file in made.items() if file is not None})
    return OK if report.clean else REFUSED


def _print(arguments: argparse.Namespace, path: Path, report: Report, made: dict[str, str]) -> None:
    import orjson

    if arguments.json:
        described = {"store": str(path), **describe(report), **made}
        print(orjson.dumps(described, option=orjson.OPT_INDENT_2).decode())
        return
    print("\n".join(told(report, repaired=arguments.repair)))
    for name, file in made.items():
        print(f"{name}: {file}")


def describe(report: Report) -> dict[str, object]:
    """Return a report for scripts; pure."""
    from shine_node.store.verifying.names import readable

    return {
        "clean": report.clean,
        "rows": report.rows,
        "signatures": report.signatures,
        "repaired": report.repaired,
        "counts": {problem.name.lower(): count for problem, count in report.counts.items()},
        "findings": [
            {
                "problem": problem.name.lower(),
                "row": readable(finding.table, finding.key),
                "text": finding.text,
                "repair": finding.remedy,
            }
            for problem, findings in report.first.items()
            for finding in findings
        ],
    }


def told(report: Report, *, repaired: bool) -> list[str]:
    """Return a report as lines for a person: what was found, and what to do about it; pure."""
    from shine_node.cli.lines import visible
    from shine_node.store.verifying.findings import Problem
    from shine_node.store.verifying.names import readable

    lines: list[str] = []
    for problem, findings in sorted(report.first.items(), key=lambda item: item[0].note):
        count = report.counts[problem]
        lines.append(f"{count} {problem.value}" + (" (nothing is to be done)" if problem.note else ""))
        for finding in findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            lines.append(visible(f"  {readable(finding.table, finding.key)}: {finding.text}{remedy}"))
        if count > len(findings):
            lines.append(f"  and {count - len(findings)} more")
    looked_at = f"{report.rows} rows and {report.signatures} signatures were looked at"
    if report.clean:
        return [*lines, f"all is well: {looked_at}"]
    if not repaired:
        lines.append(f"{looked_at}; {report.problems} things are not as they must be: stop the node and use --repair")
    else:
        lines.append(f"{looked_at}; {report.problems} things were not as they must be, and are mended")
    if any(report.counts[problem] for problem in (Problem.UNREADABLE, Problem.FORGED, Problem.LOST, Problem.DANGLING)):
        lines.append(
            "what is lost here may be at the users' other servers: have `shine-node user resync` run there; or restore"
            " a backup"
        )
    return lines
