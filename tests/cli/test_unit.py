import os
from pathlib import Path

import pytest

from shine_node.cli import unit as unit_module
from shine_node.cli.common import DEFAULT_CONFIG
from shine_node.cli.unit import (
    PROPERTIES,
    SERVICE,
    Unit,
    parse_unit,
    read_unit,
    unit_of,
    why_not_written,
    without_links,
)
from tests.packaging.test_unit import SERVICE as PACKAGED

SHOWN = """\
LoadState=loaded
User=shine-node
Group=shine-node
AmbientCapabilities=cap_net_bind_service
PrivateUsers=no
ProtectSystem=strict
ProtectHome=yes
ReadWritePaths=/srv/shine -/mnt/ssd "/mnt/two words"
RuntimeDirectory=shine-node
StateDirectory=shine-node
CacheDirectory=
"""
UNIT = Unit(
    "shine-node",
    "shine-node",
    True,
    "strict",
    "yes",
    (Path("/run/shine-node"), Path("/var/lib/shine-node")),
    (Path("/srv/shine"), Path("/mnt/ssd"), Path("/mnt/two words")),
)


def test_what_systemd_shows():
    assert parse_unit(SHOWN) == UNIT
    assert parse_unit(SHOWN.replace("loaded", "not-found")) is parse_unit("") is None
    assert parse_unit('LoadState=loaded\nReadWritePaths="/a b') == Unit(
        "", "", False, "no", "no", (), (Path('"/a'), Path("b"))
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("cap_net_bind_service", ""), ("PrivateUsers=no", "PrivateUsers=yes")],
)
def test_rights_that_do_not_count(before, after):
    found = parse_unit(SHOWN.replace(before, after))
    assert found is not None and not found.low_ports


def test_where_the_packaged_unit_may_write():
    shown = "\n".join(f"{name}={' '.join(PACKAGED.get(name, []))}" for name in PROPERTIES if name != "LoadState")
    unit = parse_unit(f"LoadState=loaded\n{shown}")
    assert unit is not None and not unit.low_ports
    assert why_not_written(unit, Path("/var/lib/shine-node")) == ""
    assert why_not_written(unit, Path("/var/lib/shine-node/backups")) == ""
    assert why_not_written(unit, Path("/var/lib/shine")) == "ProtectSystem"
    assert why_not_written(unit, Path("/mnt/ssd/shine")) == "ProtectSystem"
    moved = unit._replace(writable=(Path("/mnt/ssd"), Path("/run/user/5")))
    assert why_not_written(moved, Path("/mnt/ssd/shine")) == ""
    assert why_not_written(moved, Path("/run/user/5/data")) == "ProtectHome"
    assert why_not_written(moved._replace(home="no"), Path("/run/user/5/data")) == ""
    assert why_not_written(moved._replace(home="read-only"), Path("/run/user/5/data")) == ""
    assert why_not_written(unit._replace(system="full"), Path("/etc/x")) == "ProtectSystem"
    assert why_not_written(unit._replace(system="yes"), Path("/etc/x")) == ""


def test_folders_behind_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    linked = UNIT._replace(made=(tmp_path / "link",), writable=(tmp_path / "link" / "a",))
    found = without_links(linked)
    assert (found.made, found.writable) == ((tmp_path / "disk",), (tmp_path / "disk" / "a",))


def answer(folder, monkeypatch, script):
    program = folder / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_systemd_is_asked(tmp_path, monkeypatch):
    (tmp_path / "shown").write_text(SHOWN)
    said = tmp_path / "said"
    answer(tmp_path, monkeypatch, f'echo "$@" > {said}\ncat {tmp_path}/shown')
    assert read_unit() == unit_of(DEFAULT_CONFIG) == UNIT
    assert said.read_text() == f"show --property={','.join(PROPERTIES)} {SERVICE}\n"
    assert unit_of(tmp_path / "node.toml") is None


def test_nobody_to_ask(tmp_path, monkeypatch):
    answer(tmp_path, monkeypatch, "exit 1")
    assert read_unit() is None
    answer(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(unit_module, "SECONDS", 0.2)
    assert read_unit() is None
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert read_unit() is None
