#!/usr/bin/env python3
"""Proves the packages: builds them, boots fresh Debian systems, and does there what an owner's years will do.

As root, on Debian 12 or later, with debootstrap, systemd-container, debhelper, dh-python, lintian, openssl and the
Python libraries of the node (``pip install -e .[client]``):

    python3 packaging/try.py --cache FOLDER

Prints one line for each proof, with what was measured, and ends at the first that fails, with status 1. Takes some
minutes. The machines share the network of this one: ports 7070 and 443 of loopback addresses have to be free.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lifetime import prove_change, prove_end, prove_upgrade
from load import prove_memory
from machine import Failed, Machine, base_tarball, expect, proved, run, until
from packages import TOP, build_bundles, build_packages
from service import (
    CONF_D,
    NAMED,
    USERS,
    answers,
    client_here,
    client_there,
    drop_in,
    prove_message,
    ready,
    some_keys,
)

MOST_SECONDS, MOST_RESIDENT_KIB, MOST_EXPOSURE = 60, 40 * 1024, 1.5
BACKUPS = "/var/lib/shine-node/backups"

BLOCKABLE = """#!/usr/bin/python3 -I
import signal, sys, time

sys.path[:0] = ["/usr/share/shine-node"]
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))

from shine_node.cli import main

sys.exit(main())
"""
"""The program, whose event loop stands still after SIGUSR1."""


def main() -> int:
    """Prove everything, in order."""
    parser = argparse.ArgumentParser(description="Proves the packages in fresh Debian systems.")
    parser.add_argument("--cache", metavar="FOLDER", type=Path, help="where base systems are kept for the next time")
    parser.add_argument("--mirror", help="of Debian's packages (default: the one that this system uses)")
    parser.add_argument("--only", choices=("trixie", "bookworm"), help="one of the two systems alone")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("try.py: machines are booted by root alone: use sudo", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was made is removed then too
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="shine-node-try.", dir="/var/tmp"))
    cache = arguments.cache or work / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        _prove(arguments, work, cache)
    except Failed as problem:
        print(f"FAILED {problem}", flush=True)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    proved("everything", f"{time.monotonic() - began:.0f} s")
    return 0


def own_mirror() -> str:
    """Return where this system, a Debian, gets its packages from."""
    for line in run("apt-get", "indextargets", "--format", "$(CREATED_BY) $(COMPONENT) $(REPO_URI)").splitlines():
        made_by, component, uri = line.split(" ", 2)
        if (made_by, component) == ("Packages", "main") and "security" not in uri:
            return uri
    raise Failed("apt of this system knows no packages: run `apt-get update`, or name a --mirror")


def _prove(arguments: argparse.Namespace, work: Path, cache: Path) -> None:
    mirror = arguments.mirror or own_mirror()
    bundle, following_bundle = build_bundles(work)
    if arguments.only != "bookworm":
        package, following = build_packages(work)
        trixie = base_tarball("trixie", mirror, cache)
        with frozen_disk(work) as disk, Machine.booted(trixie, work / "trixie", binds={disk: "/srv/slow"}) as machine:
            prove_trixie(machine, package, following, bundle, disk, work)
    if arguments.only != "trixie":
        with Machine.booted(base_tarball("bookworm", mirror, cache), work / "bookworm") as machine:
            prove_bookworm(machine, bundle, following_bundle, work / "of-bookworm")


# --- Debian 13 ---------------------------------------------------------------------------------------------------


def prove_trixie(machine: Machine, package: Path, following: Path, bundle: Path, disk: Path, work: Path) -> None:
    """Prove the life of the package from the installation to the purge."""
    client = client_there(machine)
    prove_install(machine, package, "the package on Debian 13")
    prove_fresh(machine)
    prove_idle(machine)
    prove_sandbox(machine)
    prove_message(machine, work, client)
    prove_memory(machine)
    prove_backup(machine)
    prove_reload(machine)
    prove_kill(machine)
    prove_stop(machine)
    prove_blocked_loop(machine)
    prove_blocked_writer(machine, disk)
    prove_tls(machine, work)
    prove_upgrade(machine, package, following, client)
    prove_end(machine)
    prove_change(machine, bundle, package)
    for architecture in ("armhf", "arm64"):
        prove_resolves(machine, package, architecture)
    shutil.copy(package, machine.root / "srv/package.deb")
    machine.do("apt-get install -y -q --no-install-recommends lintian", seconds=600)
    machine.do("lintian --allow-root --fail-on error,warning /srv/package.deb", seconds=300)
    proved("lintian of Debian 13 is silent", machine.do("lintian --version").strip())


def prove_bookworm(machine: Machine, bundle: Path, following: Path, work: Path) -> None:
    """Prove the life of the bundle on Debian 12, whose own libraries are too old; the client is on this system."""
    work.mkdir()
    client = client_here(work)
    prove_install(machine, bundle, "the bundle on Debian 12")
    prove_idle(machine)
    prove_message(machine, work, client)
    prove_backup(machine)
    prove_reload(machine)
    prove_kill(machine)
    prove_upgrade(machine, bundle, following, client)
    prove_end(machine)


def prove_resolves(machine: Machine, package: Path, architecture: str) -> None:
    """Have apt find all that the package needs for another processor, as if nothing were installed yet."""
    state = f"/srv/apt-{architecture}"
    machine.do(f"mkdir -p {state}/lists/partial && touch {state}/status")
    options = f"-o APT::Architecture={architecture} -o APT::Architectures::={architecture}"
    options += f" -o Dir::State::lists={state}/lists -o Dir::State::status={state}/status"
    machine.do(f"apt-get -q update {options}")
    shutil.copy(package, machine.root / "srv/package.deb")
    said = machine.do(f"apt-get -s -q install --no-install-recommends {options} /srv/package.deb")
    found = dict(re.findall(r"^Inst (python3-[a-z]+) \((\S+) ", said, re.MULTILINE))
    names = ("lmdb", "nacl", "orjson", "uvloop", "websockets")
    expect(all(f"python3-{name}" in found for name in names) and "Inst shine-node" in said, said)
    versions = ", ".join(f"{name} {found[f'python3-{name}']}" for name in names)
    proved(f"Debian 13 has all that the package needs for {architecture}", versions)


def prove_install(machine: Machine, package: Path, name: str) -> None:
    """Install a package with apt, and wait until the node answers."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 7070), 1).close()
        raise Failed("something of this system listens at port 7070: stop it first")
    shutil.copy(package, machine.root / "srv/package.deb")
    machine.do("umask 077; mkdir -p /etc/shine-node/conf.d")  # an owner's, who has begun with it
    began = time.monotonic()
    machine.do("apt-get update -q && apt-get install -y -q /srv/package.deb", seconds=600)
    installed = time.monotonic() - began
    until("the node answers", answers)
    seconds = time.monotonic() - began
    expect(seconds <= MOST_SECONDS, f"it took {seconds:.0f} s until the node answered")
    proved(f"{name} is installed and answers", f"{seconds:.1f} s of at most 60 ({installed:.1f} s of them apt)")
    expect(machine.show("ActiveState") == "active", "the service is not active")
    expect(machine.do("systemctl is-enabled shine-node").strip() == "enabled", "the service is not enabled")
    proved("the service is enabled and ready", machine.show("StatusText"))


