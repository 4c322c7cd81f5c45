"""The rules of the house: what each module looks like, which tests it has, and what the tools say of all of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import PACKAGE, ROOT, Module, find_modules

MODULES = find_modules()
MOST_LINES = 400

TEXTS = {".py", ".toml", ".md", ".txt", ".js", ".mjs", ".css", ".html", ".service", ".conf", ".sh", ".yml", ".yaml", ""}
FOLDERS = [PACKAGE, "conf", "packaging", ".ci", "tests"]

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.$}/-])/(?:" + "work|" + "opt/" + r"dev|home/\w+|root)/"),
    "a package registry's host": re.compile(
        "py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.org|proxy\.go" + "lang"
    ),
    "unfinished work": re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b"),
}


def text_files(root: Path = ROOT) -> list[Path]:
    """Every text file of the repository that a person wrote."""
    found = [path for path in root.iterdir() if path.is_file() and path.suffix in TEXTS and path.name != ".git"]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file() and path.suffix in TEXTS]
    return sorted(path for path in found if "__pycache__" not in path.parts and not path.name.startswith(".coverage"))


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 20
    assert len({module.name for module in MODULES}) == len(MODULES)
    assert {f"{PACKAGE}.protocol.container", f"{PACKAGE}.clock", PACKAGE} <= {module.name for module in MODULES}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_has_one_job_says_it_first_and_is_small(module: Module) -> None:
    first_line = (ast.get_docstring(module.tree) or "").partition("\n")[0]
    assert len(first_line) > 10, "the first line of the docstring says what the module is for"
    assert first_line.endswith((".", "?", ":", ")")), "the first line of the docstring is a sentence"
    lines = module.path.read_text(encoding="utf-8").count("\n")
    assert lines < MOST_LINES, f"{lines} lines: two jobs?"


@pytest.mark.parametrize("module", [module for module in MODULES if module.needs_tests], ids=lambda module: module.name)
def test_a_public_module_has_its_own_test_file(module: Module) -> None:
    assert module.tests.is_file(), f"{module.tests.relative_to(ROOT)} is missing"


def test_test_folders_are_packages() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert (path.parent / "__init__.py").is_file(), f"{path.parent.relative_to(ROOT)} has no __init__.py"


def run_tool(*arguments: str) -> None:
    """Run a tool of the ``test`` extra as a program and show what it says where it complains."""
    found = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, f"{' '.join(arguments)}\n{found.stdout}{found.stderr}"


def test_ruff_has_nothing_to_say() -> None:
    run_tool("ruff", "check", ".")


def test_the_code_is_formatted() -> None:
    run_tool("ruff", "format", "--check", ".")


def test_the_types_hold() -> None:
    run_tool("mypy", "--strict", "-p", PACKAGE)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_is_written_that_does_not_belong_here(what: str) -> None:
    files = text_files()
    assert ROOT / "pyproject.toml" in files
    assert {module.path for module in MODULES} <= set(files)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", 'x = "/wo' + 'rk/main"'),
        ("a path of somebody's machine", "cd /ho" + "me/alice/node"),
        ("a package registry's host", "https://files.python" + "hosted.org/packages"),
        ("a package registry's host", "https://py" + "pi.org/simple"),
        ("unfinished work", "# TO" + "DO: the rest"),
    ],
)
def test_what_does_not_belong_here_would_be_found(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


@pytest.mark.parametrize("line", ["ProtectHome=yes", "https://one.example/work/x", "$HOME/work/", "network/work/plan"])
def test_what_may_be_written(line: str) -> None:
    assert not any(pattern.search(line) for pattern in FORBIDDEN.values())
