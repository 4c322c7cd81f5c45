"""The benchmarks still run: all of them with very little work. What they measure then means nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import uvloop

from shine_node.api.pages import WEB_FOLDER
from tests.bench import (
    bench_due,
    bench_events,
    bench_idle,
    bench_noisy,
    bench_page,
    bench_pairs,
    bench_people,
    bench_portable,
    bench_sync,
    bench_verify,
    bench_wear,
    measure,
)
from tests.bench.fill import add_delivered, open_store
from tests.bench.measure import Figure, print_figures
from tests.support.web import NO_BROWSER, find_browser


@pytest.fixture(autouse=True)
def unpinned() -> object:
    """Benchmarks keep their process on one core; the tests after them may use all."""
    yield
    measure.unpin()


def names(figures: list[Figure]) -> str:
    return "\n".join(figure.what for figure in figures)


def test_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = tuple(scenario._replace(pairs=20, window=min(scenario.window, 4)) for scenario in bench_pairs.SCENARIOS)
    monkeypatch.setattr(bench_pairs, "SCENARIOS", few)
    figures = uvloop.run(bench_pairs.measure_pairs(tmp_path, 1))
    for scenario in few:
        assert scenario.name in names(figures)
    assert len([figure for figure in figures if figure.met is not None]) == 3
    print_figures("Pairs", figures)
    assert "pairs/s" in capsys.readouterr().out


def test_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_noisy, "WARM_SECONDS", 0.5)
    figures = uvloop.run(bench_noisy.measure_noisy(tmp_path, samples=5, pairs=200))
    assert [figure.what.split()[-1] for figure in figures] == ["alone", "client", "peer", "hangs"]
    assert [figure.met is None for figure in figures] == [True, False, False, False]


def test_memory(tmp_path: Path) -> None:
    figures = uvloop.run(bench_pairs.measure_memory(tmp_path, 40))
    assert "resident after 40 pairs" in names(figures)
    assert figures[-1].met is not None


def test_due_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_due, "REPETITIONS", 3)
    for name, count in (("few", 10), ("many", 100)):
        with open_store(tmp_path / name) as store:
            add_delivered(store, count)
    figures = bench_due.measure_due(tmp_path / "few", tmp_path / "many")
    assert [figure.met is not None for figure in figures] == [True, True]


def test_an_idle_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_idle, "STARTS", 1)
    with open_store(tmp_path / "full") as store:
        add_delivered(store, 100)
    figures = uvloop.run(bench_idle.measure_idle(tmp_path / "empty", tmp_path / "full"))
    assert [figure.met is not None for figure in figures] == [True, True, False, True]


def test_wear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_wear, "SINGLY", 2)
    monkeypatch.setattr(bench_wear, "TOGETHER", 1)
    with open_store(tmp_path) as store:
        add_delivered(store, 100, pairs_a_commit=bench_wear.SMALL)
    figures = uvloop.run(bench_wear.measure_wear(tmp_path))
    assert [figure.met is not None for figure in figures] == [True, False] * 3
    assert float(figures[0].value.split()[0]) > 4, "a commit is a page at least"


def test_catch_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_sync, "LIVE_ALONE", 3)
    figures = uvloop.run(bench_sync.measure_catch_up(tmp_path, 30))
    assert [figure.what for figure in figures if figure.met is not None] == [
        "30 pairs that alice sent",
        "    memory of the node that fetches",
        "30 copies that alice got",
        "    memory of the node that fetches",
        "a message of others sent meanwhile, p99",
    ]


def test_a_session_with_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_sync, "REQUESTS", 3)
    for name, count in (("few", 10), ("many", 100)):
        with open_store(tmp_path / name) as store:
            add_delivered(store, count)
    [figure] = uvloop.run(bench_sync.measure_nothing_new(tmp_path / "few", tmp_path / "many"))
    assert figure.met is not None


@pytest.mark.skipif(find_browser() is None, reason=NO_BROWSER)
def test_the_page(tmp_path: Path) -> None:
    figures = bench_page.measure_page(tmp_path, visits=1, messages=3)
    assert [figure.met is not None for figure in figures] == [True, True, True]
    content = sum(len(gzip.compress(path.read_bytes())) for path in WEB_FOLDER.rglob("*") if path.is_file())
    assert content < float(figures[0].value.split()[0]) * 1000 < 3 * content


def test_the_page_without_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_page, "find_browser", lambda: None)
    [figure] = bench_page.measure_page(tmp_path)
    assert figure.what == f"not measured: {NO_BROWSER}"


def test_an_online_recipient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MESSAGES", "WARM_UP", "PACED"):
        monkeypatch.setattr(bench_events, name, 5)
    figures = uvloop.run(bench_events.measure_events(tmp_path / "events", 1))
    assert [figure.met is not None for figure in figures] == [True, True, False, False]
    assert "100 messages/s" in names(figures)


def test_idle_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_people, "SETTLE_SECONDS", 0.1)
    [figure] = uvloop.run(bench_people.measure_sessions(tmp_path, 5))
    assert figure.what == "5 idle sessions"
    assert figure.met is not None


def test_the_first_page_of_a_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_people, "PAGES", 2)
    monkeypatch.setattr(bench_people, "ROUNDS", 1)
    with open_store(tmp_path) as store:
        bench_people.fill_chats(store, {"short": 60, "long": 300})
    [figure] = uvloop.run(bench_people.measure_first_page(tmp_path))
    assert figure.met is not None


def test_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_verify, "ROUNDS", 1)
    monkeypatch.setattr(bench_verify, "CEILING_SECONDS", 0.1)
    figures = bench_verify.measure_verify(tmp_path, few=10, many=100)
    assert [figure.met is not None for figure in figures] == [True, True]


def test_the_figures() -> None:
    assert [measure.percentile([5.0, 1.0, 3.0, 2.0], share) for share in (0, 0.5, 0.99, 1)] == [1, 3, 5, 5]
    assert measure.median([3, 1, 2]) == 2


def test_portable(tmp_path: Path) -> None:
    figures = bench_portable.measure_portable(tmp_path, few=10, many=60)
    assert [figure.what.split()[0] for figure in figures] == ["backup", "its", "export", "its", "import", "its"]
    assert len([figure for figure in figures if figure.met is not None]) == 3
