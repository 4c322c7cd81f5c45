"""The client's connection, against a small real WebSocket server that each test scripts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve

from shine_node.client.connection import (
    ConnectFailed,
    Connection,
    ConnectionLost,
    Event,
    RequestRefused,
    RequestTimedOut,
)

Handler = Callable[[ServerConnection], Awaitable[None]]
PATIENCE = 20.0
"""Seconds after which a wait that should have ended is a failure."""


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    async with serve(handler, "127.0.0.1", 0, compression=None) as listening:
        yield f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/ws"


def success(frame: str | bytes, **payload: object) -> str:
    request = orjson.loads(frame)
    return orjson.dumps(
        {"op": request["op"], "requestId": request["requestId"], "status": 200, "ok": True, "payload": payload}
    ).decode()


def event(number: int) -> str:
    return orjson.dumps(
        {"op": "News", "requestId": f"e{number}", "status": 200, "ok": True, "event": True, "payload": {"n": number}}
    ).decode()


async def echo(link: ServerConnection) -> None:
    async for frame in link:
        await link.send(success(frame, **orjson.loads(frame)["payload"]))


def test_a_request_is_answered() -> None:
    async def story() -> None:
        async with server(echo) as url, await Connection.open(url) as client:
            assert client.is_open
            assert await client.request("Echo", {"a": 1}, timeout=PATIENCE) == {"a": 1}

    asyncio.run(story())


def test_answers_may_come_in_any_order() -> None:
    async def backwards(link: ServerConnection) -> None:
        frames = [await link.recv() for _ in range(50)]
        for frame in reversed(frames):
            await link.send(success(frame, **orjson.loads(frame)["payload"]))
        await link.wait_closed()

    async def story() -> None:
        async with server(backwards) as url, await Connection.open(url) as client:
            answers = await asyncio.gather(*(client.request("Echo", {"n": n}, timeout=PATIENCE) for n in range(50)))
            assert answers == [{"n": n} for n in range(50)]

    asyncio.run(story())


def test_requests_beyond_the_bound_wait_for_a_slot() -> None:
    most = 0

    async def counting(link: ServerConnection) -> None:
        nonlocal most
        held: list[str | bytes] = []
        while True:
            held.append(await link.recv())
            most = max(most, len(held))
            if len(held) == 2:
                for frame in held:
                    await link.send(success(frame))
                held.clear()

    async def story() -> None:
        async with server(counting) as url, await Connection.open(url, max_pending=2) as client:
            await asyncio.gather(*(client.request("Echo", {}, timeout=PATIENCE) for _ in range(10)))

    asyncio.run(story())
    assert most == 2


def test_an_error_is_raised_with_all_it_says() -> None:
    async def refuse(link: ServerConnection) -> None:
        for status, code in ((429, "RATE_LIMITED"), (409, "KEY_CONFLICT")):
            request = orjson.loads(await link.recv())
            answer = {"op": request["op"], "requestId": request["requestId"], "status": status, "ok": False}
            await link.send(
                orjson.dumps(answer | {"error": code, "message": "why", "payload": {"retryAfterMs": 5}}).decode()
            )
        await link.wait_closed()

    async def story() -> None:
        async with server(refuse) as url, await Connection.open(url) as client:
            with pytest.raises(RequestRefused) as first:
                await client.request("Send", {}, timeout=PATIENCE)
            assert (first.value.status, first.value.code, first.value.message) == (429, "RATE_LIMITED", "why")
            assert first.value.payload == {"retryAfterMs": 5}
            assert first.value.retryable
            assert str(first.value) == "Send: 429 RATE_LIMITED: why"
            with pytest.raises(RequestRefused) as second:
                await client.request("Send", {}, timeout=PATIENCE)
            assert not second.value.retryable

    asyncio.run(story())


def test_a_refusal_for_the_rate_without_an_id_is_for_all_that_is_under_way() -> None:
    async def unread(link: ServerConnection) -> None:
        for _ in range(2):
            await link.recv()
        for status, code in ((503, "SERVER_BUSY"), (429, "RATE_LIMITED")):
            error = {"op": None, "requestId": None, "status": status, "ok": False, "error": code, "message": "why"}
            await link.send(orjson.dumps(error | {"payload": {"retryAfterMs": 70}}).decode())
        await echo(link)

    async def story() -> None:
        async with server(unread) as url, await Connection.open(url) as client:
            asked = [client.request("Send", {}, timeout=PATIENCE) for _ in range(2)]
            for problem in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(problem, RequestRefused)
                assert (problem.code, problem.payload, problem.retryable) == (
                    "RATE_LIMITED",
                    {"retryAfterMs": 70},
                    True,
                )
            assert await client.request("Echo", {"a": 1}, timeout=PATIENCE) == {"a": 1}

    asyncio.run(story())


def test_a_late_answer_is_dropped() -> None:
    may_answer = asyncio.Event()

    async def late(link: ServerConnection) -> None:
        first = await link.recv()
        await may_answer.wait()
        await link.send(success(first, late=True))
        await link.send(success(await link.recv(), late=False))
        await link.wait_closed()

    async def story() -> None:
        async with server(late) as url, await Connection.open(url) as client:
            with pytest.raises(RequestTimedOut, match=r"Slow: no answer within 0\.05 s"):
                await client.request("Slow", {}, timeout=0.05)
            may_answer.set()
            assert await client.request("Fast", {}, timeout=PATIENCE) == {"late": False}

    asyncio.run(story())


def test_an_answer_that_comes_twice_counts_once() -> None:
    async def twice(link: ServerConnection) -> None:
        async for frame in link:
            await link.send(success(frame, n=1))
            await link.send(success(frame, n=2))

    async def story() -> None:
        async with server(twice) as url, await Connection.open(url) as client:
            for _ in range(20):
                assert await client.request("Echo", {}, timeout=PATIENCE) == {"n": 1}

    asyncio.run(story())


def test_what_is_neither_answer_nor_event_is_passed_over() -> None:
    async def noisy(link: ServerConnection) -> None:
        frame = await link.recv()
        for noise in (
            "",
            "[1]",
            "{}",
            "not json",
            b"\xff\xfe",
            '{"event": true}',
            '{"event": true, "op": 1, "payload": {}}',
            '{"event": true, "op": "x", "payload": []}',
            '{"event": 1, "op": "x", "payload": {}}',
            '{"status": 200, "requestId": null, "payload": {}}',
            '{"status": 200, "requestId": "unknown", "payload": {}}',
            '{"status": "200", "requestId": "1", "payload": {}}',
        ):
            await link.send(noise)
        await link.send('{"event": true, "op": "News", "payload": {}}')
        await link.send(success(frame, fine=True))
        await link.wait_closed()

    async def story() -> None:
        async with server(noisy) as url, await Connection.open(url) as client:
            assert await client.request("Echo", {}, timeout=PATIENCE) == {"fine": True}
            assert await client.next_event(timeout=PATIENCE) == Event("News", "", {})
            with pytest.raises(RequestTimedOut, match=r"no event within 0\.01 s"):
                await client.next_event(timeout=0.01)

    asyncio.run(story())


def test_events_come_in_order_between_answers() -> None:
    async def talkative(link: ServerConnection) -> None:
        await link.send(event(1))
        frame = await link.recv()
        await link.send(event(2))
        await link.send(success(frame))
        await link.recv()
        await link.send(event(3))
        await link.wait_closed()

    async def story() -> None:
        async with server(talkative) as url, await Connection.open(url) as client:
            await client.request("Echo", {}, timeout=PATIENCE)
            assert await client.next_event(timeout=PATIENCE) == Event("News", "e1", {"n": 1})
            assert (await client.next_event(timeout=PATIENCE)).payload == {"n": 2}
            waiting = asyncio.create_task(client.next_event(timeout=PATIENCE))
            with pytest.raises(RequestTimedOut):
                await client.request("Go", {}, timeout=0.05)
            assert (await waiting).payload == {"n": 3}

    asyncio.run(story())


def test_events_that_nobody_takes_push_out_the_oldest() -> None:
    async def flood(link: ServerConnection) -> None:
        for number in range(10):
            await link.send(event(number))
        await echo(link)

    async def story() -> None:
        async with server(flood) as url, await Connection.open(url, max_events=3) as client:
            await client.request("Echo", {}, timeout=PATIENCE)
            assert (client.missed_events, client.waiting_events) == (7, 3)
            assert [(await client.next_event(timeout=PATIENCE)).payload["n"] for _ in range(3)] == [7, 8, 9]

    asyncio.run(story())


def test_a_lost_connection_fails_what_is_under_way_and_what_comes_after() -> None:
    async def leave(link: ServerConnection) -> None:
        await link.send(event(1))
        await link.recv()
        await link.recv()
        await link.close(1001, "going away")

    async def story() -> None:
        async with server(leave) as url, await Connection.open(url) as client:
            outcomes = await asyncio.gather(
                *(client.request("Echo", {}, timeout=PATIENCE) for _ in range(2)), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectionLost]
            assert str(outcomes[0]) == "the connection ended with 1001: going away"
            assert not client.is_open
            with pytest.raises(ConnectionLost):
                await client.request("Echo", {}, timeout=PATIENCE)
            assert (await client.next_event(timeout=PATIENCE)).payload == {"n": 1}
            with pytest.raises(ConnectionLost):
                await client.next_event(timeout=PATIENCE)

    asyncio.run(story())


def test_a_server_that_hangs_up_without_a_word_is_noticed() -> None:
    async def vanish(link: ServerConnection) -> None:
        await link.recv()
        link.transport.abort()

    async def story() -> None:
        async with server(vanish) as url, await Connection.open(url) as client:
            with pytest.raises(ConnectionLost, match="ended with 1006"):
                await client.request("Echo", {}, timeout=PATIENCE)

    asyncio.run(story())


def test_a_request_made_while_the_connection_closes_is_lost() -> None:
    async def story() -> None:
        async with server(echo) as url:
            client = await Connection.open(url)
            closing = asyncio.create_task(client._socket.close())
            await asyncio.sleep(0)  # the closing frame is out, the reader does not know yet
            assert client.is_open
            with pytest.raises(ConnectionLost, match="ended with 1000"):
                await client.request("Echo", {}, timeout=PATIENCE)
            await closing
            await client.close()

    asyncio.run(story())


def test_closing_fails_what_is_under_way() -> None:
    async def silent(link: ServerConnection) -> None:
        await link.wait_closed()

    async def story() -> None:
        async with server(silent) as url:
            client = await Connection.open(url)
            waiting = asyncio.create_task(client.request("Echo", {}, timeout=PATIENCE))
            abandoned = asyncio.create_task(client.request("Echo", {}, timeout=PATIENCE))
            listening = asyncio.create_task(client.next_event(timeout=PATIENCE))
            await asyncio.sleep(0)
            abandoned.cancel()
            await client.close()
            await client.close()
            for task in (waiting, listening):
                with pytest.raises(ConnectionLost, match="ended with 1000"):
                    await task
            with pytest.raises(asyncio.CancelledError):
                await abandoned

    asyncio.run(story())


def test_a_payload_that_is_no_json_harms_nobody() -> None:
    async def story() -> None:
        async with server(echo) as url, await Connection.open(url) as client:
            with pytest.raises(TypeError):
                await client.request("Echo", {"a": object()}, timeout=PATIENCE)
            assert await client.request("Echo", {"a": 1}, timeout=PATIENCE) == {"a": 1}

    asyncio.run(story())


def test_no_connection_is_told_with_its_reason() -> None:
    async def story() -> None:
        with socket.socket() as reserved:  # bound and not listening: nobody else can listen there meanwhile
            reserved.bind(("127.0.0.1", 0))
            url = f"ws://127.0.0.1:{reserved.getsockname()[1]}/ws"
            with pytest.raises(ConnectFailed, match=f"cannot connect to {url}: ") as refused:
                await Connection.open(url)
            assert refused.value.url == url
        with pytest.raises(ConnectFailed, match="isn't a valid URI"):
            await Connection.open("http://127.0.0.1/")
        with pytest.raises(ConnectFailed, match="ssl argument is incompatible"):
            await Connection.open(url, tls=ssl.create_default_context())
        with socket.create_server(("127.0.0.1", 0)) as mute:
            url = f"ws://127.0.0.1:{mute.getsockname()[1]}/ws"
            with pytest.raises(ConnectFailed, match=r"no answer within 0\.1 s"):
                await Connection.open(url, open_timeout=0.1)

    asyncio.run(story())


def test_a_refusal_is_told_on_one_line() -> None:
    refused = RequestRefused("op", 400, "BAD_FIELDS", "x\nshine-node: all is well\u2028y", {})
    assert str(refused) == "op: 400 BAD_FIELDS: x shine-node: all is well y"
