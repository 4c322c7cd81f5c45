"""What ``check`` finds over the network: whether this server answers at its own address, and its peers at theirs.

All looks are made at once, and each has a bound.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.clock import Clock, SystemClock
from shine_node.config import SyncServer, is_placeholder
from shine_node.control.health import DAY_MS, LEAST_CERTIFICATE_DAYS
from shine_node.peers.dial import DialFailed, make_tls_context
from shine_node.protocol.envelope import decode_answer, encode_request
from shine_node.protocol.hello import hello_payload

__all__ = ["PRODUCERS", "Seen", "Unreached", "judge_difference", "judge_own", "judge_peer", "judge_trust"]

SECONDS = 5.0
MAX_PEERS = 32
MAX_SHOWN = 200
CLOCKS_APART_MS = 10_000
HAIRPIN = (
    " It may be this machine's router alone that does not lead back to its own address (hairpin NAT): try from"
    " elsewhere, such as a phone without Wi-Fi; if it works there, all is well, and a line in /etc/hosts makes it"
    " work here too"
)


class Seen(NamedTuple):
    """What a server said of itself.

    ``ahead_ms`` is how far its clock is ahead of ours, ``days_left`` how long its certificate is valid yet, where it
    has one.
    """

    login: str
    url: str
    ahead_ms: int
    days_left: int | None


class Unreached(NamedTuple):
    """Why there was no answer.

    ``far`` says whether the network is to blame rather than the server, ``passing`` whether names cannot be looked up
    now, ``untrusted`` whether its certificate is the reason.
    """

    why: str
    far: bool
    passing: bool = False
    untrusted: bool = False


def find_network(situation: Situation) -> list[Finding]:
    """Look at the own address, if the node runs, and at the peers of the configuration."""
    if situation.offline:
        return [Finding(Level.OK, "network", "not looked at (--offline)")]
    return asyncio.run(_look(situation))


def judge_own(situation: Situation, seen: Seen | Unreached) -> Finding:
    """Say whether it is this server that answers at ``server.url``; pure."""
    server = situation.config.server
    if isinstance(seen, Unreached) and seen.passing:
        text = (
            f"whether {server.url} leads here cannot be told ({seen.why}): look at this machine's DNS, and check again"
        )
        return _finding(Level.WARNING, "reach", text)
    if isinstance(seen, Unreached):
        text = f"{server.url} cannot be reached ({seen.why}): look at the name, the router's port and the proxy."
        return _finding(Level.WARNING if seen.far else Level.ERROR, "reach", text + (HAIRPIN if seen.far else ""))
    if seen.login.lower() != server.login.lower():
        text = (
            f"at {server.url} answers {seen.login or 'something else'} and not {server.login}: correct server.url, or"
            " where its name or the router's port leads"
        )
        return _finding(Level.ERROR, "reach", text)
    if seen.url != server.url:
        text = (
            f"the server at {server.url} says that it is {seen.url}: restart the node if server.url was changed, or"
            " look where its name leads"
        )
        return _finding(Level.WARNING, "reach", text)
    if seen.days_left is not None and seen.days_left < LEAST_CERTIFICATE_DAYS:
        text = f"the certificate that is shown at {server.url} expires in {seen.days_left} days: renew it"
        return _finding(Level.WARNING, "reach", text)
    return _finding(Level.OK, "reach", f"{server.login} answers at {server.url}")


def judge_trust(situation: Situation, seen: Seen | Unreached) -> list[Finding]:
    """Say whether others trust this server, which does so itself by ``server.pool.caFile``; nothing if they do; pure.

    Args:
        seen: what those see who know the authorities of the system alone.
    """
    if isinstance(seen, Seen) or not seen.untrusted:
        return []
    server = situation.config.server
    text = (
        f"the certificate at {server.url} is one that server.pool.caFile vouches for, and no authority of this"
        f" machine: give {server.pool.ca_file} to the browsers and the other servers that are to come here"
    )
    return [_finding(Level.WARNING, "reach", text)]


def judge_peer(peer: SyncServer, seen: Seen | Unreached) -> Finding:
    """Say whether a peer answers as the one that it is configured to be; pure."""
    if isinstance(seen, Unreached):
        text = (
            f"{peer.login} cannot be reached at {peer.url} ({seen.why}): ask its operator, or correct the url. What is"
            " for it waits meanwhile"
        )
        return _finding(Level.WARNING, "sync_servers", text)
    if seen.login.lower() != peer.login.lower():
        text = f"at {peer.url} answers {seen.login or 'something else'} and not {peer.login}: correct the entry"
        return _finding(Level.WARNING, "sync_servers", text)
    return _finding(Level.OK, "sync_servers", f"{peer.login} answers at {peer.url}")


def judge_difference(name: str, ahead_ms: int) -> list[Finding]:
    """Say whether a peer's clock and this machine's agree; nothing where they do; pure."""
    if abs(ahead_ms) <= CLOCKS_APART_MS:
        return []
    text = (
        f"the clock of {name} is {abs(ahead_ms) // 1000} s {'ahead of' if ahead_ms > 0 else 'behind'} this machine's:"
        " look which of them is wrong (timedatectl), and set it right"
    )
    return [_finding(Level.WARNING, "clock", text)]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (find_network,)


async def _look(situation: Situation) -> list[Finding]:
    config = situation.config
    try:
        tls = make_tls_context(config.server.pool.ca_file)
    except DialFailed as error:
        return [_finding(Level.ERROR, "caFile", str(error))]
    looks: list[Coroutine[Any, Any, list[Finding]]] = [_own(situation, tls)]
    looks += [_peer(config.server.login, peer, tls) for peer in config.sync_servers[:MAX_PEERS]]
    findings = [finding for found in await asyncio.gather(*looks) for finding in found]
    if len(config.sync_servers) > MAX_PEERS:
        text = f"the first {MAX_PEERS} of {len(config.sync_servers)} were asked; `status` shows the links to all"
        findings.append(_finding(Level.OK, "sync_servers", text))
    return findings


async def _own(situation: Situation, tls: ssl.SSLContext) -> list[Finding]:
    server = situation.config.server
    if is_placeholder(server.url):
        return []  # the part that reads the configuration has said so
    if not situation.listening:
        text = f"whether {server.url} leads here can be told when the node runs: check again then"
        return [_finding(Level.OK, "reach", text)]
    seen = await _visit(server.url, "GetServerInfo", {}, tls)
    findings = [judge_own(situation, seen)]
    if server.pool.ca_file is not None and isinstance(seen, Seen):
        public = await _visit(server.url, "GetServerInfo", {}, ssl.create_default_context())
        findings += judge_trust(situation, public)
    return findings


async def _peer(own_login: str, peer: SyncServer, tls: ssl.SSLContext) -> list[Finding]:
    seen = await _visit(peer.url, "ServerHello", hello_payload(own_login), tls)
    found = [judge_peer(peer, seen)]
    return found + (judge_difference(peer.login, seen.ahead_ms) if isinstance(seen, Seen) else [])


async def _visit(url: str, op: str, payload: dict[str, object], tls: ssl.SSLContext) -> Seen | Unreached:
    """Ask a server who it is and what time it has."""
    clock = SystemClock()
    try:
        async with (
            asyncio.timeout(SECONDS),
            connect(url, proxy=None, compression=None, ssl=tls if url.startswith("wss") else None) as link,
        ):
            said = await _ask(link, op, payload)
            before = clock.now_ms()
            time_ms = (await _ask(link, "Ping", {})).get("ts")
            middle = (before + clock.now_ms()) // 2
            ahead_ms = time_ms - middle if isinstance(time_ms, int) else 0
            return Seen(_text(said, "serverLogin"), _text(said, "url"), ahead_ms, _days_left(link, clock))
    except TimeoutError:
        return Unreached(f"no answer within {SECONDS:g} s", True)
    except ssl.SSLCertVerificationError as error:
        return Unreached(f"its certificate is not trusted: {error.verify_message}", False, untrusted=True)
    except ssl.SSLError as error:
        return Unreached(f"it does not speak TLS there: {error.reason}", False)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return Unreached("no server of names answers", False, passing=True)
        return Unreached(f"its name is not known: {error.strerror}", False)
    except InvalidStatus as error:
        return Unreached(f"it answers with HTTP status {error.response.status_code}", False)
    except (InvalidHandshake, WebSocketException, EOFError, ValueError) as error:
        return Unreached(_shown(f"it is no such server: {error}"), False)
    except OSError as error:
        return Unreached(_shown(error.strerror or str(error)), True)


async def _ask(link: ClientConnection, op: str, payload: dict[str, object]) -> dict[str, Any]:
    await link.send(encode_request(op, op, payload))
    while True:
        frame = await link.recv()
        answer = decode_answer(frame.encode() if isinstance(frame, str) else frame)
        if answer is not None and answer.request_id == op:
            return answer.payload


def _days_left(link: ClientConnection, clock: Clock) -> int | None:
    shown = link.transport.get_extra_info("peercert")
    if not shown:
        return None
    return int(ssl.cert_time_to_seconds(shown["notAfter"]) * 1000 - clock.now_ms()) // DAY_MS


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    return _shown(value) if isinstance(value, str) else ""


def _shown(text: str) -> str:
    """Return a text that may be a stranger's as a short line that acts on no terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)[:MAX_SHOWN]


def _finding(level: Level, subject: str, text: str) -> Finding:
    return Finding(level, subject, text)
