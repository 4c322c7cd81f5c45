"""The key file: made once, for its owner alone, replaced whole, and never read where it is not what it should be."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.client import keyfile
from shine_node.client.keyfile import (
    LOCK_TRIES,
    Account,
    KeyFileError,
    SavedSession,
    create_key_file,
    default_key_file,
    load_key_file,
    remove_key_file,
    update_key_file,
)
from shine_node.client.secret import make_identity
from shine_node.clock import SystemClock
from shine_node.protocol.access import AccessServer

ACCOUNT = Account(
    "Alice",
    b"\1" * 32,
    (AccessServer("home", "wss://home.example/ws"), AccessServer("other", "ws://other.example/ws")),
    True,
    {"wss://home.example/ws": SavedSession("session", b"\2" * 32)},
    {"bob": b"\3" * 32},
    {"bob": 1_774_700_000_000},
)


def with_key(account: Account, login: str) -> Account:
    return account._replace(root_keys={**account.root_keys, login: b"\4" * 32})


def update(path: Path, change: Callable[[Account], Account]) -> Account:
    return asyncio.run(update_key_file(path, change, clock=SystemClock()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "keys.json"


def test_a_file_without_the_times_of_records_is_read(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    document = orjson.loads(path.read_bytes())
    assert document.pop("recordTimes") == {"bob": 1_774_700_000_000}
    path.write_bytes(orjson.dumps(document))
    assert load_key_file(path) == ACCOUNT._replace(record_times={})


def test_what_is_written_is_read(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    assert load_key_file(path) == ACCOUNT
    assert ACCOUNT.identity == make_identity("Alice", b"\1" * 32)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_nlink == 1


def test_the_mode_does_not_depend_on_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        create_key_file(path, ACCOUNT)
        update(path, lambda account: with_key(account, "carol"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_is_shown(path: Path) -> None:
    shown = f"{ACCOUNT!r} {ACCOUNT.sessions!r}"
    assert "Alice" in shown and "session" in shown
    assert "x01" not in shown and "x02" not in shown


def test_a_file_is_never_overwritten(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    with pytest.raises(KeyFileError, match="never overwritten"):
        create_key_file(path, ACCOUNT._replace(login="bob"))
    assert load_key_file(path) == ACCOUNT
    assert list(path.parent.iterdir()) == [path]


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "keys.json"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError, match="never overwritten"):
        create_key_file(link, ACCOUNT)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyFileError, match="cannot be written: Not a directory"):
        create_key_file(tmp_path / "file" / "sub" / "keys.json", ACCOUNT)
    with pytest.raises(KeyFileError, match="cannot be read: Not a directory"):
        load_key_file(tmp_path / "file" / "keys.json")


def test_a_failed_write_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_key_file(path, ACCOUNT)

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(KeyFileError, match="No space left"):
            update(path, lambda account: with_key(account, "carol"))
        with pytest.raises(KeyFileError, match="No space left"):
            create_key_file(path.with_name("other.json"), ACCOUNT)
    assert list(path.parent.iterdir()) == [path]
    assert load_key_file(path) == ACCOUNT


def test_no_file(path: Path) -> None:
    with pytest.raises(KeyFileError, match="account new"):
        load_key_file(path)
    with pytest.raises(KeyFileError, match="account new"):
        update(path, lambda account: account)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_can_read(path: Path, mode: int) -> None:
    create_key_file(path, ACCOUNT)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_key_file(path)
    with pytest.raises(KeyFileError, match="chmod 600"):
        update(path, lambda account: with_key(account, "carol"))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="is no file"):
        load_key_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="is no file"):  # and it does not wait for a writer
        load_key_file(tmp_path / "pipe")


def good() -> dict[str, Any]:
    return keyfile._encode(ACCOUNT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        " " * (keyfile.MAX_FILE_BYTES + 1),
        *(
            json.dumps({**good(), **wrong})
            for wrong in (
                {"login": "a b"},
                {"login": 7},
                {"secretB64": "AAAA"},
                {"secretB64": 7},
                {"servers": []},
                {"servers": [{"serverLogin": "home", "url": "https://home.example"}]},
                {"servers": [7]},
                {"registered": 1},
                {"sessions": []},
                {"sessions": {"x": {"sessionId": "y"}}},
                {"rootKeys": {"bob": "!"}},
                {"recordTimes": {"bob": -1}},
                {"recordTimes": {"bob": "1"}},
                {"recordTimes": []},
            )
        ),
    ],
)
def test_damaged_files(path: Path, text: str) -> None:
    create_key_file(path, ACCOUNT)
    path.write_text(text)
    with pytest.raises(KeyFileError, match="no key file of this program, or was damaged"):
        load_key_file(path)


def test_changes(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    changed = update(path, lambda account: with_key(account, "carol"))
    assert changed == load_key_file(path) == with_key(ACCOUNT, "carol")
    before = path.stat()
    assert update(path, lambda account: account) == changed
    assert path.stat().st_ino == before.st_ino, "what does not change is not written"


def test_a_change_goes_through_a_link(path: Path, tmp_path: Path) -> None:
    create_key_file(path, ACCOUNT)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    update(link, lambda account: with_key(account, "carol"))
    assert link.is_symlink()
    assert load_key_file(path) == with_key(ACCOUNT, "carol")


def test_changes_at_the_same_time_are_all_kept(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    logins = [f"user{number}" for number in range(20)]

    async def change(login: str) -> None:
        await asyncio.to_thread(update, path, lambda account: with_key(account, login))

    async def story() -> None:
        await asyncio.gather(*(change(login) for login in logins))

    asyncio.run(story())
    assert set(load_key_file(path).root_keys) == {"bob", *logins}


class Pauses:
    """A clock that does something in place of each pause."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act
        self.count = 0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.count += 1
        self.act()


def test_who_finds_it_locked_waits_and_gives_up(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    holder = os.open(path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    clock = Pauses(lambda: None)
    with pytest.raises(KeyFileError, match="in use by another program"):
        asyncio.run(update_key_file(path, lambda account: account, clock=clock))
    assert clock.count == LOCK_TRIES
    clock = Pauses(lambda: fcntl.flock(holder, fcntl.LOCK_UN))
    assert asyncio.run(update_key_file(path, lambda account: account, clock=clock)) == ACCOUNT
    assert clock.count == 1
    os.close(holder)


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_is_replaced_between_opening_and_locking(
    path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    create_key_file(path, ACCOUNT)
    newer = with_key(ACCOUNT, "carol")
    real, once = fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if not once:
            once.append(True)
            path.unlink()
            if not gone:
                create_key_file(path, newer)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    clock = Pauses(lambda: create_key_file(path, newer) if gone else None)
    assert asyncio.run(update_key_file(path, lambda account: account, clock=clock)) == newer


def test_removing(path: Path) -> None:
    create_key_file(path, ACCOUNT)
    remove_key_file(path)
    assert not path.exists()
    remove_key_file(path)
    with pytest.raises(KeyFileError, match="cannot be removed"):
        remove_key_file(path.parent)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for base in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", base)
        assert default_key_file() == tmp_path / ".config" / "shine-node" / "keys.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    assert default_key_file() == tmp_path / "conf" / "shine-node" / "keys.json"
