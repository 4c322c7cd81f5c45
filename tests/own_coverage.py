"""Whether each module is fully covered, branches too, by its own test file alone.

    python -m tests.own_coverage [module …]

A module is named as ``shine_node.peers.link``, ``peers.link`` or ``shine_node/peers/link.py``; the name of a package
stands for all its modules. Prints the modules below 100 % with the lines and branches that are missing; the exit status
is 1 if there are any, 2 for a name that is none. Packages of which there is only a docstring are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.tree import PACKAGE, ROOT, Module, find_modules

JOBS = 2
LIMIT_SECONDS = 600


class Found(NamedTuple):
    """What one module's own test file covers of it; ``problem`` is empty where all is well."""

    module: Module
    problem: str


def choose(modules: list[Module], names: Sequence[str]) -> list[Module]:
    """Return the modules of these names, all without any.

    Raises:
        ValueError: a name that is no module's.
    """
    chosen = {module for module in modules if not names}
    for name in names:
        dotted = name.removesuffix(".py").removesuffix("/").replace("/", ".").removesuffix(".__init__")
        wanted = dotted if dotted.split(".")[0] == PACKAGE else f"{PACKAGE}.{dotted}"
        found = [module for module in modules if module.name == wanted or module.name.startswith(f"{wanted}.")]
        if not found:
            raise ValueError(f"no module is named {name}")
        chosen.update(found)
    return [module for module in modules if module in chosen and module.needs_tests]


def measure(module: Module, root: Path = ROOT) -> Found:
    """Run a module's own test file under coverage, with a data file of its own."""
    tests = module.tests.relative_to(root)
    if not module.tests.is_file():
        return Found(module, f"there is no {tests}")
    with tempfile.TemporaryDirectory() as folder:
        data, report = Path(folder, "data"), Path(folder, "report.json")
        environment = os.environ | {"COVERAGE_FILE": str(data)}
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
        try:
            ran = _run(["run", "--branch", f"--source={module.name}", *pytest], root, environment)
            if ran.returncode:
                return Found(module, f"{tests} fails\n{_indent(ran.stdout[-3000:] + ran.stderr[-1000:])}")
            made = _run(["json", "-q", f"--include={module.path}", "-o", str(report)], root, environment)
        except subprocess.TimeoutExpired:
            return Found(module, f"{tests} was not over after {LIMIT_SECONDS} s")
        if made.returncode:
            return Found(module, f"{tests} does not import it\n{_indent(made.stdout + made.stderr)}")
        files = json.loads(report.read_text())["files"]
    [covered] = files.values()
    return Found(module, _missing(covered))


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT, say: Callable[[str], None] = print) -> int:
    """Measure the modules of the command line, two at a time, and print what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.own_coverage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("modules", nargs="*", metavar="module", help="a module or a package; all without any")
    try:
        modules = choose(find_modules(root), parser.parse_args(arguments).modules)
    except ValueError as problem:
        say(str(problem))
        return 2
    below = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for found in pool.map(lambda module: measure(module, root), modules):
            if found.problem:
                below += 1
                say(f"{found.module.name}: {found.problem}")
    say(f"{len(modules) - below} of {len(modules)} modules are fully covered by their own tests")
    return 1 if below or not modules else 0


def _run(arguments: list[str], root: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coverage", *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def _missing(covered: dict[str, list[object]]) -> str:
    parts = []
    if covered["missing_lines"]:
        parts.append("lines " + ", ".join(str(line) for line in covered["missing_lines"]))
    branches = [f"{branch[0]}→{'exit' if branch[1] <= 0 else branch[1]}" for branch in covered["missing_branches"]]  # type: ignore[index]
    if branches:
        parts.append("branches " + ", ".join(branches))
    return "; ".join(parts)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().split("\n"))


if __name__ == "__main__":
    sys.exit(main())
