"""The refusals of sessions: every code of PROTOCOL.md §8.1 with its status, none of them worth a retry."""

from __future__ import annotations

import pytest

from shine_node.protocol import errors, session_errors
from shine_node.protocol.errors import Refusal

# Written out by hand; the first two are about empty fields.
STATUS_OF_CODE = {
    "EMPTY_LOGIN": 400,
    "EMPTY_SESSION_ID": 400,
    "NO_STEP1_CONTEXT": 422,
    "LOGIN_MISMATCH": 422,
    "AUTH_NONCE_MISMATCH": 422,
    "TIME_SKEW": 422,
    "DEVICE_KEY_NOT_ACTUAL": 422,
    "SESSION_NOT_FOUND": 422,
    "NO_CHALLENGE": 422,
    "SESSION_ID_MISMATCH": 422,
    "SESSION_KEY_NOT_ACTUAL": 422,
    "UNSUPPORTED_KEY_ALGORITHM": 422,
    "SESSION_OF_ANOTHER_USER": 422,
}
OF_THE_COMMON_TREE = {"UNKNOWN_USER": 422, "BAD_SIGNATURE": 422, "NOT_AUTHENTICATED": 422}


def refusals(module: object) -> dict[str, type[Refusal]]:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Refusal)]
    return {kind.code: kind for kind in kinds if kind is not Refusal}


def test_every_code_has_its_status_and_nothing_else_is_here() -> None:
    assert {code: kind.status for code, kind in refusals(session_errors).items()} == STATUS_OF_CODE
    assert {kind.__name__ for kind in refusals(session_errors).values()} == set(session_errors.__all__)


def test_the_other_codes_of_sessions_are_in_the_common_tree_and_no_code_is_twice() -> None:
    common = refusals(errors)
    assert {code: common[code].status for code in OF_THE_COMMON_TREE} == OF_THE_COMMON_TREE
    assert not set(common) & set(STATUS_OF_CODE)


@pytest.mark.parametrize("kind", refusals(session_errors).values(), ids=lambda kind: kind.code)
def test_a_refusal_of_a_session_is_final(kind: type[Refusal]) -> None:
    assert not kind("why").retryable
    assert str(kind("why")) == f"{kind.code}: why"
