"""What ``check`` finds of the certificate: whether it belongs to its key, names this server, and is valid for long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from shine_node.cli.check_access import find_closed, let_in, readers, shut
from shine_node.cli.common import environ_of_service
from shine_node.cli.findings import Finding, Level, Situation
from shine_node.cli.node_user import NodeUser
from shine_node.clock import SystemClock
from shine_node.config import is_credential, lacks_credentials
from shine_node.control.health import CREDENTIAL_ADVICE, DAY_MS, LEAST_CERTIFICATE_DAYS, NO_CREDENTIAL
from shine_node.peers.address import parse_endpoint
from shine_node.tls import CertificateError, Shown, look_at

__all__ = ["PRODUCERS", "judge_certificate"]

NAMES_SHOWN = 5
HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def find_certificate(situation: Situation) -> list[Finding]:
    """Look at the certificate as those who connect see it, and whether others can read its key."""
    server = situation.config.server
    if server.tls_cert is None or server.tls_key is None:
        if lacks_credentials(environ_of_service(situation.config_path)):
            return [Finding(Level.WARNING, "certificate", NO_CREDENTIAL)]
        return []
    endpoint, handed_over = parse_endpoint(server.url), is_credential(server.tls_cert)
    try:
        shown = look_at(server.tls_cert, server.tls_key, endpoint.host)
    except CertificateError as error:
        return [Finding(Level.ERROR, "certificate", str(error))]
    findings = [] if handed_over else _closed([server.tls_cert, server.tls_key], situation.node)
    findings += judge_certificate(
        shown, path=server.tls_cert, host=endpoint.host, now_ms=SystemClock().now_ms(), handed_over=handed_over
    )
    if not handed_over and (others := readers(server.tls_key, situation.node)):
        text = f"{server.tls_key} can be read by {others}: {shut(server.tls_key, situation.node)}"
        findings.append(Finding(Level.WARNING, "certificate", text))
    return findings


def judge_certificate(shown: Shown, *, path: Path, host: str, now_ms: int, handed_over: bool = False) -> list[Finding]:
    """Say what is wrong with a certificate that belongs to its key; pure.

    Args:
        path: its file, for messages.
        host: where others expect this server.
        handed_over: whether systemd hands it over at a start, so that what is renewed is not seen before the next one.
    """
    seen = CREDENTIAL_ADVICE if handed_over else "the node reads it by itself then"
    findings: list[Finding] = []

    def add(level: Level, text: str) -> None:
        findings.append(Finding(level, "certificate", text))

    days = (shown.not_after_ms - now_ms) // DAY_MS
    if shown.not_after_ms <= now_ms:
        add(Level.ERROR, f"{path} expired {_ago(now_ms - shown.not_after_ms)} ago: renew it; {seen}")
    elif now_ms < shown.not_before_ms:
        add(Level.ERROR, f"{path} is not valid yet: set the clock of this machine right, or get another certificate")
    elif days < LEAST_CERTIFICATE_DAYS:
        add(
            Level.WARNING,
            f"{path} expires in {days} days: renew it now, and see to it that this happens by itself; {seen}",
        )
    if not shown.names_host:
        names = ", ".join(shown.names[:NAMES_SHOWN]) + (", …" if len(shown.names) > NAMES_SHOWN else "")
        add(
            Level.ERROR,
            f"{path} is for {names or 'no name at all'} and not for {host}, where server.url leads: get one for"
            f" {host}, or correct server.url",
        )
    elif not shown.names:
        add(
            Level.WARNING,
            f"{path} says {host} in its subject alone (CN), where browsers and other programs do not look: get one with"
            f" {host} as subjectAltName",
        )
    if shown.self_signed:
        add(
            Level.WARNING,
            f"{path} is signed by nobody but itself: other servers and browsers refuse it. Get one of a public"
            " authority, or give this one to each of them (server.pool.caFile)",
        )
    elif shown.untrusted and shown.certificates == 1:
        add(
            Level.WARNING,
            f"{path} holds this server's own certificate alone, and no authority of this machine vouches for it"
            f" ({shown.untrusted}): add those between, after it (certbot calls that file fullchain.pem)",
        )
    elif shown.untrusted:
        add(
            Level.WARNING,
            f"no authority of this machine vouches for {path} ({shown.untrusted}): other servers refuse it unless"
            " they know its authority (server.pool.caFile); else put its chain in order, this server's own first",
        )
    return findings or [Finding(Level.OK, "certificate", f"{path} belongs to its key, is for {host}, {days} days left")]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_certificate,)


def _closed(paths: Iterable[Path], user: NodeUser) -> list[Finding]:
    """Say which files the node's user cannot read, though root can."""
    advice = "let systemd hand it over with LoadCredential=, as the example tls.conf of the package does, or"
    return [
        Finding(
            Level.ERROR,
            "certificate",
            f"{path} cannot be read by {user.name}, whom the node runs as: {advice} {let_in(closed, user)}",
        )
        for path in paths
        if (closed := find_closed(path, user)) is not None
    ]


def _ago(span_ms: int) -> str:
    """Return how long ago something was, by its greatest unit."""
    for unit_ms, name in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        if span_ms >= unit_ms:
            number = span_ms // unit_ms
            return f"{number} {name}{'' if number == 1 else 's'}"
    return "less than a minute"
