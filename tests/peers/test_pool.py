"""The rules of §7 about all links together, with real sockets."""

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from shine_node.peers.dial import DialFailed
from shine_node.peers.pool import KnownPeer, Pool, PoolSettings
from shine_node.peers.snapshot import LinkState, PeerSnapshot
from shine_node.protocol.access import AccessServer
from shine_node.protocol.errors import CallerTimeout, LinkDown, LinkLost
from tests.peers.certificates import Authority
from tests.peers.conftest import Run
from tests.peers.links import BATCH, BLOCKS, OWN_LOGIN, STATUS, closed_port, failure, make_settings, start, until
from tests.peers.raw import raw_server, tarpit
from tests.support.clock import ManualClock, settle
from tests.support.scripted_peer import Holder, ScriptedPeer, never

pytestmark = pytest.mark.core

OWN_URL = "ws://127.0.0.1:9/ws"
DELIVERY = "ReceiveIncomingMessage"


class House:
    """A pool, its clock, and what it is told of who is known."""

    def __init__(self, *known: KnownPeer, settings: PoolSettings | None = None, **changes: Any) -> None:
        self.clock = ManualClock()
        self.known: Iterable[KnownPeer] | Exception = known
        self.connected: list[str] = []
        self.tell: Callable[[str], None] | None = self.connected.append
        self.settings = settings or make_settings(**changes)
        self.blocked: frozenset[str] = frozenset()

    def read(self) -> Iterable[KnownPeer]:
        if isinstance(self.known, Exception):
            raise self.known
        return self.known

    def pool(self) -> Pool:
        return Pool(
            own_login=OWN_LOGIN,
            own_url=OWN_URL,
            settings=self.settings,
            clock=self.clock,
            known_peers=self.read,
            on_connected=self.tell,
            blocked=self.blocked,
            random=random.Random(3).random,
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Pool]:
        pool = self.pool()
        await pool.start()
        try:
            yield pool
        finally:
            await pool.close()


def request(
    pool: Pool, url: str, op: str = STATUS, *, login: str = "server2", timeout: float | None = None, **payload: Any
) -> asyncio.Task[dict[str, Any]]:
    return start(pool.request(AccessServer(login, url), op, payload, timeout=timeout))


def links(pool: Pool) -> dict[str, PeerSnapshot]:
    return {peer.url: peer for peer in pool.snapshot().peers}


def states(pool: Pool) -> list[LinkState]:
    return [peer.state for peer in pool.snapshot().peers]


# --- one link a server ---


