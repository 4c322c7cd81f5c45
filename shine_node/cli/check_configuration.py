"""What ``check`` finds by reading the configuration alone: what is allowed and yet rarely meant; pure."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from shine_node.cli.findings import Finding, Level, Situation
from shine_node.config import ListenAddress, is_placeholder
from shine_node.peers.address import parse_endpoint, why_not_public

__all__ = ["PRODUCERS"]

ENDPOINT_PATH = "/ws"
LEAST_TOKEN_CHARACTERS = 16


def find_listening(situation: Situation) -> list[Finding]:
    """Look at where the node listens, and whether what it speaks there is encrypted."""
    server = situation.config.server
    if server.tls_cert is not None:
        return [Finding(Level.OK, "listen", f"{_addresses(server.listen)}, encrypted")]
    exposed = [address for address in server.listen if not address.is_loopback]
    if exposed:
        text = (
            f"{_addresses(exposed)}: others can reach this without encryption. Set server.tlsCert and server.tlsKey,"
            " or listen on 127.0.0.1 with a proxy in front of it"
        )
        return [Finding(Level.WARNING, "listen", text)]
    text = (
        f"{_addresses(server.listen)}, for a proxy on this machine: it must say in X-Forwarded-For who its"
        " clients are, as the README shows, or all of them count as one"
    )
    return [Finding(Level.OK, "listen", text)]


def find_own_url(situation: Situation) -> list[Finding]:
    """Look at the address that this server gives to others."""
    server = situation.config.server
    if is_placeholder(server.url):
        text = (
            f"server.url = {server.url} is a placeholder, and this node works for this machine alone:"
            " write the address at which others reach it, such as wss://myserver.example/ws"
        )
        return [Finding(Level.WARNING, "url", text)]
    findings: list[Finding] = []
    if urlsplit(server.url).path != ENDPOINT_PATH:
        text = f"server.url = {server.url} does not end in {ENDPOINT_PATH}: right only if a proxy changes the path"
        findings.append(Finding(Level.WARNING, "url", text))
    kind = _why_not_public(server.url)
    if kind is not None and not server.pool.allow_private_peers:
        text = f"server.url = {server.url} is {kind} address: other servers will not go there unless they allow it"
        findings.append(Finding(Level.WARNING, "url", text))
    return findings or [Finding(Level.OK, "url", server.url)]


def find_peers(situation: Situation) -> list[Finding]:
    """Look for configured peers that no link may go to."""
    config = situation.config
    if config.server.pool.allow_private_peers:
        return []
    return [
        Finding(
            Level.WARNING,
            "sync_servers",
            f"{peer.login} at {peer.url} is {kind} address, where no link goes:"
            " set server.pool.allowPrivatePeers = true, or correct the url",
        )
        for peer in config.sync_servers
        if (kind := _why_not_public(peer.url)) is not None
    ]


def find_blocked(situation: Situation) -> list[Finding]:
    """Look for blocks that shut out servers which are wanted, or everybody."""
    limits, findings = situation.config.limits, []
    for peer in situation.config.sync_servers:
        if peer.login.lower() in limits.blocked_peers:
            text = f"{peer.login} is a peer and is blocked by limits.blockedPeers: remove one of the two"
            findings.append(Finding(Level.WARNING, "blocked", text))
    for network in limits.blocked_addresses:
        if network.prefixlen == 0:
            text = f"limits.blockedAddresses shuts out all of IPv{network.version} ({network}): correct or remove that"
            findings.append(Finding(Level.WARNING, "blocked", text))
    return findings


def find_registration(situation: Situation) -> list[Finding]:
    """Look at who may register."""
    registration = situation.config.registration
    findings: list[Finding] = []
    if registration.token and registration.mode != "token":
        text = f'registration.token has no effect while registration.mode = "{registration.mode}": remove one of them'
        findings.append(Finding(Level.WARNING, "registration", text))
    if registration.mode == "open" and registration.allow_unsigned:
        text = (
            "anyone may register any login here without a signature, and so take the login of another person:"
            " set registration.allowUnsigned = false, unless this is a trial"
        )
        findings.append(Finding(Level.WARNING, "registration", text))
    return findings or [Finding(Level.OK, "registration", registration.mode)]


def find_registration_token(situation: Situation) -> list[Finding]:
    """Look whether the token that lets people register could be guessed."""
    registration = situation.config.registration
    if registration.mode != "token" or len(registration.token) >= LEAST_TOKEN_CHARACTERS:
        return []
    text = (
        f"registration.token has {len(registration.token)} characters, and who guesses it can register: give it"
        f" {LEAST_TOKEN_CHARACTERS} or more, such as those of `openssl rand -base64 18`"
    )
    return [Finding(Level.WARNING, "registration", text)]


PRODUCERS: tuple[Callable[[Situation], list[Finding]], ...] = (
    find_listening,
    find_own_url,
    find_peers,
    find_blocked,
    find_registration,
    find_registration_token,
)


def _addresses(addresses: tuple[ListenAddress, ...] | list[ListenAddress]) -> str:
    return ", ".join(map(str, addresses))


def _why_not_public(url: str) -> str | None:
    host = parse_endpoint(url).host
    if host == "localhost":
        return "a loopback"
    try:
        return why_not_public(host)
    except ValueError:
        return None  # a name: where it leads is for the network part to say
