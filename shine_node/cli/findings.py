"""What ``check`` finds: single findings, and what they mean together."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from shine_node.cli.node_user import NodeUser, own_user
from shine_node.cli.unit import Unit
from shine_node.config import Config

__all__ = ["Finding", "Level", "Situation", "as_json", "exit_status", "report"]


class Level(enum.IntEnum):
    """How bad a finding is; the values are the exit statuses of ``check``."""

    OK = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """One finding: how bad it is, what it is about, and a text that says what is so and what to do."""

    level: Level
    subject: str
    text: str


class Situation(NamedTuple):
    """What is looked at: a configuration without mistakes, and the file that it came from.

    ``listening`` are the URLs at which the running node listens, none where it does not run; ``offline`` says that
    nothing is to be asked over the network; ``unreadable_rows`` is how many rows of its store that node could not read;
    ``user`` is whom the node runs as, where that is not this process's user; ``unit`` is what its service may do, where
    it is one.
    """

    config: Config
    config_path: Path
    listening: tuple[str, ...] = ()
    offline: bool = False
    unreadable_rows: int = 0
    user: NodeUser | None = None
    unit: Unit | None = None

    @property
    def node(self) -> NodeUser:
        """Whom the node runs as."""
        return own_user() if self.user is None else self.user


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0 if all is well, 1 if there are warnings, 2 if the node will not work."""
    return int(max((finding.level for finding in findings), default=Level.OK))


def report(findings: Sequence[Finding]) -> str:
    """Return the findings as lines for a person, and a last line that counts them."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = [f"{finding.level.name.lower():<8} {finding.subject:<{width}}  {finding.text}" for finding in findings]
    counts = [sum(finding.level is level for finding in findings) for level in (Level.ERROR, Level.WARNING)]
    names = [_count(number, name) for number, name in zip(counts, ("error", "warning"), strict=True) if number]
    return "\n".join([*lines, ", ".join(names) or "all is well"])


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """Return the findings as one JSON object."""
    rows = [{"level": f.level.name.lower(), "subject": f.subject, "text": f.text} for f in findings]
    return {"status": exit_status(findings), "findings": rows}


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
