"""The demo's story, told by servers that only pretend: one that lies anywhere is found out.

With real servers it is told in ``test_demo.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from shine_node.cli import demo_story
from shine_node.cli.demo_servers import DemoServer
from shine_node.cli.demo_story import Story, UntrueClaim
from shine_node.cli.node_process import NodeFailed
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair
from shine_node.protocol.access import AccessServer
from shine_node.protocol.keys import MessageId

SCHEDULE = (0, 1, 2)


class World:
    """What the pretending servers share."""

    def __init__(self) -> None:
        self.servers = [PretendingServer(f"server{number}", self) for number in range(1, 5)]
        self.asked: dict[str, int] = {}
        self.too_late: set[str] = set()

    def state(self, pair: SignedPair) -> str:
        """Deliver a pair to the servers of its recipient that are on, or fail it when it was asked for three times."""
        homes = self.servers[2:] if pair.message.to_login == "bob" else self.servers[:2]
        if pair.base_key in self.too_late:
            return "failed"
        self.asked[pair.base_key] = self.asked.get(pair.base_key, 0) + 1
        if not any(home.running for home in homes):
            if self.asked[pair.base_key] > 3:
                self.too_late.add(pair.base_key)
                return "failed"
            return "accepted"
        for home in homes:
            if home.running:
                home.copies.add(pair.base_key)
        return "delivered"


class PretendingServer(DemoServer):
    """A server that keeps what it pretends to store in memory."""

    def __init__(self, login: str, world: World) -> None:
        self.login = login
        self.world = world
        self.on = False
        self.pairs: set[str] = set()
        self.copies: set[str] = set()

    @property
    def access(self) -> AccessServer:
        return AccessServer(self.login, f"ws://{self.login}/ws")

    @property
    def running(self) -> bool:
        return self.on

    async def start(self) -> None:
        self.on = True

    async def stop(self) -> None:
        self.on = False

    async def add_user(self, identity: Identity, homes: Sequence[DemoServer], *, time_ms: int) -> None:
        assert self.on

    async def send(self, pair: SignedPair) -> str:
        assert self.on
        state = self.world.state(pair)
        for home in self.world.servers[:2] if pair.message.from_login == "alice" else self.world.servers[2:]:
            home.pairs.add(pair.base_key)
        return state

    async def knows(self, pair: SignedPair) -> bool:
        return self.has_pair(pair)

    def has_pair(self, pair: SignedPair) -> bool:
        return pair.base_key in self.pairs

    def has_copy(self, pair: SignedPair) -> bool:
        return pair.base_key in self.copies

    def shows_read(self, message: MessageId) -> bool:
        return any(key.startswith("bob|alice|") for key in self.copies)


def tell(world: World) -> None:
    asyncio.run(Story(world.servers, SCHEDULE).play())


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretending servers need no time."""
    monkeypatch.setattr(demo_story, "STEP_SECONDS", 0.3)
    monkeypatch.setattr(demo_story, "_POLL_SECONDS", 0.001)


def test_the_story_is_told_and_names_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    tell(World())
    told = capsys.readouterr().out
    assert "alice has her mail on server1 and server2, bob has his on server3 and server4" in told
    assert "SHORTENED" in told and "1, 2 s after it was sent" in told
    for tick in demo_story.TICKS.values():
        assert tick in told
    rows = {row.split('"')[1]: row.split('"')[2].split() for row in told.splitlines() if row.startswith('    "')}
    assert rows["Hello Bob!"] == ["her", "pair", "her", "pair", "his", "copy", "his", "copy"]
    assert rows["Are you still there?"] == ["her", "pair", "her", "pair", "his", "copy", "–"]
    assert rows["Read this when you are back."] == ["her", "pair", "her", "pair", "his", "copy", "his", "copy"]
    assert rows["This one will be too late."] == ["her", "pair", "her", "pair", "–", "–"]
    assert rows["Do you hear me now?"] == ["her", "pair", "her", "pair", "his", "copy", "his", "copy"]