def prove_fresh(machine: Machine) -> None:
    """Look at what the installation has laid."""
    modes = machine.do(f"stat -c '%a %U:%G %n' /var/lib/shine-node /etc/shine-node {NAMED} /run/shine-node").split("\n")
    expect(modes[0] == "700 shine-node:shine-node /var/lib/shine-node", modes[0])
    expect(modes[1] == "750 root:shine-node /etc/shine-node", modes[1])
    login = re.findall(r'^login = "(homeserver-[0-9a-f]{4})"$', machine.do(f"cat {NAMED}"), re.MULTILINE)
    expect(len(login) == 1, "the server has no name of its own")
    proved("data and configuration are closed to others, the server has a name", f"0700, 0750, {login[0]}")
    status, said = machine.status("shine-node check")
    expect(status in (0, 1) and "is a placeholder" in said, f"check: status {status}\n{said}")
    proved("check says that the url is still to be set", f"status {status}")
    status, said = machine.status("shine-node status")
    expect(status in (0, 1) and f"{login[0]} at wss://{login[0]}.invalid/ws" in said, f"status: {status}\n{said}")
    status, said = machine.status("setpriv --reuid 65534 --clear-groups shine-node status")
    expect(status == 2 and "use sudo" in said, f"status of another user: {status} {said}")
    proved("status answers root, and tells another user what to do")
    machine.do("systemctl is-enabled shine-node-backup.timer && systemctl is-active shine-node-backup.timer")
    machine.do("test -s /usr/share/bash-completion/completions/shine-node -a -s /usr/share/man/man8/shine-node.8.gz")


