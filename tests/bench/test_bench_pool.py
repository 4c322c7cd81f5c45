"""The benchmark of the pool still runs; with so little work, what it measures means nothing."""

from __future__ import annotations

import uvloop

from tests.bench.bench_pool import measure_dead_peers, measure_pool


def test_the_pool_beside_a_bare_websocket_and_behind_a_full_queue() -> None:
    figures = uvloop.run(measure_pool(1, 5, queued=20, work_ms=1))
    names = [figure.what for figure in figures]
    assert [name for name in names if name.startswith("pool: one")] != []
    assert "waiting: REALTIME median" in names
    assert "waiting: BULK" in names
    assert [figure.met is not None for figure in figures[:3]] == [True] * 3


def test_dead_peers() -> None:
    figures = uvloop.run(measure_dead_peers(5, 0.1, settle_seconds=0.1))
    assert [figure.met is not None for figure in figures] == [True, False]
