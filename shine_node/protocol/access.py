"""Users and their signed access records (PROTOCOL.md §3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from shine_node.protocol.container import CLIENT_AHEAD_MS
from shine_node.protocol.encoding import (
    decode_base64,
    encode_base64,
    read_list,
    read_number,
    read_optional_text,
    read_text,
)
from shine_node.protocol.errors import BadBlockchainName, BadFields, BadRequestFormat, BadSignature, RootKeyMismatch
from shine_node.protocol.logins import check_login, is_blockchain_name, is_login
from shine_node.protocol.signatures import decode_key, is_signed_by

__all__ = [
    "AccessRecord",
    "AccessServer",
    "User",
    "check_record",
    "check_standing",
    "is_newer",
    "is_server_url",
    "make_user",
    "parse_identity",
    "parse_record",
    "record_order",
    "record_payload",
    "signed_text",
]

MAX_ACCESS_SERVERS = 2
MAX_URL_CHARACTERS = 256
_URL = re.compile(r"wss?://[\x21-\x7e]+")


class AccessServer(NamedTuple):
    """One entry of a record's ``accessServers``; the login is spelled as it was signed."""

    server_login: str
    url: str


class AccessRecord(NamedTuple):
    """One access record; ``signature`` is empty for a user of this server alone, registered without one."""

    login: str
    blockchain_name: str
    solana_key: bytes
    blockchain_key: bytes
    device_key: bytes
    access_servers: tuple[AccessServer, ...]
    time_ms: int
    signature: bytes

    @property
    def key(self) -> str:
        """The login in lower case."""
        return self.login.lower()

    def names_server(self, server_login: str) -> bool:
        """Say whether a server is among the access servers, whatever the case of its login."""
        wanted = server_login.lower()
        for server, _ in self.access_servers:  # noqa: SIM110 - a generator takes longer than two turns of this
            if server.lower() == wanted:
                return True
        return False


class User(NamedTuple):
    """What is known of a user: the newest record and the device keys of all times, oldest first."""

    record: AccessRecord
    device_keys: tuple[tuple[int, bytes], ...]
    """``(timeMs of the record, deviceKey)``; never empty."""

    @property
    def key(self) -> str:
        """The login in lower case."""
        return self.record.login.lower()

    def device_key_at(self, time_ms: int) -> bytes:
        """Return the device key of the record in force at a time; before the first record, the first one's (§3)."""
        found = self.device_keys[0][1]
        for since_ms, key in self.device_keys:
            if since_ms > time_ms:
                break
            found = key
        return found

    def fresh_key_at(self, time_ms: int) -> bytes | None:
        """Return the key that must have signed what a client submits now: the one of its time, if it is the newest.

        ``None`` where the key of that time has been replaced: nothing can be submitted afresh under it (§3).
        """
        key = self.device_key_at(time_ms)
        return key if key == self.record.device_key else None

    def other_server(self, own_login: str) -> AccessServer | None:
        """Return the access server that is not this one, if this one is among them and there is another."""
        if not self.record.names_server(own_login):
            return None
        wanted = own_login.lower()
        return next((s for s in self.record.access_servers if s.server_login.lower() != wanted), None)


def is_server_url(url: str, *, allow_insecure: bool) -> bool:
    """Say whether a text is a server URL: ``wss://`` (or ``ws://`` where allowed), printable ASCII, ≤ 256 of it."""
    if len(url) > MAX_URL_CHARACTERS or _URL.fullmatch(url) is None:
        return False
    return allow_insecure or url.startswith("wss://")


def parse_record(payload: Mapping[str, Any], *, allow_insecure: bool) -> AccessRecord:
    """Read a signed record from a payload and check its fields; the first check of §3.

    Args:
        payload: the record as it travels; other members are ignored.
        allow_insecure: whether ``ws://`` is allowed (``server.pool.allowInsecurePeers``).

    Raises:
        BadFields, BadRequestFormat, BadLogin, BadBlockchainName, BadKeyFormat, BadBase64.
    """
    login, blockchain_name, keys = parse_identity(payload)
    servers = payload.get("accessServers")
    if servers is None:
        raise BadFields("accessServers is missing")
    access_servers = _access_servers(read_list(payload, "accessServers"), allow_insecure=allow_insecure)
    return AccessRecord(
        login,
        blockchain_name,
        *keys,
        access_servers,
        read_number(payload, "timeMs"),
        decode_base64(read_text(payload, "signatureB64"), "signatureB64"),
    )


