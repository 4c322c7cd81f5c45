"""The maintainer scripts: what is left elsewhere is named, and folders are closed before the service starts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.vectors import REPOSITORY

DEBIAN = REPOSITORY / "packaging" / "debian"


def told(etc: Path) -> str:
    """Run the part of the script that names what stays."""
    script = (DEBIAN / "shine-node.postrm").read_text()
    [function] = re.findall(r"^tell_what_is_left\(\) \{\n.*?^\}\n", script, re.MULTILINE | re.DOTALL)
    text = function.replace("/etc/shine-node", str(etc)).replace("/var/lib/shine-node", str(etc.parent / "lib"))
    found = subprocess.run(
        ["sh", "-ec", f"{text}\ntell_what_is_left"], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stderr == ""
    return found.stdout


def test_what_the_configuration_has_put_elsewhere_is_named(tmp_path: Path) -> None:
    etc, data, backups = tmp_path / "etc", tmp_path / "my data", tmp_path / "backups"
    assert told(etc) == ""
    (etc / "conf.d").mkdir(parents=True)
    for folder in (data, backups, tmp_path / "lib"):
        folder.mkdir()
    (etc / "shine-node.toml").write_text(f'# dataDir = "/usr"\nserver.dataDir = "{data}"\n')
    (etc / "conf.d/1.toml").write_text(f"[storage]\n  backupDir='{backups}' # on a stick\n")
    (etc / "conf.d/2.toml").write_text(f'dataDir = "{tmp_path}/lib/x"\nbackupDir = "gone"\nbackupDir = ""\n')
    assert told(etc).splitlines() == [
        f"shine-node: {path}, which its configuration names, is left as it is" for path in (backups, data)
    ]


def test_nothing_that_the_configuration_names_is_removed() -> None:
    lines = (DEBIAN / "shine-node.postrm").read_text().splitlines()
    assert [line.strip() for line in lines if re.search(r"\brm\b", line)] == [
        "rm -rf /var/lib/shine-node",
        "rm -rf /etc/shine-node",
        "rm -f /var/lib/systemd/timers/stamp-shine-node-backup.timer",
    ]


def test_folders_are_closed_before_the_service_is_started() -> None:
    script = (DEBIAN / "shine-node.postinst").read_text()
    assert script.index("close_folders; fi") < script.index("#DEBHELPER#")
    assert script.index("systemd-sysusers") < script.index("chown"), "the group is made first"
