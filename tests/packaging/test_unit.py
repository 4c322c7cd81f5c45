"""The unit: what it starts is there, what it promises the node keeps, and what the node relies on it gives."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from shine_node.cli.commands import build_parser
from shine_node.cli.common import DEFAULT_CONFIG, UNUSABLE
from shine_node.cli.unit import parse_unit, why_not_written
from shine_node.config import config_from_mapping
from shine_node.configuration.credentials import NAMES, PLACEHOLDER
from shine_node.configuration.options import DEFAULT_DATA_DIR
from shine_node.control.place import PACKAGED
from shine_node.process import NEEDS_OWNER, files_needed
from tests.support.vectors import REPOSITORY

DEBIAN = REPOSITORY / "packaging" / "debian"
UNIT = DEBIAN / "shine-node.service"
BACKUP = DEBIAN / "shine-node.shine-node-backup.service"
TIMER = DEBIAN / "shine-node.shine-node-backup.timer"
EXAMPLE = REPOSITORY / "packaging" / "examples" / "tls.conf"
OTHER_DISK = REPOSITORY / "packaging" / "examples" / "data-dir.conf"
MOST_EXPOSURE = "15"
"""In tenths."""


def parsed(path: Path) -> dict[str, list[str]]:
    """Return the values of all keys of a unit, in their order; sections are not told apart."""
    values: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, equals, value = line.partition("=")
            assert equals and re.fullmatch("[A-Za-z]+", key), line
            values.setdefault(key, []).append(value)
    return values


SERVICE = parsed(UNIT)
NIGHTLY = parsed(BACKUP)


def only(key: str) -> str:
    [value] = SERVICE[key]
    return value


@pytest.mark.parametrize(("key", "command"), [("ExecStart", "run"), ("ExecReload", "reload")])
def test_what_it_starts_is_a_command(key: str, command: str) -> None:
    program, *words = shlex.split(only(key))
    assert program == "/usr/bin/shine-node"
    arguments = build_parser().parse_args(words)
    assert words[0] == command
    assert arguments.config == DEFAULT_CONFIG


def test_it_waits_for_the_node_and_watches_it() -> None:
    assert only("Type") == "notify"
    assert only("NotifyAccess") == "main"
    watched = int(only("WatchdogSec").removesuffix("s"))
    assert 30 <= watched <= 300, "a card that stalls for some seconds is no reason for a restart"
    assert int(only("TimeoutStopSec").removesuffix("s")) >= 10


def test_it_never_gives_up_but_where_only_the_owner_can_help() -> None:
    assert only("Restart") == "always"
    assert only("StartLimitIntervalSec") == "0"
    assert only("RestartPreventExitStatus") == f"{UNUSABLE} {NEEDS_OWNER}"
    assert {"RestartSec", "RestartSteps", "RestartMaxDelaySec"} <= SERVICE.keys()


def test_its_user_and_folders_are_those_that_the_node_knows() -> None:
    assert (DEBIAN / "shine-node.sysusers").read_text().split()[:2] == ["u", only("User")]
    assert only("Group") == only("User") == "shine-node"
    assert Path("/var/lib") / only("StateDirectory") == Path(DEFAULT_DATA_DIR)
    assert only("StateDirectoryMode") == "0700"
    assert {Path(DEFAULT_DATA_DIR): Path("/run") / only("RuntimeDirectory")} == PACKAGED


def test_the_node_may_use_what_its_defaults_need() -> None:
    config = config_from_mapping({"server": {"login": "a", "url": "wss://a.example/ws"}})
    assert int(only("LimitNOFILE")) >= files_needed(config)
    assert only("RestrictAddressFamilies").split() == ["AF_INET", "AF_INET6", "AF_UNIX"]
    assert only("SystemCallErrorNumber") == "EPERM"
    assert int(only("MemoryMax").removesuffix("M")) > int(only("MemoryHigh").removesuffix("M")) > 128


@pytest.mark.parametrize("unit", [UNIT, BACKUP])
def test_systemd_judges_it_well(unit: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    found = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "exposure level" in found.stdout, found.stderr
    assert found.returncode == 0, found.stdout


def test_the_nightly_backup_is_one_of_the_node_by_its_user_and_keeps_few() -> None:
    [command] = NIGHTLY["ExecStart"]
    program, *words = shlex.split(command)
    arguments = build_parser().parse_args(words)
    assert (program, words[0]) == ("/usr/bin/shine-node", "backup")
    assert (arguments.config, arguments.target, arguments.keep) == (DEFAULT_CONFIG, None, 3)
    assert NIGHTLY["Type"] == ["oneshot"]
    assert NIGHTLY["PrivateNetwork"] == ["yes"]
    assert "Install" not in BACKUP.read_text(), "its timer alone starts it"
    assert "RuntimeDirectory" not in NIGHTLY, "it would go, with the socket of the node, when the backup is done"
    assert NIGHTLY["ProtectSystem"] == ["full"], "storage.backupDir may be anywhere"
    for key, values in SERVICE.items():
        alike = key.startswith(
            ("Restrict", "Lock", "Memory", "SystemCall", "Keyring", "NoNew", "State", "User", "Group")
        )
        if alike and key not in ("Restart", "RestrictAddressFamilies", "MemoryHigh"):
            assert NIGHTLY[key] == values, key
    for rules in ("debian/rules", "bundle/rules"):
        assert (
            "dh_installsystemd --name=shine-node-backup shine-node-backup.timer" in (DEBIAN.parent / rules).read_text()
        )


def test_the_timer_is_of_every_night_and_spread() -> None:
    timer = parsed(TIMER)
    assert timer["OnCalendar"] == ["*-*-* 02:30"]
    assert (timer["Persistent"], timer["RandomizedDelaySec"], timer["WantedBy"]) == (
        ["true"],
        ["2h"],
        ["timers.target"],
    )


def test_the_example_hands_over_what_the_node_looks_for() -> None:
    values = parsed(EXAMPLE)
    assert [value.partition(":")[0] for value in values["LoadCredential"]] == list(NAMES)
    assert values["SetCredential"] == [f"{name}:{PLACEHOLDER.decode()}" for name in NAMES]


def test_the_example_of_another_disk_allows_what_it_names() -> None:
    text = OTHER_DISK.read_text(encoding="utf-8")
    values = parsed(OTHER_DISK)
    [folder] = values["ReadWritePaths"]
    assert values["RequiresMountsFor"] == [folder]
    assert f'#     dataDir = "{folder}"' in text
    allowed = parse_unit(f"LoadState=loaded\nProtectSystem={only('ProtectSystem')}\nReadWritePaths={folder}")
    assert allowed is not None and why_not_written(allowed, Path(folder)) == ""
    refused = parse_unit(f"LoadState=loaded\nProtectSystem={only('ProtectSystem')}")
    assert refused is not None and why_not_written(refused, Path(folder)) == "ProtectSystem"
    assert only("ProtectHome") == "yes"
