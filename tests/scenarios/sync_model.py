"""Two servers of alice beside each other, without sockets: requests between them can be lost, late, or come twice."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from shine_node.protocol.pair import Pair
from shine_node.protocol.settings import Setting
from shine_node.sync.paces import LONGEST_REST
from tests.delivery.rooms import RECEIVE_OUTCOMING, Rooms
from tests.scenarios.sync_side import COPY, OWNER, RECIPIENTS, STORE, Late, Line, Side
from tests.scenarios.sync_truth import Truth
from tests.store.rooms import NOW
from tests.support.clock import ManualClock

__all__ = ["NAMES", "World", "lay_template"]

NAMES = ("a1", "a2")
RESTORED_PAUSE = 600
"""Seconds in which everything is sent anew once to a server that was restored."""


class World:
    """Both servers, the recipients' one, what is under way between them, and the clock."""

    def __init__(self, folder: Path, template: Path) -> None:
        self.clock = ManualClock(NOW)
        self.fates: list[str] = []
        """What becomes of the next requests between the two."""
        self.cut = False
        """Whether the two cannot reach each other."""
        self.no_hand_over = False
        self.late: list[Late] = []
        self.handed: list[Late] = []
        """What was handed over, by whoever still runs as then."""
        self.meanwhile: list[Pair | Setting] = []
        """What alice sends to the server that gives a page, as soon as it has been given."""
        self.recipient_answers = True
        self.truth = Truth()
        self.sides = {name: Side(folder, name, other, self) for name, other in (NAMES, NAMES[::-1])}
        for side in self.sides.values():
            side.folder.mkdir()
            for name in (STORE, COPY):
                shutil.copyfile(template / side.name / STORE, side.folder / name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have both run; both are closed in the end, whatever happens."""
        async with contextlib.AsyncExitStack() as closing:
            for side in self.sides.values():
                closing.push_async_callback(side.close)
            for side in self.sides.values():
                await side.open()
            await self.sessions()  # else a story's first session would send anew what was in doubt
            yield

    def next_fate(self, op: str) -> str:
        """What becomes of a request: lost on the way ``there`` or ``back``, ``late``, or nothing (empty)."""
        if self.cut or (self.no_hand_over and op == RECEIVE_OUTCOMING):
            return "there"
        return self.fates.pop(0) if self.fates else ""

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        for _ in range(2):  # what one of them does can give the other one work
            for side in self.sides.values():
                await side.rest()

    async def restart(self, side: Side, *, copy: bool = False) -> None:
        """Start a server anew, or put its backup in its place."""
        self.late = [late for late in self.late if late.to is not side and not (copy and late.asker == side.name)]
        self.handed = [one for one in self.handed if one.to is not side and one.asker != side.name]
        for one in self.sides.values():
            one.line = Line()
        await side.close()
        if copy:
            await side.put_copy()
        await side.open()
        if copy:
            sides = self.sides.values()
            self.truth.only((one.history() for one in sides), (one.known_settings().values() for one in sides))

    async def arrive(self, late: Late) -> None:
        """Let a request arrive whose sender does not wait any more."""
        await late.to.answer(late.asker, late.line, late.op, late.payload)

    async def pass_time(self, seconds: int) -> None:
        """Let time pass, and have the workers look."""
        await self.clock.advance(seconds)
        for side in self.sides.values():
            await side.rooms.worker.look()
        await self.rest()

    async def sessions(self, count: int = 1) -> None:
        """Have sessions of each with the other, without trouble."""
        self.fates.clear()
        self.cut = False
        for _ in range(count):
            for side in self.sides.values():
                await side.pull()
                await side.finish_resync()
                await self.rest()

    async def become_equal(self) -> None:
        """Let as much time pass without trouble as that may take."""
        await self.sessions(4)
        if any(side.left_alone for side in self.sides.values()):
            await self.pass_time(int(LONGEST_REST))
            await self.sessions(4)
        if any(side.restored for side in self.sides.values()):
            await self.pass_time(RESTORED_PAUSE)
            await self.sessions(4)
        await self.pass_time(10)

    def check(self) -> None:
        """Both are equal, hold what was taken, have nothing to give, and have called as their schedules had it."""
        one, two = self.sides.values()
        assert one.history() == two.history()
        assert one.known_settings() == two.known_settings()
        assert one.unsynced() == two.unsynced() == []
        assert one.history() == self.truth.history()
        assert one.known_settings() == self.truth.settings
        for side in (one, two):
            side.calls.check()


async def lay_template(folder: Path) -> None:
    """Make the stores that each story begins with: users are known, and the two have had their first sessions."""
    for name in NAMES:
        (folder / name).mkdir()
        async with Rooms(folder / name, own_login=name) as rooms:
            await rooms.know(OWNER, *NAMES)
            await rooms.know("bob", RECIPIENTS)
    (folder / "first").mkdir()
    world = World(folder / "first", folder)
    async with world.running():
        pass
    for name in NAMES:
        shutil.copyfile(folder / "first" / name / STORE, folder / name / STORE)
