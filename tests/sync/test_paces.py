"""How much is asked for after what failed, how long a peer is left alone, and that little is remembered of it."""

from __future__ import annotations

import asyncio

import pytest

from shine_node.sync import paces as paces_module
from shine_node.sync.paces import FIRST_REST, LONGEST_REST, Paces
from tests.support.clock import ManualClock


def make(page_limit: int = 100) -> tuple[Paces, ManualClock]:
    clock = ManualClock()
    return Paces(clock, page_limit), clock


def failed(paces: Paces, times: int) -> list[int]:
    """Let pages fail; return what is to be asked for after each."""
    found = []
    for _ in range(times):
        paces.failed("Server2")
        found.append(paces.limit("server2"))
    return found


def came(paces: Paces, times: int, *, useful: bool) -> list[int]:
    """Let pages come; return what is to be asked for after each."""
    found = []
    for _ in range(times):
        paces.came("SERVER2", useful=useful)
        found.append(paces.limit("server2"))
    return found


def test_of_a_peer_whose_pages_come_as_much_as_may_be_is_asked_for() -> None:
    paces, _ = make()
    paces.came("server2", useful=True)
    assert (paces.limit("server2"), paces.rest("server2")) == (100, 0)
    assert paces._paces == {}


def test_less_is_asked_for_after_each_page_that_did_not_come_down_to_one_entry() -> None:
    paces, _ = make()
    assert failed(paces, 3) == [25, 6, 1]
    assert paces.rest("server2") == 0
    assert failed(paces, 2) == [1, 1]
    assert paces.limit("server3") == 100


def test_as_much_as_failed_is_not_asked_for_again_for_a_while() -> None:
    async def story() -> None:
        paces, clock = make()
        failed(paces, 2)
        assert came(paces, 4, useful=True) == [12, 24, 24, 24]
        await clock.advance(FIRST_REST - 1)
        assert came(paces, 1, useful=True) == [24]
        assert paces.rest("server2") == 0
        await clock.advance(1)
        assert came(paces, 3, useful=False) == [48, 96, 100]
        assert came(paces, 1, useful=True) == [100]
        assert paces._paces == {}, "all is well again"

    asyncio.run(story())


def test_rests_begin_at_one_entry_and_grow_within_a_bound_while_nothing_is_of_use() -> None:
    async def story() -> None:
        paces, clock = make()
        failed(paces, 3)
        rests = []
        for _ in range(9):
            paces.failed("server2")
            rests.append(paces.rest("Server2"))
            await clock.advance(rests[-1] - 1)
            assert paces.rest("server2") == pytest.approx(1)
            await clock.advance(1)
            assert paces.rest("server2") == 0
            assert came(paces, 1, useful=False) == [2], "what came was of no use"
            paces.failed("server2")
            assert paces.limit("server2") == 1
        assert rests == [FIRST_REST * 2**number for number in range(6)] + [LONGEST_REST] * 3
        assert paces.rest("server3") == 0
        came(paces, 1, useful=True)
        paces.failed("server2")
        assert paces.rest("server2") == 0, "it is another trouble, and may be chance"
        paces.failed("server2")
        assert paces.rest("server2") == FIRST_REST


def test_a_pace_is_kept_while_the_next_rest_is_to_be_longer() -> None:
    async def story() -> None:
        paces, clock = make(2)
        failed(paces, 2)
        await clock.advance(FIRST_REST)
        assert came(paces, 2, useful=False) == [2, 2]
        assert failed(paces, 2) == [1, 1]
        assert paces.rest("server2") == 2 * FIRST_REST
        await clock.advance(2 * FIRST_REST)
        assert came(paces, 1, useful=True) == [2]
        assert paces._paces == {}

    asyncio.run(story())


def test_a_page_limit_of_one_has_no_less_and_one_loss_may_be_chance() -> None:
    async def story() -> None:
        paces, clock = make(1)
        assert failed(paces, 1) == [1]
        assert paces.rest("server2") == 0
        assert came(paces, 1, useful=True) == [1]
        assert paces._paces == {}
        assert failed(paces, 1) == [1]
        assert came(paces, 2, useful=False) == [1, 1], "what came was of no use"
        assert failed(paces, 1) == [1]
        assert paces.rest("server2") == FIRST_REST
        await clock.advance(FIRST_REST)
        assert failed(paces, 1) == [1]
        assert paces.rest("server2") == 2 * FIRST_REST

    asyncio.run(story())


def test_what_is_remembered_is_bounded_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces_module, "MAX_REMEMBERED", 2)
    paces, _ = make()
    for name in ("one", "two", "one", "three"):
        paces.failed(name)
    assert [paces.limit(name) for name in ("one", "two", "three")] == [6, 100, 25]
