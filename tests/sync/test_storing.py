"""The storing of one page: what of it can be acknowledged, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shine_node.protocol.errors import BadSignature, Refusal, StorageFull
from shine_node.sync import storing as storing_module
from shine_node.sync.storing import SIDE_BY_SIDE, Storing
from tests.delivery.rooms import run
from tests.support.clock import settle

WRONG = BadSignature("forged")


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing_module, "AT_ONCE", 2)


def items(names: str) -> list[dict[str, str]]:
    return [{"syncId": name} for name in names]


class Stores:
    """Stores stretches as a test lets it, and refuses what it is told to."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.refuses: dict[str, Refusal] = {}
        self.begun: list[str] = []
        self.full = False

    async def __call__(self, some: Sequence[Mapping[str, Any]]) -> list[Refusal | None]:
        names = "".join(item["syncId"] for item in some)
        self.begun.append(names)
        if names in self.gates:
            await self.gates[names].wait()
        if self.full:
            raise StorageFull("the server's store is full")
        return [self.refuses.get(name) for name in names]

    def hold(self, names: str) -> asyncio.Event:
        """Let a stretch wait."""
        self.gates[names] = asyncio.Event()
        return self.gates[names]

    def begin(self, page: Sequence[Any], refusals: Sequence[Refusal | None] | None = None) -> Storing:
        """Begin to store a page."""
        return Storing(page, refusals or [None] * len(page), self, asyncio.Semaphore(SIDE_BY_SIDE))


def test_what_is_stored_is_returned_once_and_in_order_whichever_stretch_was_done_first() -> None:
    async def work() -> None:
        stores = Stores()
        gate = stores.hold("ab")
        storing = stores.begin(items("abcde"))
        assert storing.long
        await settle()
        assert stores.begun == ["ab", "cd", "e"]
        gate.set()
        assert await storing.most() == ["a", "b", "c", "d", "e"]
        assert await storing.rest() == []

    run(work())


def test_most_of_a_page_does_not_wait_for_its_last_stretch() -> None:
    async def work() -> None:
        stores = Stores()
        gate = stores.hold("cd")
        storing = stores.begin(items("abcd"))
        assert await storing.most() == ["a", "b"]
        assert await storing.most() == []
        rest = asyncio.ensure_future(storing.rest())
        await settle()
        assert not rest.done()
        gate.set()
        assert await rest == ["c", "d"]

    run(work())


@pytest.mark.parametrize("names", ["", "ab"])
def test_a_short_page_has_no_more_than_one_stretch(names: str) -> None:
    async def work() -> None:
        storing = Stores().begin(items(names))
        assert not storing.long
        assert await storing.rest() == list(names)

    run(work())


def test_few_stretches_go_on_at_a_time_those_of_the_page_before_first() -> None:
    async def work() -> None:
        stores = Stores()
        gates = [stores.hold(names) for names in ("ab", "cd", "ef", "gh")]
        turns = asyncio.Semaphore(SIDE_BY_SIDE)
        first, second = (Storing(items(names), [None] * 4, stores, turns) for names in ("abcd", "efgh"))
        await settle()
        assert stores.begun == ["ab", "cd"]
        gates[1].set()
        await settle()
        assert stores.begun == ["ab", "cd", "ef"]
        for gate in gates:
            gate.set()
        assert await second.rest() == ["e", "f", "g", "h"]
        assert await first.rest() == ["a", "b", "c", "d"]

    run(work())


def test_what_is_refused_before_and_by_the_store_is_known_in_the_end() -> None:
    async def work() -> None:
        stores = Stores()
        stores.refuses = {"c": WRONG}
        storing = stores.begin([7, *items("abc"), {"syncId": 7}], [WRONG, None, None, None, WRONG])
        assert await storing.rest() == ["a", "b"]
        assert storing.refusals == [WRONG, None, None, WRONG, WRONG]
        assert stores.begun == ["ab", "c"]

    run(work())


def test_a_name_that_stands_for_what_is_not_stored_too_is_not_returned() -> None:
    async def work() -> None:
        stores = Stores()
        gate = stores.hold("ac")
        storing = stores.begin([*items("abac"), {"syncId": "b"}], [None] * 4 + [WRONG])
        assert await storing.most() == [], "neither the refused one, nor the one of which one item is under way"
        gate.set()
        assert await storing.rest() == ["a", "a", "c"]

    run(work())


def test_a_store_without_room_ends_it_after_all_have_ended() -> None:
    async def work() -> None:
        stores = Stores()
        stores.full = True
        storing = stores.begin(items("abcd"))
        with pytest.raises(StorageFull):
            await storing.rest()
        with pytest.raises(StorageFull):
            await storing.most()
        assert stores.begun == ["ab", "cd"]
        await storing.close()

    run(work())


def test_what_is_under_way_can_be_ended() -> None:
    async def work() -> None:
        stores = Stores()
        stores.hold("cd")
        storing = stores.begin(items("abcdef"))
        await settle()
        await storing.close()
        assert storing.refusals == [None] * 6

    run(work())
