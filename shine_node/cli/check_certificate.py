"""What ``check`` finds of the certificate: whether it belongs to its key, names this server, and is valid for long."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.clock import SystemClock
from shine_node.control.health import DAY_MS, LEAST_CERTIFICATE_DAYS
from shine_node.peers.address import parse_endpoint
from shine_node.tls import CertificateError, Shown, look_at

__all__ = ["PRODUCERS", "judge_certificate"]

NAMES_SHOWN = 5


def find_certificate(situation: Situation) -> list[Finding]:
    """Look at the certificate as those who connect see it, and whether others can read its key."""
    server = situation.config.server
    if server.tls_cert is None or server.tls_key is None:
        return []
    endpoint = parse_endpoint(server.url)
    try:
        shown = look_at(server.tls_cert, server.tls_key, endpoint.host)
    except CertificateError as error:
        return [Finding(Level.ERROR, "certificate", str(error))]
    findings = judge_certificate(shown, path=server.tls_cert, host=endpoint.host, now_ms=SystemClock().now_ms())
    if server.tls_key.stat().st_mode & stat.S_IROTH:
        text = f"{server.tls_key} can be read by every user of this machine: chmod o-rwx {server.tls_key}"
        findings.append(Finding(Level.WARNING, "certificate", text))
    return findings


def judge_certificate(shown: Shown, *, path: Path, host: str, now_ms: int) -> list[Finding]:
    """Say what is wrong with a certificate that belongs to its key; pure.

    Args:
        path: its file, for messages.
        host: where others expect this server.
    """
    findings: list[Finding] = []

    def add(level: Level, text: str) -> None:
        findings.append(Finding(level, "certificate", text))

    days = (shown.not_after_ms - now_ms) // DAY_MS
    if shown.not_after_ms <= now_ms:
        add(Level.ERROR, f"{path} expired {-days} days ago: renew it, and reload the node")
    elif now_ms < shown.not_before_ms:
        add(Level.ERROR, f"{path} is not valid yet: set the clock of this machine right, or get another certificate")
    elif days < LEAST_CERTIFICATE_DAYS:
        add(Level.WARNING, f"{path} expires in {days} days: renew it now, and see to it that this happens by itself")
    if not shown.names_host:
        names = ", ".join(shown.names[:NAMES_SHOWN]) + (", …" if len(shown.names) > NAMES_SHOWN else "")
        add(
            Level.ERROR,
            f"{path} is for {names or 'no name at all'} and not for {host}, where server.url leads: get one for"
            f" {host}, or correct server.url",
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
