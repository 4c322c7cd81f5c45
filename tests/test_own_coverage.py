"""The search for modules that their own tests do not cover, tried on a small tree that has one of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import own_coverage
from tests.support.tree import ROOT, find_modules

WHOLE = """
def sign(number):
    if number < 0:
        return -1
    return 1
"""
HALF = """
def sign(number):
    if number < 0:
        return -1
    if number:
        number = 1
    return number
"""
TREE = {
    "shine_node/__init__.py": '"""A package."""\n\n__version__ = "1"\n',
    "shine_node/room/__init__.py": '"""A room."""\n\nfrom shine_node.room.whole import sign\n\n__all__ = ["sign"]\n',
    "shine_node/room/whole.py": WHOLE,
    "shine_node/room/half.py": HALF,
    "shine_node/room/lonely.py": "x = 1\n",
    "shine_node/failing.py": "x = 1\n",
    "shine_node/elsewhere.py": "x = 1\n",
    "tests/__init__.py": "",
    "tests/room/__init__.py": "",
    "tests/room/test_whole.py": "from shine_node.room import sign\n\ndef test():\n    assert sign(-5) == -sign(5)\n",
    "tests/room/test_half.py": "from shine_node.room.half import sign\n\ndef test():\n    assert sign(1) == 1\n",
    "tests/test_failing.py": "import shine_node.failing\n\ndef test():\n    assert shine_node.failing.x == 2\n",
    "tests/test_elsewhere.py": "def test():\n    pass\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(root: Path, *names: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    status = own_coverage.main(names, root=root, say=lines.append)
    return status, lines


def test_everything_that_is_missing_is_said(root: Path) -> None:
    status, lines = run(root)
    assert status == 1
    said = dict(line.split(": ", 1) for line in lines[:-1])
    assert set(said) == {f"shine_node.{name}" for name in ("room.half", "room.lonely", "failing", "elsewhere")}
    assert said["shine_node.room.half"] == "lines 4; branches 3→4, 5→7"
    assert said["shine_node.room.lonely"] == "there is no tests/room/test_lonely.py"
    assert "tests/test_failing.py fails" in said["shine_node.failing"]
    assert "assert 1 == 2" in said["shine_node.failing"]
    assert "tests/test_elsewhere.py does not import it" in said["shine_node.elsewhere"]
    assert lines[-1] == "1 of 5 modules are fully covered by their own tests"


def test_a_module_that_is_covered(root: Path) -> None:
    assert run(root, "room.whole") == (0, ["1 of 1 modules are fully covered by their own tests"])


@pytest.mark.parametrize("name", ["shine_node.room.whole", "room.whole", "shine_node/room/whole.py"])
def test_the_ways_to_name_a_module(root: Path, name: str) -> None:
    assert [module.name for module in own_coverage.choose(find_modules(root), [name])] == ["shine_node.room.whole"]


def test_a_name_that_is_none(root: Path) -> None:
    assert run(root, "room.whole", "rooom") == (2, ["no module is named rooom"])


def test_a_package_stands_for_its_modules_and_one_of_names_only_is_left_out(root: Path) -> None:
    modules = find_modules(root)
    names = [module.name for module in own_coverage.choose(modules, ["room"])]
    assert names == ["shine_node.room.half", "shine_node.room.lonely", "shine_node.room.whole"]
    assert [module.name for module in own_coverage.choose(modules, ["shine_node"])] == [
        module.name for module in own_coverage.choose(modules, [])
    ]


def test_of_this_tree_every_module_is_measured_but_empty_packages() -> None:
    names = {module.name for module in own_coverage.choose(find_modules(), [])}
    assert {"shine_node.clock", "shine_node.protocol.container", "shine_node.cli"} <= names
    assert not {"shine_node", "shine_node.protocol", "shine_node.store"} & names
    assert all(module.path.is_relative_to(ROOT) for module in find_modules())
