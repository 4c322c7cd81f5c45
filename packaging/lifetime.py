"""What ``packaging/try.py`` has a package live through: upgrades, a downgrade, the change from the bundle, the end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from machine import Machine, expect, proved, until
from service import CONF_D, NAMED, USERS, Client, answers

__all__ = ["prove_change", "prove_end", "prove_upgrade"]

MAIN = "/etc/shine-node/shine-node.toml"
KEEP_MINE = "-o Dpkg::Options::=--force-confold"


def prove_upgrade(machine: Machine, package: Path, following: Path, client: Client) -> None:
    """Upgrade to the next version, from a node that has failed, go back, and upgrade again: data and settings stay."""
    users, named = machine.do(USERS), machine.do(f"cat {NAMED}")
    before = json.loads(machine.status("shine-node status --json")[1])
    for name in (MAIN, NAMED):
        with (machine.root / name.lstrip("/")).open("a") as file:
            file.write("# the owner was here\n")
    main = machine.do(f"cat {MAIN}")
    for path, name in ((package, "package"), (following, "following")):
        shutil.copy(path, machine.root / f"srv/{name}.deb")

    def look(version: str) -> str:
        until("the node answers", answers)
        after = json.loads(machine.status("shine-node status --json")[1])
        expect(after["version"] == version, f"version {after['version']} in place of {version}")
        expect(machine.do(USERS) == users, "users")
        expect(machine.do(f"cat {NAMED}") == named + "# the owner was here\n", "the owner's settings")
        expect(machine.do(f"cat {MAIN}") == main, "the owner's change of the configuration file")
        counts = [(one["store"]["users"], one["store"]["messages"]) for one in (before, after)]
        expect(counts[0] == counts[1] and counts[0][1] > 0, f"{counts}")
        client("inbox", "--json")
        odd = [line for line in machine.do("dpkg --verify shine-node").splitlines() if not line.endswith(MAIN)]
        expect(not odd, f"dpkg --verify: {odd}")
        return f"{counts[1][0]} users, {counts[1][1]} messages"

    broken = machine.write(f"{CONF_D}/90-broken.toml", '[log]\nlevel = "loud"\n')
    expect(machine.status("systemctl restart shine-node")[0] == 1, "it starts with a broken file")
    machine.do(f"apt-get install -y -q {KEEP_MINE} /srv/following.deb")
    expect(machine.show("ActiveState") == "failed", "it runs with a broken file")
    broken.unlink()
    machine.do("systemctl restart shine-node")
    old, new = before["version"], before["version"] + ".1"
    proved("an upgrade keeps data and the owner's files, also where the service had failed", look(new))
    expect((machine.root / f"{MAIN}.dpkg-dist".lstrip("/")).exists(), "the package's own file is not kept beside it")
    machine.do(f"apt-get install -y -q --allow-downgrades {KEEP_MINE} /srv/package.deb")
    proved(f"so does the way back from {new} to {old}", look(old))
    machine.do(f"apt-get install -y -q {KEEP_MINE} /srv/following.deb")
    proved("and an upgrade of a service that runs", look(new))
    shutil.move(machine.root / "srv/following.deb", machine.root / "srv/package.deb")


def prove_end(machine: Machine) -> None:
    """Remove, install again, and purge."""
    users = machine.do(USERS)
    machine.do("apt-get remove -y -q shine-node")
    machine.do(f"test -s /var/lib/shine-node/shine.mdb -a -s {NAMED} -a ! -e /usr/bin/shine-node")
    expect(not answers(), "it still answers")
    machine.do("test ! -e /usr/share/shine-node -a ! -e /usr/lib/shine-node")
    expect(machine.status("systemctl is-active shine-node-backup.timer")[0] != 0, "the timer still runs")
    proved("remove keeps data and configuration, and nothing else")
    machine.do("apt-get install -y -q /srv/package.deb")
    until("the node answers", answers)
    expect(machine.do(USERS) == users, "users")
    machine.do("systemctl is-active shine-node-backup.timer")
    proved("installed again it finds its data")
    machine.do("install -d -o shine-node -g shine-node /srv/elsewhere")
    machine.write(f"{CONF_D}/90-elsewhere.toml", '[storage]\nbackupDir = "/srv/elsewhere"\n')
    said = machine.do("apt-get purge -y -q shine-node")
    machine.do("test -d /srv/elsewhere")
    expect("/srv/elsewhere, which its configuration names, is left as it is" in said, said)
    left = machine.do("find / -xdev -name '*shine-node*' -o -xdev -name '*shine_node*'").split()
    expected = [path for path in left if path.startswith("/var/log/")]
    expect(left == expected, f"left after a purge: {sorted(set(left) - set(expected))}")
    proved("purge removes everything but what lies elsewhere, which it names", "only the system user is left")


def prove_change(machine: Machine, bundle: Path, package: Path) -> None:
    """Prepare the bundle as in an image, start it for the first time, and let the package take its place."""
    refusing = machine.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    refusing.chmod(0o755)
    shutil.copy(bundle, machine.root / "srv/bundle.deb")
    machine.do("apt-get install -y -q /srv/bundle.deb")
    expect(
        machine.show("ActiveState") == "inactive" and not (machine.root / NAMED.lstrip("/")).exists(), "it has a name"
    )
    refusing.unlink()
    machine.do("systemctl start shine-node")
    until("the node answers", answers)
    named = machine.do(f"cat {NAMED}")
    proved("the bundle in an image of Debian 13 gets its name at its first start, not before")
    machine.write(f"{CONF_D}/20-mine.toml", '[log]\nlevel = "debug"\n')
    machine.do("systemctl restart shine-node")
    machine.do("runuser -u shine-node -- sh -c 'echo mine >/var/lib/shine-node/mine'")
    users = machine.do(USERS)
    shutil.copy(package, machine.root / "srv/package.deb")
    machine.do("apt-get install -y -q /srv/package.deb")
    until("the node answers", answers)
    expect(machine.do("dpkg-query -W -f '${Architecture}' shine-node").strip() == "all", "it is not the package")
    machine.do("test ! -e /usr/lib/shine-node -a -s /var/lib/shine-node/mine")
    expect(machine.do(f"cat {NAMED}") == named and machine.do(USERS) == users, "data and configuration")
    expect(not machine.do("dpkg --verify shine-node"), "dpkg --verify")
    proved("the package takes the bundle's place as an upgrade", "data and settings stay, no file of the bundle")
    machine.do("apt-get purge -y -q shine-node")
