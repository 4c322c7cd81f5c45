"""The bar of a long piece of work."""

from __future__ import annotations

import io
import sys

import pytest

from shine_node.cli.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_each_percent_is_shown_once_and_the_line_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("verifying") as bar:
        for done in range(1001):
            bar.show(done, 1000)
    shown = terminal.getvalue().split("\r")
    assert shown[1] == f"verifying [{' ' * 30}]   0 %"
    assert shown[101] == f"verifying [{'#' * 30}] 100 %"
    assert len(shown) == 104
    assert not shown[-2].strip()
    assert len(shown[-2]) >= len(shown[-3])


def test_with_nothing_to_do_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("verifying") as bar:
        bar.show(0, 0)
    assert "100 %" in terminal.getvalue()
    with Bar("verifying"):
        pass


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("verifying") as bar:
        bar.show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_work_whose_amount_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("copying", 10) as bar:
        bar.add()
        assert terminal.getvalue().endswith("  10 %")
        bar.add(4)
        assert terminal.getvalue().endswith("  50 %")
        bar.add(90)
        assert terminal.getvalue().endswith(" 100 %")