def prove_idle(machine: Machine) -> None:
    """Measure the memory of a service that has nothing to do."""
    time.sleep(5)  # of idleness, which is what is measured
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", machine.do(f"cat /proc/{machine.show('MainPID')}/status"))[0])
    expect(resident <= MOST_RESIDENT_KIB, f"the idle service has {resident} KiB resident")
    proved("resident memory of the idle service", f"{resident / 1024:.1f} MiB of at most 40")


def prove_sandbox(machine: Machine) -> None:
    """Judge the unit as systemd does."""
    units = ("shine-node", "shine-node-backup")
    said = [machine.do(f"systemd-analyze security --no-pager {unit}.service") for unit in units]
    said.append(run("systemd-analyze", "security", "--offline=true", TOP / "packaging/debian/shine-node.service"))
    exposures = [float(re.findall(r"exposure level for \S+: ([0-9.]+)", text)[0]) for text in said]
    expect(max(exposures) <= MOST_EXPOSURE, f"exposure {exposures}")
    figures = f"{exposures[0]} booted, {exposures[2]} offline here; {exposures[1]} the backup's; of at most 1.5"
    proved("systemd-analyze security", figures)
    pid = machine.show("MainPID")
    lines = machine.do(f"cat /proc/{pid}/status")
    for name, value in (("CapEff", "0000000000000000"), ("NoNewPrivs", "1"), ("Seccomp", "2")):
        expect(re.search(rf"^{name}:\s+{value}$", lines, re.MULTILINE), f"{name} of the process")
    proved("the process has no rights, may get none, and is filtered", "CapEff=0 NoNewPrivs=1 Seccomp=2")


def prove_backup(machine: Machine) -> None:
    """Make the nightly backup, refuse it where there is no room, and go on from it after damage."""
    began, start = time.monotonic(), "systemctl start shine-node-backup.service"
    machine.do(start)
    seconds = time.monotonic() - began
    for _ in range(3):
        time.sleep(1.1)  # its name has the second
        machine.do(start)
    found = machine.do(f"stat -c '%a %U %n' {BACKUPS}/*").splitlines()
    expect(len(found) == 3 and all(line.startswith("600 shine-node /") for line in found), f"backups: {found}")
    proved("the nightly backup is made as the node's user, and 3 are kept", f"{seconds:.1f} s")
    full = machine.write(f"{CONF_D}/45-full.toml", "[storage]\nminFreeMiB = 16777216\n")
    expect(machine.status(start)[0] != 0, "a backup is made on a full disk")
    said = machine.do("journalctl -u shine-node-backup -n 20 -o cat")
    expect("no backup was made" in said and "storage.minFreeMiB" in said, said)
    expect(machine.do(f"stat -c '%a %U %n' {BACKUPS}/*").splitlines() == found, "backups have changed")
    full.unlink()
    machine.do("systemctl reset-failed shine-node-backup.service")
    proved("a backup that would leave the disk too full is not made, and says why")
    users = machine.do(USERS)
    machine.do("systemctl stop shine-node")
    since = machine.cursor()
    machine.do("dd if=/dev/urandom of=/var/lib/shine-node/shine.mdb bs=4096 count=4 conv=notrunc status=none")
    machine.do("systemctl start shine-node")
    said = machine.journal(since)
    expect(f"goes on with the backup {BACKUPS}/shine-" in said and machine.do(USERS) == users, said)
    machine.do("rm /var/lib/shine-node/shine.mdb.damaged-*")
    proved("a store that is damaged after it is replaced by it at the start", "with the defaults of the package")


