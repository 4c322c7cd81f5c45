"""The man page and the completion, which are made from the parser: nothing of it is missing in them."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node import __version__
from shine_node.cli.commands import build_parser
from tests.support.vectors import REPOSITORY

PACKAGING = REPOSITORY / "packaging"


def printed(*words: str, program: list[str] | None = None) -> str:
    found = subprocess.run(
        program or [sys.executable, *words], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command with its long options, found apart from ``packaging/commands.py``."""
    yield words, {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    for action in parser._actions:
        for name, below in (action.choices or {}).items() if isinstance(action.choices, dict) else ():
            yield from commands(below, (*words, name))


COMMANDS = dict(commands(build_parser()))


@pytest.fixture(scope="module")
def page() -> str:
    return printed(str(PACKAGING / "man.py"), "2026-11-30")


@pytest.fixture(scope="module")
def completion() -> str:
    return printed(str(PACKAGING / "completion.py"))


def test_there_are_commands_to_look_for() -> None:
    assert ("user", "add") in COMMANDS and "--record" in COMMANDS["user", "add"]


def test_the_page_has_every_command_and_option(page: str) -> None:
    assert page.startswith(f'.TH SHINE\\-NODE 8 2026-11-30 "shine\\-node {__version__}"')
    sections = dict(re.findall(r"^\.SS (.*)\n((?:(?!\.SS|\.SH).*\n)*)", page, re.MULTILINE))
    assert sections.keys() == {" ".join(words).replace("-", r"\-") for words in COMMANDS if words}
    for words, flags in COMMANDS.items():
        for flag in flags if words else ():
            escaped = flag.replace("-", r"\-")
            assert rf"\fB{escaped}\fR" in sections[" ".join(words).replace("-", r"\-")], (words, flag)


def test_the_page_is_right(page: str, tmp_path: Path) -> None:
    reader = shutil.which("mandoc")
    if reader is None:
        pytest.skip("needs mandoc")
    path = tmp_path / "shine-node.8"
    path.write_text(page, encoding="utf-8")
    assert printed(program=[reader, "-T", "lint", "-W", "warning", str(path)]) == ""


def completed(script: str, *words: str) -> set[str]:
    program = f'{script}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shine_node; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(printed(program=["bash", "-c", program, "bash", "shine-node", *words]).split())


def test_the_completion_offers_every_command_and_option(completion: str) -> None:
    for words, flags in COMMANDS.items():
        below = {other[-1] for other in COMMANDS if other[:-1] == words and other}
        assert completed(completion, *words, "") >= below, words
        assert completed(completion, *words, "--") == flags, words


def test_the_completion_knows_what_follows_an_option(completion: str, tmp_path: Path) -> None:
    assert completed(completion, "send", "bob", "--wait", "") == {"delivered"}
    (tmp_path / "some.toml").touch()
    assert completed(completion, "check", "--config", f"{tmp_path}/so") == {f"{tmp_path}/some.toml"}
    assert completed(completion, "account", "new", "--server", "") == set()
    assert completed(completion, "user", "a") == {"add"}
    assert completed(completion, "run", "user", "--") == COMMANDS["run",]
