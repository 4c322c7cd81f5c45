"""What is found in a store that is not as it must be, how it can be repaired, and the bounded list of it; pure."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from shine_node.store.layout import Table

__all__ = ["Check", "Finding", "Problem", "Put", "Report", "Row", "Verdict"]

FIRST_OF_EACH = 20
"""So many findings of each kind are kept with their words; the others are counted."""

_OWN_ROWS = {Table.USERS, Table.ACCESS_RECORDS, Table.SETTINGS, Table.HISTORY, Table.CONTAINERS}
"""Tables with what users have signed, or what is known of it alone; the rows of others follow, or come again."""

Row = tuple[Table, bytes]
"""A row by its key."""
Put = tuple[Table, bytes, bytes]
"""A row that is to be written."""


class Problem(enum.Enum):
    """The kinds of findings, in words that go before a list of them."""

    UNREADABLE = "rows that cannot be read"
    FORGED = "entries that their owner's key has not signed as they are"
    CONTRADICTION = "rows that contradict themselves or each other"
    LOST = "entries of which the content is gone"
    NO_INDEX = "rows that their index does not know"
    DANGLING = "rows of an index, or of contents, that belong to nothing"
    OTHER_KEY = "entries signed by a key that was not in force at their time"
    UNKNOWN_KEY = "entries that cannot be checked: nothing is known of who signed them"
    LOST_RECORD = "keys of users of which the access record is gone: what they have signed is kept"

    @property
    def note(self) -> bool:
        """Whether it is told only: it happens in a store that is well, and nothing is to be done."""
        return self in (Problem.OTHER_KEY, Problem.UNKNOWN_KEY, Problem.LOST_RECORD)


class Finding(NamedTuple):
    """One finding: about which row, in words, and what mends it.

    ``drop`` are rows that go, into the quarantine; ``put`` are rows that are written, after that. To find what is
    ``whole`` took the whole of a table: a second look at one row says nothing of it.
    """

    problem: Problem
    table: Table
    key: bytes
    text: str
    drop: tuple[Row, ...] = ()
    put: tuple[Put, ...] = ()
    whole: bool = False

    @property
    def loses(self) -> bool:
        """Whether a repair takes something with it that no other row brings back: a user, a message, a setting.

        What was ``whole`` looked for and goes is empty.
        """
        back = {table for table, _, _ in self.put}
        return not self.whole and any(table in _OWN_ROWS and table not in back for table, _ in self.drop)

    @property
    def remedy(self) -> str:
        """What a repair does with it, in words."""
        if self.put:
            return "is put right"
        return "goes to the quarantine" if self.drop else ""


class Verdict(enum.Enum):
    """What came of the check of one signature."""

    GOOD = 0
    OTHER_KEY = 1
    FORGED = 2


class Check(NamedTuple):
    """A signature that is still to be checked, and what is found if it does not hold."""

    keys: tuple[bytes, ...]
    """The key that has to have signed it, then the others that its owner has had."""
    text: bytes
    signature: bytes
    forged: Finding
    other_key: Finding

    def finding(self, verdict: Verdict) -> Finding | None:
        """Return what a verdict means."""
        return {Verdict.GOOD: None, Verdict.OTHER_KEY: self.other_key, Verdict.FORGED: self.forged}[verdict]


class Report:
    """All that was found: counts of every kind, and the first few of each with their words."""

    def __init__(self) -> None:
        self.counts: Counter[Problem] = Counter()
        self.first: dict[Problem, list[Finding]] = {}
        self.rows = 0
        """Rows that were looked at."""
        self.signatures = 0
        """Signatures that were checked."""
        self.lost = 0
        """Findings of which a repair takes something with it that no other row brings back."""
        self.repaired = 0
        """Findings that were mended."""

    def add(self, finding: Finding) -> None:
        """Take a finding."""
        self.counts[finding.problem] += 1
        self.lost += finding.loses
        kept = self.first.setdefault(finding.problem, [])
        if len(kept) < FIRST_OF_EACH:
            kept.append(finding)

    @property
    def problems(self) -> int:
        """How many findings there are, without what is only noted."""
        return sum(count for problem, count in self.counts.items() if not problem.note)

    @property
    def clean(self) -> bool:
        """Whether all is as it must be."""
        return not self.problems
