"""The packages that ``packaging/try.py`` proves: built twice, linted, with next versions of both."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "bundle"))

from fetch_wheels import check_machine
from machine import expect, proved, run

__all__ = ["TOP", "build_bundles", "build_packages", "own_architecture"]

TOP = Path(__file__).resolve().parents[1]
MOST_PACKAGE_BYTES = 2**20


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


def own_architecture() -> str:
    """Return that of this system, as Debian calls it."""
    return run("dpkg", "--print-architecture").strip()


def build_bundles(work: Path) -> tuple[Path, Path]:
    """Build the bundle of this processor twice, that of the other one, and that of a next version."""
    own = own_architecture()
    bundles = [build(TOP, "build-bundle", work / f"bundle{number}", own) for number in (1, 2)]
    expect(bundles[0].read_bytes() == bundles[1].read_bytes(), "two builds of the bundle differ")
    proved("the bundle is built, twice the same bytes", f"{bundles[0].stat().st_size / 2**20:.1f} MiB")
    proved("lintian of this system is silent about the bundle", lint_here(bundles[0]))
    other = "arm64" if own == "amd64" else "amd64"
    check_bundle(bundles[0], own, work)
    check_bundle(build(TOP, "build-bundle", work / "other", other), other, work)
    return bundles[0], build(next_version(work / "next-bundle"), "build-bundle", work / "bundle3", own)


def check_bundle(bundle: Path, architecture: str, work: Path) -> None:
    """Look at what a bundle says that it is for, and at all that is compiled in it."""
    expect(run("dpkg-deb", "-f", bundle, "Architecture").strip() == architecture, f"{bundle} is for another processor")
    content = work / f"content-{architecture}"
    run("dpkg-deb", "-x", bundle, content)
    modules = sorted(content.rglob("*.so*"))
    for module in modules:
        check_machine(str(module), module.read_bytes(), architecture)
    libraries = {str(module.relative_to(content / "usr/lib/shine-node/vendor")).split("/")[0] for module in modules}
    for python in ("311", "312", "313"):
        expect(any(f"cpython-{python}-" in module.name for module in modules), f"nothing for Python {python}")
    found = f"{len(modules)} modules of {len(libraries)} libraries, for Python 3.11 to 3.13"
    proved(f"the bundle for {architecture} has modules for it alone", found)


def lint_here(package: Path) -> str:
    """Have the lintian of the host look for errors and warnings."""
    run("lintian", "--allow-root", "--fail-on", "error,warning", package)
    return run("lintian", "--version").strip()


def next_version(copy: Path) -> Path:
    """Copy the sources, raise their version, and change the configuration file of the package."""
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
    conffile = copy / "packaging/etc/shine-node.toml"
    conffile.write_text(conffile.read_text() + f"# Version {later}.\n")
    log = copy / "packaging/debian/changelog"
    entry = log.read_text()
    log.write_text(entry.replace(f"({now})", f"({later})", 1) + "\n" + entry)
    return copy
