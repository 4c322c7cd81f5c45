"""The list of findings is bounded, and notes are no problems."""

from __future__ import annotations

import pytest

from shine_node.store.layout import Table
from shine_node.store.verifying.findings import FIRST_OF_EACH, Check, Finding, Problem, Report, Verdict


def test_a_report_keeps_the_first_few_of_each_kind() -> None:
    report = Report()
    assert report.clean
    for number in range(100):
        report.add(Finding(Problem.OTHER_KEY, Table.CONTAINERS, b"%d" % number, "note"))
    assert report.clean
    for number in range(50):
        report.add(Finding(Problem.LOST, Table.HISTORY, b"%d" % number, "gone"))
    assert not report.clean
    assert report.problems == 50
    assert report.counts == {Problem.OTHER_KEY: 100, Problem.LOST: 50}
    assert [len(findings) for findings in report.first.values()] == [FIRST_OF_EACH, FIRST_OF_EACH]


def test_the_remedy_in_words() -> None:
    row = (Table.HISTORY, b"k")
    assert Finding(Problem.LOST, *row, "x").remedy == ""
    assert Finding(Problem.LOST, *row, "x", drop=(row,)).remedy == "goes to the quarantine"
    assert Finding(Problem.LOST, *row, "x", drop=(row,), put=((*row, b"v"),)).remedy == "is put right"


@pytest.mark.parametrize("problem", Problem)
def test_only_three_kinds_are_notes(problem: Problem) -> None:
    assert problem.note == (problem in (Problem.OTHER_KEY, Problem.UNKNOWN_KEY, Problem.LOST_RECORD))


def test_what_a_verdict_means() -> None:
    forged = Finding(Problem.FORGED, Table.SETTINGS, b"k", "x")
    other = Finding(Problem.OTHER_KEY, Table.SETTINGS, b"k", "x")
    check = Check((b"key",), b"text", b"signature", forged, other)
    assert [check.finding(verdict) for verdict in Verdict] == [None, other, forged]


def test_what_a_repair_loses() -> None:
    message, contents, index = (Table.HISTORY, b"k"), (Table.CONTAINERS, b"k"), (Table.DUE_ATTEMPTS, b"k")
    report = Report()
    for drop, put, whole, loses in (
        ((), (), False, False),
        ((index,), (), False, False),
        ((message, index), (), False, True),
        ((contents,), ((*contents, b""),), False, False),
        ((message, contents), ((*message, b"v"),), False, True),
        ((contents,), (), True, False),
    ):
        finding = Finding(Problem.CONTRADICTION, *message, "x", drop=drop, put=put, whole=whole)
        assert finding.loses is loses
        report.add(finding)
    assert (report.lost, report.problems) == (2, 6)
