"""Where a peer's URL leads, and which addresses a link may go to (PROTOCOL.md §7); pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["Endpoint", "parse_endpoint", "why_not_public"]

_DEFAULT_PORTS = {"ws": 80, "wss": 443}
_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC_EVERYWHERE = (  # versions of Python differ about these
    (IPv4Network("100.64.0.0/10"), "a private"),
    (IPv4Network("192.0.0.0/24"), "a private"),
    (IPv6Network("64:ff9b:1::/48"), "a private"),
    (IPv6Network("2002::/16"), "a private"),  # 6to4: given up by RFC 7526, and any IPv4 address may hide in it
    (IPv6Network("fec0::/10"), "a private"),
)


class Endpoint(NamedTuple):
    """One place on the network, in one spelling: two URLs with the same endpoint are the same URL."""

    secure: bool
    host: str
    port: int
    target: str
    """Path and query, never empty."""

    @property
    def url(self) -> str:
        """The URL in its one spelling."""
        scheme = "wss" if self.secure else "ws"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[scheme] else f":{self.port}"
        return f"{scheme}://{host}{port}{self.target}"


@lru_cache(maxsize=4096)
def parse_endpoint(url: str) -> Endpoint:
    """Read the URL of a server.

    Raises:
        ValueError: it is none; the text says what is wrong with it.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{url!r} must begin with wss:// or ws://")
    if not host or port == 0:
        raise ValueError(f"{url!r} must name a host, and a port from 1 to 65535 if it names one")
    if parts.username is not None or parts.password is not None or "#" in url:
        raise ValueError(f"{url!r} must have no user name, password or fragment")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme == "wss", _one_spelling(host), port or _DEFAULT_PORTS[parts.scheme], target)


def _one_spelling(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


def why_not_public(address: str) -> str | None:
    """Say what an IP address is if links may not go to it by default, such as ``"a private"``; ``None`` if they may.

    An IPv4 address inside an IPv6 one (mapped, NAT64) is what counts, for that is where packets end.

    Raises:
        ValueError: this is no IP address.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            return _kind(ip.ipv4_mapped)
        if ip in _NAT64:
            return _kind(IPv4Address(int(ip) & 0xFFFF_FFFF))
    return _kind(ip)


def _kind(ip: IPv4Address | IPv6Address) -> str | None:
    if ip.is_unspecified:
        return "an unspecified"
    if ip.is_loopback:
        return "a loopback"
    if ip.is_link_local:
        return "a link-local"
    if ip.is_multicast:
        return "a multicast"
    if ip.is_private:
        return "a private"
    for network, kind in _NOT_PUBLIC_EVERYWHERE:
        if ip.version == network.version and ip in network:
            return kind
    return "a reserved" if ip.is_reserved else None
