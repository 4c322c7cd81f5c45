"""``block``, ``unblock``, ``blocked``: what they change at a real node, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shine_node.cli.commands import run_command
from tests.cli.homes import Person, home


def test_who_is_blocked_is_not_heard_and_then_heard_again(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home") as url:
        alice, mallory = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Mallory"))
        assert alice("blocked") == (0, "")
        assert mallory("send", "alice", "one") == (0, "delivered\n")
        assert alice("block", "MALLORY") == (0, "")
        assert alice("block", "eve") == (0, "")
        assert alice("block", "mallory") == (0, "")
        assert "mallory is blocked already" in alice.said
        assert alice("blocked") == (0, "mallory\neve\n")
        assert mallory("send", "alice", "two") == (0, "accepted\n")
        assert [line[21:] for line in alice("inbox")[1].splitlines()] == ["mallory: one"]
        assert alice("unblock", "Mallory") == (0, "")
        assert alice("unblock", "Mallory") == (0, "")
        assert "Mallory is not blocked" in alice.said
        assert mallory("send", "alice", "three") == (0, "delivered\n")
        assert alice("blocked") == (0, "eve\n")


@pytest.mark.parametrize("name", ["block", "unblock"])
def test_a_wrong_command_line(name: str, capsys: Any) -> None:
    assert run_command([name, "a b"]) == 2
    assert "the login must be" in capsys.readouterr().err
