"""What goes into a package: every module, every file of the page, and a configuration that works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shine_node.config import is_placeholder, load_config
from tests.support.tree import PACKAGE, find_modules
from tests.support.vectors import REPOSITORY

PACKAGING = REPOSITORY / "packaging"
LEFT = {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "node_modules", ".idea"}
"""Folders that tools and people leave below the modules, each with files that look like a part of the program."""


def lay_out(
    folder: Path, where: str = "/usr/share/shine-node", top: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(top / "packaging" / "stage"), str(folder), where], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage") / "source"
    found = lay_out(folder)
    assert found.returncode == 0, found.stderr
    return folder


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_every_module_and_every_file_of_the_page_is_in_it(stage: Path) -> None:
    web = REPOSITORY / PACKAGE / "web"
    expected = {module.path.relative_to(REPOSITORY / PACKAGE) for module in find_modules()}
    expected |= {Path("web") / name for name in files(web) if not LEFT & {*name.parts}}
    assert files(stage / PACKAGE) == expected
    for name in expected:
        assert (stage / PACKAGE / name).read_bytes() == (REPOSITORY / PACKAGE / name).read_bytes()


def test_each_file_of_it_is_installed_or_is_of_the_build(stage: Path) -> None:
    debian = stage / "debian"
    installed = [line.split()[0] for line in (debian / "shine-node.install").read_text().splitlines()]
    for listing in ("docs", "examples", "manpages"):
        installed += (debian / f"shine-node.{listing}").read_text().split()
    installed = [name.removesuffix("/*") for name in installed]
    assert {path.name for path in stage.iterdir()} == {name.split("/")[0] for name in installed} | {"debian"}
    for name in installed:
        assert (stage / name).exists(), name


def test_it_is_the_same_whatever_the_rights_of_the_working_tree_are(stage: Path) -> None:
    for path in stage.rglob("*"):
        mode = path.stat().st_mode & 0o777
        runs = path.is_dir() or path.relative_to(stage) in (
            Path("bin/shine-node"),
            Path("name-this-server"),
            Path("debian/rules"),
        )
        assert mode == (0o755 if runs else 0o644), path


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("/usr/share/shine-node", '["/usr/share/shine-node"]'),
        ("/usr/lib/shine-node /usr/lib/shine-node/vendor", '["/usr/lib/shine-node", "/usr/lib/shine-node/vendor"]'),
    ],
)
def test_the_program_finds_its_modules(tmp_path: Path, where: str, expected: str) -> None:
    assert lay_out(tmp_path / "source", where).returncode == 0
    text = (tmp_path / "source/bin/shine-node").read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert f"sys.path[:0] = {expected}\n" in text
    compile(text, "shine-node", "exec")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A copy of the working tree, as far as a package is made of it."""
    top = tmp_path / "top"
    for name in ("packaging", "conf", PACKAGE):
        shutil.copytree(REPOSITORY / name, top / name, ignore=shutil.ignore_patterns(*LEFT))
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, top / name)
    return top


def test_what_tools_leave_below_the_modules_is_in_no_package(tmp_path: Path, top: Path, stage: Path) -> None:
    for folder in (top / PACKAGE, top / PACKAGE / "web", top / PACKAGE / "store" / "recovery"):
        for left in LEFT:
            (folder / left / "3.13").mkdir(parents=True)
            for name in ("cache.json", "module.py", "module.pyc", "page.js", ".gitignore"):
                (folder / left / "3.13" / name).write_text("left\n")
        for name in (
            ".swp.py",
            "module.py~",
            "module.py.orig",
            "module.so",
            "core.1234",
            "index.html.bak",
            ".hidden.js",
        ):
            (folder / name).write_text("left\n")
    assert lay_out(tmp_path / "source", top=top).returncode == 0
    assert files(tmp_path / "source") == files(stage)


