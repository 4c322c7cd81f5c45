"""Each rule of §7 about one link, against a peer on a real socket that keeps or breaks it."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from shine_node.peers.backoff import DOUBT_SECONDS
from shine_node.peers.snapshot import LinkState
from shine_node.protocol.errors import CallerTimeout, LinkDown, LinkLost, PeerRefused, QueueFull, RequestTimeout
from tests.peers.certificates import Authority
from tests.peers.conftest import Run
from tests.peers.links import BATCH, BLOCKS, STATUS, ask, closed_port, failure, link_to, narrow, until, until_state
from tests.peers.raw import raw_server, tarpit
from tests.support.clock import ManualClock, settle
from tests.support.scripted_peer import PATIENCE, Holder, PeerConnection, ScriptedPeer, never, success

pytestmark = pytest.mark.core

PING = b"\x89\x7d" + b"x" * 125
CONNECTED, PAUSE, IDLE, CONNECTING = LinkState.CONNECTED, LinkState.PAUSE, LinkState.IDLE, LinkState.CONNECTING


# --- the hello ---


def test_the_hello_is_the_first_request_as_in_the_seed(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, link_to(peer.url, ManualClock()) as link:
            request = ask(link, STATUS, messageKey="k")
            assert await request == {}
            hello, status = peer.connections[0].requests
            assert hello.keys() == {"op", "requestId", "payload"}
            assert hello["op"] == "ServerHello"
            assert hello["payload"] == {
                "serverLogin": "server1",
                "protocolVersion": 1,
                "capabilities": hello["payload"]["capabilities"],
            }
            assert "connection-pool" in hello["payload"]["capabilities"]
            assert status["payload"] == {"messageKey": "k"}
            assert isinstance(hello["requestId"], str)
            assert hello["requestId"] != status["requestId"]

    run(story())


def test_nothing_is_sent_before_the_hello_is_answered(run: Run) -> None:
    async def story() -> None:
        hello = Holder()
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, ManualClock()) as link:
            request = ask(link)
            await peer.until(lambda: len(hello.held) == 1)
            await settle()
            assert peer.requests == []
            assert link.state is CONNECTING
            await hello.answer({"serverLogin": "server2", "protocolVersion": 1, "capabilities": []})
            await request

    run(story())


def test_capabilities_in_force_are_those_of_both(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with (
            ScriptedPeer(capabilities=("connection-pool", "of-the-future")) as peer,
            link_to(peer.url, clock) as link,
        ):
            assert not link.in_force("connection-pool"), "not yet"
            await until_state(link, CONNECTED)
            assert link.in_force("connection-pool")
            assert not link.in_force("of-the-future")
            assert link.snapshot().capabilities == ("connection-pool",)
            peer.connections[0].cut()
            await until_state(link, PAUSE)
            assert not link.in_force("connection-pool"), "no longer"

    run(story())


def test_an_older_peer_gets_messages_and_has_no_capabilities(run: Run) -> None:
    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.refuse(request, 400, "UNKNOWN_OP")

    async def story() -> None:
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, ManualClock()) as link:
            assert await ask(link) == {}
            assert not link.in_force("connection-pool")
            assert link.snapshot().capabilities == ()

    run(story())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 426, "error": "UNSUPPORTED_PROTOCOL", "message": "too\nold"}, "426 UNSUPPORTED_PROTOCOL: too?old"),
        ({"status": 500, "error": "INTERNAL_ERROR"}, "500 INTERNAL_ERROR"),
        (
            {"status": 200, "payload": {"serverLogin": "server3", "protocolVersion": 1, "capabilities": []}},
            "answered by server3, not by server2",
        ),
        (
            {"status": 200, "payload": {"serverLogin": "server1", "protocolVersion": 1, "capabilities": []}},
            "answered by server1, not by server2",
        ),
        ({"status": 200, "payload": {"serverLogin": "server2", "protocolVersion": 2}}, "UNSUPPORTED_PROTOCOL"),
    ],
)
def test_a_hello_that_is_answered_otherwise_closes_the_link(
    run: Run, caplog: pytest.LogCaptureFixture, answer: dict[str, Any], reason: str
) -> None:
    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send(orjson.dumps({**answer, "requestId": request["requestId"]}).decode())

    async def story() -> None:
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, ManualClock()) as link:
            error = await failure(ask(link))
            assert isinstance(error, LinkDown)
            assert reason in str(error)
            assert link.state is PAUSE
            await peer.until(lambda: peer.connections[0].closed_with == 1000)
            assert peer.requests == []

    run(story())
    assert any(reason in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


def test_frames_that_are_no_answer_to_the_hello_are_passed_over(run: Run) -> None:
    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send("no json")
        await connection.send(success({"op": "ServerHello", "requestId": "another"}))
        await connection.send('{"op":"X","requestId":"1","status":200,"event":true,"payload":{}}')
        await connection.answer(request, {"serverLogin": "SERVER2", "protocolVersion": 1, "capabilities": []})

    async def story() -> None:
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, ManualClock()) as link:
            assert await ask(link) == {}

    run(story())


def test_a_hello_that_is_never_answered(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={"ServerHello": never}) as peer, link_to(peer.url, clock) as link:
            request = ask(link)
            await peer.until_connected()
            await clock.advance(11.9)
            assert link.state is CONNECTING
            assert not request.done()
            await clock.advance(0.2)
            error = await failure(request)
            assert isinstance(error, LinkDown)
            assert "no answer to ServerHello in 12 s" in str(error)

    run(story())


def test_a_connection_that_does_not_come_about(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(-1)
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with link_to(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", clock) as link:
            request = ask(link)
            await until_state(link, CONNECTING)
            await clock.advance(14.9)
            assert not request.done()
            await clock.advance(0.2)
            error = await failure(request)
            assert isinstance(error, LinkDown)
            assert "no connection within 15 s" in str(error)
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)

    run(story())


# --- requests ---


def test_an_answer_is_the_payload_of_a_success(run: Run) -> None:
    async def status(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, {"known": True, "delivered": False})

    async def story() -> None:
        async with ScriptedPeer(script={STATUS: status}) as peer, link_to(peer.url, ManualClock()) as link:
            assert await ask(link) == {"known": True, "delivered": False}
            assert link.snapshot().succeeded == 1

    run(story())


def test_a_refusal_is_told_from_a_failure_of_the_link(run: Run) -> None:
    async def refuse(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.refuse(request, 404, "USER_NOT_FOUND", "no\x00such user")

    async def story() -> None:
        async with ScriptedPeer(script={STATUS: refuse}) as peer, link_to(peer.url, ManualClock()) as link:
            error = await failure(ask(link))
            assert isinstance(error, PeerRefused)
            assert (error.server, error.op, error.status, error.code) == (
                "server2",
                STATUS,
                404,
                "USER_NOT_FOUND",
            )
            assert link.state is CONNECTED
            assert link.snapshot().last_error.endswith("no?such user)")

    run(story())


def test_one_at_a_time_by_priority_then_by_arrival(run: Run) -> None:
    async def story() -> None:
        held = Holder()
        script = {STATUS: held, BATCH: held, BLOCKS: held}
        async with ScriptedPeer(script=script) as peer, link_to(peer.url, ManualClock()) as link:
            requests = [ask(link, BLOCKS, n=0)]
            await peer.until_asked(1)
            requests += [ask(link, op, n=n) for n, op in enumerate([BLOCKS, BATCH, STATUS, BLOCKS, STATUS, BATCH], 1)]
            await settle()
            snapshot = link.snapshot()
            assert (snapshot.waiting_realtime, snapshot.waiting_normal, snapshot.waiting_bulk) == (2, 2, 2)
            assert snapshot.in_flight == BLOCKS
            for number in range(1, 8):
                assert len(await peer.until_asked(number)) == number, "one at a time; a running one is not interrupted"
                await held.answer({"n": number})
            results = await asyncio.gather(*requests)
            assert [request["payload"]["n"] for request in peer.requests] == [0, 3, 5, 2, 6, 1, 4]
            assert [result["n"] for result in results] == [1, 6, 4, 2, 7, 3, 5]

    run(story())


def test_realtime_waits_for_at_most_the_running_one_of_a_thousand(run: Run) -> None:
    async def story() -> None:
        held = Holder()
        async with ScriptedPeer(script={BLOCKS: held}) as peer, link_to(peer.url, ManualClock()) as link:
            bulk = [ask(link, BLOCKS) for _ in range(1001)]
            await peer.until_asked(1)
            realtime = ask(link, STATUS)
            await settle()
            await held.answer()
            await realtime
            assert [request["op"] for request in peer.requests[:2]] == [BLOCKS, STATUS]
            for request in bulk:
                request.cancel()

    run(story())


def test_a_full_queue_refuses_at_once(run: Run) -> None:
    async def story() -> None:
        held = Holder()
        async with (
            ScriptedPeer(script={BLOCKS: held}) as peer,
            link_to(peer.url, ManualClock(), max_queue_per_peer=2) as link,
        ):
            await until_state(link, CONNECTED)
            assert not link.busy
            for _ in range(3):
                ask(link, BLOCKS)
            await peer.until_asked(1)
            assert isinstance(await failure(ask(link, STATUS)), QueueFull)
            assert link.snapshot().waiting == 2
            assert link.busy

    run(story())


def test_the_callers_time_includes_waiting_and_who_gave_up_is_not_sent(run: Run) -> None:
    async def story() -> None:
        clock, held = ManualClock(), Holder()
        async with ScriptedPeer(script={BLOCKS: held}) as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            running = ask(link, BLOCKS)
            waiting = ask(link, STATUS, seconds=3)
            await peer.until_asked(1)
            await clock.advance(2.9)
            assert not waiting.done()
            await clock.advance(0.2)
            assert isinstance(await failure(waiting), CallerTimeout)
            await held.answer()
            await running
            await ask(link, BATCH)
            assert [request["op"] for request in peer.requests] == [BLOCKS, BATCH]

    run(story())


def test_the_callers_time_runs_while_the_connection_is_being_opened(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={"ServerHello": never}) as peer, link_to(peer.url, clock) as link:
            request = ask(link, seconds=3)
            await peer.until_connected()
            await clock.advance(3)
            assert isinstance(await failure(request), CallerTimeout)
            assert link.state is CONNECTING

    run(story())


def test_a_caller_that_gives_up_under_way_keeps_the_slot_until_the_requests_own_time_out(run: Run) -> None:
    async def story() -> None:
        for how in ("time-out", "cancel"):
            clock = ManualClock()
            async with ScriptedPeer(script={STATUS: never}) as peer, link_to(peer.url, clock) as link:
                gone = ask(link, STATUS, seconds=3 if how == "time-out" else 30)
                next_one = ask(link, BATCH)
                await peer.until_asked(1)
                if how == "cancel":
                    gone.cancel()
                await clock.advance(11.9)
                assert gone.done()
                assert not next_one.done()
                assert len(peer.requests) == 1
                await clock.advance(0.2)
                assert await next_one == {}

    run(story())


def test_a_cancelled_caller_that_waits_is_not_sent(run: Run) -> None:
    async def story() -> None:
        held = Holder()
        async with ScriptedPeer(script={BLOCKS: held}) as peer, link_to(peer.url, ManualClock()) as link:
            ask(link, BLOCKS)
            await peer.until_asked(1)
            gone = ask(link, STATUS)
            await settle()
            gone.cancel()
            await settle()
            await held.answer()
            await ask(link, BATCH)
            assert [request["op"] for request in peer.requests] == [BLOCKS, BATCH]

    run(story())


def test_a_peer_that_never_answers(run: Run) -> None:
    """The request fails in its own way, the slot is free, and the link is pinged; it is alive, so it stays."""

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={STATUS: never}) as peer, link_to(peer.url, clock) as link:
            request = ask(link)
            connection = await peer.until_connected()
            await peer.until_asked(1)
            await clock.advance(11.9)
            assert not request.done()
            assert connection.pings == 0
            await clock.advance(0.2)
            assert isinstance(await failure(request), RequestTimeout)
            await peer.until(lambda: connection.pings == 1)
            await until(lambda: link.snapshot().last_pong_ms is not None)
            assert await ask(link, BATCH) == {}
            await clock.advance(20)
            assert len(peer.connections) == 1
            assert link.snapshot().timed_out == 1

    run(story())


def test_a_late_answer_is_dropped_and_never_matched_to_another(run: Run) -> None:
    async def story() -> None:
        clock, held = ManualClock(), Holder()
        async with ScriptedPeer(script={STATUS: held}) as peer, link_to(peer.url, clock) as link:
            first = ask(link, n=1)
            await peer.until_asked(1)
            await clock.advance(12)
            assert isinstance(await failure(first), RequestTimeout)
            second = ask(link, n=2)
            await peer.until_asked(2)
            await held.answer({"to": 1})
            await held.answer({"to": 2})
            assert await second == {"to": 2}

    run(story())


def test_a_peer_that_answers_twice(run: Run) -> None:
    async def twice(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, {"n": request["payload"]["n"]})
        await connection.answer(request, {"n": "again"})

    async def story() -> None:
        async with ScriptedPeer(script={STATUS: twice}) as peer, link_to(peer.url, ManualClock()) as link:
            results = await asyncio.gather(*(ask(link, n=n) for n in range(5)))
            assert results == [{"n": n} for n in range(5)]

    run(story())


def test_a_peer_that_answers_with_another_request_id(run: Run) -> None:
    async def wrong(connection: PeerConnection, request: dict[str, Any]) -> None:
        for request_id in ("99", None, request["requestId"] + " ", 7):
            await connection.send(success({"op": STATUS, "requestId": request_id}))

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={STATUS: wrong}) as peer, link_to(peer.url, clock) as link:
            request = ask(link)
            await peer.until_asked(1)
            await until(lambda: link.snapshot().last_activity_ms is not None)
            await clock.advance(11)
            assert not request.done()
            await clock.advance(1)
            assert isinstance(await failure(request), RequestTimeout)

    run(story())


def test_events_and_frames_that_are_nothing_are_ignored(run: Run) -> None:
    async def noisy(connection: PeerConnection, request: dict[str, Any]) -> None:
        for frame in (
            "",
            "no json",
            "[1]",
            '{"op":"IncomingDirectMessage","requestId":"e","status":200,"ok":true,"event":true,"payload":{}}',
            '{"op":"ServerHello","requestId":"1","payload":{}}',
        ):
            await connection.send(frame)
        await connection.answer(request, {"fine": True})

    async def story() -> None:
        async with ScriptedPeer(script={STATUS: noisy}) as peer, link_to(peer.url, ManualClock()) as link:
            assert await ask(link) == {"fine": True}
            assert await ask(link) == {"fine": True}

    run(story())


def test_a_payload_that_is_no_json_harms_nobody_else(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, link_to(peer.url, ManualClock()) as link:
            await until_state(link, CONNECTED)
            assert isinstance(await failure(ask(link, x=object())), TypeError)
            assert await ask(link) == {}

    run(story())


# --- ping ---


def test_a_ping_only_after_idleness(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            connection = peer.connections[0]
            await clock.advance(119)
            await ask(link)
            await clock.advance(119)
            assert connection.pings == 0, "there was traffic"
            await clock.advance(1)
            await peer.until(lambda: connection.pings == 1)
            await until(lambda: link.snapshot().last_pong_ms is not None)
            for count in range(2, 6):
                await clock.advance(119)
                assert connection.pings == count - 1
                await clock.advance(1)
                await peer.until(lambda count=count: connection.pings == count)
                await until(lambda: link.snapshot().last_pong_ms == clock.now_ms())
            assert len(peer.connections) == 1

    run(story())


def test_a_half_open_connection_is_found_and_replaced(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            await clock.advance(120 + 14.9)
            assert link.state is CONNECTED
            await clock.advance(0.2)
            await until_state(link, PAUSE)
            assert "no pong within 15 s" in link.snapshot().last_error
            await clock.advance(1)
            await until_state(link, CONNECTED)
            await peer.until_connected(2)
            assert link.snapshot().reconnects == 1
            assert await ask(link) == {}

    run(story())


def test_a_connection_that_ends_while_a_pong_is_waited_for(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            await clock.advance(121)
            peer.connections[0].cut()
            await until_state(link, PAUSE)
            await clock.advance(1)
            await peer.until_connected(2)
            await until_state(link, CONNECTED)
            await clock.advance(120)
            await peer.until(lambda: peer.connections[1].pings == 1)

    run(story())


def test_a_request_that_times_out_finds_it_sooner(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            first, second = ask(link), ask(link)
            await clock.advance(12)
            assert isinstance(await failure(first), RequestTimeout)
            await clock.advance(11)
            assert link.state is CONNECTED
            await clock.advance(1)
            assert isinstance(await failure(second), RequestTimeout), "the slot had been freed for it"
            third = ask(link)
            await clock.advance(3)
            assert isinstance(await failure(third), LinkLost)
            assert "no answer, and no pong within 15 s" in link.snapshot().last_error

    run(story())


def test_a_peer_that_stops_reading(run: Run) -> None:
    """What is sent fills all buffers, the ping with it; the time-outs hold all the same."""

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock, max_frame_bytes=2**24) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            requests = [ask(link, blob="x" * 8_000_000) for _ in range(3)]
            await settle()
            await clock.advance(12)
            assert isinstance(await failure(requests[0]), RequestTimeout)
            await clock.advance(15)
            assert isinstance(await failure(requests[1]), RequestTimeout)
            assert isinstance(await failure(requests[2]), LinkLost)
            await until_state(link, PAUSE)
            await clock.advance(1)
            await peer.until_connected(2)
            assert await ask(link) == {}

    run(story())


def test_a_peer_that_leaves_more_unread_than_its_time_allows_is_cut_off(run: Run) -> None:
    """Where a pong may take long, requests would pile up behind those that are not read."""

    async def story() -> None:
        clock = ManualClock()
        changes = {"max_frame_bytes": 65_536, "request_timeout_seconds": 1, "pong_timeout_seconds": 600}
        async with ScriptedPeer() as peer, link_to(peer.url, clock, **changes) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            for _ in range(1000):
                request = ask(link, blob="x" * 65_000)
                await clock.advance(1)
                error = await failure(request)
                if isinstance(error, LinkLost):
                    break
                assert isinstance(error, RequestTimeout)
            assert "the peer does not read" in str(error)
            peer.connections[0].cut()

    run(story())


def test_a_peer_that_pings_and_reads_nothing_is_cut_off(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        for tls in (None, authority.server_context("127.0.0.1")):
            changes = {"max_frame_bytes": 65_536, "ca_file": authority.ca_file}
            async with ScriptedPeer(tls=tls) as peer, link_to(peer.url, ManualClock(), **changes) as link:
                narrow(peer)
                await until_state(link, CONNECTED)
                ours = link._connection
                assert ours is not None
                theirs = peer.connections[0].socket.transport
                peer.connections[0].freeze()
                most = 0
                async with asyncio.timeout(PATIENCE):
                    while link.state is CONNECTED:
                        theirs.write(PING * 500)
                        await asyncio.sleep(0.002)
                        most = max(most, ours.transport.get_write_buffer_size())
                assert "the peer floods this server" in link.snapshot().last_error
                assert most < 2_000_000
                peer.connections[0].cut()

    run(story())


# --- loss and pauses ---


@pytest.mark.parametrize("how", ["cut", "close", "going away"])
def test_a_peer_that_closes_in_the_middle(run: Run, how: str) -> None:
    async def leave(connection: PeerConnection, request: dict[str, Any]) -> None:
        if how == "cut":
            connection.cut()
        else:
            await connection.socket.close(1011 if how == "close" else 1001, "bye\nnow")

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={STATUS: leave}) as peer, link_to(peer.url, clock) as link:
            running, waiting = ask(link, STATUS), ask(link, BATCH)
            for request in (running, waiting):
                assert isinstance(await failure(request), LinkLost)
            assert link.state is PAUSE
            assert "\n" not in link.snapshot().last_error
            await clock.advance(1)
            await until_state(link, CONNECTED)
            await settle()
            assert [request["op"] for request in peer.requests] == [STATUS], "nothing is repeated"

    run(story())


def test_a_peer_that_says_it_closes_and_does_not(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, link_to(peer.url, ManualClock()) as link:
            await until_state(link, CONNECTED)
            connection = peer.connections[0]
            connection.freeze()
            closing = asyncio.ensure_future(connection.socket.close(1001))
            assert link._connection is not None
            our_end = link._connection
            await until(lambda: our_end.close_code is not None or our_end.state.name == "CLOSING")
            error = await failure(ask(link))
            assert isinstance(error, LinkLost)
            await until_state(link, PAUSE)
            connection.cut()
            await closing

    run(story())


def test_a_binary_frame_closes_the_link(run: Run) -> None:
    async def binary(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send(success(request).encode())

    async def story() -> None:
        for op in (STATUS, "ServerHello"):
            async with ScriptedPeer(script={op: binary}) as peer, link_to(peer.url, ManualClock()) as link:
                error = await failure(ask(link))
                assert isinstance(error, LinkLost if op == STATUS else LinkDown)
                assert "binary frame" in str(error)
                await peer.until(lambda peer=peer: peer.connections[0].closed_with == 1003)

    run(story())


def test_a_huge_frame_closes_the_link(run: Run) -> None:
    async def huge(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, {"blob": "x" * 100_000})

    async def story() -> None:
        async with (
            ScriptedPeer(script={STATUS: huge}) as peer,
            link_to(peer.url, ManualClock(), max_frame_bytes=65_536) as link,
        ):
            error = await failure(ask(link))
            assert isinstance(error, LinkLost)
            assert "1009" in str(error)
            await peer.until(lambda: peer.connections[0].closed_with == 1009)

    run(story())


def test_in_the_pause_requests_fail_at_once_and_say_why(run: Run) -> None:
    async def story() -> None:
        with closed_port() as port:
            async with link_to(f"ws://127.0.0.1:{port}/", ManualClock()) as link:
                assert isinstance(await failure(ask(link)), LinkDown), "it waited for the try"
                assert link.state is PAUSE
                for _ in range(3):
                    error = await failure(ask(link))
                    assert isinstance(error, LinkDown)
                    assert str(error).startswith(f"{STATUS} at server2: link down (no connection to 127.0.0.1")
                assert link.snapshot().failed == 4

    run(story())


def test_the_steps_of_the_pause_and_their_reset(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        peer = ScriptedPeer()
        await peer.listen()
        await peer.stop()
        async with link_to(peer.url, clock) as link:
            for step in (1, 2, 5, 10, 20, 40, 60, 60):
                await until_state(link, PAUSE)
                assert link.snapshot().next_try_ms == clock.now_ms() + step * 1000
                await clock.advance(step - 0.1)
                assert link.state is PAUSE
                await clock.advance(0.1)
            await until_state(link, PAUSE)
            await peer.listen()
            await clock.advance(60)
            await until_state(link, CONNECTED)
            assert link.snapshot().next_try_ms is None
            await peer.stop()
            await until_state(link, PAUSE)
            assert link.snapshot().next_try_ms == clock.now_ms() + 1000, "reset by the answered hello"

    run(story())


def test_a_refused_hello_does_not_reset_the_steps(run: Run) -> None:
    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.refuse(request, 426, "UNSUPPORTED_PROTOCOL")

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, clock) as link:
            for step in (1, 2, 5):
                await until_state(link, PAUSE)
                assert link.snapshot().next_try_ms == clock.now_ms() + step * 1000
                await peer.until(lambda: not peer.live)
                await until(lambda: link._connection is None)
                await clock.advance(step)

    run(story())


def test_an_inbound_hello_ends_the_pause(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            await until_state(link, CONNECTED)
            await clock.advance(1)
            link.end_pause()
            await settle()
            peer.connections[0].cut()
            await until_state(link, PAUSE)
            await settle()
            assert link.state is PAUSE, "a hello of before the loss does not count"
            link.end_pause()
            await until_state(link, CONNECTED)
            await peer.until_connected(2)

    run(story())


def test_hellos_without_end_open_it_no_more_than_once_a_second(run: Run) -> None:
    """Anybody can say hello in the name of a server that is down, and would have this one knock there for him."""

    async def story() -> None:
        clock = ManualClock()
        async with (
            raw_server(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as (port, seen),
            link_to(f"ws://127.0.0.1:{port}/", clock) as link,
        ):
            await until_state(link, PAUSE)
            await until(lambda: link._connection is None)
            link.end_pause()  # the first one is believed at once
            await until(lambda: seen.accepted == 2)
            for second in range(2, 6):
                await until_state(link, PAUSE)
                await until(lambda: link._connection is None)
                assert seen.accepted == second
                for _ in range(9):
                    await clock.advance(0.1)
                    link.end_pause()
                    await settle()
                    assert link.state is PAUSE
                    assert isinstance(await failure(ask(link)), LinkDown), "nobody is kept waiting meanwhile"
                await clock.advance(0.1)
            await until_state(link, PAUSE)
            assert seen.accepted == 6
            assert link.snapshot().next_try_ms == clock.now_ms() + 40_000, "the steps go on"
            await until(lambda: link._connection is None)
            await clock.advance(DOUBT_SECONDS)
            link.end_pause()  # by now one is believed at once again
            await until(lambda: seen.accepted == 7)

    run(story())


def test_a_peer_that_hangs_up_after_each_hello_is_not_opened_more_often_either(run: Run) -> None:
    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.answer(request, {"serverLogin": "server2", "protocolVersion": 1, "capabilities": []})
        connection.cut()

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, clock) as link:
            await until(lambda: link.state is PAUSE and link._connection is None)
            link.end_pause()
            await peer.until_connected(2)
            for second in range(2, 5):
                await until(lambda: link.state is PAUSE and link._connection is None)
                link.end_pause()
                await clock.advance(0.9)
                assert len(peer.connections) == second
                await clock.advance(0.1)
                await peer.until_connected(second + 1)

    run(story())


def test_a_link_is_not_opened_before_its_time(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock, not_before=clock.monotonic() + 5) as link:
            request = ask(link)
            await clock.advance(4.9)
            assert link.state is CONNECTING
            assert peer.connections == []
            await clock.advance(0.1)
            assert await request == {}
            assert link.vitals.tried_at == clock.monotonic()

    run(story())


def test_an_outage_is_logged_once_though_its_reasons_take_turns(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    mood = {"fine": False}

    async def hello(connection: PeerConnection, request: dict[str, Any]) -> None:
        if mood["fine"]:
            await connection.answer(request, {"serverLogin": "server2", "protocolVersion": 1, "capabilities": []})
        else:
            status = 500 + len(connection.peer.connections) % 2
            await connection.refuse(request, status, "MOODY")

    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer(script={"ServerHello": hello}) as peer, link_to(peer.url, clock) as link:
            for number, step in enumerate((1, 2, 5, 10, 20, 40), 1):
                await peer.until_connected(number)
                await until(lambda: link.state is PAUSE and link._connection is None)
                mood["fine"] = number == 6
                await clock.advance(step)
            await until_state(link, CONNECTED)
            await clock.advance(60)
            peer.live[0].cut()
            await until_state(link, PAUSE)

    run(story())
    told = [record for record in caplog.records if record.name == "shine_node.peers.link"]
    levels = {level: [r.getMessage() for r in told if r.levelno == level] for level in {r.levelno for r in told}}
    assert len(levels[logging.WARNING]) == 2, "one for each outage"
    assert "501 MOODY" in levels[logging.WARNING][0]
    assert len(levels[logging.DEBUG]) == 5
    assert "500 MOODY" in levels[logging.DEBUG][0]
    assert len(levels[logging.INFO]) == 1
    assert "is up" in levels[logging.INFO][0]


# --- on demand ---


def test_a_link_on_demand_opens_on_first_use_and_closes_when_idle(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock, permanent=False) as link:
            await clock.advance(1000)
            assert peer.connections == []
            assert link.state is IDLE
            await ask(link)
            await clock.advance(300)
            await ask(link)
            await clock.advance(599)
            assert link.state is CONNECTED
            assert len(peer.live) == 1
            await clock.advance(1)
            assert link.state is IDLE
            await peer.until(lambda: peer.connections[0].closed_with == 1000)
            await ask(link)
            assert len(peer.connections) == 2
            assert link.snapshot().reconnects == 1

    run(story())


def test_what_is_asked_while_it_closes_waits_for_the_next_connection(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock, permanent=False, idle_close_seconds=30) as link:
            await ask(link)
            await clock.advance(29.9)
            clock._move_to(clock.monotonic() + 0.2)
            link._alarm.wake_by(0.0)
            await until_state(link, IDLE)
            assert await ask(link) == {}
            assert len(peer.connections) == 2
            assert peer.connections[0].closed_with == 1000

    run(story())


def test_a_peer_that_misbehaves_while_the_link_closes(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with (
            ScriptedPeer(script={BLOCKS: never}) as peer,
            link_to(peer.url, clock, permanent=False, idle_close_seconds=30) as link,
        ):
            await ask(link)
            peer.connections[0].freeze()
            await clock.advance(30)
            assert link.state is IDLE
            await peer.connections[0].send(b"binary")
            await until_state(link, PAUSE)
            peer.connections[0].cut()
            await until(lambda: link._connection is None)
            await clock.advance(1)
            await until_state(link, IDLE)
            request = ask(link, BLOCKS)
            await peer.until_asked(2)
            peer.connections[1].cut()
            assert isinstance(await failure(request), LinkLost), "that it closed once is forgotten"

    run(story())


def test_a_running_request_keeps_it_open(run: Run) -> None:
    async def story() -> None:
        clock, held = ManualClock(), Holder()
        changes = {"idle_close_seconds": 5, "request_timeout_seconds": 30}
        async with (
            ScriptedPeer(script={BLOCKS: held}) as peer,
            link_to(peer.url, clock, permanent=False, **changes) as link,
        ):
            request = ask(link, BLOCKS)
            await peer.until_asked(1)
            await clock.advance(20)
            assert link.state is CONNECTED
            await held.answer()
            await request
            await clock.advance(4.9)
            assert link.state is CONNECTED
            await clock.advance(0.2)
            assert link.state is IDLE

    run(story())


def test_after_its_pause_a_link_on_demand_waits_to_be_asked(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        with closed_port() as port:
            async with link_to(f"ws://127.0.0.1:{port}/", clock, permanent=False) as link:
                assert isinstance(await failure(ask(link)), LinkDown)
                await clock.advance(1)
                await until_state(link, IDLE)
                await clock.advance(1000)
                assert link.state is IDLE
                assert isinstance(await failure(ask(link)), LinkDown)
                assert link.snapshot().next_try_ms == clock.now_ms() + 2000, "the steps go on"

    run(story())


def test_permanence_can_change(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with ScriptedPeer() as peer, link_to(peer.url, clock, permanent=False) as link:
            await settle()
            link.set_permanent(True)
            await until_state(link, CONNECTED)
            for _ in range(10):
                await clock.advance(100)
                await until(lambda: link._ping is None)
            assert link.state is CONNECTED
            link.set_permanent(True)
            link.set_permanent(False)
            await settle()
            assert link.state is IDLE, "idle for long enough already"
            await peer.until(lambda: not peer.live)

    run(story())


# --- its end, and what is known of it ---


def test_stopping_fails_what_waits_and_says_goodbye(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={STATUS: never}) as peer, link_to(peer.url, ManualClock()) as link:
            running, waiting = ask(link), ask(link)
            await peer.until_asked(1)
            link.stop("over")
            for request in (running, waiting, ask(link)):
                error = await failure(request)
                assert isinstance(error, LinkDown if request not in (running, waiting) else LinkLost)
                assert "over" in str(error)
            await link.wait_stopped()
            assert peer.connections[0].closed_with == 1001

    run(story())


def test_stopping_before_there_is_a_connection(run: Run) -> None:
    async def story() -> None:
        with tarpit() as port:
            async with link_to(f"ws://127.0.0.1:{port}/", ManualClock()) as link:
                waiting = ask(link)
                await until_state(link, CONNECTING)
                link.stop("over", abruptly=True)
                error = await failure(waiting)
                assert isinstance(error, LinkDown)
                assert "over" in str(error)

    run(story())


def test_stopping_abruptly_does_without_the_closing_handshake(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer(script={STATUS: never}) as peer, link_to(peer.url, ManualClock()) as link:
            asked = ask(link)
            await peer.until_asked(1)
            link.stop("over", abruptly=True)
            assert isinstance(await failure(asked), LinkLost)
            await link.wait_stopped()
            await peer.until(lambda: peer.connections[0].closed_with == 1006)

    run(story())


def test_since_when_the_peer_lets_this_server_wait(run: Run) -> None:
    async def story() -> None:
        clock, hello, held = ManualClock(), Holder(), Holder()
        script = {"ServerHello": hello, STATUS: held}
        async with ScriptedPeer(script=script) as peer, link_to(peer.url, clock, permanent=False) as link:
            assert link.waits_since is None
            begun = clock.monotonic()
            asked = ask(link)
            await peer.until_connected()
            await clock.advance(3)
            assert link.waits_since == begun
            await hello.answer({"serverLogin": "server2", "protocolVersion": 1, "capabilities": []})
            await peer.until_asked(1)
            await clock.advance(2)
            assert link.waits_since == begun + 3
            await held.answer()
            await asked
            assert link.waits_since is None

    run(story())


def test_stopping_is_bounded_though_the_peer_does_not_answer(run: Run) -> None:
    async def story() -> None:
        async with ScriptedPeer() as peer, link_to(peer.url, ManualClock()) as link:
            await until_state(link, CONNECTED)
            peer.connections[0].freeze()
            begun = time.monotonic()
            link.stop("over")
            await link.wait_stopped()
            assert time.monotonic() - begun < 10

    run(story())


def test_stopping_in_the_middle_of_a_close_leaves_no_socket(run: Run) -> None:
    async def binary(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send(b"binary")
        connection.freeze()

    async def story() -> None:
        async with ScriptedPeer(script={STATUS: binary}) as peer, link_to(peer.url, ManualClock()) as link:
            await failure(ask(link))
            ours = link._connection
            assert ours is not None
            link.stop("over")
            await link.wait_stopped()
            assert ours.state.name == "CLOSED"
            peer.connections[0].cut()

    run(story())


def test_a_defect_of_this_server_is_logged_and_the_link_starts_anew(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        clock, calls = ManualClock(), []

        def tell(link: object) -> None:
            calls.append(link)
            if len(calls) == 1:
                raise RuntimeError("a defect")

        async with ScriptedPeer() as peer, link_to(peer.url, clock, on_connected=tell) as link:
            await until_state(link, PAUSE)
            await clock.advance(1)
            await until_state(link, CONNECTED)
            assert await ask(link) == {}
            assert calls == [link, link]
            assert len(peer.live) == 1

    run(story())
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)


def test_the_snapshot(run: Run) -> None:
    async def story() -> None:
        clock = ManualClock()
        begun = clock.now_ms()
        async with ScriptedPeer() as peer, link_to(peer.url, clock) as link:
            before = link.snapshot()
            assert (before.state, before.connected_at_ms, before.last_activity_ms) == (IDLE, None, None)
            await until_state(link, CONNECTED)
            await clock.advance(10)
            await ask(link)
            await clock.advance(120)
            await until(lambda: link.snapshot().last_pong_ms is not None)
            await clock.advance(5)
            found = link.snapshot()
            assert (found.server_login, found.url, found.state, found.permanent) == (
                "server2",
                peer.url,
                CONNECTED,
                True,
            )
            assert found.connected_at_ms == begun
            assert found.last_activity_ms == begun + 10_000
            assert found.last_ping_ms == found.last_pong_ms == begun + 130_000
            assert (found.succeeded, found.failed, found.timed_out, found.last_error) == (1, 0, 0, "")
            clock.jump(-3_600_000)
            assert link.snapshot().connected_at_ms == begun - 3_600_000, "by the wall clock as it is now"

    run(story())
