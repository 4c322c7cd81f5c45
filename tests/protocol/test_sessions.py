"""Sessions: every vector, the order of the checks one by one, and the bounds of the fields."""

from __future__ import annotations

from typing import Any

import pytest

from shine_node.protocol.access import AccessRecord, User, make_user
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import (
    BadBase64,
    BadFields,
    BadKeyFormat,
    BadLogin,
    BadRequestFormat,
    Refusal,
    TooLarge,
    UnknownUser,
)
from shine_node.protocol.session_errors import (
    AuthNonceMismatch,
    DeviceKeyNotActual,
    EmptyLogin,
    EmptySessionId,
    LoginMismatch,
    NoChallenge,
    NoStep1Context,
    SessionIdMismatch,
    SessionKeyNotActual,
    SessionNotFound,
    TimeSkew,
    UnsupportedKeyAlgorithm,
)
from shine_node.protocol.sessions import (
    MAX_CLIENT_INFO_BYTES,
    MAX_STORAGE_PWD_BYTES,
    AuthChallenge,
    Session,
    SessionChallenge,
    Signed,
    check_create,
    check_session_login,
    parse_create,
    parse_session_login,
    read_named_login,
    read_session_id,
    session_not_found,
)
from shine_node.protocol.signatures import is_signed_by, key_pair, sign
from tests.support.vectors import cases, load_vectors

NOW = 1_774_700_600_000
DEVICE_KEY, DEVICE_SECRET = key_pair(b"\1" * 32)
SESSION_KEY, SESSION_SECRET = key_pair(b"\2" * 32)
OTHER_KEY, _ = key_pair(b"\3" * 32)
NONCE = encode_base64(b"n" * 32)
SESSION_ID = encode_base64(b"s" * 32).rstrip("=")
SESSION_KEY_TEXT = "ed25519/" + encode_base64(SESSION_KEY)
NOT_A_KEY = "ed25519/" + encode_base64(bytes(32))


def make_record(login: str, device_key: bytes, time_ms: int = NOW) -> AccessRecord:
    return AccessRecord(login, f"{login}-001", OTHER_KEY, OTHER_KEY, device_key, (), time_ms, b"x")


USER = make_user([make_record("Alice", OTHER_KEY, NOW - 1), make_record("Alice", DEVICE_KEY)])
CHALLENGE = AuthChallenge("alice", NONCE, NOW)
SESSION = Session(SESSION_ID, "alice", SESSION_KEY_TEXT, "pwd", "phone", "browser", NOW, NOW)
SESSION_CHALLENGE = SessionChallenge(SESSION_ID, NONCE, NOW)


def create_payload(**change: object) -> dict[str, Any]:
    text = f"AUTH_CREATE_SESSION:Alice:{SESSION_KEY_TEXT}:pwd:{NOW}:{NONCE}"
    return {
        "login": "Alice",
        "sessionKey": SESSION_KEY_TEXT,
        "storagePwd": "pwd",
        "timeMs": NOW,
        "authNonce": NONCE,
        "deviceKey": encode_base64(DEVICE_KEY),
        "signatureB64": encode_base64(sign(DEVICE_SECRET, text.encode())),
        "clientInfo": "phone",
    } | change


def login_payload(**change: object) -> dict[str, Any]:
    return {
        "sessionId": SESSION_ID,
        "sessionKey": SESSION_KEY_TEXT,
        "timeMs": NOW,
        "signatureB64": encode_base64(sign(SESSION_SECRET, f"SESSION_LOGIN:{SESSION_ID}:{NOW}:{NONCE}".encode())),
        "clientInfo": "phone",
    } | change


def create(
    challenge: AuthChallenge | None = CHALLENGE, user: User | None = USER, now_ms: int = NOW, **change: object
) -> Signed:
    return check_create(parse_create(create_payload(**change)), challenge=challenge, user=user, now_ms=now_ms)


def log_in(
    challenge: SessionChallenge | None = SESSION_CHALLENGE,
    session: Session | None = SESSION,
    now_ms: int = NOW,
    **change: object,
) -> Signed:
    request = parse_session_login(login_payload(**change))
    return check_session_login(request, challenge=challenge, session=session, now_ms=now_ms)


# The vectors


