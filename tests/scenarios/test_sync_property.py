"""Two servers of alice beside each other, without sockets: whatever happens in whatever order, they become equal.

Things happen at either server: alice's devices send, edit, read, remove and set; bob's server brings what he does;
requests between the two are lost on the way there or back, or come late, or twice; servers are started anew, or
restored from an older copy; hours pass. In the end both hold the same history, settings and read marks, which are those
that were taken; nothing waits to be sent, and each of them called bob's server only as its schedule had it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shine_node.client.settings import make_setting
from shine_node.protocol.keys import MessageId
from shine_node.protocol.pair import Pair
from shine_node.protocol.settings import Setting
from tests.scenarios.sync_model import NAMES, World, lay_template
from tests.scenarios.sync_side import Side
from tests.store.rooms import NOW, identity, make_copy, make_pair, receipt_of, tombstone_of

EXAMPLES, EXAMPLES_RESTORED = 200, 200
STORY_SECONDS = 60
SENT = [MessageId("alice", "bob", NOW - nonce, nonce) for nonce in range(2)]
NOTE = MessageId("alice", "alice", NOW, 9)
CAME = [MessageId("bob", "alice", NOW - nonce, nonce) for nonce in range(2)]
MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""Where folders are that need no disk: each story makes a hundred commits, and loses none of them."""
PAUSES = (1, 31, 400, 1600, 3700, 9000)


class Step(NamedTuple):
    """One thing that happens."""

    what: str
    server: int = 0
    number: int = 0
    """Which one of several: 0 to 5."""
    revision: int = 0
    fates: tuple[str, ...] = ()
    """What becomes of the next requests between the two."""


async def do(world: World, step: Step) -> None:
    """Let one thing happen, and what follows from it by itself."""
    world.fates = list(step.fates)
    side = world.sides[NAMES[step.server]]
    await _do(world, side, step)
    await world.rest()
    world.fates.clear()


async def _do(world: World, side: Side, step: Step) -> None:
    number, revision_ms = step.number, revision_of(world, step)
    sent, came = (*SENT, NOTE)[number % 3], CAME[number % 2]
    match step.what:
        case "send":
            await side.send(pair_of(sent, revision_ms, number))
        case "read":
            await side.send(receipt_of(came, nonce=20 + number))
        case "remove":
            await side.send(tombstone_of(sent, nonce=30 + number))
        case "set":
            await side.set(setting_of(number, revision_ms))
        case "arrives":
            await side.take(copy_of(came, revision_ms, number))
        case "bob reads":
            await side.take(receipt_of(SENT[number % 2], nonce=40 + number).incoming.blob)
        case "bob removes":
            await side.take(tombstone_of(came, nonce=50 + number).incoming.blob)
        case "comes late" if world.late:
            await world.arrive(world.late.pop(number % len(world.late)))
        case "comes again" if world.handed:
            await world.arrive(world.handed[number % len(world.handed)])
        case "session":
            await side.pull(short=number == 5)
        case "both have sessions":
            async with asyncio.TaskGroup() as tasks:
                for one in world.sides.values():
                    tasks.create_task(one.pull())
        case "session meanwhile":
            revision_ms = NOW + 1 + step.revision
            world.meanwhile = [pair_of(sent, revision_ms, number), setting_of(number, revision_ms)]
            world.no_hand_over = True
            await side.pull()
            await world.rest()
            world.no_hand_over = False
            world.meanwhile.clear()
        case "all unsynced":
            await side.resync.begin("alice")
            await side.mark_unsynced(number)
        case "link":
            world.cut = not world.cut
        case "restart":
            await world.restart(side)
        case "copy":
            await side.keep_copy()
        case "restore":
            await world.restart(side, copy=True)
        case "bob's server":
            world.recipient_answers = not world.recipient_answers
        case "time":
            await world.pass_time(PAUSES[number])


def revision_of(world: World, step: Step) -> int:
    """None, one of two that both servers may get, or that of the moment."""
    return (0, NOW + 1, NOW + 2, world.clock.now_ms() + 3)[step.revision]


