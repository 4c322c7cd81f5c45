"""The lines of an export: one JSON object each, independent of the processor and of LMDB. Pure.

The first line is the ``header``, the last one the ``end`` with counts and the SHA-256 of all lines before it. Between
them, in this order, since each may need what stands before it: ``record`` (signed access records, in the order in
which they were learned), ``resync``, ``setting``, ``session``, ``item`` (messages, receipts and tombstones, with their
deliveries) and ``meta``. What follows from these lines, such as every index, is in none of them; nor are the numbers of
rows, which begin anew where they are imported, ahead of all that came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from shine_node.protocol.access import parse_record, record_payload
from shine_node.protocol.container import Container, parse_container
from shine_node.protocol.encoding import (
    decode_base64,
    encode_base64,
    read_base64,
    read_optional_number,
    read_optional_text,
    read_text,
)
from shine_node.protocol.errors import BadFields, BadJson
from shine_node.protocol.keys import MessageKey, parse_message_key
from shine_node.protocol.logins import check_login
from shine_node.protocol.pair import check_pair
from shine_node.protocol.schedule import DeliveryState
from shine_node.protocol.sessions import Session
from shine_node.protocol.settings import Setting, parse_setting, setting_payload
from shine_node.store.layout import Direction, Flag, ItemKey, OpenDelivery, Row
from shine_node.store.lineage import RUN_BYTES
from shine_node.store.resync import Part, Resync
from shine_node.store.sessions import SESSION_ID_CHARACTERS
from shine_node.store.users import Registration

__all__ = [
    "FORMAT",
    "MAX_LINE_BYTES",
    "VERSION",
    "HeldSession",
    "HeldSetting",
    "Item",
    "encode_line",
    "item_line",
    "parse_item",
    "parse_line",
    "parse_registration",
    "parse_resync",
    "parse_runs",
    "parse_session",
    "parse_setting_line",
    "registration_line",
    "resync_line",
    "session_line",
    "setting_line",
]

FORMAT: Final = "shine-node export"
VERSION: Final = 1
MAX_BODY_BYTES: Final = 2**24
"""The greatest body that any configuration allows, and with it the greatest setting."""
MAX_LINE_BYTES: Final = 96 * 2**20
"""More than two copies of the greatest body take, and more than the greatest setting."""
MAX_KEY_BYTES: Final = 500
U64: Final = 2**64 - 1
U32: Final = 2**32 - 1
_STATES = {state.wire: state for state in DeliveryState}


class HeldSetting(NamedTuple):
    """A setting, when it has changed, and the other server that had it then, in lower case; empty if none had."""

    setting: Setting
    changed_at_ms: int
    synced: str


class HeldSession(NamedTuple):
    """A session, and its user's newest device key when it was exported: with another one it would have been ended."""

    session: Session
    device_key: bytes


class Item(NamedTuple):
    """An item without its number: ``row.seq`` is 1 where it is to have one, and its flags do not say ``UNSYNCED``.

    ``synced`` is as in ``HeldSetting``. A removed item has no copies, a recipient's item no outgoing one.
    """

    key: ItemKey
    row: Row
    synced: str
    incoming: Container | None = None
    outgoing: Container | None = None

    @property
    def container(self) -> Container:
        """The copy that the item's key is of; only where it is not removed."""
        container = self.outgoing or self.incoming
        if container is None:
            raise AssertionError("a removed item has no copies")
        return container

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """The copies as they are stored."""
        incoming, outgoing = self.incoming, self.outgoing
        return incoming.blob if incoming is not None else b"", outgoing.blob if outgoing is not None else b""


def encode_line(line: Mapping[str, object]) -> bytes:
    """Return a line with its end."""
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def parse_line(data: bytes) -> dict[str, Any]:
    """Return the object of a line; it has a ``type``.

    Raises:
        BadJson, BadFields, BadRequestFormat.
    """
    try:
        line = orjson.loads(data)
    except ValueError:
        raise BadJson("this is not JSON") from None
    if not isinstance(line, dict):
        raise BadJson("this is not a JSON object")
    read_text(line, "type")
    return line


def registration_line(registration: Registration) -> dict[str, object]:
    """Return the line of an access record."""
    kept = {"local": registration.local, "bchLimit": registration.bch_limit}
    return {"type": "record", **record_payload(registration.record), **kept}


