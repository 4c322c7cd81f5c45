"""``status``: how the running node is, over its control socket."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from shine_node import __version__
from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_config_option, complain

__all__ = ["add_parser", "render", "run"]

KIB, MIB, GIB = 2**10, 2**20, 2**30
_CLOCK = {True: "kept right", False: "kept right by nothing", None: "perhaps kept right"}


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "status",
        help="show how the running node is",
        description="Shows the running node: what is not well first, then its store, its certificate, its queues, and"
        " its links to other servers. Exit status: 0 all is well, or nothing that its operator could do is left to do;"
        " 1 there are warnings; 2 a mistake in the configuration, or nobody answers: the node does not run, or cannot"
        " be asked: the message says which.",
    )
    add_config_option(parser)
    parser.add_argument("--json", action="store_true", help="all that the node says, as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the node and return what it amounts to.

    Raises:
        ConfigError: it is told before that this says nothing of a node that runs.
    """
    import orjson

    from shine_node.cli.control import AskRefused, ask
    from shine_node.clock import SystemClock
    from shine_node.config import ConfigError, load_config
    from shine_node.control.recovery import damage_notice
    from shine_node.protocol.errors import ShineError
    from shine_node.store.recovery.state import boot_id

    try:
        config = load_config(arguments.config)
    except ConfigError:
        complain("the configuration cannot be used, so the node cannot be found; one that runs goes on with its own")
        raise
    try:
        status = ask(config, arguments.config, "Status", {})
    except AskRefused as refused:
        complain(f"the node runs, and does not say how it is ({refused.message}): ask again in a moment")
        return UNUSABLE
    except ShineError as error:
        complain(str(error))
        damage, _ = damage_notice(config, now_ms=SystemClock().now_ms(), boot=boot_id())
        complain(damage)  # why it does not run, maybe
        return UNUSABLE
    if arguments.json:
        print(orjson.dumps(status, option=orjson.OPT_INDENT_2).decode())
        return REFUSED if status.get("warnings") else OK
    try:
        lines = list(render(status))
    except (KeyError, TypeError):
        version = status.get("version", "another")
        complain(f"the node is of version {version}, this program is {__version__}: restart the node, or use --json")
        return UNUSABLE
    print("\n".join(lines))
    return REFUSED if status["warnings"] else OK


def render(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the state of a node as lines for a person; the answer to ``Status`` is what is read. Pure."""
    store, queues, peers = status["store"], status["queues"], status["peers"]
    at_ms = peers["atMs"]
    for warning in status["warnings"]:
        yield f"warning: {warning}"
    for note in status["notes"]:
        yield f"note:    {note}"
    if status["warnings"] or status["notes"]:
        yield ""
    up = _span(status["uptimeSeconds"])
    yield f"node    {status['login']} at {status['url']}, version {status['version']}, up {up}"
    yield f"listen  {', '.join(status['listening'])}; {_count(status['connections'], 'connection')}"
    free = "" if store["diskFreeBytes"] is None else f", {_size(store['diskFreeBytes'])} free on its disk"
    yield f"store   {store['path']}: {_count(store['users'], 'user')}, {_copies(store['messages'])};"
    yield (
        f"        {_size(store['usedBytes'])} of {_size(store['mapBytes'])} in use ({store['usedShare']:.1%}),"
        f" file {_size(store['fileBytes'])}{free}"
    )
    yield f"backup  {_backup(status['backup'], status['clock']['nowMs'])}"
    yield f"certif. {_certificate(status['certificate'])}; clock {_CLOCK[status['clock']['synchronised']]}"
    yield (
        f"queues  {queues['crypto']} for signatures, {queues['writer']} for the disk;"
        f" {_count(queues['openDeliveries'], 'open delivery', 'open deliveries')},"
        f" {_count(queues['attempts'], 'attempt')} under way"
    )
    yield from _since_start(status["sinceStart"])
    yield f"peers   {peers['known']} known, {_count(len(peers['links']), 'link')} of at most {peers['maxConnections']}"
    width = max((len(link["serverLogin"]) for link in peers["links"]), default=0)
    for link in peers["links"]:
        yield f"  {link['serverLogin']:<{width}}  {_link(link, at_ms)}"
    yield ""
    yield _count(len(status["warnings"]), "warning") if status["warnings"] else "all is well"


def _backup(backup: Mapping[str, Any], now_ms: int) -> str:
    if backup["file"] is None:
        return f"none in {backup['folder']}"
    return f"{backup['file']}, {_span((now_ms - backup['madeAtMs']) // 1000)} ago, {_size(backup['fileBytes'])}"


def _since_start(counts: Mapping[str, Any]) -> Iterator[str]:
    tokens = f", {_count(counts['wrongTokens'], 'wrong token')}" if counts["wrongTokens"] else ""
    logins = f"{_count(counts['failedLogins'], 'failed log-in')}, {counts['refusedLogins']} more not looked at"
    yield f"since   its start: {_count(counts['registrations'], 'registration')}, {logins}{tokens}"
    refused = [f"{count} by limits.{bound}" for bound, count in counts["refusedByLimits"].items() if count]
    if refused:
        yield f"        refused {', '.join(refused)}"


def _certificate(certificate: Mapping[str, Any] | None) -> str:
    if certificate is None:
        return "none, TLS is left to a proxy"
    days = certificate["daysLeft"]
    return f"valid for {_count(days, 'day')}" if days >= 0 else "expired"


def _link(link: Mapping[str, Any], at_ms: int) -> str:
    queue = "/".join(str(link[f"waiting{priority}"]) for priority in ("Realtime", "Normal", "Bulk"))
    counts = f"{link['succeeded']} succeeded, {link['failed']} failed, {link['timedOut']} timed out"
    error = f"; last error: {link['lastError']}" if link["lastError"] else ""
    return f"{_state(link, at_ms):<24}  queue {queue}  {counts}{_synced(link, at_ms)}{error}"


def _synced(link: Mapping[str, Any], at_ms: int) -> str:
    """Return when the last sync session ended well, or since when none has and why; nothing where there was none."""
    well_at, not_since = link["syncedAtMs"], link["notSyncedSinceMs"]
    if not_since is not None:
        last = "never synced" if well_at is None else f"last synced {_span((at_ms - well_at) // 1000)} ago"
        return f"; {last}, trying for {_span((at_ms - not_since) // 1000)} ({link['notSyncedBecause']})"
    return "" if well_at is None else f"; synced {_span((at_ms - well_at) // 1000)} ago"


def _state(link: Mapping[str, Any], at_ms: int) -> str:
    """Return the state of a link and since when, as far as is known."""
    state, since, seen = link["state"], link["connectedAtMs"], link["lastActivityMs"]
    if state == "connected" and since is not None:
        return f"connected for {_span((at_ms - since) // 1000)}"
    return f"{state}, never seen" if seen is None else f"{state}, seen {_span((at_ms - seen) // 1000)} ago"


def _span(seconds: int) -> str:
    """Return a length of time by its two greatest units."""
    seconds = max(0, seconds)
    for unit, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            return f"{seconds // unit} {name} {seconds % unit // smaller} {smaller_name}"
    return f"{seconds} s"


def _size(number: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number / KIB:.0f} KiB"


def _copies(number: int) -> str:
    """Return how much is stored: of a message between two users here both have a copy, and receipts are some too."""
    return f"{_count(number, 'copy', 'copies')} of messages"


def _count(number: int, name: str, names: str = "") -> str:
    return f"{number} {name if number == 1 else names or name + 's'}"
