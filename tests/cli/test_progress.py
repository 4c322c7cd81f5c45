import sys

import pytest

from shine_node.cli.progress import STEPS_A_LOOK, Progress


class HandClock:
    def __init__(self):
        self.at = 0.0

    def monotonic(self):
        return self.at


def test_a_terminal_sees_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    clock = HandClock()
    progress = Progress("copying", 10_000, clock=clock)
    progress.add(1000)
    assert capsys.readouterr().err == "", "it has just begun"
    clock.at += 1
    progress.add(1000)
    assert capsys.readouterr().err == "\rcopying: 20 %"
    progress.add(1000)
    assert capsys.readouterr().err == "", "not so often"
    clock.at += 1
    for _ in range(STEPS_A_LOOK):
        progress.step()
    assert capsys.readouterr().err == "\rcopying: 40 %"
    clock.at += 1
    progress.add(100_000)
    assert capsys.readouterr().err == "\rcopying: 99 %", "the total was an estimate"
    progress.end()
    assert capsys.readouterr().err == f"\r{' ' * 13}\r"


@pytest.mark.parametrize("terminal", [True, False])
def test_work_that_is_soon_done_and_what_is_no_terminal(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    clock = HandClock()
    progress = Progress("copying", 0, clock=clock)
    if not terminal:
        clock.at += 9
    progress.add(1)
    progress.end()
    assert capsys.readouterr().err == ""


def test_the_clock_of_the_machine(capsys):
    progress = Progress("copying", 1)
    progress.add(1)
    progress.end()
    assert capsys.readouterr().err == ""