def parse_registration(line: Mapping[str, Any]) -> Registration:
    """Return the access record of a line; its fields are right, its signature was not looked at.

    Raises:
        Refusal: as ``parse_record``.
    """
    local = _flag(line, "local")
    if local:  # registered here without a signature
        line = {**line, "timeMs": 0, "signatureB64": encode_base64(bytes(64))}
    record = parse_record(line, allow_insecure=True)
    if local:
        record = record._replace(signature=b"")
    return Registration(record, local=local, bch_limit=read_optional_number(line, "bchLimit"))


def resync_line(work: Resync) -> dict[str, object]:
    """Return the line of unfinished work."""
    return {
        "type": "resync",
        "owner": work.owner,
        "former": work.former,
        "sinceMs": work.since_ms,
        "part": work.part.name.lower(),
        "afterB64": encode_base64(work.after),
    }


def parse_resync(line: Mapping[str, Any]) -> Resync:
    """Return the unfinished work of a line.

    Raises:
        Refusal: a field is wrong.
    """
    part = read_text(line, "part").upper()
    if part not in Part.__members__:
        raise BadFields("part must be settings or messages")
    after = decode_base64(read_optional_text(line, "afterB64"), "afterB64")
    if len(after) > MAX_KEY_BYTES:
        raise BadFields("afterB64 is longer than a key")
    since_ms = _number(line, "sinceMs")
    return Resync(_login(line, "owner"), _optional_login(line, "former"), since_ms, Part[part], after)


def setting_line(held: HeldSetting) -> dict[str, object]:
    """Return the line of a setting."""
    line = {"type": "setting", **setting_payload(held.setting), "changedAtMs": held.changed_at_ms}
    return {**line, "synced": held.synced} if held.synced else line


def parse_setting_line(line: Mapping[str, Any]) -> HeldSetting:
    """Return the setting of a line; its signature was not looked at.

    Raises:
        Refusal: as ``parse_setting``.
    """
    setting = parse_setting(line, max_value_bytes=MAX_BODY_BYTES)
    return HeldSetting(setting, _number(line, "changedAtMs"), _optional_login(line, "synced"))


def session_line(held: HeldSession) -> dict[str, object]:
    """Return the line of a session."""
    session = held.session
    return {
        "type": "session",
        "sessionId": session.session_id,
        "login": session.login,
        "sessionKey": session.session_key,
        "storagePwd": session.storage_pwd,
        "clientInfo": session.client_info,
        "requestInfo": session.request_info,
        "createdMs": session.created_ms,
        "authenticatedMs": session.authenticated_ms,
        "deviceKey": encode_base64(held.device_key),
    }


def parse_session(line: Mapping[str, Any]) -> HeldSession:
    """Return the session of a line.

    Raises:
        Refusal: a field is wrong.
    """
    session_id = read_text(line, "sessionId")
    if len(session_id) != SESSION_ID_CHARACTERS or not session_id.isascii():
        raise BadFields(f"sessionId must be {SESSION_ID_CHARACTERS} characters of ASCII")
    session = Session(
        session_id,
        _login(line, "login"),
        read_text(line, "sessionKey"),
        read_optional_text(line, "storagePwd"),
        read_optional_text(line, "clientInfo"),
        read_optional_text(line, "requestInfo"),
        _number(line, "createdMs"),
        _number(line, "authenticatedMs"),
    )
    return HeldSession(session, read_base64(line, "deviceKey"))


def item_line(key: ItemKey, row: Row, synced: str, blobs: tuple[bytes, bytes]) -> dict[str, object]:
    """Return the line of an item.

    Args:
        synced: as in ``Item``.
        blobs: its copies as they are stored; empty where it is removed.
    """
    message_type = key.kind + (key.direction is Direction.OUT)
    line: dict[str, object] = {
        "type": "item",
        "key": str(MessageKey(key.message, message_type)),
        "state": row.state.wire,
        "revisionMs": row.revision_ms,
        "changedAtMs": row.changed_at_ms,
        "version": row.version,
    }
    if synced:
        line["synced"] = synced
    if row.delivery is not None:
        line["delivery"] = {
            "acceptedAtMs": row.delivery.accepted_at_ms,
            "attempts": row.delivery.attempts,
            "nextAtMs": row.delivery.next_at_ms,
            "leaseUntilMs": row.delivery.lease_until_ms,
            "settling": bool(row.flags & Flag.SETTLING),
        }
    if row.removed:
        return {**line, "removed": True, "digestB64": encode_base64(row.digest)}
    for name, blob in zip(("incomingB64", "outgoingB64"), blobs, strict=True):
        if blob:
            line[name] = encode_base64(blob)
    return line


