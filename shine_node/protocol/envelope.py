"""The envelope: one JSON object a text frame, for clients and servers alike (PROTOCOL.md §2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from shine_node.protocol.errors import (
    BadJson,
    BadPayload,
    BadRequestFormat,
    EmptyJson,
    NoOp,
    NoPayload,
    RateLimited,
    Refusal,
    ShineError,
    UnknownOp,
)

__all__ = [
    "Answer",
    "BadEnvelope",
    "Request",
    "decode_answer",
    "decode_request",
    "encode_answer",
    "encode_event",
    "encode_refusal",
    "encode_request",
]

MAX_NESTING = 64

NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
ONE_KIND_OF_BRACKET = bytes.maketrans(b"{}", b"[]")
VALLEYS = [b"]" * depth + b"[" * depth for depth in (32, 16, 8, 4, 2, 1)]
"""Of all depths up to twice the first one, by halving: few rounds are needed however the valleys lie in each other."""
TOO_HIGH = b"[" * (MAX_NESTING + 1)


class Request(NamedTuple):
    """One request: its operation, the ``requestId`` to echo (``None`` if there was none) and its payload."""

    op: str
    request_id: str | None
    payload: dict[str, Any]


class BadEnvelope(ShineError):
    """A frame that holds no valid request; ``op`` and ``request_id`` are what can be echoed."""

    def __init__(self, refusal: Refusal, op: str | None = None, request_id: str | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal
        self.op = op
        self.request_id = request_id


class Answer(NamedTuple):
    """A peer's answer: ``status`` decides, 200–299 is success."""

    request_id: str | None
    status: int
    error: str
    message: str
    payload: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status <= 299

    @property
    def refuses_unread(self) -> bool:
        """Whether a request was refused for its rate by one who did not read so far as to its ``requestId``."""
        return self.request_id is None and self.status == RateLimited.status


def decode_request(frame: str, known_ops: Mapping[str, object]) -> Request:
    """Decode a text frame into a request, with the checks in the order of §2.

    Args:
        frame: the text of one frame.
        known_ops: the operations of this server.

    Raises:
        BadEnvelope: with the refusal to answer and what can be echoed.
    """
    if frame.count("[") + frame.count("{") > MAX_NESTING and _too_deep(frame):
        raise BadEnvelope(BadJson(f"not JSON, or nested over {MAX_NESTING} levels"))
    try:
        document = orjson.loads(frame)
    except orjson.JSONDecodeError:
        refusal: Refusal = EmptyJson("the frame is blank") if not frame.strip() else BadJson("the frame is not JSON")
        raise BadEnvelope(refusal) from None
    if not isinstance(document, dict):
        raise BadEnvelope(BadJson("the frame must hold one JSON object"))

    op, request_id, payload = document.get("op"), document.get("requestId"), document.get("payload")
    echo_op = op if isinstance(op, str) else None
    echo_id = request_id if isinstance(request_id, str) else None
    problem: Refusal | None = None
    if op is None or op == "":
        problem = NoOp("op is missing")
    elif echo_op is None:
        problem = BadRequestFormat("op must be a text")
    elif request_id is not None and echo_id is None:
        problem = BadRequestFormat("requestId must be a text")
    elif echo_op not in known_ops:
        problem = UnknownOp("this server has no such operation")
    elif payload is None:
        problem = NoPayload("payload is missing")
    elif not isinstance(payload, dict):
        problem = BadPayload("payload must be an object")
    if problem is not None:
        raise BadEnvelope(problem, echo_op, echo_id)
    assert echo_op is not None and isinstance(payload, dict)  # noqa: S101 - the chain above has said so
    return Request(echo_op, echo_id, payload)


def decode_answer(frame: str | bytes) -> Answer | None:
    """Decode what a peer sent on a link; ``None`` for an event or anything that is no answer."""
    try:
        document = orjson.loads(frame)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("event"):
        return None
    request_id, status, payload = document.get("requestId"), document.get("status"), document.get("payload")
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        return None
    error, message = document.get("error"), document.get("message")
    return Answer(
        request_id if isinstance(request_id, str) else None,
        status,
        error if isinstance(error, str) else "",
        message if isinstance(message, str) else "",
        payload if isinstance(payload, dict) else {},
    )


def encode_request(op: str, request_id: str, payload: Mapping[str, object]) -> str:
    """Encode a request."""
    return orjson.dumps({"op": op, "requestId": request_id, "payload": payload}).decode()


def encode_answer(op: str, request_id: str | None, payload: Mapping[str, object]) -> str:
    """Encode a success."""
    return orjson.dumps({"op": op, "requestId": request_id, "status": 200, "ok": True, "payload": payload}).decode()


def encode_refusal(op: str | None, request_id: str | None, refusal: Refusal) -> str:
    """Encode an error."""
    return orjson.dumps(
        {
            "op": op,
            "requestId": request_id,
            "status": refusal.status,
            "ok": False,
            "error": refusal.code,
            "message": refusal.detail,
            "payload": refusal.payload,
        }
    ).decode()


def encode_event(op: str, event_id: str, payload: Mapping[str, object]) -> str:
    """Encode an event."""
    return orjson.dumps(
        {"op": op, "requestId": event_id, "status": 200, "ok": True, "event": True, "payload": payload}
    ).decode()


def _too_deep(frame: str) -> bool:
    """Say whether a text is nested over ``MAX_NESTING`` levels; of what is no JSON it says anything.

    No object is made for what the frame holds, whatever that is: a stranger's frame of a million brackets must cost
    little more than reading it.
    """
    marks = frame.encode("utf-8", "surrogatepass")
    if b"\\" in marks:
        marks = marks.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that each quotation mark begins or ends a text
    marks = marks.translate(ONE_KIND_OF_BRACKET, NO_MARKS)
    if b'"' in marks:
        marks = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    # What is left climbs and falls by a level a bracket. A valley is lower than what is on both sides of it, so filling
    # it leaves the summit as high as it is; when none is left, there is one mountain, as long as it is high, twice.
    while len(marks) > 2 * MAX_NESTING:
        length = len(marks)
        for valley in VALLEYS:
            marks = marks.replace(valley, b"")
        if len(marks) == length or TOO_HIGH in marks:  # the latter only ends sooner what would take many rounds
            return True
    return False
