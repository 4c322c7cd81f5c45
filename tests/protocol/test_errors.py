"""The tree of errors: its shape, its codes against the table of PROTOCOL.md §2, and the texts built from data."""

from __future__ import annotations

import pytest

from shine_node.protocol import errors
from shine_node.protocol.errors import (
    BadFields,
    CallerTimeout,
    InternalError,
    LeftAlone,
    LinkDown,
    LinkError,
    LinkLost,
    PeerRefused,
    QueueFull,
    RateLimited,
    Refusal,
    RequestTimeout,
    ServerBusy,
    ShineError,
    StorageFull,
)

# PROTOCOL.md §2, §3 and §7, written out by hand.
STATUS_OF_CODE = {
    "EMPTY_JSON": 400,
    "BAD_JSON": 400,
    "NO_OP": 400,
    "UNKNOWN_OP": 400,
    "NO_PAYLOAD": 400,
    "BAD_PAYLOAD": 400,
    "BAD_REQUEST_FORMAT": 400,
    "BAD_FIELDS": 400,
    "BAD_BASE64": 400,
    "BAD_CONTAINER": 400,
    "PAIR_MISMATCH": 400,
    "BAD_LOGIN": 400,
    "BAD_BLOCKCHAIN_NAME": 400,
    "BAD_KEY_FORMAT": 400,
    "USER_NOT_FOUND": 404,
    "KEY_CONFLICT": 409,
    "STALE_REVISION": 409,
    "ROOT_KEY_MISMATCH": 409,
    "USER_ALREADY_EXISTS": 409,
    "TOO_LARGE": 413,
    "NOT_ACCESS_SERVER": 421,
    "BAD_SIGNATURE": 422,
    "UNKNOWN_USER": 422,
    "NOT_AUTHENTICATED": 422,
    "FORBIDDEN": 403,
    "REGISTRATION_CLOSED": 403,
    "UNSUPPORTED_PROTOCOL": 426,
    "RATE_LIMITED": 429,
    "SERVER_BUSY": 503,
    "STORAGE_FULL": 507,
    "INTERNAL_ERROR": 500,
}
EXCEPTIONS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
REFUSALS = [kind for kind in EXCEPTIONS if issubclass(kind, Refusal) and kind is not Refusal]
LINK_ERRORS = [QueueFull, CallerTimeout, RequestTimeout, LinkLost, LinkDown, LeftAlone]


def test_every_code_of_the_table_has_its_status_and_one_class() -> None:
    codes = [kind.code for kind in REFUSALS]
    assert len(codes) == len(set(codes))
    known = {kind.code: kind.status for kind in REFUSALS}
    assert {code: known.get(code) for code in STATUS_OF_CODE} == STATUS_OF_CODE


def test_all_that_is_raised_on_purpose_hangs_on_one_root_and_is_public() -> None:
    assert all(issubclass(kind, ShineError) for kind in EXCEPTIONS)
    assert {kind.__name__ for kind in EXCEPTIONS} <= set(errors.__all__)
    assert not any(issubclass(kind, Refusal) for kind in LINK_ERRORS)


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.__name__)
def test_a_refusal_says_its_code_and_its_sentence(kind: type[Refusal]) -> None:
    refusal = kind("this is why")
    assert str(refusal) == f"{kind.code}: this is why"
    assert refusal.detail == "this is why"
    assert refusal.payload == {}
    assert refusal.retryable is (kind.status in (429, 500, 503, 507))


def test_only_four_codes_are_worth_a_retry() -> None:
    assert {kind for kind in REFUSALS if kind("").retryable} == {RateLimited, ServerBusy, StorageFull, InternalError}
    assert frozenset({kind.code for kind in REFUSALS if kind("").retryable}) == errors.RETRYABLE_CODES


def test_a_refusal_carries_members_of_the_payload() -> None:
    assert ServerBusy("later", {"retryAfterMs": 250}).payload == {"retryAfterMs": 250}


@pytest.mark.parametrize("kind", LINK_ERRORS, ids=lambda kind: kind.__name__)
def test_a_link_error_names_the_peer_and_the_operation(kind: type[LinkError]) -> None:
    error = kind("server2", "DmSyncBatch")
    assert (error.server, error.op, error.detail) == ("server2", "DmSyncBatch", "")
    assert str(error) == f"DmSyncBatch at server2: {kind.reason}"
    assert str(kind("server2", "Ping", "1006")) == f"Ping at server2: {kind.reason} (1006)"


def test_link_errors_can_be_told_apart() -> None:
    assert len({kind.reason for kind in [*LINK_ERRORS, PeerRefused]}) == len(LINK_ERRORS) + 1


def test_a_peers_refusal_keeps_status_and_code_and_cuts_a_long_text() -> None:
    refused = PeerRefused("server2", "ReceiveIncomingMessage", 421, "NOT_ACCESS_SERVER", "not mine")
    assert (refused.status, refused.code, refused.retryable) == (421, "NOT_ACCESS_SERVER", False)
    assert refused.payload == {}
    assert str(refused) == "ReceiveIncomingMessage at server2: refused (421 NOT_ACCESS_SERVER: not mine)"
    busy = PeerRefused("server2", "Ping", 503, "SERVER_BUSY", "x" * 10_000)
    assert busy.retryable
    assert len(busy.detail) == 300
    stale = PeerRefused("server2", "AddBlock", 409, "bad_prev_hash", "", {"serverLastGlobalNumber": 7})
    assert stale.payload == {"serverLastGlobalNumber": 7}


def test_errors_are_caught_by_their_root() -> None:
    with pytest.raises(ShineError):
        raise BadFields("no")
