"""``account``: made, shown and recovered, at a real node."""

from __future__ import annotations

import getpass
import io
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from shine_node.cli.commands import run_command
from shine_node.client.keyfile import load_key_file
from shine_node.client.secret import write_recovery_key
from tests.cli.homes import Person, home
from tests.cli.program import run_program


def test_from_the_beginning_to_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with home(tmp_path / "home", registration={"mode": "token", "token": "let me in"}) as url:
        new = ["account", "new", "Alice", "--server", f"home={url}", "--keys", str(tmp_path / "alice.json")]
        assert run_command(new) == 1
        assert "REGISTRATION_CLOSED" in capsys.readouterr().err
        assert run_command([*new, "--token", "let me in"]) == 0
        first, second, key = capsys.readouterr().out.splitlines()
        path = tmp_path / "alice.json"
        account = load_key_file(path)
        assert first == f"Alice is registered at home ({url}); the keys are in {path}"
        assert "only way back" in second
        assert key == write_recovery_key("Alice", account.secret)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert run_command([*new, "--token", "let me in"]) == 1
        assert "never overwritten" in capsys.readouterr().err

        assert run_command(["account", "show", "--keys", str(path)]) == 0
        shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert (shown["login"], shown["servers"], shown["registered"]) == ("Alice", f"home ({url})", "yes")
        assert run_command(["account", "show", "--json", "--keys", str(path)]) == 0
        fields = json.loads(capsys.readouterr().out)
        assert fields["servers"] == [{"serverLogin": "home", "url": url}]
        assert {name: shown[name] for name in ("solanaKey", "blockchainKey", "deviceKey", "blockchainName")} == {
            name: fields[name] for name in ("solanaKey", "blockchainKey", "deviceKey", "blockchainName")
        }
        assert run_command(["account", "show", "--recovery-key", "--keys", str(path)]) == 0
        assert capsys.readouterr().out == f"{key}\n"

        monkeypatch.setattr(sys, "stdin", io.StringIO(f" {key.lower()}\n"))
        laptop = tmp_path / "laptop.json"
        recover = ["account", "recover", "--server", url, "--keys"]
        assert run_command([*recover, str(laptop)]) == 0
        assert capsys.readouterr().out == f"Alice is recovered, at home ({url}); the keys are in {laptop}\n"
        assert load_key_file(laptop).secret == account.secret
        monkeypatch.setattr(sys, "stdin", io.StringIO(key[:-1]))
        assert run_command([*recover, str(tmp_path / "third.json")]) == 1
        assert "this is no recovery key: it has 57 characters" in capsys.readouterr().err

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stdin", Terminal())
        asked: list[str] = []
        monkeypatch.setattr(getpass, "getpass", lambda prompt: asked.append(prompt) or key)  # type: ignore[func-returns-value]
        assert run_command([*recover, str(tmp_path / "third.json")]) == 0
        assert asked == ["Recovery key: "]


def test_an_account_whose_registration_was_not_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with home(tmp_path / "home") as url:
        alice = Person("Alice", tmp_path, url, capsys)
        text = alice.keys.read_text()
        alice.keys.write_text(text.replace('"registered": true', '"registered": false'))
        assert alice("account", "new", "Alice", "--server", url)[0] == 0
        assert alice.keys.read_text() == text
        alice.keys.write_text(text.replace('"registered": true', '"registered": false'))
        assert "registered      yes\n" in alice("account", "show")[1], "the server has it, and was asked"
        assert alice.keys.read_text() == text


def test_a_closed_server_and_its_operator(tmp_path: Path, capsys: Any) -> None:
    """The first user of a node with the default configuration, by the commands alone."""
    folder = tmp_path / "home"
    with home(folder, registration={"mode": "closed"}) as url:
        keys = tmp_path / "alice.json"

        def alice(*words: str) -> tuple[int, str, str]:
            return run_command([*words, "--keys", str(keys)]), *capsys.readouterr()

        new = ["account", "new", "Alice", "--server", url]
        status, shown, said = alice(*new)
        record, recovery_key = shown.splitlines()[2], shown.splitlines()[-1]
        assert (status, said) == (
            1,
            "shine-node: Alice is not registered yet: home is closed, and its operator adds all users\n",
        )
        assert "`shine-node user add --record -`" in shown
        assert recovery_key == write_recovery_key("Alice", load_key_file(keys).secret)
        for words in (("inbox",), ("send", "alice", "x")):
            status, _, said = alice(*words)
            assert (status, "Alice is not registered yet" in said) == (1, True)
        watching = run_program("watch", "--keys", keys)
        assert (watching.returncode, "Alice is not registered yet" in watching.stderr) == (1, True)
        status, shown, said = alice("account", "show")
        assert (status, "registered      no\n" in shown) == (0, True)
        assert f"account new Alice --server home={url}` tries again" in said
        assert json.loads(alice("account", "show", "--json")[1])["registered"] is False

        status, shown, said = alice(*new, "--record", "-")
        again = json.loads(shown)
        assert status == 0 and "user add --record -" in said and recovery_key not in shown + said
        assert {**again, "timeMs": 0, "signatureB64": ""} == {**json.loads(record), "timeMs": 0, "signatureB64": ""}
        file = tmp_path / "alice.record"
        status, shown, _ = alice(*new, "--record", str(file))
        assert (status, shown.splitlines()[-1], json.loads(file.read_text())["login"]) == (0, recovery_key, "Alice")
        status, _, said = alice(*new, "--record", str(tmp_path / "none" / "record"))
        assert (status, "cannot be written: No such file" in said) == (1, True)

        # The older record will do too: the operator may have it from the first try.
        added = run_program("user", "add", "--config", folder / "node.toml", "--record", "-", stdin=None, input=record)
        assert (added.returncode, added.stderr) == (0, "")
        assert added.stdout.splitlines()[0] == "Alice: added" and "Alice can begin now" in added.stdout
        assert alice("send", "alice", "to myself")[:2] == (0, "delivered\n")
        assert load_key_file(keys).registered
        assert alice("inbox")[1].endswith("to myself\n")
        assert alice(*new, "--record", str(file))[0] == 0
        added = run_program("user", "add", "--config", folder / "node.toml", "--record", file)
        assert added.stdout == "Alice: updated\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "home.example"], "must be wss://HOST/ws, or NAME=wss://HOST/ws, not 'home.example'"),
        (["--server", "a b=wss://home.example/ws"], "'a b' is no name of a server"),
        ([*["--server", "wss://home.example/ws?a=b"] * 3], "at most two servers"),
        (["--server", "wss://home.example/ws", "--token", "a", "--token", "b"], "at most once for each --server"),
        ([], "--server"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    assert run_command(["account", "new", "alice", "--keys", str(tmp_path / "keys.json"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "keys.json").exists()


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run_command(["account", "show"]) == 1
    assert f"{tmp_path}/shine-node/keys.json is not there" in capsys.readouterr().err


def test_a_recovery_key_never_stands_on_the_command_line(tmp_path: Path) -> None:
    found = run_program("account", "recover", "alice:AAAA", "--server", "wss://home.example/ws")
    assert found.returncode == 2
    assert "unrecognized arguments" in found.stderr
