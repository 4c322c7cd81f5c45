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
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from machine import Failed, Machine, base_tarball, run, until
from nacl.signing import SigningKey

TOP = Path(__file__).resolve().parents[1]
PAGE = "http://127.0.0.1:7070/"
OUTSIDE = "127.0.0.2"
"""Where the node outside of the machine listens."""
MOST_SECONDS, MOST_PACKAGE_BYTES, MOST_RESIDENT_KIB, MOST_EXPOSURE = 60, 2**20, 40 * 1024, 1.5
DROP_INS = "/etc/systemd/system/shine-node.service.d"
CONF_D = "/etc/shine-node/conf.d"
NAMED = f"{CONF_D}/10-this-server.toml"

USERS = "runuser -u shine-node -- shine-node user list"

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
    if arguments.only != "bookworm":
        package, following = build_packages(work)
        trixie = base_tarball("trixie", mirror, cache)
        with frozen_disk(work) as disk, Machine.booted(trixie, work / "trixie", binds={disk: "/srv/slow"}) as machine:
            prove_trixie(machine, package, following, disk, work)
    if arguments.only != "trixie":
        bundle = build_bundle(work)
        with Machine.booted(base_tarball("bookworm", mirror, cache), work / "bookworm") as machine:
            prove_install(machine, bundle, "the bundle on Debian 12")
            prove_idle(machine)
            machine.do("systemctl stop shine-node")
            machine.do("apt-get purge -y shine-node")


def proved(what: str, figure: str = "") -> None:
    """Print one line."""
    print(f"ok {what}{': ' if figure else ''}{figure}", flush=True)


def expect(true: object, what: str) -> None:
    """Go on only where something is so."""
    if not true:
        raise Failed(what)


# --- the packages ------------------------------------------------------------------------------------------------


def build_packages(work: Path) -> tuple[Path, Path]:
    """Build the package twice, which must give the same bytes, and that of a next version from a changed copy."""
    began = time.monotonic()
    package = build(TOP, "build-deb", work / "first")
    seconds = time.monotonic() - began
    again = build(TOP, "build-deb", work / "second")
    sums = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (package, again)}
    expect(len(sums) == 1, f"two builds differ: {package}, {again}")
    size = package.stat().st_size
    expect(size <= MOST_PACKAGE_BYTES, f"the package has {size} bytes")
    proved("the package is built, twice the same bytes", f"{seconds:.1f} s, {size / 1024:.0f} KiB of at most 1024")
    proved("lintian of this system is silent", lint_here(package))
    return package, build(next_version(work / "next"), "build-deb", work / "third")


def build(top: Path, program: str, folder: Path, *words: str) -> Path:
    """Build one package into a folder of its own and return where it is."""
    run(top / "packaging" / program, *words, folder, seconds=600)
    [package] = folder.glob("*.deb")
    return package


def build_bundle(work: Path) -> Path:
    """Build the bundle of this processor twice."""
    architecture = run("dpkg", "--print-architecture").strip()
    bundles = [build(TOP, "build-bundle", work / f"bundle{number}", architecture) for number in (1, 2)]
    expect(bundles[0].read_bytes() == bundles[1].read_bytes(), "two builds of the bundle differ")
    proved("the bundle is built, twice the same bytes", f"{bundles[0].stat().st_size / 2**20:.1f} MiB")
    proved("lintian of this system is silent about the bundle", lint_here(bundles[0]))
    return bundles[0]


def lint_here(package: Path) -> str:
    """Have the lintian of the host look for errors and warnings."""
    run("lintian", "--allow-root", "--fail-on", "error,warning", package)
    return run("lintian", "--version").strip()


def next_version(copy: Path) -> Path:
    """Copy the sources and raise their version."""
    copy.mkdir()
    for name in ("shine_node", "conf", "packaging", "README.md", "CHANGELOG.md", "pyproject.toml"):
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    [now] = re.findall(r'^version = "(.+)"$', (copy / "pyproject.toml").read_text(), re.MULTILINE)
    later = f"{now}.1"
    for name in ("pyproject.toml", "shine_node/__init__.py"):
        path = copy / name
        path.write_text(path.read_text().replace(f'"{now}"', f'"{later}"', 1))
    log = copy / "packaging/debian/changelog"
    entry = log.read_text()
    log.write_text(entry.replace(f"({now})", f"({later})", 1) + "\n" + entry)
    return copy


# --- Debian 13 ---------------------------------------------------------------------------------------------------


