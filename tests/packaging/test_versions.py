"""Versions: that of the program stands in three places, and the libraries' in three files."""

from __future__ import annotations

import re
import tomllib

import pytest

from shine_node import __version__
from tests.support.vectors import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGING = REPOSITORY / "packaging"
DEBIAN_NAMES = {"pynacl": "nacl"}


def needed(lines: list[str]) -> dict[str, str]:
    return dict(line.split(">=") for line in lines)


def depends(control: str, field: str) -> dict[str, str]:
    text = (PACKAGING / control).read_text(encoding="utf-8").partition("\nPackage:")[2]
    value = re.findall(rf"^{field}: ((?:.|\n )*)", text, re.MULTILINE)[0]
    return {found[1]: found[2] for found in re.finditer(r"python3-(\w+) \(>= ([\d.]+)\)", value)}


def test_the_version_is_the_same_everywhere() -> None:
    first = (PACKAGING / "debian/changelog").read_text(encoding="utf-8").splitlines()[0]
    assert re.findall(r"^shine-node \((.*)\) ", first) == [PROJECT["version"]] == [__version__]


def test_the_package_depends_on_what_the_project_does() -> None:
    libraries = {DEBIAN_NAMES.get(name, name): least for name, least in needed(PROJECT["dependencies"]).items()}
    assert depends("debian/control", "Depends") == libraries
    assert depends("debian/control", "Recommends") == needed(PROJECT["optional-dependencies"]["client"])


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_the_bundle_brings_what_the_project_depends_on_with_checksums() -> None:
    text = (PACKAGING / "bundle/requirements.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    versions = dict(line.split()[0].split("==") for line in lines)
    libraries = needed(PROJECT["dependencies"])
    assert versions.keys() == libraries.keys() | {"cffi"}  # which PyNaCl needs
    for name, least in libraries.items():
        assert numbers(versions[name]) >= numbers(least), name
    assert all(re.search(r"( --hash=sha256:[0-9a-f]{64})+$", re.sub(" +", " ", line)) for line in lines)


@pytest.mark.parametrize("field", ["Section", "Priority", "Maintainer", "Standards-Version", "Rules-Requires-Root"])
def test_both_packages_are_of_one_kind(field: str) -> None:
    values = [
        re.findall(rf"^{field}: (.*)$", (PACKAGING / control).read_text(encoding="utf-8"), re.MULTILINE)
        for control in ("debian/control", "bundle/control")
    ]
    assert values[0] == values[1] and len(values[0]) == 1
