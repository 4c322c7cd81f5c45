"""The doors of ARCHITECTURE.md: import-linter holds them, and here it is made to show that it would notice.

The contracts stand in ``pyproject.toml``. They are checked three times: on the package as it is, on a drawn package
with every single import that one room could make of another, and as a program on a copy that breaks a rule.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import api, cli
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import Contract

from tests.support.tree import PACKAGE, ROOT, Module, find_modules

COMMON = {"config", "clock"}
"""What may be seen by all but the protocol."""

UNDER_THE_NODE = {
    "api",
    "client",
    "clock",
    "config",
    "control",
    "crypto",
    "delivery",
    "directory",
    "logs",
    "notify",
    "peers",
    "protocol",
    "store",
    "sync",
    "tls",
    "watchdog",
}

DOORS: dict[str, set[str]] = {
    "protocol": set(),
    "clock": set(),
    "log_repeats": set(),
    "configuration": {"protocol"},  # the rooms behind config.py, which is their only door
    "config": {"configuration", "protocol"},
    "store": {"protocol"} | COMMON,
    "crypto": {"protocol"} | COMMON,
    "peers": {"protocol"} | COMMON,
    "directory": {"store", "crypto", "peers", "protocol"} | COMMON,  # who is known: delivery and sync both need it
    "delivery": {"directory", "store", "crypto", "peers", "protocol"} | COMMON,
    "sync": {"directory", "store", "crypto", "peers", "protocol"} | COMMON,
    "api": {"delivery", "sync", "directory", "store", "protocol"} | COMMON,
    "client": {"protocol"} | COMMON,
    "control": {"delivery", "sync", "directory", "store", "protocol"} | COMMON,  # and SNAPSHOT
    "logs": {"protocol", "log_repeats"} | COMMON,
    "notify": {"protocol"} | COMMON,
    "tls": {"protocol"} | COMMON,
    "watchdog": {"protocol"} | COMMON,
    "parts": UNDER_THE_NODE,  # what node.py is made of: it is their only door
    "node": UNDER_THE_NODE | {"parts"},
    "process": UNDER_THE_NODE | {"node"},
    "cli": UNDER_THE_NODE | {"node", "process"},
}
"""Which room sees which, as ARCHITECTURE.md says it; written out by hand, apart from the contracts."""

SEALING = f"{PACKAGE}.client.sealing"
"""The one module that the extra ``client`` is for."""

SNAPSHOT = f"{PACKAGE}.peers.snapshot"
"""The one module of the links that the control socket sees."""

NOT_PURE = [
    "asyncio",
    "lmdb",
    "websockets",
    "uvloop",
    "time",
    "datetime",
    "socket",
    "ssl",
    "threading",
    "os",
    "pathlib",
]
"""Some of what the protocol may not use: no I/O, no clock, no event loop, no store."""

CONTRACT_TYPES: dict[str, type[Contract]] = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "protected": ProtectedContract,
}
CONFIGURATION: dict[str, Any] = api.read_configuration(str(ROOT / "pyproject.toml"))


def make_contracts() -> list[Contract]:
    return [
        CONTRACT_TYPES[options["type"]](options["name"], CONFIGURATION["session_options"], options)
        for options in CONFIGURATION["contracts_options"]
    ]


def draw_package() -> grimp.ImportGraph:
    """A package with all the rooms, two modules in each, and no import."""
    graph = grimp.ImportGraph()
    for name in ["", *(f".{room}" for room in DOORS), *(f".{room}.inner" for room in DOORS)]:
        graph.add_module(PACKAGE + name)
    graph.add_module(SNAPSHOT)
    graph.add_module(SEALING)
    for name in [*NOT_PURE, "cryptography"]:
        graph.add_module(name, is_squashed=True)
    return graph


EMPTY = draw_package()


def broken_by(importer: str, imported: str) -> list[str]:
    """The contracts that one import breaks in a package that has no other."""
    broken = []
    for contract in make_contracts():
        graph = copy.deepcopy(EMPTY)
        graph.add_import(importer=importer, imported=imported)
        if not contract.check(graph, verbose=False).kept:
            broken.append(contract.name)
    return broken


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a process of its own: it turns off the loggers of the process that it runs in."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_package_keeps_every_contract() -> None:
    found = lint_imports(ROOT)
    report = found.stdout
    assert found.returncode == cli.EXIT_STATUS_SUCCESS, report
    counted = re.search(r"Contracts: (\d+) kept, (\d+) broken", report)
    assert counted is not None, report
    assert (int(counted[1]), int(counted[2])) == (len(CONFIGURATION["contracts_options"]), 0)
    analysed = re.search(r"Analyzed (\d+) files, (\d+) dependencies", report)
    assert analysed is not None, report
    assert int(analysed[1]) >= len(find_modules()) > 20
    assert int(analysed[2]) > 20


def test_every_room_is_on_the_plan() -> None:
    rooms = {module.name.split(".")[1] for module in find_modules() if "." in module.name}
    assert rooms <= set(DOORS), "a new room needs its doors here and in pyproject.toml"


def test_a_package_without_imports_keeps_every_contract() -> None:
    assert make_contracts()
    for contract in make_contracts():
        assert contract.check(copy.deepcopy(EMPTY), verbose=False).kept


@pytest.mark.parametrize("importer", DOORS)
def test_a_room_sees_what_the_plan_says_and_nothing_else(importer: str) -> None:
    for imported in DOORS:
        if imported == importer:
            continue
        for inner, other_inner in itertools.product(("", ".inner"), repeat=2):
            broken = broken_by(f"{PACKAGE}.{importer}{inner}", f"{PACKAGE}.{imported}{other_inner}")
            assert (not broken) is (imported in DOORS[importer]), f"{importer} -> {imported}: {broken}"


@pytest.mark.parametrize("room", DOORS)
def test_the_control_socket_sees_the_snapshot_of_the_links(room: str) -> None:
    may = room in ("control", "peers") or "peers" in DOORS[room]
    assert (not broken_by(f"{PACKAGE}.{room}.inner", SNAPSHOT)) is may


@pytest.mark.parametrize("room", DOORS)
def test_only_the_store_knows_lmdb(room: str) -> None:
    assert (not broken_by(f"{PACKAGE}.{room}.inner", "lmdb")) is (room == "store")


@pytest.mark.parametrize("room", DOORS)
def test_only_sealing_knows_the_library_of_the_extra(room: str) -> None:
    assert broken_by(f"{PACKAGE}.{room}.inner", "cryptography")
    assert not broken_by(SEALING, "cryptography")


@pytest.mark.parametrize("name", NOT_PURE)
def test_the_protocol_is_pure(name: str) -> None:
    assert broken_by(f"{PACKAGE}.protocol.inner", name)
    if name != "lmdb":
        assert not broken_by(f"{PACKAGE}.peers.inner", name)


def test_lint_imports_fails_on_a_copy_that_breaks_a_rule(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / PACKAGE / "protocol" / "planted.py").write_text("import time\n")
    found = lint_imports(tmp_path)
    assert found.returncode == cli.EXIT_STATUS_ERROR, found.stdout
    assert "shine_node.protocol.planted -> time" in found.stdout


# Clocks

CLOCKS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "process_time",
        "process_time_ns",
        "thread_time",
        "sleep",
        "localtime",
        "gmtime",
        "ctime",
    },
    "datetime": {"now", "utcnow", "today"},
}
"""What reads a clock, or waits by one, in the modules that have one."""


def clock_readings(tree: ast.Module) -> Iterator[str]:
    """Say where a module reads a clock of the machine, whatever name it gave to the clock's module."""
    modules: dict[str, str] = {}  # the local name of a module or class, and which of CLOCKS it is
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in CLOCKS:
                    modules[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS and not node.level:
            for alias in node.names:
                if alias.name in CLOCKS[node.module]:
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
                elif node.module == "datetime":
                    modules[alias.asname or alias.name] = "datetime"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        text = ast.unparse(node)
        owner = modules.get(text.split(".")[0])
        loop = re.search(r"loop(\(\))?\.time$", text)  # an event loop's time is the monotonic clock
        if loop or (owner is not None and node.attr in CLOCKS[owner]):
            yield f"line {node.lineno}: {text}"


@pytest.mark.parametrize(
    "source",
    [
        "import time\nx = time.time()",
        "import time\nread = time.monotonic",
        "import time as clock\nclock.time_ns()",
        "from time import monotonic as m",
        "from time import sleep",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.now(tz=None)",
        "from datetime import datetime as dt\ndt.utcnow()",
        "import datetime as d\nd.date.today()",
        "def f():\n    import time\n    return time.perf_counter()",
        "import asyncio\nasyncio.get_running_loop().time()",
        "class A:\n    def f(self):\n        return self._loop.time()",
    ],
)
def test_a_reading_of_a_clock_is_found(source: str) -> None:
    assert list(clock_readings(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.strftime('%Y')",
        "from datetime import datetime, timezone\ndatetime.fromtimestamp(5, timezone.utc).time()",
        "from shine_node.clock import Clock\nclock.monotonic()\nself._clock.now_ms()\nclock.time()",
        "from .time import monotonic",
    ],
)
def test_what_reads_no_clock_of_the_machine_is_let_be(source: str) -> None:
    assert not list(clock_readings(ast.parse(source)))


def test_only_clock_py_reads_clocks() -> None:
    readings = {module.name: list(clock_readings(module.tree)) for module in find_modules()}
    assert readings.pop(f"{PACKAGE}.clock"), "the search finds nothing where clocks are read"
    assert {name: found for name, found in readings.items() if found} == {}


def test_the_package_itself_sees_nothing() -> None:
    """Its ``__init__`` is not among what import-linter reads: that takes the launcher beside the folder for it."""
    root = next(module for module in find_modules() if module.name == PACKAGE)
    assert root.path == ROOT / PACKAGE / "__init__.py"
    assert not [node for node in ast.walk(root.tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_the_launcher_sees_only_the_command_line() -> None:
    launcher = Module("shine_node.py", ROOT / "shine_node.py", ROOT / "tests" / "test_launcher.py")
    assert not list(clock_readings(launcher.tree))
    imported = {node.module for node in ast.walk(launcher.tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"shine_node.cli"}