def prove_trixie(machine: Machine, package: Path, following: Path, disk: Path, work: Path) -> None:
    """Prove the life of the package from the installation to the purge."""
    prove_install(machine, package, "the package on Debian 13")
    prove_fresh(machine)
    prove_idle(machine)
    prove_sandbox(machine)
    prove_message(machine, work)
    prove_reload(machine)
    prove_kill(machine)
    prove_stop(machine)
    prove_blocked_loop(machine)
    prove_blocked_writer(machine, disk)
    prove_tls(machine, work)
    prove_upgrade(machine, following)
    prove_end(machine)
    shutil.copy(package, machine.root / "srv/package.deb")
    machine.do("apt-get install -y -q --no-install-recommends lintian", seconds=600)
    machine.do("lintian --allow-root --fail-on error,warning /srv/package.deb", seconds=300)
    proved("lintian of Debian 13 is silent", machine.do("lintian --version").strip())


def prove_install(machine: Machine, package: Path, name: str) -> None:
    """Install a package with apt, and wait until the node answers."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 7070), 1).close()
        raise Failed("something of this system listens at port 7070: stop it first")
    shutil.copy(package, machine.root / "srv/package.deb")
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


def answers(port: int = 7070) -> bool:
    """Whether the node serves its page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as page:
            return bool(page.status == 200)
    except OSError:
        return False


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
    machine.do("test -s /usr/share/bash-completion/completions/shine-node -a -s /usr/share/man/man8/shine-node.8.gz")


def prove_idle(machine: Machine) -> None:
    """Measure the memory of a service that has nothing to do."""
    time.sleep(5)  # of idleness, which is what is measured
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", machine.do(f"cat /proc/{machine.show('MainPID')}/status"))[0])
    expect(resident <= MOST_RESIDENT_KIB, f"the idle service has {resident} KiB resident")
    proved("resident memory of the idle service", f"{resident / 1024:.1f} MiB of at most 40")


def prove_sandbox(machine: Machine) -> None:
    """Judge the unit as systemd does."""
    said = machine.do("systemd-analyze security --no-pager shine-node")
    here = run("systemd-analyze", "security", "--offline=true", TOP / "packaging/debian/shine-node.service")
    exposures = [
        float(re.findall(r"exposure level for shine-node.service: ([0-9.]+)", text)[0]) for text in (said, here)
    ]
    expect(max(exposures) <= MOST_EXPOSURE, f"exposure {exposures}")
    proved("systemd-analyze security", f"{exposures[0]} booted, {exposures[1]} offline here, of at most 1.5")
    pid = machine.show("MainPID")
    lines = machine.do(f"cat /proc/{pid}/status")
    for name, value in (("CapEff", "0000000000000000"), ("NoNewPrivs", "1"), ("Seccomp", "2")):
        expect(re.search(rf"^{name}:\s+{value}$", lines, re.MULTILINE), f"{name} of the process")
    proved("the process has no rights, may get none, and is filtered", "CapEff=0 NoNewPrivs=1 Seccomp=2")


def prove_message(machine: Machine, work: Path) -> None:
    """Register a user and a client, and send a message to a node outside of the machine."""
    with node_outside(work) as url:
        settings = (
            '[server]\nurl = "ws://127.0.0.1:7070/ws"\n[server.pool]\nallowInsecurePeers = true\n'
            'allowPrivatePeers = true\n[registration]\nmode = "open"\n'
            f'[[sync_servers]]\nlogin = "outside"\nurl = "{url}"\n'
        )
        (machine.root / f"{CONF_D}/20-try.toml".lstrip("/")).write_text(settings)
        machine.do("systemctl restart shine-node")
        machine.do(f"shine-node user add --login carol {some_keys()}")
        machine.do("shine-node account new alice --server ws://127.0.0.1:7070/ws --keys /srv/alice.json")
        users = machine.do(USERS)
        expect("alice" in users and "carol" in users, users)
        proved("a user is added by `user add`, a client by `account new`")
        bob = work / "bob.json"
        program("account", "new", "bob", "--server", url, "--keys", bob)
        began = time.monotonic()
        machine.do("shine-node send bob 'hello from the box' --wait delivered --timeout 60 --keys /srv/alice.json")
        seconds = time.monotonic() - began
        inbox = [json.loads(line) for line in program("inbox", "--json", "--keys", bob).splitlines()]
        expect([one["text"] for one in inbox] == ["hello from the box"], f"bob has {inbox}")
        proved("a message is delivered to a node outside of the machine, and read there", f"{seconds:.1f} s with start")


