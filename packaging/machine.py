"""A small Debian of its own, in a folder, that is booted with systemd-nspawn: for ``packaging/try.py``."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["Failed", "Machine", "base_tarball", "expect", "proved", "run", "until"]

BOOT_SECONDS = 60.0
INCLUDED = "systemd-sysv,dbus,iproute2"
"""What any real system has, beside the least that debootstrap installs."""


class Failed(Exception):
    """Something is not as it should be; the text says what."""


def proved(what: str, figure: str = "") -> None:
    """Print one line."""
    print(f"ok {what}{': ' if figure else ''}{figure}", flush=True)


def expect(true: object, what: str) -> None:
    """Go on only where something is so."""
    if not true:
        raise Failed(what)


def run(*command: str | Path, seconds: float = 300, **options: object) -> str:
    """Run a command of the host and return what it printed.

    Raises:
        Failed: it ended with another status than 0, or took too long.
    """
    words = [str(word) for word in command]
    try:
        found = subprocess.run(  # type: ignore[call-overload]
            words, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL, **options
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: not done within {seconds:g} s") from None
    if found.returncode != 0:
        raise Failed(f"{' '.join(words)}: status {found.returncode}\n{found.stdout}{found.stderr}")
    return str(found.stdout)


def until(what: str, check: Callable[[], object], *, seconds: float = 60) -> float:
    """Wait until something is true, and return how many seconds that took.

    Raises:
        Failed: it was not true in time.
    """
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > seconds:
            raise Failed(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def base_tarball(suite: str, mirror: str, cache: Path) -> Path:
    """Return a tar of the smallest system of a suite that boots; it is made where the cache has none."""
    tarball = cache / f"{suite}.tar"
    if not tarball.exists():
        folder = cache / f"{suite}.new"
        shutil.rmtree(folder, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, folder, mirror, seconds=900)
        unfinished = tarball.with_suffix(".new.tar")
        run("tar", "-C", folder, "--one-file-system", "-cf", unfinished, ".")
        shutil.rmtree(folder)
        unfinished.replace(tarball)
    return tarball


class Machine:
    """One that is booted; it shares the network of the host."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader
        """The number on the host of its first process."""

    @classmethod
    @contextlib.contextmanager
    def booted(cls, tarball: Path, root: Path, *, binds: Mapping[Path, str] | None = None) -> Iterator[Machine]:
        """Unpack a fresh system and boot it for the block; afterwards nothing of it is left.

        Args:
            binds: folders of the host, by where they are to be in the machine.
        """
        root.mkdir(parents=True)
        run("tar", "-C", root, "-xf", tarball)
        (root / "etc/hostname").write_text("homeserver\n")
        log = root.with_name(root.name + ".log")
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, root, ignore_errors=True)
            output = undo.enter_context(log.open("wb"))
            words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "-D", str(root)]
            words += [f"--bind={there}:{here}" for there, here in (binds or {}).items()]
            nspawn = subprocess.Popen(
                [*words, "--hostname=homeserver", "--console=read-only", "-b"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
            undo.callback(_end, nspawn)
            children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
            until("systemd-nspawn starts", lambda: children.read_text().split(), seconds=BOOT_SECONDS)
            machine = cls(root, int(children.read_text().split()[0]))

            def up() -> bool:
                if nspawn.poll() is not None:
                    raise Failed(f"the machine has ended: {log.read_text(errors='replace')[-2000:]}")
                return machine.status("systemctl is-system-running")[1].strip() in ("running", "degraded")

            until("the machine is up", up, seconds=BOOT_SECONDS)
            yield machine

    def status(self, command: str, *, seconds: float = 300) -> tuple[int, str]:
        """Run a shell's command in the machine, and return its status and all that it said."""
        words = ["nsenter", "-t", str(self.leader), "-a", "/usr/bin/env", "-i", "HOME=/root", "LC_ALL=C.UTF-8"]
        words += ["DEBIAN_FRONTEND=noninteractive", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        try:
            found = subprocess.run(
                [*words, "sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"in the machine, not done within {seconds:g} s: {command}") from None
        return found.returncode, found.stdout

    def do(self, command: str, *, seconds: float = 300) -> str:
        """Run a shell's command in the machine, and return all that it said.

        Raises:
            Failed: it ended with another status than 0.
        """
        status, said = self.status(command, seconds=seconds)
        if status != 0:
            raise Failed(f"in the machine: {command}: status {status}\n{said[-4000:]}")
        return said

    def begin(self, command: str) -> subprocess.Popen[bytes]:
        """Begin a shell's command in the machine, without waiting for it."""
        words = ["nsenter", "-t", str(self.leader), "-a", "sh", "-c", command]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def show(self, name: str) -> str:
        """Return a property of the service, as ``systemctl show`` has it."""
        return self.do(f"systemctl show shine-node -P {name}").strip()

    def journal(self, cursor: str = "") -> str:
        """Return the service's log, from a moment on that ``cursor`` returned."""
        after = f"--after-cursor='{cursor}'" if cursor else ""
        return self.do(f"journalctl -u shine-node -o cat --no-pager {after}")

    def write(self, path: str, text: str) -> Path:
        """Write a file in the machine, by its absolute path there, and return where it is on the host."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def cursor(self) -> str:
        """Return this moment of the journal."""
        said = self.do("journalctl -n 0 --show-cursor --no-pager")
        return said.rpartition("-- cursor: ")[2].strip()


def _end(nspawn: subprocess.Popen[bytes]) -> None:
    if nspawn.poll() is None:
        nspawn.terminate()  # which lets the machine shut down
        try:
            nspawn.wait(60)
        except subprocess.TimeoutExpired:
            nspawn.kill()
    nspawn.wait()