def prove_reload(machine: Machine) -> None:
    """Reload a good and a broken file, and start with the broken one."""
    pid, since = machine.show("MainPID"), machine.cursor()
    extra = machine.root / f"{CONF_D}/30-reload.toml".lstrip("/")
    extra.write_text('[log]\nlevel = "debug"\n')
    machine.do("systemctl reload shine-node")
    expect(re.search(r"reloaded; changed: .*log\.level", machine.journal(since)), machine.journal(since))
    proved("a good file is reloaded", "log.level")
    extra.write_text('[log]\nlevel = "loud"\n')
    status, said = machine.status("systemctl reload shine-node")
    expect(status == 1, f"a broken file: systemctl reload ended with {status}: {said}")
    expect('log.level = "loud"' in machine.journal(since), machine.journal(since))
    expect(machine.show("MainPID") == pid and machine.show("ActiveState") == "active" and answers(), "after the reload")
    proved("a broken file is refused, and the node runs on", f"status {status}")
    status, said = machine.status("systemctl restart shine-node")
    expect(status == 1, f"a start with a broken file: {status}: {said}")
    time.sleep(7)  # longer than RestartSec=5s
    expect((machine.show("ActiveState"), machine.show("NRestarts")) == ("failed", "0"), "it is tried again and again")
    proved("a start with a broken file is not tried again until it is mended", machine.show("Result"))
    extra.unlink()
    machine.do("systemctl start shine-node")
    expect(answers(), "the mended node does not answer")


def prove_kill(machine: Machine) -> None:
    """Kill the node, and wait until it answers again."""
    pid = machine.show("MainPID")
    began = time.monotonic()
    machine.do(f"kill -9 {pid}")
    until("the service is started again", lambda: machine.show("MainPID") not in (pid, "0") and ready(machine))
    until("it answers", answers)
    proved("kill -9: it is started again and answers", f"after {time.monotonic() - began:.1f} s, with RestartSec=5s")