def some_keys() -> str:
    """Return the keys of a user as options of ``user add``."""
    names = ("solana", "blockchain", "device")
    keys = [base64.b64encode(bytes(SigningKey.generate().verify_key)).decode() for _ in names]
    return " ".join(f"--{name}-key={key}" for name, key in zip(names, keys, strict=True))


@contextlib.contextmanager
def node_outside(work: Path) -> Iterator[str]:
    """Run a node from the source tree on this system, and yield its url."""
    with socket.socket() as free:
        free.bind((OUTSIDE, 0))
        port = free.getsockname()[1]
    url = f"ws://{OUTSIDE}:{port}/ws"
    config = work / "outside.toml"
    config.write_text(
        f'[server]\nlogin = "outside"\nurl = "{url}"\nlisten = "{OUTSIDE}:{port}"\ndataDir = "outside"\n[server.pool]\n'
        'allowInsecurePeers = true\nallowPrivatePeers = true\n[registration]\nmode = "open"\n'
    )
    node = subprocess.Popen(
        [sys.executable, TOP / "shine_node.py", "run", "--config", config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with node:
        try:
            expect(
                node.stdout is not None and "listening on" in node.stdout.readline(), "the node outside does not start"
            )
            yield url
        finally:
            node.terminate()


def program(*words: str | Path) -> str:
    """Run a command of the source tree."""
    return run(sys.executable, TOP / "shine_node.py", *words)


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


def ready(machine: Machine) -> bool:
    """Whether the service has said that it is ready."""
    return machine.show("ActiveState") == "active" and machine.show("SubState") == "running"


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


def drop_in(machine: Machine, text: str) -> None:
    """Change the unit as an owner would, or undo that."""
    folder = machine.root / DROP_INS.lstrip("/")
    if text:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "try.conf").write_text(text)
    else:
        shutil.rmtree(folder)
    machine.do("systemctl daemon-reload && systemctl restart shine-node")


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


def prove_upgrade(machine: Machine, following: Path) -> None:
    """Upgrade to the next version: data and configuration are kept."""
    users, named = machine.do(USERS), machine.do(f"cat {NAMED}")
    before = json.loads(machine.status("shine-node status --json")[1])
    with (machine.root / NAMED.lstrip("/")).open("a") as file:
        file.write("# the owner was here\n")
    shutil.copy(following, machine.root / "srv/package.deb")
    machine.do("apt-get install -y -q /srv/package.deb")
    until("the node answers", answers)
    after = json.loads(machine.status("shine-node status --json")[1])
    expect(after["version"] == before["version"] + ".1", f"version {after['version']}")
    expect(machine.do(USERS) == users, "users")
    expect(machine.do(f"cat {NAMED}") == named + "# the owner was here\n", "configuration")
    counts = [(one["store"]["users"], one["store"]["messages"]) for one in (before, after)]
    expect(counts[0] == counts[1] and counts[0][1] > 0, f"{counts}")
    said = machine.do("shine-node inbox --json --keys /srv/alice.json; dpkg --verify shine-node")
    proved(
        "an upgrade keeps data and configuration",
        f"{before['version']} to {after['version']}, {counts[1][0]} users, {counts[1][1]} messages",
    )
    expect("?" not in said, f"dpkg --verify: {said}")


def prove_end(machine: Machine) -> None:
    """Remove, install again, and purge."""
    users = machine.do(USERS)
    machine.do("apt-get remove -y -q shine-node")
    machine.do(f"test -s /var/lib/shine-node/shine.mdb -a -s {NAMED} -a ! -e /usr/bin/shine-node")
    expect(not answers(), "it still answers")
    machine.do("test ! -e /usr/share/shine-node")
    proved("remove keeps data and configuration, and nothing else")
    machine.do("apt-get install -y -q /srv/package.deb")
    until("the node answers", answers)
    expect(machine.do(USERS) == users, "users")
    proved("installed again it finds its data")
    machine.do("apt-get purge -y -q shine-node")
    left = machine.do("find / -xdev -name '*shine-node*' -o -xdev -name '*shine_node*'").split()
    expected = [path for path in left if path.startswith("/var/log/")]
    expect(left == expected, f"left after a purge: {sorted(set(left) - set(expected))}")
    proved("purge removes everything", "only the system user is left")


if __name__ == "__main__":
    sys.exit(main())