def parse_identity(payload: Mapping[str, Any]) -> tuple[str, str, tuple[bytes, bytes, bytes]]:
    """Read login, blockchain name and the root, blockchain and device keys: the part that an unsigned ``AddUser`` has.

    Raises:
        BadFields, BadRequestFormat, BadLogin, BadBlockchainName, BadKeyFormat.
    """
    if payload.get("login") is None:
        raise BadFields("login is missing")
    login = check_login(read_optional_text(payload, "login"))  # an empty one is a login outside the grammar
    blockchain_name = read_text(payload, "blockchainName")
    if not is_blockchain_name(blockchain_name, login):
        raise BadBlockchainName("blockchainName must be the login, a dash and three digits")
    solana, blockchain, device = (
        decode_key(read_text(payload, field), field) for field in ("solanaKey", "blockchainKey", "deviceKey")
    )
    return login, blockchain_name, (solana, blockchain, device)


def signed_text(record: AccessRecord) -> bytes:
    """Return the text that ``signature`` covers (§3)."""
    lines = [
        "SHiNE/UserAccess:1",
        record.login,
        record.blockchain_name,
        encode_base64(record.solana_key),
        encode_base64(record.blockchain_key),
        encode_base64(record.device_key),
        str(len(record.access_servers)),
        *(f"{server.server_login} {server.url}" for server in record.access_servers),
        str(record.time_ms),
    ]
    return "\n".join(lines).encode()


def check_record(record: AccessRecord, *, known: AccessRecord | None, now_ms: int) -> bool:
    """Make the checks of §3 that follow the fields: clock, root key, signature, age. About 40 µs.

    Args:
        known: the newest record of this login that is stored, if any.
        now_ms: the clock, Unix milliseconds.

    Returns:
        Whether the record is newer than the known one.

    Raises:
        BadFields: ``timeMs`` is more than 15 minutes ahead.
        RootKeyMismatch: the known record has another root key.
        BadSignature: the signature is not the root key's.
    """
    check_standing(record, known=known, now_ms=now_ms)
    if not is_signed_by(record.solana_key, signed_text(record), record.signature):
        raise BadSignature("the record is not signed by its root key")
    return known is None or is_newer(record, known)


def check_standing(record: AccessRecord, *, known: AccessRecord | None, now_ms: int) -> None:
    """Make the two checks of §3 between the fields and the signature; arguments and errors as ``check_record``."""
    if record.time_ms > now_ms + CLIENT_AHEAD_MS:
        raise BadFields("timeMs is ahead of the clock by more than 15 minutes")
    if known is not None and known.solana_key != record.solana_key:
        raise RootKeyMismatch("another root key was seen first for this login")


def record_order(record: AccessRecord) -> tuple[int, bytes]:
    """Return what orders the records of one login: ``timeMs``, then the signature."""
    return record.time_ms, record.signature


def is_newer(record: AccessRecord, known: AccessRecord) -> bool:
    """Say whether a record replaces another one: later, or as late with the greater signature (§3)."""
    return record_order(record) > record_order(known)


def make_user(records: Iterable[AccessRecord]) -> User:
    """Return the user of the records of one login, which may come in any order; at least one."""
    ordered = sorted(records, key=record_order)
    return User(ordered[-1], tuple((record.time_ms, record.device_key) for record in ordered))


def record_payload(record: AccessRecord) -> dict[str, object]:
    """Return a record as it travels; an unsigned one has no ``timeMs`` and no ``signatureB64``."""
    payload: dict[str, object] = {
        "login": record.login,
        "blockchainName": record.blockchain_name,
        "solanaKey": encode_base64(record.solana_key),
        "blockchainKey": encode_base64(record.blockchain_key),
        "deviceKey": encode_base64(record.device_key),
        "accessServers": [{"serverLogin": s.server_login, "url": s.url} for s in record.access_servers],
    }
    if record.signature:
        payload["timeMs"] = record.time_ms
        payload["signatureB64"] = encode_base64(record.signature)
    return payload


def _access_servers(entries: list[Any], *, allow_insecure: bool) -> tuple[AccessServer, ...]:
    if len(entries) > MAX_ACCESS_SERVERS:
        raise BadFields(f"accessServers must name at most {MAX_ACCESS_SERVERS} servers")
    servers: list[AccessServer] = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise BadRequestFormat("an entry of accessServers must be an object")
        server_login, url = read_text(entry, "serverLogin"), read_text(entry, "url")
        if not is_login(server_login):
            raise BadFields("serverLogin is not a login")
        if not is_server_url(url, allow_insecure=allow_insecure):
            scheme = "ws:// or wss://" if allow_insecure else "wss://"
            raise BadFields(f"url must be {scheme} and at most {MAX_URL_CHARACTERS} printable ASCII characters")
        if any(server.server_login.lower() == server_login.lower() for server in servers):
            raise BadFields("accessServers must not name a server twice")
        servers.append(AccessServer(server_login, url))
    return tuple(servers)