def prove_stop(machine: Machine) -> None:
    """Stop and start in order."""
    began = time.monotonic()
    machine.do("systemctl stop shine-node")
    seconds = time.monotonic() - began
    expect((machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0"), "the end was not clean")
    expect(seconds <= 5, f"the stop took {seconds:.1f} s")
    proved("a clean stop", f"{seconds * 1000:.0f} ms, status 0")
    machine.do("systemctl start shine-node")
    expect(answers(), "ready, and does not answer")  # ready means that it listens


def prove_blocked_loop(machine: Machine) -> None:
    """Let the event loop stand still: the watchdog ends the node, and it is started again."""
    script = machine.root / "usr/local/bin/blockable"
    script.write_text(BLOCKABLE)
    script.chmod(0o755)
    drop_in(
        machine,
        "[Service]\nWatchdogSec=6s\nExecStart=\n"
        "ExecStart=/usr/local/bin/blockable run --config /etc/shine-node/shine-node.toml\n",
    )
    pid, since = machine.show("MainPID"), machine.cursor()
    time.sleep(13)  # two periods of a loop that runs
    expect(machine.show("MainPID") == pid, "the watchdog has ended a node that is well")
    machine.do(f"kill -USR1 {pid}")
    seconds = until("the watchdog bites", lambda: "Watchdog timeout" in machine.journal(since))
    until("it is started again", lambda: machine.show("MainPID") not in (pid, "0") and ready(machine) and answers())
    said = machine.journal(since)
    expect("Fatal Python error: Aborted" in said and "blockable" in said, f"the log does not say where it hung: {said}")
    proved(
        "a blocked event loop is ended and started again", f"{seconds:.1f} s with WatchdogSec=6s; the log says where"
    )


def prove_blocked_writer(machine: Machine, disk: Path) -> None:
    """Freeze the disk under the writer, with the event loop running on: the watchdog ends the node."""
    (machine.root / f"{CONF_D}/40-slow.toml".lstrip("/")).write_text('[server]\ndataDir = "/srv/slow/data"\n')
    machine.do("install -d -o shine-node -g shine-node -m 700 /srv/slow/data")
    drop_in(machine, "[Service]\nWatchdogSec=6s\nReadWritePaths=/srv/slow\n")
    pid, since = machine.show("MainPID"), machine.cursor()
    run("fsfreeze", "--freeze", disk)
    try:
        asking = machine.begin(f"exec timeout 60 shine-node user add --login dave {some_keys()}")
        seconds = until("the watchdog bites", lambda: "Watchdog timeout" in machine.journal(since))
    finally:
        run("fsfreeze", "--unfreeze", disk)
    asking.wait()
    until(
        "it is started again",
        lambda: machine.show("MainPID") not in (pid, "0") and ready(machine) and answers(),
        seconds=120,
    )
    proved("a node whose disk has stopped under its writer is ended and started again", f"{seconds:.1f} s of 6")
    (machine.root / f"{CONF_D}/40-slow.toml".lstrip("/")).unlink()
    drop_in(machine, "")


@contextlib.contextmanager
def frozen_disk(work: Path) -> Iterator[Path]:
    """Make a disk in a file that can be frozen."""
    image, folder = work / "disk.img", work / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(256 * 2**20)
    run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop", image, folder)
    try:
        yield folder
    finally:
        run("umount", folder)


def prove_tls(machine: Machine, work: Path) -> None:
    """Hand the certificate over as a credential, and listen at a port below 1024, as the example has it."""
    cert, key = work / "tls.crt", work / "tls.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    run(*words, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert)
    example = machine.do("cat /usr/share/doc/shine-node/examples/tls.conf")
    for name, path in (("fullchain.pem", cert), ("privkey.pem", key)):
        shutil.copy(path, machine.root / "srv")
        example = example.replace(f"/etc/letsencrypt/live/myserver.example/{name}", f"/srv/{path.name}")
    listen = machine.root / f"{CONF_D}/40-tls.toml".lstrip("/")
    listen.write_text('[server]\nlisten = "127.0.0.3:443"\n')
    drop_in(machine, example)
    context = ssl.create_default_context(cafile=str(cert))
    with (
        socket.create_connection(("127.0.0.3", 443), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        version = secure.version()
    proved("a certificate that systemd hands over is used, at port 443", str(version))
    expect("127.0.0.3:443, encrypted" in machine.status("shine-node check")[1], "check does not see the certificate")
    proved("check sees it too")
    drop_in(machine, example.replace("tls.crt:/", "tls.crt:/missing/").replace("tls.key:/", "tls.key:/missing/"))
    expect(
        ready(machine) and machine.do("journalctl -u shine-node -n 50 -o cat").rfind("ws://127.0.0.3:443") >= 0, "plain"
    )
    proved("where its files are missing the node starts without")
    listen.unlink()
    drop_in(machine, "")


if __name__ == "__main__":
    sys.exit(main())
