"""The kinds of values that say who and where somebody is: logins, URLs, addresses and networks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from shine_node.configuration.kinds import HIDDEN, BadValue, Kind, Surroundings, text_of
from shine_node.configuration.model import ListenAddress, Network
from shine_node.configuration.toml import is_list
from shine_node.protocol.access import MAX_URL_CHARACTERS, is_server_url
from shine_node.protocol.logins import is_login

__all__ = ["Listen", "Login", "Logins", "Networks", "Url", "is_placeholder"]

MAX_LISTEN_ADDRESSES = 16
MAX_BLOCKED = 1000
"""Entries of a list of logins or networks."""
_MAPPED_PREFIX = 96
"""Bits of ``::ffff:0:0/96``, behind which an IPv6 address holds one of IPv4."""
_LISTEN = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*")


def is_placeholder(url: str) -> bool:
    """Say whether a server's URL only stands for one that is still to be set: its host ends in ``.invalid`` (RFC 6761).

    The Debian package begins with such a one. Pure.
    """
    host = urlsplit(url).hostname or ""
    return host.rstrip(".").rpartition(".")[2].lower() == "invalid"


@dataclass(frozen=True, slots=True)
class Login(Kind):
    """A login (§1)."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return "1 to 30 of A-Z a-z 0-9 _ . - with a letter or digit first"

    def parse(self, value: object, around: Surroundings) -> str:
        """Return the login, spelled as it came."""
        if not is_login(text_of(value)):
            raise BadValue("is no login")
        return text_of(value)


@dataclass(frozen=True, slots=True)
class Url(Kind):
    """The address of a server's endpoint (§3); whether ``ws://`` is allowed is not asked here."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return f"wss://HOST/ws or wss://HOST:PORT/ws, at most {MAX_URL_CHARACTERS} printable ASCII characters"

    def parse(self, value: object, around: Surroundings) -> str:
        """Return the URL."""
        url = text_of(value)
        if not is_server_url(url, allow_insecure=True):
            raise BadValue("is no server URL")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # brackets without an IPv6 address, a port that is none
            raise BadValue("has no valid host and port") from None
        if not host or port == 0:
            raise BadValue("has no valid host and port")
        if "@" in parts.netloc:
            raise BadValue("holds a user name or password, which servers do not use")
        if "#" in url:
            raise BadValue("has a part after #")
        return url

    def show(self, value: object) -> str:
        """Return the URL, unless it may hold a password."""
        return HIDDEN if isinstance(value, str) and "@" in value else Kind.show(self, value)


@dataclass(frozen=True, slots=True)
class Listen(Kind):
    """One address to listen on, or a list of them."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return (
            '"HOST:PORT", "[IPV6]:PORT" or, for every address of both families, ":PORT";'
            f" or a list of 1 to {MAX_LISTEN_ADDRESSES} of these; port 0 takes a free one"
        )

    def parse(self, value: object, around: Surroundings) -> tuple[ListenAddress, ...]:
        """Return the addresses."""
        entries = value if is_list(value) else (value,)
        if not 1 <= len(entries) <= MAX_LISTEN_ADDRESSES:
            raise BadValue(f"has {len(entries)} entries")
        addresses: list[ListenAddress] = []
        for entry in entries:
            address = _listen_address(text_of(entry))
            for other in addresses:
                if other.port == address.port != 0 and (
                    other.host == address.host or not other.host or not address.host
                ):
                    raise BadValue(f"takes port {address.port} twice")
            addresses.append(address)
        return tuple(addresses)


@dataclass(frozen=True, slots=True)
class Logins(Kind):
    """A list of logins, of which none may be meant by two."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return f"a list of at most {MAX_BLOCKED} logins in quotes"

    def parse(self, value: object, around: Surroundings) -> frozenset[str]:
        """Return the logins in lower case."""
        entries = _entries(value)
        if not all(is_login(text_of(entry)) for entry in entries):
            raise BadValue("has an entry that is no login")
        return frozenset(text_of(entry).lower() for entry in entries)


@dataclass(frozen=True, slots=True)
class Networks(Kind):
    """A list of IP addresses, and of networks with the length of their prefix."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return f'a list of at most {MAX_BLOCKED} addresses or networks in quotes, "192.0.2.7" or "2001:db8::/32"'

    def parse(self, value: object, around: Surroundings) -> tuple[Network, ...]:
        """Return the networks; an address is one of a single address.

        What is meant is compared, not how it is written: an IPv4 address inside an IPv6 one is that IPv4 address, and
        the zone of an address, ``%eth0``, says nothing of who has it.
        """
        entries = [text_of(entry) for entry in _entries(value)]
        try:
            return tuple(_plain_network(ipaddress.ip_network(entry)) for entry in entries)
        except ValueError as error:
            raise BadValue(f"has an entry that is no network: {error}") from None


def _plain_network(network: Network) -> Network:
    if isinstance(network, ipaddress.IPv4Network):
        return network
    number, length = int(network.network_address), network.prefixlen
    if network.network_address.ipv4_mapped is not None and length >= _MAPPED_PREFIX:
        return ipaddress.IPv4Network((number & 0xFFFF_FFFF, length - _MAPPED_PREFIX))
    return ipaddress.IPv6Network((number, length))


def _entries(value: object) -> Sequence[object]:
    if not is_list(value):
        raise BadValue("is no list")
    if len(value) > MAX_BLOCKED:
        raise BadValue(f"has {len(value)} entries")
    return value


def _listen_address(text: str) -> ListenAddress:
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise BadValue("is no address with a port")
    port = int(found["port"])
    if port > 65535:
        raise BadValue("has a port over 65535")
    host = found["six"] or found["host"] or ""
    try:
        if found["six"]:
            ipaddress.IPv6Address(host)
        elif host and not host.strip("0123456789."):
            ipaddress.IPv4Address(host)
        elif host and _HOST_NAME.fullmatch(host) is None:
            raise BadValue("has no valid host")
    except ValueError:
        raise BadValue("has no valid IP address") from None
    return ListenAddress(host, port)