def test_versions_that_differ_are_refused(tmp_path: Path, top: Path) -> None:
    project = top / "pyproject.toml"
    project.write_text(re.sub(r'^version = ".*"', 'version = "9.9.9"', project.read_text(), flags=re.MULTILINE))
    found = lay_out(tmp_path / "source", top=top)
    assert found.returncode == 1
    assert "pyproject.toml says version 9.9.9, packaging/debian/changelog" in found.stderr


# --- the configuration of a fresh installation ---


class Etc:
    """``/etc/shine-node`` in a folder, and what names the server there before the first start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "etc"
        (self.folder / "conf.d").mkdir(parents=True)
        shutil.copy(PACKAGING / "etc/shine-node.toml", self.folder)
        self.main = self.folder / "shine-node.toml"
        self.named = self.folder / "conf.d/10-this-server.toml"
        self.data = folder / "data"
        self.data.mkdir()

    def name_this_server(self, host: str = "My_Pi.local") -> None:
        host_file = self.folder / "hostname"
        host_file.write_text(host + "\n")
        text = (PACKAGING / "name-this-server").read_text()
        for there, here in (
            ("/etc/shine-node", self.folder),
            ("/var/lib/shine-node", self.data),
            ("/proc/sys/kernel/hostname", host_file),
        ):
            text = text.replace(there, str(here))
        subprocess.run(["sh", "-c", text], check=True, timeout=60, env={"PATH": os.environ["PATH"]})


@pytest.mark.parametrize(
    ("host", "login"),
    [
        ("My_Pi.local", "mypi"),
        ("raspberrypi", "raspberrypi"),
        ("--", "home"),
        ("x" * 64, "x" * 20),
        ("$(touch pwned)\"'", "touchpwned"),
    ],
)
def test_a_fresh_installation_has_a_name_and_a_configuration_that_works(tmp_path: Path, host: str, login: str) -> None:
    etc = Etc(tmp_path)
    etc.name_this_server(host)
    config = load_config(etc.main, environ={})
    assert re.fullmatch(rf"{login}-[0-9a-f]{{4}}", config.server.login)
    assert is_placeholder(config.server.url)
    assert not config.server.pool.allow_insecure_peers
    assert etc.named.stat().st_mode & 0o777 == 0o644


def test_what_the_owner_has_said_stays(tmp_path: Path) -> None:
    etc = Etc(tmp_path)
    etc.name_this_server()
    first = etc.named.read_text()
    etc.name_this_server("other")
    assert etc.named.read_text() == first

    etc.named.rename(etc.named.with_name("mine.toml"))
    etc.name_this_server()
    assert not etc.named.exists()


def test_a_name_in_the_main_file_counts(tmp_path: Path) -> None:
    etc = Etc(tmp_path)
    etc.main.write_text('server.login = "mine"\nserver.url = "wss://mine.example/ws"\n')
    etc.name_this_server()
    assert not etc.named.exists()


def test_a_server_that_has_a_store_gets_no_other_name(tmp_path: Path) -> None:
    etc = Etc(tmp_path)
    (etc.data / "shine.mdb").touch()
    etc.name_this_server()
    assert not etc.named.exists()
    (etc.data / "shine.mdb").unlink()
    shutil.rmtree(etc.named.parent)
    etc.name_this_server()
    assert etc.named.exists() and list(etc.named.parent.iterdir()) == [etc.named]


def test_the_package_makes_no_name_when_it_is_installed() -> None:
    script = (PACKAGING / "debian/shine-node.postinst").read_text()
    assert "login" not in script and "name-this-server" not in script, "each copy of an image is a server of its own"


def test_the_main_file_says_nothing_and_names_what_is_there(tmp_path: Path) -> None:
    text = (PACKAGING / "etc/shine-node.toml").read_text()
    assert all(line.startswith("#") or not line for line in text.splitlines())
    assert "/usr/share/doc/shine-node/examples/shine-node.toml" in text
    assert "conf/shine-node.toml" in (PACKAGING / "debian/shine-node.examples").read_text().split()
