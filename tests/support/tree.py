"""The source tree as the tests of the house see it: the modules of ``shine_node`` and the test file of each."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

__all__ = ["PACKAGE", "ROOT", "Module", "find_modules"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "shine_node"


class Module(NamedTuple):
    """One module of the package."""

    name: str
    """With its package's: ``shine_node.peers.link``."""

    path: Path

    tests: Path
    """Its own test file; it need not be there. That of ``shine_node/cli/__init__.py`` is ``tests/cli/test_init.py``."""

    @property
    def tree(self) -> ast.Module:
        """The module, parsed."""
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    @property
    def needs_tests(self) -> bool:
        """Whether it must have its own test file: all but private modules and packages that only gather names."""
        if self.path.name != "__init__.py":
            return not self.path.name.startswith("_")
        return not all(
            isinstance(node, ast.Expr | ast.Import | ast.ImportFrom) or _is_plain(node) for node in self.tree.body
        )


def _is_plain(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and all(
        isinstance(part, ast.Constant | ast.List | ast.Tuple | ast.Load) for part in ast.walk(node.value)
    )


def find_modules(root: Path = ROOT) -> list[Module]:
    """Return every module of the package below a root, in the order of their names."""
    modules = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        relative = path.relative_to(root / PACKAGE)
        parts = list(relative.with_suffix("").parts)
        folder = root.joinpath("tests", *parts[:-1])
        if parts[-1] == "__init__":
            parts.pop()
            tests = folder / "test_init.py"
        else:
            tests = folder / f"test_{parts[-1]}.py"
        modules.append(Module(".".join([PACKAGE, *parts]), path, tests))
    return modules