def run_case(vectors: dict[str, Any], case: dict[str, Any]) -> Signed:
    given, payload, now_ms = case["challenge"], case["payload"], case.get("nowMs", vectors["nowMs"])
    if case["op"] == "CreateAuthSession":
        challenge = AuthChallenge(given["login"], given["authNonce"], given["atMs"]) if given else None
        request = parse_create(payload)
        assert request.text.decode() == case["text"]
        login = request.login.lower()
        known = vectors["keys"].get(login)
        user = make_user([make_record(login, bytes.fromhex(known["deviceKeyHex"]))]) if known else None
        return check_create(request, challenge=challenge, user=user, now_ms=now_ms)
    session_challenge = SessionChallenge(given["sessionId"], given["nonce"], given["atMs"]) if given else None
    login_request = parse_session_login(payload)
    assert login_request.text(given["nonce"] if given else "").decode() == case["text"]
    key = vectors["sessions"].get(login_request.session_id)
    session = SESSION._replace(session_id=login_request.session_id, session_key=key) if key else None
    return check_session_login(login_request, challenge=session_challenge, session=session, now_ms=now_ms)


@pytest.mark.parametrize("case", cases("sessions"))
def test_a_case_of_the_vectors(case: dict[str, Any]) -> None:
    error = None
    try:
        signed = run_case(load_vectors("sessions"), case)
        error = None if is_signed_by(*signed) else "BAD_SIGNATURE"
    except Refusal as refusal:
        error = refusal.code
    assert error == case["error"]


# CreateAuthSession


def test_a_session_is_created_under_the_newest_device_key() -> None:
    signed = create()
    assert signed.key == DEVICE_KEY
    assert is_signed_by(*signed)


def test_the_checks_of_create_are_made_in_their_order() -> None:
    """Everything is wrong; what is put right one by one uncovers the next error."""
    wrong: dict[str, Any] = {
        "challenge": None,
        "user": None,
        "now_ms": NOW + 60_000,
        "authNonce": "another",
        "sessionKey": "rsa/x",
        "deviceKey": encode_base64(OTHER_KEY),
    }
    steps: list[tuple[type[Refusal], dict[str, Any]]] = [
        (NoStep1Context, {"challenge": CHALLENGE._replace(at_ms=NOW - 1)}),
        (NoStep1Context, {"challenge": CHALLENGE._replace(login="bob")}),
        (LoginMismatch, {"challenge": CHALLENGE}),
        (UnknownUser, {"user": USER}),
        (AuthNonceMismatch, {"authNonce": NONCE}),
        (TimeSkew, {"now_ms": NOW + 30_000}),
        (UnsupportedKeyAlgorithm, {"sessionKey": NOT_A_KEY}),
        (BadKeyFormat, {"sessionKey": SESSION_KEY_TEXT}),
        (DeviceKeyNotActual, {"deviceKey": encode_base64(DEVICE_KEY)}),
    ]
    for error, right in steps:
        with pytest.raises(error):
            create(**wrong)
        wrong |= right
    assert is_signed_by(*create(**wrong))


@pytest.mark.parametrize(("age", "alive"), [(-1, False), (0, True), (60_000, True), (60_001, False)])
def test_a_nonce_lives_for_a_minute_and_not_before_it_was_given(age: int, alive: bool) -> None:
    now_ms = NOW + age
    if alive:
        create(now_ms=now_ms, timeMs=now_ms)
        log_in(now_ms=now_ms, timeMs=now_ms)
        return
    with pytest.raises(NoStep1Context):
        create(now_ms=now_ms, timeMs=now_ms)
    with pytest.raises(NoChallenge):
        log_in(now_ms=now_ms, timeMs=now_ms)


@pytest.mark.parametrize(("skew", "fits"), [(-30_001, False), (-30_000, True), (30_000, True), (30_001, False)])
def test_a_time_may_be_off_by_half_a_minute(skew: int, fits: bool) -> None:
    for request in (create, log_in):
        if fits:
            request(timeMs=NOW + skew)
        else:
            with pytest.raises(TimeSkew):
                request(timeMs=NOW + skew)


def test_what_is_not_ascii_is_compared_too() -> None:
    with pytest.raises(AuthNonceMismatch):
        create(authNonce="нонс")
    with pytest.raises(DeviceKeyNotActual):
        create(deviceKey="ключ")
    with pytest.raises(SessionIdMismatch):
        log_in(sessionId="сессия")


# SessionLogin


def test_a_session_is_logged_in_to_by_its_key() -> None:
    signed = log_in()
    assert signed.key == SESSION_KEY
    assert is_signed_by(*signed)


