"""``send``: at real nodes, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli import send
from shine_node.cli.commands import run_command
from shine_node.cli.node_process import ReservedPort
from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.client.keyfile import Account, create_key_file
from shine_node.protocol.access import AccessServer, record_payload
from tests.cli.homes import Person, home
from tests.cli.program import LAUNCHER, SECONDS, run_program
from tests.client.scripted import Script, served

NOT_SENT = {"type": "sent", "key": None, "peer": "bob", "timeMs": None, "state": "refused", "error": None}
NOWHERE = AccessServer("nowhere", "ws://127.0.0.1:9/ws")


def test_messages_are_sent_and_their_state_is_told(tmp_path: Path, capsys: Any) -> None:
    with home(tmp_path / "home", limits={"maxBodyBytes": 100, "maxFrameBytes": 2**20, "maxBlockBytes": 1024}) as url:
        alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        assert alice("send", "BOB", "from the command line") == (0, "delivered\n")
        found = run_program("send", "bob", "--keys", alice.keys, stdin=None, input="from a pipe\nтоже\n")
        assert (found.returncode, found.stdout, found.stderr) == (0, "delivered\n", "")
        status, shown = alice("send", "bob", "with json", "--wait", "delivered", "--json")
        fields = json.loads(shown)
        assert (status, fields["type"], fields["peer"], fields["state"], fields["error"]) == (
            0,
            "sent",
            "bob",
            "delivered",
            None,
        )
        assert fields["key"].startswith(f"alice|bob|{fields['timeMs']}|")
        listed = [json.loads(line) for line in bob("inbox", "--json")[1].splitlines()]
        assert [one["text"] for one in listed] == ["from the command line", "from a pipe\nтоже", "with json"]
        assert listed[-1]["key"] == fields["key"]

        status, shown = alice("send", "bob", "x" * 100, "--json")
        assert status == 1
        assert (json.loads(shown)["state"], json.loads(shown)["error"]) == ("refused", "TOO_LARGE")
        assert "413 TOO_LARGE" in alice.said
        assert alice("send", "nobody", "x") == (1, "refused\n")
        assert "nobody is known as nobody" in alice.said
        status, shown = alice("send", "Nobody", "x", "--json", "--wait", "delivered")
        assert (status, json.loads(shown)) == (1, {**NOT_SENT, "peer": "nobody", "error": "USER_NOT_FOUND"})


def test_a_recipient_whose_server_is_off(tmp_path: Path, capsys: Any) -> None:
    carol = Identity.generate("carol").access_record([NOWHERE], time_ms=1)

    async def introduce(url: str) -> None:
        async with await Connection.open(url) as client:
            await client.request("AddUser", record_payload(carol))

    with home(tmp_path / "slow", delivery={"scheduleSeconds": [0, 600]}) as url:
        alice = Person("alice", tmp_path, url, capsys)
        asyncio.run(introduce(url))
        assert alice("send", "carol", "x") == (0, "accepted\n")
        assert alice("send", "carol", "x", "--wait", "delivered", "--timeout", "1") == (1, "accepted\n")
        assert alice.said == "shine-node: not delivered within 1 s: the server goes on trying\n"
    with home(tmp_path / "quick", delivery={"scheduleSeconds": [0, 1], "workerIntervalMs": 50}) as url:
        alice = Person("alice", tmp_path / "again", url, capsys)
        asyncio.run(introduce(url))
        assert alice("send", "carol", "x", "--wait", "delivered") == (1, "failed\n")


def test_a_server_that_is_lost_before_it_answers(tmp_path: Path, capsys: Any) -> None:
    bob = Identity.generate("bob").access_record([NOWHERE], time_ms=1)
    script: Script = {
        "GetUserAccess": lambda payload: {"exists": True, **record_payload(bob), "history": []},
        "SendMessagePair": lambda payload: None,
    }
    keys = tmp_path / "keys.json"
    with served(script) as url:
        create_key_file(keys, Account("alice", bytes(32), (AccessServer("home", url),), True, {}, {}))
        assert run_command(["send", "bob", "x", "--timeout", "1", "--keys", str(keys)]) == 1
    shown, said = capsys.readouterr()
    assert shown == "unknown\n"
    assert "it is not known whether the message was accepted, `shine-node inbox bob` may tell" in said
    began = time.monotonic()
    assert run_command(["send", "Bob", "x", "--timeout", "2", "--json", "--keys", str(keys)]) == 1
    assert time.monotonic() - began > 1, "it tries for as long as it may"
    shown, said = capsys.readouterr()
    assert json.loads(shown) == {**NOT_SENT, "state": "unknown"}
    assert said.startswith("shine-node: cannot connect to") and said.endswith(": nothing was sent\n")


def test_a_server_that_comes_back_in_time(tmp_path: Path, capsys: Any) -> None:
    with ReservedPort() as port:
        url = f"ws://127.0.0.1:{port.number}/ws"
        node = {"server": {"listen": f"127.0.0.1:{port.number}", "url": url}}
        with home(tmp_path / "home", **node):
            alice, bob = (Person(login, tmp_path, url, capsys) for login in ("Alice", "Bob"))
        words = ["send", "bob", "after a while", "--json", "--timeout", "120", "--keys", str(alice.keys)]
        with subprocess.Popen([sys.executable, str(LAUNCHER), *words], stdout=subprocess.PIPE, text=True) as sending:
            time.sleep(1)  # no wait for something: it is to have failed once before the server is there
            with home(tmp_path / "home", **node):
                shown, _ = sending.communicate(timeout=SECONDS)
                assert (sending.returncode, json.loads(shown)["state"]) == (0, "delivered")
                assert bob("inbox")[1].endswith("after a while\n")


def test_one_line_whatever_happens(tmp_path: Path, capsys: Any) -> None:
    none = tmp_path / "none.json"
    assert run_command(["send", "Bob", "x", "--json", "--keys", str(none)]) == 1
    shown, said = capsys.readouterr()
    assert (json.loads(shown), "is not there" in said) == (NOT_SENT, True)
    with home(tmp_path / "home", registration={"mode": "closed"}) as url:
        keys = tmp_path / "keys.json"
        create_key_file(keys, Account("alice", bytes(32), (AccessServer("home", url),), False, {}, {}))
        assert run_command(["send", "Bob", "x", "--json", "--keys", str(keys)]) == 1
        shown, said = capsys.readouterr()
        assert json.loads(shown) == {**NOT_SENT, "error": "UNKNOWN_USER"}
        assert "alice is not registered yet" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["b b", "x"], "the recipient must be 1 to 30"),
        (["bob", ""], "there is nothing to send"),
        (["bob", "x\udcff"], "the text is not valid UTF-8"),
        (["bob", "x", "--timeout", "0"], "must be a whole number from 1 to 86400, not '0'"),
        (["bob", "x", "--wait", "accepted"], "invalid choice"),
        ([], "required"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    assert run_command(["send", *words, "--keys", str(tmp_path / "none")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text"), [(b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), (b"a", "a"), (b"\xd0\xb6", "ж")]
)
def test_the_standard_input(given: bytes, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert send.read_text("-") == text


@pytest.mark.parametrize(
    ("given", "problem"), [(b"\n", "nothing to send"), (b"12345", "over 4 bytes"), (b"\xff", "not valid UTF-8")]
)
def test_an_input_that_is_no_message(given: bytes, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "MAX_TEXT_BYTES", 4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    with pytest.raises(ValueError, match=problem):
        send.read_text("-")


def test_without_the_library_that_seals(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with home(tmp_path / "home") as url:
        alice = Person("alice", tmp_path, url, capsys)
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        assert alice("send", "alice", "x") == (1, "refused\n")
        assert "install shine-node[client] with pip, or the Debian package python3-cryptography" in alice.said
