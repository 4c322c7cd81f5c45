"""One connection on a real socket: order, bounds, rates, defects, and clients that behave badly."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from shine_node.api import connection as connection_module
from shine_node.api import outbound as outbound_module
from shine_node.api.connection import Connection, LiveSession
from shine_node.api.limits import LARGE_FRAME, Share, TokenBucket
from shine_node.clock import Clock, SystemClock
from shine_node.config import config_from_mapping
from shine_node.protocol.envelope import Request, decode_request
from shine_node.protocol.errors import NotAuthenticated, TooLarge
from shine_node.protocol.hello import Hello
from tests.api.talk import Talk, asked
from tests.support.clock import ManualClock, settle
from tests.support.nodes import PATIENCE, eventually, run

RATE = 100_000


class Room:
    """A server of connections; its operations are a test's tools."""

    def __init__(self, clock: Clock | None = None, rate: int = RATE, share: Share | None = None) -> None:
        self.url = ""
        self.connections: list[Connection] = []
        self.gate = asyncio.Event()
        self.begun: list[object] = []
        self.ended = 0
        self._clock = clock or SystemClock()
        self._rate = rate
        self._share = share

    async def serve(self, socket: ServerConnection) -> None:
        connection = Connection(
            socket,
            handlers={
                "Echo": self.echo,
                "Wait": self.wait,
                "Fill": self.fill,
                "Refuse": self.refuse,
                "Break": self.fail,
                "Mumble": self.mumble,
                "Part": self.part,
            },
            clock=self._clock,
            requests_per_second=self._rate,
            address="192.0.2.1",
            share=self._share,
        )
        connection.call_when_ended(self.end)
        self.connections.append(connection)
        await connection.serve()

    async def echo(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        self.begun.append(payload.get("n"))
        return payload

    async def wait(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        self.begun.append(payload.get("n"))
        await self.gate.wait()
        return {"n": payload.get("n")}

    async def fill(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        self.begun.append(payload.get("n"))
        return {"n": payload.get("n"), "pad": "x" * 100_000}

    async def refuse(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        raise TooLarge("three are too many", {"most": 2})

    async def fail(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        raise KeyError("secret of the house")

    async def mumble(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        return {"what": object()}  # cannot be encoded

    async def part(self, connection: Connection, payload: dict[str, Any]) -> Mapping[str, object]:
        connection.end_after_answer(4000, "as you wished")
        return {}

    def end(self, connection: Connection) -> None:
        self.ended += 1

    async def until_begun(self, number: int) -> None:
        async def so() -> bool:
            return len(self.begun) >= number

        await eventually(so)

    async def until_ended(self, number: int = 1) -> None:
        async def so() -> bool:
            return self.ended >= number

        await eventually(so)


@asynccontextmanager
async def a_room(clock: Clock | None = None, rate: int = RATE, share: Share | None = None) -> AsyncIterator[Room]:
    room = Room(clock, rate, share)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # so that the system hides little of what waits
    sock.bind(("127.0.0.1", 0))
    room.url = f"ws://127.0.0.1:{sock.getsockname()[1]}"
    async with serve(room.serve, sock=sock, compression=None, max_size=2**24, write_limit=65536, close_timeout=0.2):
        yield room


def test_answers_leave_in_the_order_in_which_they_are_ready() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.say(asked("Wait", {"n": 1}, "slow"))
            await talk.say(asked("Echo", {"n": 2}, "fast"))
            assert await talk.hear() == {
                "op": "Echo",
                "requestId": "fast",
                "status": 200,
                "ok": True,
                "payload": {"n": 2},
            }
            room.gate.set()
            assert (await talk.hear())["requestId"] == "slow"

    run(story())


def test_a_refusal_is_an_error_with_its_payload() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            assert await talk.ask("Refuse") == {
                "op": "Refuse",
                "requestId": "r",
                "status": 413,
                "ok": False,
                "error": "TOO_LARGE",
                "message": "three are too many",
                "payload": {"most": 2},
            }

    run(story())


def test_a_frame_that_is_no_request_is_answered_with_what_can_be_echoed() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.say("")
            answer = await talk.hear()
            assert (answer["error"], answer["op"], answer["requestId"]) == ("EMPTY_JSON", None, None)
            await talk.say(asked("Whistle"))
            answer = await talk.hear()
            assert (answer["error"], answer["op"], answer["requestId"]) == ("UNKNOWN_OP", "Whistle", "r")
            assert await talk.succeed("Echo", {"n": 1}) == {"n": 1}

    run(story())


@pytest.mark.parametrize("op", ["Break", "Mumble"])
def test_a_defect_is_logged_tells_nothing_and_the_connection_lives_on(
    op: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            answer = await talk.ask(op)
            assert (answer["status"], answer["error"], answer["payload"]) == (500, "INTERNAL_ERROR", {})
            assert (answer["op"], answer["requestId"]) == (op, "r")
            for word in ("secret", "KeyError", "TypeError", "Traceback", "shine_node", ".py"):
                assert word not in str(answer)
            assert await talk.succeed("Echo", {"n": 1}) == {"n": 1}

    with caplog.at_level(logging.ERROR, logger="shine_node"):
        run(story())
    [record] = caplog.records
    assert record.getMessage() == f"a defect in {op}"
    assert record.exc_info is not None


def test_over_the_rate_is_told_when_to_come_again_and_then_it_works() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=3) as room, await Talk.open(room.url) as talk:
            for n in range(3):
                await talk.succeed("Echo", {"n": n})
            answer = await talk.ask("Echo", {"n": 3})
            assert (answer["status"], answer["error"]) == (429, "RATE_LIMITED")
            wait_ms = answer["payload"]["retryAfterMs"]
            assert 333 <= wait_ms <= 335
            assert answer["op"], answer["requestId"] == ("Echo", "r")
            assert room.begun == [0, 1, 2]
            await clock.advance(wait_ms / 1000)
            await talk.succeed("Echo", {"n": 4})
            assert (await talk.refused("Echo"))[0] == 429
            async with await Talk.open(room.url) as other:  # the rate is that of one connection
                await other.succeed("Echo")

    run(story())


def test_what_is_no_request_counts_for_the_rate_too() -> None:
    async def story() -> None:
        async with a_room(ManualClock(), rate=3) as room, await Talk.open(room.url) as talk:
            for frame in ("nonsense", asked("Whistle"), ""):
                await talk.say(frame)
                assert (await talk.hear())["status"] == 400
            for frame in ("nonsense", asked("Whistle"), asked("Echo")):
                await talk.say(frame)
                answer = await talk.hear()
                assert (answer["error"], answer["payload"]["retryAfterMs"] > 0) == ("RATE_LIMITED", True)
            assert (answer["op"], answer["requestId"]) == ("Echo", "r")

    run(story())


def padded(number: int, characters: int) -> str:
    """Return a request of so many characters."""
    frame = asked("Echo", {"n": number, "pad": ""})
    return frame.replace('"pad":"', '"pad":"' + "x" * (characters - len(frame)))


def test_a_large_request_takes_as_much_of_the_rate_as_many_small_ones() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=10) as room, await Talk.open(room.url) as talk:
            await talk.say(padded(1, 20 * LARGE_FRAME))  # 21 of 10: 11 are owed
            assert (await talk.hear())["ok"] is True
            answer = await talk.ask("Echo", {"n": 2})
            assert (answer["error"], answer["requestId"]) == ("RATE_LIMITED", "r")
            assert 1200 <= answer["payload"]["retryAfterMs"] <= 1202
            await clock.advance(1.21)
            await talk.say(padded(3, LARGE_FRAME - 1))
            assert (await talk.hear())["ok"] is True
            assert (await talk.refused("Echo"))[0] == 429
            assert room.begun == [1, 3]

    run(story())


@pytest.mark.parametrize(
    ("frame", "echoed"),
    [
        (padded(2, LARGE_FRAME), ("Echo", "r")),
        ("[" * LARGE_FRAME, (None, None)),
        (asked("Echo", {"n": 2, "many": [[]] * 300}), ("Echo", "r")),
    ],
    ids=["large", "large nonsense", "many lists"],
)
def test_over_the_rate_what_would_take_long_to_decode_is_refused_undecoded(
    frame: str, echoed: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []

    def decode(text: str, known_ops: Mapping[str, object]) -> Request:
        decoded.append(text)
        return decode_request(text, known_ops)

    monkeypatch.setattr(connection_module, "decode_request", decode)

    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=1) as room, await Talk.open(room.url) as talk:
            assert (await talk.ask("Echo", {"n": 1}))["ok"] is True
            await talk.say(frame)
            answer = await talk.hear()
            assert (answer["status"], answer["error"]) == (429, "RATE_LIMITED")
            assert (answer["op"], answer["requestId"]) == echoed
            assert answer["payload"]["retryAfterMs"] > 0
            assert frame not in decoded
            await clock.advance(1)
            assert (await talk.ask("Echo", {"n": 3}))["ok"] is True
            assert room.begun == [1, 3]

    run(story())


def test_an_intricate_request_is_followed_by_others_but_not_by_many_like_it() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=10) as room, await Talk.open(room.url) as talk:
            intricate = asked("Echo", {"many": [[]] * 3000})
            await talk.say(intricate)  # twelve of the ten that decoding may cost in a second
            assert (await talk.hear())["ok"] is True
            for _ in range(5):
                await talk.succeed("Echo")
            await talk.say(intricate)
            answer = await talk.hear()
            assert (answer["error"], answer["requestId"]) == ("RATE_LIMITED", "r")
            await clock.advance(answer["payload"]["retryAfterMs"] / 1000)
            await talk.say(intricate)
            assert (await talk.hear())["ok"] is True

    run(story())


def test_connections_can_share_what_large_requests_take() -> None:
    async def story() -> None:
        clock = ManualClock()
        share = Share(TokenBucket(10, clock.monotonic()))
        async with (
            a_room(clock, share=share) as room,
            await Talk.open(room.url) as one,
            await Talk.open(room.url) as other,
        ):
            await one.say(padded(1, 20 * LARGE_FRAME))
            assert (await one.hear())["ok"] is True
            for talk in (one, other):
                for frame in (padded(2, LARGE_FRAME), asked("Echo", {"n": 2, "many": [[]] * 300})):
                    await talk.say(frame)
                    answer = await talk.hear()
                    assert (answer["error"], answer["requestId"]) == ("RATE_LIMITED", "r")
                    assert 1000 < answer["payload"]["retryAfterMs"] < 1200
                assert (await talk.ask("Echo", {"n": 3}))["ok"] is True  # small ones are not held up
            await clock.advance(1.2)
            await other.say(padded(4, LARGE_FRAME))
            assert (await other.hear())["ok"] is True
            assert room.begun == [1, 3, 3, 4]

    run(story())


def test_connections_of_an_address_share_their_requests_those_of_servers_by_themselves() -> None:
    async def story() -> None:
        clock = ManualClock()
        heavy, clients, peers, refusals = (TokenBucket(rate, clock.monotonic()) for rate in (10, 3, 5, 100))
        async with (
            a_room(clock, share=Share(heavy, clients, peers, refusals)) as room,
            await Talk.open(room.url) as one,
            await Talk.open(room.url) as other,
        ):
            for talk in (one, other, one):
                await talk.succeed("Echo")
            for talk in (one, other):
                answer = await talk.ask("Echo")
                assert (answer["error"], answer["payload"]["retryAfterMs"]) == ("RATE_LIMITED", 334)
            assert refusals.wait_ms(clock.monotonic()) == 0
            room.connections[0].introduce(Hello("server2", 1, frozenset()), RATE)
            for _ in range(5):
                await one.succeed("Echo")
            assert (await one.refused("Echo"))[0] == (await other.refused("Echo"))[0] == 429

    run(story())


def test_who_does_not_heed_refusals_gains_nothing_by_more_connections() -> None:
    async def story() -> None:
        clock = ManualClock()
        now = clock.monotonic()
        share = Share(TokenBucket(10, now), TokenBucket(1, now), None, TokenBucket(1, now))
        async with (
            a_room(clock, share=share) as room,
            await Talk.open(room.url) as one,
            await Talk.open(room.url) as other,
        ):
            await one.succeed("Echo")
            for talk in (one, other):  # the second of them is more than is refused at once
                assert (await talk.refused("Echo"))[0] == 429
            await other.say(asked("Echo", request_id="late"))
            for _ in range(5):
                await settle()
            assert room.begun == [None]
            await clock.advance(1.1)
            assert (await other.hear())["requestId"] == "late"
            assert room.begun == [None, None]

    run(story(), timeout=PATIENCE)


def test_one_that_does_not_heed_refusals_is_read_as_slowly_as_requests_are_let_through() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=2) as room, await Talk.open(room.url) as talk:
            for n in range(10):
                await talk.say(asked("Echo", {"n": n}, str(n)))
            heard = [await talk.hear() for _ in range(5)]  # two, and two refusals; the third is what it has to wait for
            assert [answer["status"] for answer in heard] == [200, 200, 429, 429, 429]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(talk.socket.recv(), 0.1)
            async with await Talk.open(room.url) as other:
                assert (await other.ask("Echo", {"n": "other"}))["ok"] is True
            for n in range(5, 10):
                await clock.advance(0.6)
                assert (await talk.hear())["requestId"] == str(n)
            assert [n for n in room.begun if n != "other"][:3] == [0, 1, 5]

    run(story())


def test_a_peer_has_the_rate_of_peers_from_its_hello_on_and_the_last_hello_counts() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with a_room(clock, rate=1) as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            assert (await talk.refused("Echo"))[0] == 429
            [connection] = room.connections
            assert connection.hello is None
            connection.introduce(Hello("one", 1, frozenset()), 50)
            await clock.advance(1)
            for _ in range(50):
                await talk.succeed("Echo")
            assert (await talk.refused("Echo"))[0] == 429
            connection.introduce(Hello("Two", 1, frozenset()), 50)
            assert connection.hello.server_login == "Two"

    run(story())


def test_other_limits_hold_for_a_connection_that_is_open() -> None:
    async def story() -> None:
        clock = ManualClock()
        limits = config_from_mapping(
            {
                "server": {"login": "one", "url": "wss://one.example/ws"},
                "limits": {"requestsPerSecond": 3, "peerRequestsPerSecond": 5, "maxOutboundBytes": 65_536},
            }
        ).limits
        async with a_room(clock, rate=50) as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            [connection] = room.connections
            for most in (3, 5):
                connection.change_limits(limits)
                await clock.advance(60)
                for _ in range(most):
                    await talk.succeed("Echo")
                assert (await talk.refused("Echo"))[0] == 429
                connection.introduce(Hello("one", 1, frozenset()), 50)
            assert connection.outbound.max_bytes == 65_536

    run(story())


def test_a_hello_is_needed_where_a_handler_says_so() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            [connection] = room.connections
            with pytest.raises(NotAuthenticated):
                connection.need_hello()
            hello = Hello("one", 1, frozenset())
            connection.introduce(hello, RATE)
            assert connection.need_hello() == hello

    run(story())


def test_a_session_is_needed_where_a_handler_says_so() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            [connection] = room.connections
            with pytest.raises(NotAuthenticated):
                connection.need_session()
            connection.session = LiveSession("alice", "1")
            assert connection.need_session() == LiveSession("alice", "1")

    run(story())


def test_only_so_many_requests_are_under_way_and_the_others_wait_their_turn() -> None:
    most, extra = connection_module.MAX_REQUESTS_UNDER_WAY, 100

    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            for n in range(most + extra):
                await talk.say(asked("Wait", {"n": n}, str(n)))
            await room.until_begun(most)
            async with await Talk.open(room.url) as other:  # nobody else waits for them
                for _ in range(20):
                    await other.succeed("Echo", {"n": "other"})
            assert [n for n in room.begun if n != "other"] == list(range(most))
            room.gate.set()
            answered = {(await talk.hear())["requestId"] for _ in range(most + extra)}
            assert answered == {str(n) for n in range(most + extra)}

    run(story())


def test_only_so_many_bytes_of_requests_are_under_way() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            pad = "x" * (connection_module.MAX_BYTES_UNDER_WAY // 4)
            sending = asyncio.gather(*(talk.say(asked("Wait", {"n": n, "pad": pad}, str(n))) for n in range(8)))
            await room.until_begun(4)
            async with await Talk.open(room.url) as other:
                for _ in range(20):
                    await other.succeed("Echo", {"n": "other"})
            assert [n for n in room.begun if n != "other"] == [0, 1, 2, 3]
            room.gate.set()
            assert {(await talk.hear())["payload"]["n"] for _ in range(8)} == set(range(8))
            await sending

    run(story())


def test_one_that_pauses_gets_everything_when_it_reads_again() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            talk.stop_reading()
            for n in range(30):
                await talk.say(asked("Fill", {"n": n}))
            await room.until_begun(31)
            async with await Talk.open(room.url) as other:  # nobody else waits for it
                await other.succeed("Echo")
            talk.resume_reading()
            assert [(await talk.hear())["payload"]["n"] for _ in range(30)] == list(range(30))

    run(story())


def test_one_that_does_not_read_is_cut_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "PARTING_SECONDS", 0.2)

    async def story() -> None:
        async with a_room() as room:
            talk, many = await Talk.open(room.url), 3000
            talk.stop_reading()
            sending = asyncio.ensure_future(_say_many(talk, many))
            await room.until_ended()
            assert len(room.begun) < many
            async with await Talk.open(room.url) as other:
                await other.succeed("Echo")
            talk.leave()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    run(story())


async def _say_many(talk: Talk, number: int) -> None:
    for n in range(number):
        await talk.socket.send(asked("Fill", {"n": n}))


def test_one_that_leaves_before_its_answer_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with a_room() as room:
            gone, stays = await Talk.open(room.url), await Talk.open(room.url)
            for talk in (gone, stays):
                await talk.say(asked("Wait"))
            await room.until_begun(2)
            gone.leave()
            closed = await Talk.open(room.url)
            await closed.say(asked("Wait"))
            await room.until_begun(3)
            await closed.close()
            assert room.ended == 0  # the work goes on: what it brought may be stored already
            room.gate.set()
            assert (await stays.hear())["ok"] is True
            await room.until_ended(2)
            await stays.close()

    with caplog.at_level(logging.INFO):
        run(story())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_binary_frame_ends_the_connection_with_1003() -> None:
    async def story() -> None:
        async with a_room() as room:
            for frame in (b"", b'{"op":"Echo","requestId":"r","payload":{}}'):
                talk = await Talk.open(room.url)
                await talk.say(frame)
                assert await talk.end() == 1003
                assert talk.socket.close_reason
            assert room.begun == []
            await room.until_ended(2)

    run(story())


def test_to_settle_is_to_take_nothing_more_and_to_answer_what_is_under_way() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.say(asked("Wait", {"n": 1}))
            await room.until_begun(1)
            [connection] = room.connections
            settling = asyncio.ensure_future(connection.settle(PATIENCE))
            await settle()
            await talk.say(asked("Echo", {"n": 2}))
            pong = await talk.socket.ping()
            await asyncio.wait_for(pong, PATIENCE)  # it has been read
            assert not settling.done()
            room.gate.set()
            await settling
            assert (await talk.hear())["payload"] == {"n": 1}
            assert room.begun == [1]
            await connection.settle(PATIENCE)  # nothing is under way: at once

    run(story())


def test_settling_is_bounded_and_what_is_given_up_is_not_answered() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.say(asked("Wait", {"n": 1}))
            await room.until_begun(1)
            [connection] = room.connections
            await connection.settle(0.01)
            connection.give_up()
            await talk.close()
            await room.until_ended()
            room.gate.set()

    run(story())


def test_last_words_are_said_after_the_answer_of_their_own_request_and_of_no_other() -> None:
    async def story() -> None:
        async with a_room() as room, await Talk.open(room.url) as talk:
            await talk.succeed("Echo")
            talk.stop_reading()
            for n in range(30):  # more than the system's buffers take: the answers wait for their turn
                await talk.say(asked("Fill", {"n": n}, "fill"))
            await talk.say(asked("Part", {}, "part"))
            await room.until_begun(31)
            await settle()
            talk.resume_reading()
            ids = [(await talk.hear())["requestId"] for _ in range(31)]
            assert ids == ["fill"] * 30 + ["part"]
            assert await talk.end() == 4000
            await room.until_ended()

    run(story())
