"""Versions: that of the program stands in three places, and the libraries' in three files."""

from __future__ import annotations

import re
import shutil
import subprocess
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


def test_the_package_is_an_upgrade_of_the_bundle_and_of_the_bundle_of_before() -> None:
    """A change of Debian 12 to 13 brings the package in by itself; nothing else is to be removed for it."""
    build = (PACKAGING / "build-bundle").read_text(encoding="utf-8")
    [suffix] = re.findall(r"sed -i '1s/\(\\\(\.\*\\\)\)/\(\\1(.+)\)/' debian/changelog", build)
    version = PROJECT["version"]
    compare = shutil.which("dpkg")
    if compare is None:
        pytest.skip("needs dpkg")
    for less, more in ((version + suffix, version), (version, f"{version}.1{suffix}")):
        subprocess.run([compare, "--compare-versions", less, "lt", more], check=True, timeout=60)
    for control, architectures in (("debian/control", ["all"]), ("bundle/control", ["amd64", "arm64"])):
        text = (PACKAGING / control).read_text(encoding="utf-8")
        assert re.findall(r"^Package: (.*)$", text, re.MULTILINE) == ["shine-node"]
        assert re.findall(r"^Architecture: (.*)$", text, re.MULTILINE)[0].split() == architectures
        assert not re.search(r"^(Conflicts|Breaks|Replaces|Provides|Multi-Arch):", text, re.MULTILINE)


def test_neither_package_asks_for_what_the_system_of_the_other_step_has_not() -> None:
    """The bundle goes on working while Debian 12 becomes 13: Python 3.11 to 3.13."""
    text = (PACKAGING / "bundle/control").read_text(encoding="utf-8")
    assert "python3 (>= 3.11)" in text and "python3 (<< 3.14)" in text
    fetched = (PACKAGING / "bundle/fetch_wheels.py").read_text(encoding="utf-8")
    assert 'PYTHONS = ("311", "312", "313")' in fetched
