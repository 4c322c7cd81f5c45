"""The rules that bind several options together (PROTOCOL.md §2, §3, §7, §10); pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shine_node.configuration.model import SyncServer

__all__ = ["Broken", "broken_rules"]

_KIB_64 = 65536
_TLS_HINT = "write wss://, or set server.pool.allowInsecurePeers = true, for trials on one machine"


class Broken(NamedTuple):
    """A broken rule: the option to point at, which may be one of ``sync_servers``, and what to do."""

    name: str
    text: str
    other: str = ""
    """The option to point at where the first one was not written."""
    peer: str = ""
    """The login, in lower case, of the entry of ``sync_servers`` that is meant."""


def broken_rules(values: Mapping[str, Any], peers: Mapping[str, SyncServer]) -> Iterator[Broken]:
    """Find the rules that are broken; a rule with a value that is missing, as it was wrong by itself, is not asked.

    Args:
        values: what was read, by the dotted names of the options.
        peers: the entries of ``sync_servers``, by login in lower case.
    """
    yield from _time_outs(values)
    yield from _frames(values)
    yield from _tls(values)
    if values.get("registration.mode") == "token" and values.get("registration.token") == "":
        yield Broken(
            "registration.mode",
            'registration.mode = "token" needs a registration.token that is not empty: set one, or choose another mode',
        )
    yield from _own_server(values, peers)
    if values.get("server.pool.allowInsecurePeers") is False:
        if _is_insecure(url := values.get("server.url", "")):
            yield Broken("server.url", f'server.url = "{url}" is not encrypted: {_TLS_HINT}')
        for key, peer in peers.items():
            if _is_insecure(peer.url):
                yield Broken(
                    "sync_servers.url", f'sync_servers.url = "{peer.url}" is not encrypted: {_TLS_HINT}', peer=key
                )


def _time_outs(values: Mapping[str, Any]) -> Iterator[Broken]:
    caller = values.get("server.pool.callerTimeoutSeconds")
    request = values.get("server.pool.requestTimeoutSeconds")
    if caller is not None and request is not None and caller < request:
        yield Broken(
            "server.pool.callerTimeoutSeconds",
            f"server.pool.callerTimeoutSeconds = {caller} is below server.pool.requestTimeoutSeconds = {request}:"
            f" raise the first to at least {request}, or lower the second",
            "server.pool.requestTimeoutSeconds",
        )


def _frames(values: Mapping[str, Any]) -> Iterator[Broken]:
    frame = values.get("limits.maxFrameBytes")
    if frame is None:
        return
    for name, numerator, denominator in (("limits.maxBodyBytes", 4, 1), ("limits.maxBlockBytes", 7, 5)):
        size = values.get(name)
        if size is None:
            continue
        needed = -(-size * numerator // denominator) + _KIB_64
        if frame < needed:
            yield Broken(
                "limits.maxFrameBytes",
                f"limits.maxFrameBytes = {frame} is too small for {name} = {size}:"
                f" raise the first to at least {needed}, or lower the second",
                name,
            )


def _tls(values: Mapping[str, Any]) -> Iterator[Broken]:
    both = ("server.tlsCert", "server.tlsKey")
    if not all(name in values for name in both):
        return
    for name, other in (both, both[::-1]):
        if values[name] is not None and values[other] is None:
            yield Broken(name, f"{name} is set and {other} is not: set both, or neither")


def _own_server(values: Mapping[str, Any], peers: Mapping[str, SyncServer]) -> Iterator[Broken]:
    login, url = values.get("server.login"), values.get("server.url")
    for key, peer in peers.items():
        if login is not None and key == login.lower():
            yield Broken(
                "sync_servers.login",
                f'sync_servers.login = "{peer.login}" is this server itself (server.login): remove that entry',
                peer=key,
            )
        elif url is not None and peer.url == url:
            yield Broken(
                "sync_servers.url",
                f'sync_servers.url = "{peer.url}" is this server\'s own url: write the address of the other server',
                peer=key,
            )


def _is_insecure(url: str) -> bool:
    return url.startswith("ws://")
