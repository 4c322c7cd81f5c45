"""``inbox``: what is shown, and what is marked read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli.commands import run_command
from shine_node.client.keyfile import create_key_file, load_key_file
from shine_node.protocol.access import AccessServer
from tests.cli.homes import Person, home
from tests.client.scripted import Script, served


def after_time(lines: str) -> list[str]:
    return [line[21:] for line in lines.splitlines()]


def test_reading(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice, bob, carol = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob", "Carol"))
        for author, text in ((bob, "one"), (carol, "two \x1b[2J\u202e"), (bob, "three")):
            assert author("send", "alice", text)[0] == 0
        assert alice("send", "bob", "answer")[0] == 0
        everything = ["bob: one", "carol: two \\x1b[2J\\u202e", "bob: three", "to bob [delivered]: answer"]
        status, shown = alice("inbox")
        assert (status, after_time(shown)) == (0, everything)
        assert after_time(alice("inbox", "--limit", "2")[1]) == everything[2:]
        assert after_time(alice("inbox", "BOB")[1]) == [everything[0], *everything[2:]]
        assert after_time(alice("inbox", "--unread")[1]) == everything[:3]
        assert alice("inbox", "nobody") == (0, "")

        assert after_time(alice("inbox", "--unread", "--limit", "2", "--mark-read")[1]) == everything[:2]
        assert after_time(alice("inbox", "--unread")[1]) == ["bob: three"]
        assert after_time(bob("inbox")[1]) == [
            "to alice [delivered, read]: one",
            "to alice [delivered]: three",
            "alice: answer",
        ]
        [three] = [
            json.loads(line) for line in alice("inbox", "bob", "--unread", "--json", "--mark-read")[1].splitlines()
        ]
        assert (three["text"], three["peer"], three["read"]) == ("three", "bob", False)
        assert alice("inbox", "--unread", "--mark-read") == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [(["a b"], "the login must be"), (["--limit", "501"], "from 1 to 500, not '501'"), (["--limit", "²"], "from 1 to")],
)
def test_a_wrong_command_line(words: list[str], said: str, capsys: Any) -> None:
    assert run_command(["inbox", *words]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_marked_that_could_not_be_shown(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with home(tmp_path / "home") as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        bob("send", "alice", "one")
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as stream, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            assert run_command(["inbox", "--mark-read", "--keys", str(alice.keys)]) == 1
        assert after_time(alice("inbox", "--unread")[1]) == ["bob: one"]


def test_the_other_server_where_one_is_lost_half_way(tmp_path: Path, capsys: Any) -> None:
    lost: Script = {
        "AuthChallenge": lambda payload: {"authNonce": "x"},
        "CreateAuthSession": lambda payload: {"sessionId": "x"},
        "ListDialogs": lambda payload: None,
    }
    with home(tmp_path / "home") as url, served(lost) as losing:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        bob("send", "alice", "one")
        account = load_key_file(alice.keys)
        alice.keys.unlink()
        create_key_file(alice.keys, account._replace(servers=(AccessServer("lost", losing), *account.servers)))
        status, shown = alice("inbox", "--unread", "--mark-read")
        assert (status, after_time(shown)) == (0, ["bob: one"])
        assert alice("inbox", "--unread") == (0, ""), "the receipt found its way too"
