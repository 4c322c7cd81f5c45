#!/usr/bin/env python3
"""Lays out the wheels of several versions of Python in one folder: ``fetch_wheels.py amd64|arm64 FOLDER STRIP``.

Extension modules carry the tag of their Python in their names, so the trees of several versions share one folder. Every
file that two wheels have in common must be the same bytes, or the build stops. What is fetched is checked against the
checksums of ``requirements.txt``, which lies beside this file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PYTHONS = ("311", "312", "313")
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
ELF_MACHINES = {"amd64": 62, "arm64": 183}
"""``e_machine`` in the head of an ELF file."""
NOT_NEEDED = (".pyi", ".pyx", ".pxd", ".c", ".h", "py.typed", ".pyx.orig")
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main() -> int:
    """Fetch, lay out, and strip."""
    architecture, folder, strip = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    files: dict[str, bytes] = {}
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as wheels:
            _download(python, MACHINES[architecture], wheels)
            for wheel in sorted(Path(wheels).glob("*.whl")):
                _unpack(wheel, files)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        if ".so" in path.suffixes:
            check_machine(name, data, architecture)
            subprocess.run([strip, "--strip-unneeded", str(path)], check=True)
    print(len(files), "files")
    return 0


def check_machine(name: str, data: bytes, architecture: str) -> None:
    """Stop where an extension module is none of the architecture."""
    machine = int.from_bytes(data[18:20], "little")
    if data[:6] != b"\x7fELF\x02\x01" or machine != ELF_MACHINES[architecture]:
        raise SystemExit(f"{name} is not for {architecture}")


def _download(python: str, machine: str, folder: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--implementation", "cp", "--python-version", python, "-d", folder, "-r", str(REQUIREMENTS)]
    for abi in (f"cp{python}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", f"{platform}_{machine}"]
    subprocess.run(command, check=True)


def _unpack(wheel: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(("/", *NOT_NEEDED)):
                continue
            if wheel.name.startswith("cffi-") and not name.startswith("_cffi_backend") and "/licenses/" not in name:
                continue  # PyNaCl needs the backend alone
            data = archive.read(name)
            if ".dist-info/" not in name and files.get(name, data) != data:
                raise SystemExit(f"{name} differs between wheels ({wheel.name})")
            files.setdefault(name, data)


if __name__ == "__main__":
    sys.exit(main())