def parse_item(line: Mapping[str, Any]) -> Item:
    """Return the item of a line; the signatures of its copies were not looked at.

    Raises:
        Refusal: a field is wrong, or something does not fit the rest.
    """
    key = _item_key(read_text(line, "key"))
    state = _STATES.get(read_text(line, "state"))
    if state is None:
        raise BadFields("state must be accepted, delivered or failed")
    flags, delivery = _delivery(line)
    revision_ms, changed_at_ms = _number(line, "revisionMs"), _number(line, "changedAtMs")
    version, synced = _number(line, "version", U32), _optional_login(line, "synced")
    if (state is DeliveryState.ACCEPTED) != (delivery is not None) or (delivery and key.direction is Direction.IN):
        raise BadFields("an item has a delivery while it is accepted and its sender's, and only then")
    if _flag(line, "removed"):
        digest = decode_base64(read_optional_text(line, "digestB64"), "digestB64")
        if len(digest) not in (0, 32) or delivery is not None or synced:
            raise BadFields("of a removed item there is SHA-256, no delivery, and nothing to synchronise")
        row = Row(Flag.REMOVED, state, int(bool(digest)), revision_ms, changed_at_ms, version, None, digest)
        return Item(key, row, "")
    copies = [
        parse_container(read_base64(line, name), max_body_bytes=MAX_BODY_BYTES)
        for name in ("incomingB64", "outgoingB64")[: key.direction]
    ]
    if len(copies) == 2:
        check_pair(*copies)
    if ItemKey.of(copies[-1]) != key or copies[-1].revision_ms != revision_ms:
        raise BadFields("key and revisionMs must be those of the copies")
    row = Row(flags, state, 1, revision_ms, changed_at_ms, version, delivery)
    return Item(key, row, synced, *copies)


def parse_runs(line: Mapping[str, Any]) -> list[tuple[bytes, int]]:
    """Return the runs of the line of the lineage, oldest first.

    Raises:
        BadFields: these are none.
    """
    try:
        runs = [(bytes.fromhex(run), end) for run, end in line["runs"]]
    except (LookupError, TypeError, ValueError):
        raise BadFields("runs must be pairs of hexadecimal and a number") from None
    for run, end in runs:
        if len(run) != RUN_BYTES or type(end) is not int or not 0 < end <= U64:
            raise BadFields(f"a run is {RUN_BYTES} bytes and the number of a commit")
    return runs


def _item_key(text: str) -> ItemKey:
    key = parse_message_key(text)
    make = ItemKey.incoming if key.message_type % 2 else ItemKey.outgoing
    return make(key.message, key.message_type)


def _delivery(line: Mapping[str, Any]) -> tuple[Flag, OpenDelivery | None]:
    delivery = line.get("delivery")
    if delivery is None:
        return Flag.NONE, None
    if not isinstance(delivery, dict):
        raise BadFields("delivery must be an object")
    return (
        Flag.SETTLING if _flag(delivery, "settling") else Flag.NONE,
        OpenDelivery(
            _number(delivery, "acceptedAtMs", 2**63 - 1, least=-(2**63)),
            _number(delivery, "attempts", 255),
            _number(delivery, "nextAtMs"),
            _number(delivery, "leaseUntilMs"),
        ),
    )


def _number(line: Mapping[str, Any], field: str, greatest: int = U64, *, least: int = 0) -> int:
    """Return a whole number; those of the store reach further than those of requests."""
    value = line.get(field)
    if type(value) is not int or not least <= value <= greatest:
        raise BadFields(f"{field} must be a whole number from {least} to {greatest}")
    return value


def _flag(line: Mapping[str, Any], field: str) -> bool:
    value = line.get(field, False)
    if not isinstance(value, bool):
        raise BadFields(f"{field} must be true or false")
    return value


def _login(line: Mapping[str, Any], field: str) -> str:
    return check_login(read_text(line, field), field=field).lower()


def _optional_login(line: Mapping[str, Any], field: str) -> str:
    return _login(line, field) if line.get(field) else ""