def test_the_checks_of_login_are_made_in_their_order() -> None:
    wrong: dict[str, Any] = {
        "challenge": None,
        "session": None,
        "now_ms": NOW + 60_000,
        "sessionKey": "rsa/x",
    }
    another = SESSION_CHALLENGE._replace(session_id="another")
    steps: list[tuple[type[Refusal], dict[str, Any]]] = [
        (NoChallenge, {"challenge": another._replace(at_ms=NOW - 1)}),
        (NoChallenge, {"challenge": another}),
        (SessionIdMismatch, {"challenge": SESSION_CHALLENGE}),
        (SessionNotFound, {"session": SESSION}),
        (TimeSkew, {"now_ms": NOW}),
        (UnsupportedKeyAlgorithm, {"sessionKey": NOT_A_KEY}),
        (BadKeyFormat, {"sessionKey": "ed25519/" + encode_base64(OTHER_KEY)}),
        (SessionKeyNotActual, {"sessionKey": SESSION_KEY_TEXT}),
    ]
    for error, right in steps:
        with pytest.raises(error):
            log_in(**wrong)
        wrong |= right
    assert is_signed_by(*log_in(**wrong))


def test_the_signature_covers_the_nonce() -> None:
    assert not is_signed_by(*log_in(challenge=SESSION_CHALLENGE._replace(nonce="another")))


def test_a_missing_session_is_told_in_one_way() -> None:
    assert session_not_found().code == "SESSION_NOT_FOUND"


# Fields


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_login_and_an_empty_session_have_their_own_errors(empty: str | None) -> None:
    with pytest.raises(EmptyLogin):
        read_named_login({"login": empty})
    with pytest.raises(EmptyLogin):
        parse_create(create_payload(login=empty))
    with pytest.raises(EmptySessionId):
        read_session_id({"sessionId": empty})
    with pytest.raises(EmptySessionId):
        parse_session_login(login_payload(sessionId=empty))


def test_a_login_keeps_its_spelling_and_a_session_id_is_opaque() -> None:
    assert read_named_login({"login": "Alice"}) == "Alice"
    assert read_session_id({"sessionId": "any text"}) == "any text"
    with pytest.raises(BadLogin):
        read_named_login({"login": "al ice"})


@pytest.mark.parametrize(
    "field", ["login", "sessionKey", "storagePwd", "timeMs", "authNonce", "deviceKey", "clientInfo"]
)
def test_a_field_of_the_wrong_type_is_refused_by_create(field: str) -> None:
    with pytest.raises(BadRequestFormat):
        parse_create(create_payload(**{field: ["x"]}))


@pytest.mark.parametrize("field", ["sessionId", "sessionKey", "timeMs", "signatureB64", "clientInfo"])
def test_a_field_of_the_wrong_type_is_refused_by_login(field: str) -> None:
    with pytest.raises(BadRequestFormat):
        parse_session_login(login_payload(**{field: ["x"]}))


@pytest.mark.parametrize("field", ["sessionKey", "timeMs", "authNonce", "deviceKey", "signatureB64"])
def test_create_needs_its_fields(field: str) -> None:
    with pytest.raises(BadFields):
        parse_create(create_payload(**{field: None}))


@pytest.mark.parametrize("field", ["sessionKey", "timeMs", "signatureB64"])
def test_login_needs_its_fields(field: str) -> None:
    with pytest.raises(BadFields):
        parse_session_login(login_payload(**{field: None}))


def test_a_signature_that_is_not_base64_is_refused() -> None:
    for parse, payload in ((parse_create, create_payload), (parse_session_login, login_payload)):
        with pytest.raises(BadBase64):
            parse(payload(signatureB64="?"))


def test_texts_may_be_empty_and_are_bounded_in_bytes() -> None:
    request = parse_create(create_payload(storagePwd=None, clientInfo=None))
    assert (request.storage_pwd, request.client_info) == ("", "")
    longest = create_payload(storagePwd="x" * MAX_STORAGE_PWD_BYTES, clientInfo="ж" * (MAX_CLIENT_INFO_BYTES // 2))
    assert parse_create(longest).storage_pwd == longest["storagePwd"]
    for too_long in (
        {"storagePwd": "x" * (MAX_STORAGE_PWD_BYTES + 1)},
        {"clientInfo": "x" * (MAX_CLIENT_INFO_BYTES + 1)},
        {"clientInfo": "ж" * (MAX_CLIENT_INFO_BYTES // 2) + "x"},
    ):
        with pytest.raises(TooLarge):
            parse_create(create_payload(**too_long))
    with pytest.raises(TooLarge):
        parse_session_login(login_payload(clientInfo="x" * (MAX_CLIENT_INFO_BYTES + 1)))


def test_a_login_may_say_nothing_new_of_the_client() -> None:
    assert parse_session_login(login_payload(clientInfo=None)).client_info is None
    assert parse_session_login(login_payload(clientInfo="")).client_info == ""
