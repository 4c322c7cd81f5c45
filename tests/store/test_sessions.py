"""Sessions in the store: found, listed, renewed, bounded per user, and removed whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.protocol.session_errors import SessionNotFound, SessionOfAnotherUser
from shine_node.protocol.sessions import Session
from shine_node.store.changes import SignOut
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table
from shine_node.store.sessions import (
    SESSION_ID_CHARACTERS,
    add_session,
    all_sessions,
    close_session,
    close_sessions,
    get_session,
    list_sessions,
    renew_session,
    sign_out,
)

pytestmark = pytest.mark.core

NOW = 1_774_700_000_000
GREATEST = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "shine.mdb", map_size=2**24)
    yield opened
    opened.close()


def make_session(number: int, login: str = "alice", *, at_ms: int = NOW) -> Session:
    session_id = f"{login}-{number}".ljust(SESSION_ID_CHARACTERS, "_")
    return Session(session_id, login, "ed25519/x", "пароль 🔑", "phone", "browser", at_ms, at_ms)


def add(store: Store, *sessions: Session) -> list[Session]:
    """Store sessions; what had to go for them."""

    def work(txn: Transaction) -> list[Session]:
        return [gone for session in sessions for gone in add_session(txn, session, greatest=GREATEST)]

    return store.write_now(work)


def sessions_of(store: Store, login: str) -> list[Session]:
    with store.read() as txn:
        return list_sessions(txn, login)


def test_a_session_comes_back_as_it_was(store: Store) -> None:
    session = make_session(1)
    assert add(store, session) == []
    with store.read() as txn:
        assert get_session(txn, session.session_id) == session
        assert list_sessions(txn, "alice") == [session]


def test_any_text_may_be_asked_for(store: Store) -> None:
    add(store, make_session(1))
    with store.read() as txn:
        for text in ("", "x", "x" * SESSION_ID_CHARACTERS, "x" * 5000, "сессия", "\0" * SESSION_ID_CHARACTERS):
            assert get_session(txn, text) is None


def test_sessions_are_listed_by_user_and_the_last_to_authenticate_is_first(store: Store) -> None:
    first, second = make_session(1, at_ms=NOW), make_session(2, at_ms=NOW + 1)
    other = make_session(1, "alice2")
    add(store, first, second, other)
    assert sessions_of(store, "alice") == [second, first]
    assert sessions_of(store, "alice2") == [other]
    assert sessions_of(store, "bob") == []


def test_the_session_that_authenticated_longest_ago_goes_for_a_new_one(store: Store) -> None:
    sessions = [make_session(number, at_ms=NOW + number) for number in range(GREATEST)]
    add(store, *sessions, make_session(9, "bob", at_ms=0))
    store.write_now(
        lambda txn: renew_session(
            txn, sessions[0].session_id, client_info=None, request_info="browser", now_ms=NOW + 10
        )
    )
    newest = make_session(7, at_ms=NOW + 20)
    assert add(store, newest) == [sessions[1]]
    assert [session.session_id for session in sessions_of(store, "alice")] == [
        newest.session_id,
        sessions[0].session_id,
        sessions[2].session_id,
    ]
    assert len(sessions_of(store, "bob")) == 1


def test_a_bound_that_has_become_smaller_holds_from_the_next_session_on(store: Store) -> None:
    add(store, *(make_session(number, at_ms=NOW + number) for number in range(GREATEST)))
    newest = make_session(7, at_ms=NOW + 20)
    gone = store.write_now(lambda txn: add_session(txn, newest, greatest=1))
    assert len(gone) == GREATEST
    assert sessions_of(store, "alice") == [newest]


def test_a_login_changes_when_and_from_where_the_session_was_used_last(store: Store) -> None:
    session = make_session(1)
    add(store, session)

    def renew(client_info: str | None) -> Session:
        return store.write_now(
            lambda txn: renew_session(
                txn, session.session_id, client_info=client_info, request_info="tablet", now_ms=NOW + 5
            )
        )

    expected = session._replace(request_info="tablet", authenticated_ms=NOW + 5)
    assert renew(None) == expected
    assert renew("desk") == expected._replace(client_info="desk")
    assert sessions_of(store, "alice") == [expected._replace(client_info="desk")]


def test_a_session_that_was_closed_meanwhile_is_not_renewed(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.write_now(lambda txn: renew_session(txn, "gone", client_info=None, request_info="", now_ms=NOW))
    assert sessions_of(store, "alice") == []


def test_a_closed_session_leaves_nothing_behind(store: Store) -> None:
    session = make_session(1)
    add(store, session)
    store.write_now(lambda txn: close_session(txn, session.session_id, login="alice"))
    with store.read() as txn:
        assert get_session(txn, session.session_id) is None
        assert txn.count(Table.SESSIONS) == txn.count(Table.SESSIONS_OF_USER) == 0
    with pytest.raises(SessionNotFound):
        store.write_now(lambda txn: close_session(txn, session.session_id, login="alice"))


def test_nobody_closes_the_session_of_another(store: Store) -> None:
    session = make_session(1)
    add(store, session)
    with pytest.raises(SessionOfAnotherUser):
        store.write_now(lambda txn: close_session(txn, session.session_id, login="bob"))
    assert sessions_of(store, "alice") == [session]


def test_all_sessions_of_a_user_go_and_those_of_others_stay(store: Store) -> None:
    add(store, make_session(1), make_session(2), make_session(1, "bob"))
    store.write_now(lambda txn: close_sessions(txn, "alice"))
    assert sessions_of(store, "alice") == []
    assert len(sessions_of(store, "bob")) == 1
    with store.read() as txn:
        assert txn.count(Table.SESSIONS) == txn.count(Table.SESSIONS_OF_USER) == 1


def test_sessions_outlive_the_process(tmp_path: Path) -> None:
    session = make_session(1)
    for _ in range(2):
        store = Store(tmp_path / "shine.mdb", map_size=2**24)
        try:
            if not sessions_of(store, "alice"):
                add(store, session)
            assert sessions_of(store, "alice") == [session]
        finally:
            store.close()


def test_all_sessions_of_everybody(store: Store) -> None:
    sessions = [make_session(1), make_session(2), make_session(1, "bob")]
    add(store, *sessions)
    with store.read() as txn:
        assert sorted(all_sessions(txn)) == sorted(sessions)


def test_signing_out_removes_all_of_a_user_and_is_told(store: Store) -> None:
    add(store, make_session(1), make_session(2), make_session(3, "bob"))

    def work(txn: Transaction) -> tuple[int, list[object]]:
        return sign_out(txn, "alice"), list(txn.changes)

    assert store.write_now(work) == (2, [SignOut("alice")])
    assert sessions_of(store, "alice") == []
    assert len(sessions_of(store, "bob")) == 1