def test_permanent_links_are_opened_at_once_and_told_of(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer("Server2") as peer, ScriptedPeer("server3") as rare:
            house = House(KnownPeer("Server2", peer.url, True), KnownPeer("server3", rare.url, False))
            async with house.open() as pool:
                await until(lambda: house.connected == ["Server2"])
                assert pool.capability("SERVER2", "connection-pool")
                assert not pool.capability("server2", "something-else")
                assert not pool.capability("server3", "connection-pool")
                await request(pool, rare.url, login="server3")
                assert house.connected == ["Server2", "server3"]
                assert pool.capability("server3", "connection-pool")
                assert len(peer.connections) == len(rare.connections) == 1
            assert peer.connections[0].closed_with == 1001

    run(story())


def test_all_traffic_of_one_server_shares_one_link(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, House(KnownPeer("server2", peer.url, True)).open() as pool:
            spelled = [("server2", peer.url), ("SERVER2", peer.url.replace("ws://", "WS://"))]
            await asyncio.gather(
                *(request(pool, url, op, login=login) for op in (STATUS, BATCH, BLOCKS) for login, url in spelled)
            )
            assert len(peer.connections) == 1
            assert len(peer.requests) == 6

    run(story())


def test_another_url_in_a_users_record_gets_a_link_of_its_own(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as true, ScriptedPeer(capabilities=()) as claimed:
            house = House(KnownPeer("server2", true.url, True))
            async with house.open() as pool:
                await until(lambda: house.connected == ["server2"])
                await request(pool, claimed.url, who="the user of that record")
                await request(pool, true.url, who="the others")
                assert [r["payload"]["who"] for r in claimed.requests] == ["the user of that record"]
                assert [r["payload"]["who"] for r in true.requests] == ["the others"]
                assert house.connected == ["server2"], "nobody is told of such a link"
                assert pool.capability("server2", "connection-pool"), "the known one counts"
                true.connections[0].cut()
                await until(lambda: not pool.capability("server2", "connection-pool"))

    run(story())


def test_a_server_that_nobody_told_of_is_opened_on_first_use(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(idle_close_seconds=100)
            async with house.open() as pool:
                assert await request(pool, peer.url) == {}
                assert pool.capability("server2", "connection-pool")
                assert house.connected == ["server2"]
                assert not links(pool)[peer.url].permanent
                await house.clock.advance(100)
                assert states(pool) == [LinkState.IDLE]
                await house.clock.advance(20)
                assert states(pool) == [], "it is forgotten"

    run(story())


@pytest.mark.parametrize(
    ("login", "url"),
    [
        ("server1", "ws://127.0.0.1:1234/ws"),
        ("SERVER1", "wss://elsewhere.example/ws"),
        ("server2", OWN_URL),
        ("server2", "WS://127.0.0.1:0009/ws"),
    ],
)
def test_never_to_itself_even_under_another_name(run: Run, login: str, url: str) -> None:
    async def story() -> None:
        async with House(KnownPeer(login, url, True)).open() as pool:
            error = await failure(request(pool, url, login=login))
            assert isinstance(error, LinkDown)
            assert "this server itself" in str(error)
            assert pool.snapshot().peers == ()
            assert pool.snapshot().known_peers == 0

    run(story())


def test_a_blocked_server_has_no_link_and_those_that_are_open_are_closed(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={STATUS: never}) as peer, ScriptedPeer("server3") as other:
            house = House(KnownPeer("Server2", peer.url, True), KnownPeer("server3", other.url, True))
            async with house.open() as pool:
                await until(lambda: sorted(house.connected) == ["Server2", "server3"])
                under_way = request(pool, peer.url)
                await peer.until_asked(1)
                pool.block({"server2"})
                error = await failure(under_way)
                assert isinstance(error, LinkLost)
                assert "has blocked it" in str(error)
                await peer.until(lambda: not peer.live)
                error = await failure(request(pool, peer.url, login="SERVER2"))
                assert isinstance(error, LinkDown)
                assert "has blocked it" in str(error)
                assert pool.snapshot().known_peers == 1
                assert list(links(pool)) == [other.url]
                assert len(peer.connections) == len(other.connections) == 1
                pool.block(())
                await house.clock.advance(2)  # the same server is not tried more often than once a second
                await until(lambda: house.connected.count("Server2") == 2)
                assert pool.snapshot().known_peers == 2

    run(story())


def test_a_server_that_is_blocked_from_the_start(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, True))
            house.blocked = frozenset({"server2"})
            async with house.open() as pool:
                assert isinstance(await failure(request(pool, peer.url)), LinkDown)
                assert pool.snapshot().known_peers == 0
            assert peer.connections == []

    run(story())


def test_a_url_that_is_none(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        house = House(KnownPeer("server2", "wss://h:0/", True))
        async with house.open() as pool:
            error = await failure(request(pool, "wss://h:0/"))
            assert isinstance(error, LinkDown)
            assert "must name a host" in str(error)
            await house.clock.advance(90)

    run(story())
    assert len([record for record in caplog.records if "no link to server2" in record.getMessage()]) == 1


def test_an_operation_that_servers_do_not_have(run: Run) -> None:
    async def story() -> None:
        async with House().open() as pool:
            assert isinstance(await failure(request(pool, "wss://x.example/", "SendMessagePair")), ValueError)
            assert pool.snapshot().peers == ()

    run(story())


def test_loopback_is_refused_unless_the_configuration_says_so(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            async with House(settings=make_settings(allow_private_peers=False)).open() as pool:
                error = await failure(request(pool, peer.url))
                assert isinstance(error, LinkDown)
                assert "a loopback address" in str(error)
            async with House(settings=PoolSettings()).open() as pool:
                assert "allowInsecurePeers" in str(await failure(request(pool, peer.url)))
            assert peer.connections == []

    run(story())


def test_tls_with_an_own_authority(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        settings = PoolSettings(allow_private_peers=True, ca_file=authority.ca_file)
        good, other = authority.server_context("127.0.0.1"), authority.server_context("other.example")
        async with ScriptedPeer(tls=good) as peer, House(settings=settings).open() as pool:
            assert await request(pool, peer.url) == {}
        async with ScriptedPeer(tls=other) as peer, House(settings=settings).open() as pool:
            error = await failure(request(pool, peer.url))
            assert isinstance(error, LinkDown)
            assert "certificate" in str(error)
            assert "certificate" in links(pool)[peer.url].last_error

    run(story())


def test_authorities_are_read_again(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
        settings = PoolSettings(allow_private_peers=True, ca_file=old.ca_file)
        house = House(settings=settings)
        async with ScriptedPeer(tls=new.server_context("127.0.0.1")) as peer, house.open() as pool:
            assert isinstance(await failure(request(pool, peer.url)), LinkDown)
            good = new.ca_file.read_text()
            old.ca_file.write_text("no certificate")
            with pytest.raises(DialFailed, match="caFile"):
                pool.read_authorities()
            old.ca_file.write_text(good)
            read = pool.read_authorities()
            assert isinstance(await failure(request(pool, peer.url)), LinkDown), "they are not in force yet"
            assert read()
            assert not pool.read_authorities()(), "the same again"
            await house.clock.advance(1)
            pool.peer_arrived("server2")
            await until(lambda: states(pool) == [LinkState.IDLE])
            assert await request(pool, peer.url) == {}
        assert not house.pool().read_authorities()()

    run(story())


def test_a_ca_file_that_cannot_be_used_stops_the_start(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        pool = House(ca_file=tmp_path / "missing.pem").pool()
        with pytest.raises(DialFailed, match="caFile"):
            await pool.start()
        await pool.close()

    run(story())


def test_the_callers_time_is_the_configurations_or_its_own(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={"ServerHello": never}) as peer:
            house = House(caller_timeout_seconds=10)
            async with house.open() as pool:
                default, own = request(pool, peer.url), request(pool, peer.url, timeout=4)
                await peer.until_connected()
                await house.clock.advance(4)
                assert isinstance(await failure(own), CallerTimeout)
                await house.clock.advance(5.9)
                assert not default.done()
                await house.clock.advance(0.1)
                assert isinstance(await failure(default), CallerTimeout)

    run(story())


# --- who is known ---


def test_known_peers_are_read_again_and_a_changed_url_replaces_the_link(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={STATUS: never}) as old, ScriptedPeer() as new:
            house = House(KnownPeer("server2", old.url, True), refresh_seconds=5)
            async with house.open() as pool:
                waiting = request(pool, old.url)
                await old.until_asked(1)
                house.known = [KnownPeer("server2", new.url, True)]
                await house.clock.advance(4.9)
                assert not waiting.done()
                await house.clock.advance(0.1)
                error = await failure(waiting)
                assert isinstance(error, LinkLost)
                assert new.url in str(error)
                await until(lambda: house.connected == ["server2"] * 2)
                await old.until(lambda: old.connections[0].closed_with == 1001)
                assert list(links(pool)) == [new.url]

    run(story())


def test_a_changed_url_of_a_link_on_demand(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as old, ScriptedPeer() as new:
            house = House(KnownPeer("server2", old.url, False))
            async with house.open() as pool:
                await request(pool, old.url)
                house.known = [KnownPeer("server2", new.url, False)]
                await house.clock.advance(30)
                await old.until(lambda: not old.live)
                assert list(links(pool)) == []
                await request(pool, new.url)
                assert list(links(pool)) == [new.url]
                house.known = [KnownPeer("server2", old.url, False)]
                await house.clock.advance(30)
                assert list(links(pool)) == []
                house.known = [KnownPeer("server2", new.url, False)]
                await house.clock.advance(30)
                assert list(links(pool)) == [], "there was no link to replace"

    run(story())


def test_a_link_that_was_a_users_own_becomes_the_known_one(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as old, ScriptedPeer() as new:
            house = House(KnownPeer("server2", old.url, True))
            async with house.open() as pool:
                await until(lambda: house.connected == ["server2"])
                await request(pool, new.url)
                house.known = [KnownPeer("server2", new.url, True)]
                await house.clock.advance(30)
                assert house.connected == ["server2"] * 2, "it is told of now"
                assert links(pool)[new.url].permanent
                assert len(new.connections) == 1

    run(story())


def test_a_server_that_is_no_longer_known_is_let_go_when_idle(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, True), idle_close_seconds=100)
            async with house.open() as pool:
                await until(lambda: house.connected == ["server2"])
                house.known = []
                await house.clock.advance(30)
                assert states(pool) == [LinkState.CONNECTED]
                await house.clock.advance(70)
                await peer.until(lambda: peer.connections[0].closed_with == 1000)
                await house.clock.advance(30)
                assert states(pool) == []

    run(story())


def test_a_link_on_demand_becomes_permanent(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, False), idle_close_seconds=10)
            async with house.open() as pool:
                await request(pool, peer.url)
                await house.clock.advance(10)
                assert states(pool) == [LinkState.IDLE]
                house.known = [KnownPeer("server2", peer.url, True)]
                await house.clock.advance(20)
                await until(lambda: states(pool) == [LinkState.CONNECTED])
                assert house.connected == ["server2"] * 2

    run(story())


def test_dead_links_on_demand_are_forgotten(run: Run) -> None:
    async def story() -> None:
        house = House(idle_close_seconds=20)
        with closed_port() as port:
            async with house.open() as pool:
                await failure(request(pool, f"ws://127.0.0.1:{port}/"))
                await house.clock.advance(19)
                assert len(states(pool)) == 1
                await house.clock.advance(11)
                assert states(pool) == []

    run(story())


def test_the_links_that_are_up(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer("Rare") as rare, ScriptedPeer("kept") as kept, ScriptedPeer("kept") as claimed:
            known = [KnownPeer("Rare", rare.url, False), KnownPeer("kept", kept.url, True)]
            with closed_port() as port:
                house = House(*known, KnownPeer("dead", f"ws://127.0.0.1:{port}/", True))
                async with house.open() as pool:
                    await until(lambda: house.connected == ["kept"])
                    assert pool.connected() == [known[1]]
                    assert pool.connected_peer("KEPT") == known[1]
                    for login in ("rare", "dead", "nobody"):
                        assert pool.connected_peer(login) is None
                    await request(pool, rare.url, login="rare")
                    assert pool.connected() == [known[1], known[0]], "the permanent ones first"
                    assert pool.connected_peer("rare") == known[0]
                    await request(pool, claimed.url, login="kept")
                    kept.connections[0].cut()
                    await until(lambda: pool.connected() == [known[0]])
                    assert pool.connected_peer("kept") is None, "another place of that name is not the known one"

    run(story())


def test_a_server_that_was_asked_before_it_was_known_is_told_of_when_it_is(run: Run) -> None:
    """Who runs sessions with known peers could do nothing with the link when it came up."""

    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House()
            async with house.open() as pool:
                await request(pool, peer.url)
                assert house.connected == ["server2"]
                assert pool.connected_peer("server2") is None
                house.known = [KnownPeer("server2", peer.url, False)]
                pool.refresh()
                assert house.connected == ["server2"] * 2
                assert pool.connected_peer("server2") is not None
                pool.refresh()
                assert house.connected == ["server2"] * 2, "once"

    run(story())


def test_a_link_that_becomes_permanent_while_it_is_up_is_told_of(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, False))
            async with house.open() as pool:
                await request(pool, peer.url)
                house.known = [KnownPeer("server2", peer.url, True)]
                pool.refresh()
                assert house.connected == ["server2"] * 2
                known = pool.connected_peer("server2")
                assert known is not None
                assert known.permanent
                assert len(peer.connections) == 1

    run(story())


def test_known_peers_that_cannot_be_read(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, True))
            async with house.open() as pool:
                await until(lambda: house.connected == ["server2"])
                house.known = OSError("the store is gone")
                await house.clock.advance(60)
                assert pool.snapshot().known_peers == 1
                assert await request(pool, peer.url) == {}

    run(story())
    assert any("known peers could not be read" in record.getMessage() for record in caplog.records)


def test_the_first_entry_of_a_login_counts(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, ScriptedPeer() as other:
            house = House(KnownPeer("server2", peer.url, True), KnownPeer("SERVER2", other.url, True))
            async with house.open() as pool:
                await until(lambda: house.connected == ["server2"])
                assert list(links(pool)) == [peer.url]

    run(story())


# --- the bound ---


def test_the_link_that_is_least_needed_makes_room(run: Run) -> None:
    async def story() -> None:
        held = Holder()
        async with (
            ScriptedPeer("a") as kept,
            ScriptedPeer("b", {BLOCKS: held}) as busy,
            ScriptedPeer("c") as first,
            ScriptedPeer("d") as second,
        ):
            house = House(KnownPeer("a", kept.url, True), max_connections=3)
            async with house.open() as pool:
                running = request(pool, busy.url, BLOCKS, login="b")
                await busy.until_asked(1)
                await house.clock.advance(1)
                await request(pool, first.url, login="c")
                await house.clock.advance(1)
                await request(pool, second.url, login="d")
                assert set(links(pool)) == {kept.url, busy.url, second.url}
                await first.until(lambda: not first.live)
                with closed_port() as port:
                    dead = f"ws://127.0.0.1:{port}/"
                    await failure(request(pool, dead, login="e"))
                    assert set(links(pool)) == {kept.url, busy.url, dead}
                    await house.clock.advance(1)
                    await request(pool, first.url, login="c")
                    assert set(links(pool)) == {kept.url, busy.url, first.url}, "what is not connected goes first"
                await held.answer()
                assert await running == {}

    run(story())


def test_routes_into_nothing_do_not_keep_a_message_from_a_server_that_is_there(run: Run) -> None:
    """Anybody can have records that name places where a connection is made and nothing is ever said."""

    async def story() -> None:
        house = House(max_connections=6)
        with contextlib.ExitStack() as stack:
            ports = [stack.enter_context(tarpit()) for _ in range(3)]
            async with ScriptedPeer("good") as good, ScriptedPeer("best") as best, house.open() as pool:
                dead = []
                for number in range(6):
                    url = f"ws://127.0.0.1:{ports[number // 2]}/{number}"
                    dead.append(request(pool, url, DELIVERY, login=f"dead{number}"))
                    await house.clock.advance(0.1)
                assert states(pool) == [LinkState.CONNECTING] * 6
                early = await failure(request(pool, good.url, DELIVERY, login="good"))
                assert isinstance(early, LinkDown)
                assert "server.pool.maxConnections" in str(early)
                assert not any(task.done() for task in dead), "a link is given a second"
                await house.clock.advance(0.4)
                assert await request(pool, good.url, DELIVERY, login="good") == {}
                error = await failure(dead[0])
                assert isinstance(error, LinkDown), "the one that has been connecting longest"
                assert "its place was needed" in str(error)
                assert not any(task.done() for task in dead[1:])
                assert await request(pool, best.url, DELIVERY, login="best") == {}
                assert not any(task.done() for task in dead[1:]), "idle links go before those that are being opened"
                assert len(states(pool)) == 6

    run(story())


def test_peers_that_say_hello_and_nothing_more_do_not_either(run: Run) -> None:
    async def story() -> None:
        house = House(max_connections=2)
        async with ScriptedPeer("mute", {DELIVERY: never}) as mute, ScriptedPeer("good") as good, house.open() as pool:
            asked = []
            for number in range(2):
                url = mute.url.replace("/ws", f"/{number}")
                asked.append(request(pool, url, DELIVERY, login="mute"))
                await mute.until_asked(number + 1)
                await house.clock.advance(1)
            await house.clock.advance(2.9)
            assert isinstance(await failure(request(pool, good.url, DELIVERY, login="good")), LinkDown)
            await house.clock.advance(0.1)
            assert await request(pool, good.url, DELIVERY, login="good") == {}
            assert isinstance(await failure(asked[0]), LinkLost)
            assert not asked[1].done()

    run(story())


def test_one_place_has_only_a_share_of_the_connections(run: Run) -> None:
    async def story() -> None:
        house = House(max_connections=24)
        async with ScriptedPeer("good") as good, house.open() as pool:
            with tarpit() as port:
                dead = [request(pool, f"ws://127.0.0.1:{port}/{number}", login="dead") for number in range(3)]
                await house.clock.advance(0.5)
                refused = await failure(request(pool, f"wss://127.0.0.1:{port}/", login="another"))
                assert isinstance(refused, LinkDown)
                assert f"all 3 connections that 127.0.0.1 port {port} may have are in use" in str(refused)
                assert await request(pool, good.url, login="good") == {}, "another port is another place"
                await house.clock.advance(0.5)
                dead.append(request(pool, f"ws://127.0.0.1:{port}/3", login="dead"))
                assert "its place was needed" in str(await failure(dead[0]))
                assert not any(task.done() for task in dead[1:])
                assert len(states(pool)) == 4

    run(story())


def test_permanent_links_are_no_part_of_that_share_and_leave_some_places(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ScriptedPeer("good") as good, ScriptedPeer("kept") as kept:
            with tarpit() as port:
                dead = [KnownPeer(f"d{number}", f"ws://127.0.0.1:{port}/{number}", True) for number in range(20)]
                house = House(KnownPeer("kept", kept.url, True), *dead, max_connections=16)
                async with house.open() as pool:
                    await until(lambda: house.connected == ["kept"])
                    assert sum(link.permanent for link in links(pool).values()) == 14
                    assert await request(pool, good.url, login="good") == {}
                    rare = request(pool, dead[19].url, login="d19")
                    await house.clock.advance(0.5)
                    assert len(states(pool)) == 16
                    house.known = [dead[19], *dead[:19]]
                    pool.refresh()
                    kept_open = {url for url, link in links(pool).items() if link.permanent}
                    assert kept_open == {peer.url for peer in [dead[19], *dead[:13]]}, "those that come first"
                    assert not links(pool)[kept.url].permanent
                    assert not rare.done()

    run(story())
    told = [record for record in caplog.records if "no permanent link to d13" in record.getMessage()]
    assert len(told) == 1


def test_a_permanent_link_waits_for_its_place(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        house = House(max_connections=1)
        async with ScriptedPeer() as peer, house.open() as pool:
            with tarpit() as port:
                dead = request(pool, f"ws://127.0.0.1:{port}/", login="dead")
                await settle()
                house.known = [KnownPeer("server2", peer.url, True)]
                pool.refresh()
                assert peer.url not in links(pool)
                await house.clock.advance(1)
                pool.refresh()
                assert list(links(pool)) == [peer.url]
                assert isinstance(await failure(dead), LinkDown)
                await until(lambda: house.connected == ["server2"])

    run(story())
    assert "no permanent link to server2" in caplog.text


def test_links_that_are_slow_to_close_are_bounded_too(run: Run) -> None:
    async def story() -> None:
        house = House(max_connections=2)
        async with ScriptedPeer("slow") as slow, house.open() as pool:
            for number in range(8):
                await request(pool, slow.url.replace("/ws", f"/{number}"), login="slow")
                slow.connections[number].freeze()
                await house.clock.advance(1)
            assert len(pool._stopping) <= 2
            ours = [task for task in asyncio.all_tasks() if task.get_name().startswith("link slow run")]
            assert len(ours) <= 4

    run(story())


def test_no_room(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with ScriptedPeer("a") as kept, ScriptedPeer("b") as other:
            house = House(KnownPeer("a", kept.url, True), KnownPeer("b", other.url, True), max_connections=1)
            async with house.open() as pool:
                await house.clock.advance(60)
                assert set(links(pool)) == {kept.url}
                error = await failure(request(pool, other.url, login="b"))
                assert isinstance(error, LinkDown)
                assert "server.pool.maxConnections" in str(error)
                assert await request(pool, kept.url, login="a") == {}
                assert other.connections == []

    run(story())
    assert len([record for record in caplog.records if "no permanent link to b" in record.getMessage()]) == 1


# --- pauses ---


def test_an_inbound_hello_ends_the_pause_of_that_server_only(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer("server2") as two, ScriptedPeer("server3") as three:
            house = House(KnownPeer("server2", two.url, True), KnownPeer("server3", three.url, True))
            async with house.open() as pool:
                await until(lambda: len(house.connected) == 2)
                await house.clock.advance(1)
                for peer in (two, three):
                    peer.connections[0].cut()
                await until(lambda: states(pool) == [LinkState.PAUSE] * 2)
                pool.peer_arrived("SERVER2")
                await until(lambda: len(house.connected) == 3)
                assert house.connected[2] == "server2"
                assert states(pool) == [LinkState.CONNECTED, LinkState.PAUSE]
                pool.peer_arrived("nobody")

    run(story())


def test_a_link_that_is_dropped_and_made_again_keeps_the_pace(run: Run) -> None:
    """Whoever can have links dropped, by filling the pool, cannot have one place knocked at more often by that."""

    async def story() -> None:
        async with ScriptedPeer("b") as other, raw_server(b"HTTP/1.1 404 Not Found\r\n\r\n") as (port, seen):
            house = House(max_connections=1)
            async with house.open() as pool:
                for tries in range(1, 4):
                    asked = request(pool, f"ws://127.0.0.1:{port}/", login="a")
                    if tries > 1:
                        await house.clock.advance(0.9)
                        assert seen.accepted == tries - 1
                        await house.clock.advance(0.1)
                    assert "HTTP 404" in str(await failure(asked))
                    assert seen.accepted == tries
                    assert await request(pool, other.url, login="b") == {}, "it takes the place"

    run(story())


def test_many_dead_peers_spread_their_tries(run: Run) -> None:
    async def story() -> None:
        with closed_port() as port:
            house = House(*(KnownPeer(f"p{number}", f"ws://127.0.0.1:{port}/{number}", True) for number in range(60)))
            async with house.open() as pool:
                for pause in (1, 2, 5, 10, 20, 40):
                    await until(lambda: set(states(pool)) == {LinkState.PAUSE})
                    await house.clock.advance(pause)
                await until(lambda: set(states(pool)) == {LinkState.PAUSE})
                tries = sorted(peer.next_try_ms or 0 for peer in pool.snapshot().peers)
                gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
                assert len(set(tries)) > 50
                assert max(gaps) < 15_000

    run(story())


# --- its end, and what is known of it ---


def test_closing_fails_what_waits_and_leaves_nothing(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={STATUS: never}) as peer, ScriptedPeer("server3") as frozen:
            house = House(KnownPeer("server2", peer.url, True), KnownPeer("server3", frozen.url, True))
            async with house.open() as pool:
                await until(lambda: len(house.connected) == 2)
                frozen.connections[0].freeze()
                requests = [request(pool, peer.url) for _ in range(3)]
                await peer.until_asked(1)
                await pool.close()
                for one in requests:
                    assert isinstance(await failure(one), LinkLost)
                error = await failure(request(pool, peer.url))
                assert isinstance(error, LinkDown)
                assert "not running" in str(error)
                assert pool.snapshot().peers == ()
                assert house.clock.sleeping == 0

    run(story())


def test_a_pool_that_never_started_can_be_closed(run: Run) -> None:
    async def story() -> None:
        pool = House().pool()
        assert isinstance(await failure(request(pool, "wss://x.example/")), LinkDown)
        await pool.close()

    run(story())


def test_who_is_told_of_links_may_fail(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer:
            house = House(KnownPeer("server2", peer.url, True))

            def fail(login: str) -> None:
                raise RuntimeError(login)

            for tell in (fail, None):
                house.tell = tell
                async with house.open() as pool:
                    assert await request(pool, peer.url) == {}

    run(story())
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_the_snapshot_and_its_lines_in_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        with closed_port() as port:
            async with ScriptedPeer() as peer:
                dead = f"ws://127.0.0.1:{port}/"
                house = House(KnownPeer("server2", peer.url, True), KnownPeer("Aardvark", dead, True))
                house.known = [*house.read(), KnownPeer("rare", "wss://rare.example/", False)]
                async with house.open() as pool:
                    await until(lambda: states(pool) == [LinkState.PAUSE, LinkState.CONNECTED])
                    await request(pool, peer.url)
                    snapshot = pool.snapshot()
                    assert [one.server_login for one in snapshot.peers] == ["Aardvark", "server2"]
                    assert (snapshot.known_peers, snapshot.max_connections) == (3, 256)
                    assert snapshot.at_ms == house.clock.now_ms()
                    await house.clock.advance(299)
                    caplog.clear()
                    await house.clock.advance(1)
                    await settle()

    run(story())
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("pool")]
    assert len(lines) == 2
    assert "1 connected" in lines[0]
    assert "3 peers known" in lines[0]
    assert "succeeded 1" in lines[0]
    assert lines[1].startswith("link to Aardvark (ws://127.0.0.1:")
