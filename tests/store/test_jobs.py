"""How results come back: each future once, then the watch, whatever the futures have become."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shine_node.protocol.errors import BadFields
from shine_node.store.changes import Change, KeyChange
from shine_node.store.environment import Transaction
from shine_node.store.jobs import Job, bring_back


def never(txn: Transaction) -> int:
    raise AssertionError("the writer runs jobs, and there is none here")


def test_results_errors_and_requests_that_were_given_up() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        good, bad, given_up = (Job(never, loop.create_future()) for _ in range(3))
        good.result, bad.error, given_up.result = 1, BadFields("no"), 3
        given_up.future.cancel()
        told: list[Change] = []
        bring_back([given_up, bad, good], [KeyChange("alice")], told.extend)
        assert told == [KeyChange("alice")]
        assert await good.future == 1
        with pytest.raises(BadFields):
            await bad.future
        assert given_up.future.cancelled()

    asyncio.run(story())


def test_a_job_says_how_much_it_keeps() -> None:
    async def story() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        assert (Job(never, future).size, Job(never, future, size=5).size) == (0, 5)

    asyncio.run(story())


def test_the_watch_is_told_only_of_changes_and_its_defects_keep_nobody_waiting() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()

        def breaks(changes: Sequence[Change]) -> None:
            raise ZeroDivisionError("a defect")

        job = Job(never, loop.create_future())
        job.result = 1
        bring_back([job], [], breaks)
        assert await job.future == 1
        again = Job(never, loop.create_future(), "phone")
        again.result = 2
        with pytest.raises(ZeroDivisionError):
            bring_back([again], [KeyChange("alice")], breaks)
        assert (await again.future, again.origin) == (2, "phone")

    asyncio.run(story())