def pair_of(message: MessageId, revision_ms: int, number: int) -> Pair:
    """One of two pairs of a message that alice sends; those of her note differ in their outgoing copies alone."""
    body = b"%d" % (number // 3)
    return make_pair(
        message.from_login,
        message.to_login,
        time_ms=message.time_ms,
        nonce=message.nonce,
        revision_ms=revision_ms,
        body=b"note" if message is NOTE else body,
        own_body=body,
    )


def copy_of(message: MessageId, revision_ms: int, number: int) -> bytes:
    """One of two bodies of a message that bob sends."""
    body = b"%d" % (number // 3)
    return make_copy(
        "bob", "alice", 1, time_ms=message.time_ms, nonce=message.nonce, revision_ms=revision_ms, body=body
    ).blob


def setting_of(number: int, revision_ms: int) -> Setting:
    """One of two values of one of two names; without a revision, one of long ago."""
    return make_setting(identity("alice"), ("tone", "tongue")[number % 2], f"{number // 3}", time_ms=revision_ms)


CALM = ("nothing", "send", "send", "read", "remove", "set", "set", "arrives", "arrives", "bob reads", "bob removes")
BETWEEN = ("session", "session", "session meanwhile", "both have sessions", "comes late", "comes again", "link")
ROUGH = (*CALM, *BETWEEN, "restart", "all unsynced", "bob's server", "time", "time", "time")


def steps(*what: str) -> st.SearchStrategy[list[Step]]:
    fates = st.lists(st.sampled_from(["", "", "there", "back", "late"]), max_size=4).map(tuple)
    one = st.builds(Step, st.sampled_from(what), st.integers(0, 1), st.integers(0, 5), st.integers(0, 3), fates)
    return st.lists(one, min_size=10, max_size=30)


def happen(things: list[Step], template: Path, *, cut: bool) -> None:
    """Let things happen, from a link on that is up or ``cut``; then let them become equal, and look."""

    async def story(folder: Path) -> None:
        world = World(folder, template)
        async with asyncio.timeout(STORY_SECONDS), world.running():
            world.cut = cut
            for step in things:
                await do(world, step)
            await world.become_equal()
            world.check()

    with tempfile.TemporaryDirectory(prefix="shine-sync-", dir=MEMORY) as name:
        asyncio.run(story(Path(name)))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    asyncio.run(lay_template(folder))
    return folder


RULES: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
TWO_AT_ONCE = [Step("send"), Step("send", 1, 3)]
EDITED_WHILE_IT_GOES = [Step("send"), Step("link"), Step("session meanwhile", 1, 0, 1, ("", "", "back"))]
SET_WHILE_IT_GOES = [Step("set", 0, 0, 1), Step("link"), Step("session meanwhile", 1, 0, 1, ("", "back"))]
OLD_AND_REFUSED = [Step("bob's server"), Step("send"), Step("time", 0, 4), Step("link"), Step("session", 1)]
SET_AND_LOST = [Step("set", 1), Step("link"), Step("session"), Step("restore", 1)]
LOST_TWICE = [*SET_AND_LOST, Step("session", 1), Step("set"), Step("session", 1), Step("restore", 1)]


@example(TWO_AT_ONCE, True)
@example(EDITED_WHILE_IT_GOES, True)
@example(SET_WHILE_IT_GOES, True)
@example(OLD_AND_REFUSED, True)
@settings(max_examples=EXAMPLES, **RULES)
@given(steps(*ROUGH), st.booleans())
def test_whatever_happens_both_become_equal_and_bob_is_called_as_the_schedule_has_it(
    template: Path, things: list[Step], cut: bool
) -> None:
    happen(things, template, cut=cut)


@example(SET_AND_LOST, True)
@example(LOST_TWICE, True)
@settings(max_examples=EXAMPLES_RESTORED, **RULES)
@given(steps(*ROUGH, "copy", "restore", "restore"), st.booleans())
def test_also_where_one_of_them_is_restored_from_an_older_copy(template: Path, things: list[Step], cut: bool) -> None:
    happen(things, template, cut=cut)
