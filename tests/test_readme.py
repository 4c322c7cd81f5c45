"""README.md: its commands are commands, its settings are settings, and what it names is there."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from shine_node.cli.commands import build_parser
from shine_node.cli.lines import change_fields, message_fields
from shine_node.client.history import Message, Problem
from shine_node.client.ledger import Change
from shine_node.config import config_from_mapping
from shine_node.protocol.keys import MessageId
from tests.support.vectors import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PROGRAM = ".venv/bin/python shine_node.py "
SET_UP = "python3 -m venv --without-pip .venv && python3 -m pip --python .venv/bin/python install -q -e "


def test_one_command_runs_the_demo_and_one_passes_the_tests() -> None:
    lines = [line.strip() for line in README.splitlines() if line.strip().startswith("python3 -m venv")]
    assert lines == [
        f"{SET_UP}. && .venv/bin/python shine_node.py demo",
        f"{SET_UP}'.[test]' && .venv/bin/python -m pytest -n auto",
    ]


@pytest.mark.parametrize(
    "command", sorted({found[1] for found in re.finditer(rf"{re.escape(PROGRAM)}([a-z][^`\n]*)", README)})
)
def test_each_command_is_one(command: str) -> None:
    arguments = build_parser().parse_args(shlex.split(command))
    assert callable(arguments.run)


def test_the_commands_of_a_node_are_all_shown() -> None:
    commands = {found[1] for found in re.finditer(rf"{re.escape(PROGRAM)}([a-z]+)", README)}
    assert commands >= {"init", "check", "run", "demo", "user", "status", "account", "send", "inbox", "watch", "block"}


def test_the_fields_of_the_json_lines_are_all_told() -> None:
    key = MessageId("alice", "bob", 1, 2)
    message = Message(key, "bob", True, 0, "x", "accepted", False, False, None)
    fields = {*message_fields(message), *change_fields(Change("state", key, "bob", True, "failed")), "error"}
    told = {
        name for row in re.findall(r"^\| (`[^|]+) \|", README, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert fields <= told
    problems = {value for name, value in vars(Problem).items() if name.isupper()}
    assert all(f"`{problem}`" in README for problem in problems)


def test_the_settings_make_a_configuration(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    server = f'[server]\nlogin = "home"\nurl = "ws://127.0.0.1:7070/ws"\ndataDir = "{tmp_path}"\n'
    config = config_from_mapping(tomllib.loads(server + "\n".join(blocks)))
    assert [peer.login for peer in config.sync_servers] == ["friend"]
    assert config.server.pool.allow_insecure_peers and config.server.pool.allow_private_peers


def test_what_it_names_is_there() -> None:
    modules = {found[1] for found in re.finditer(r"-m (tests\.[a-z_.]+)", README)}
    assert modules
    for module in modules:
        path = REPOSITORY.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for name in ("conf/shine-node.toml", "tests/test_architecture.py", "tests/constraints-trixie.txt", ".ci/run"):
        assert f"`{name}`" in README
        assert (REPOSITORY / name).is_file(), name
    for path in re.findall(r"(?<![\w/])packaging/[\w./-]*\w", README):
        assert (REPOSITORY / path).exists(), path
    for folder in re.findall(r"^ {4}(shine_node/\S+)", README, flags=re.MULTILINE):
        assert (REPOSITORY / folder).exists(), folder