def test_an_answer_that_comes_before_the_success_is_followed_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    truth = world.state
    asked: set[str] = set()

    def later(pair: SignedPair) -> str:
        state = truth(pair)
        first = pair.base_key not in asked
        asked.add(pair.base_key)
        return "accepted" if first else state

    monkeypatch.setattr(world, "state", later)
    tell(world)
    told = capsys.readouterr().out
    hello = told[told.index("Hello Bob!") : told.index("found on the disk of")]
    assert hello.index("one grey tick") < hello.index("one light tick")


def always(answer: bool) -> Callable[..., bool]:
    return lambda *_: answer


def test_a_server_that_does_not_start_ends_the_story_and_the_others_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    started: list[str] = []

    async def fail() -> None:
        raise NodeFailed("no")

    async def start_slowly() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        started.append("server4")

    monkeypatch.setattr(world.servers[2], "start", fail)
    monkeypatch.setattr(world.servers[3], "start", start_slowly)
    with pytest.raises(NodeFailed, match="no"):
        tell(world)
    assert started == ["server4"]


LIES: dict[str, tuple[int, str, Callable[..., object], str]] = {
    "nothing on the disk at the answer": (0, "has_pair", always(False), "server1 had the message on its disk"),
    "never handed on": (1, "has_pair", always(False), "server1 has handed the message to server2"),
    "never delivered to one": (3, "has_copy", always(False), "server4 has stored bob's copy"),
    "no receipt": (1, "shows_read", always(False), "server2 has stored bob's read receipt"),
    "a copy where nobody was": (3, "has_copy", always(True), "server4 is off and has stored nothing"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_server_whose_disk_says_otherwise_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, method, lie, claim = LIES[name]
    world = World()
    monkeypatch.setattr(world.servers[number], method, lie)
    with pytest.raises(UntrueClaim, match=f"this is not true: {claim}"):
        tell(world)


@pytest.mark.parametrize(
    ("text", "states", "claim"),
    [
        ("Hello Bob!", ["failed"], "the message is delivered, and not failed"),
        ("Hello Bob!", ["accepted"] * 100_000, "the message becomes delivered, and does not stay accepted"),
        ("Hello Bob!", ["accepted", "failed"], "the message becomes delivered, and not failed"),
        ("Hello Bob!", ["delivered"], "a server of bob's has stored his copy"),
        ("Read this when you are back.", ["delivered"], "the message is accepted, and not delivered"),
        ("This one will be too late.", ["accepted", "delivered"], "the message becomes failed, and not delivered"),
        ("This one will be too late.", ["accepted", "failed", "accepted"], "what has failed stays failed"),
    ],
)
def test_a_server_that_answers_another_state_is_found_out(
    text: str, states: list[str], claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    truth = world.state
    left = iter(states)

    def lie(pair: SignedPair) -> str:
        return next(left) if text.encode() in pair.incoming else truth(pair)

    monkeypatch.setattr(world, "state", lie)
    with pytest.raises(UntrueClaim, match=claim):
        tell(world)


def test_a_refused_receipt_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    truth = world.state
    monkeypatch.setattr(world, "state", lambda pair: truth(pair) if pair.incoming_type == 1 else "failed")
    with pytest.raises(UntrueClaim, match="bob's server takes his read receipt, and does not say failed"):
        tell(world)


def test_a_server_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def knows_nothing(pair: SignedPair) -> bool:
        return False

    monkeypatch.setattr(world.servers[0], "knows", knows_nothing)
    with pytest.raises(UntrueClaim, match="server1 knows the message"):
        tell(world)


def test_a_copy_that_comes_early_or_late_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, claim in (
        ("Read this when you are back.", "bob's servers have stored nothing"),
        ("This one will be too late.", "what has failed is not sent again"),
    ):
        world = World()
        bobs = world.servers[2]
        truth = bobs.has_copy

        def lie(pair: SignedPair, text: str = text, truth: Callable[[SignedPair], bool] = truth) -> bool:
            return text.encode() in pair.incoming or truth(pair)

        monkeypatch.setattr(bobs, "has_copy", lie)
        with pytest.raises(UntrueClaim, match=claim):
            tell(world)
