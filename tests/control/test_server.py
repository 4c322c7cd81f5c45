"""The control socket over real connections: its form, its bounds, and whoever behaves badly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shine_node.control.place import Place, connect_to
from shine_node.control.server import IDLE_SECONDS, MAX_CONNECTIONS, MAX_LINE_BYTES, ControlServer, Operation
from shine_node.protocol.errors import KeyConflict
from tests.control.conftest import LIMIT, Asker, Run
from tests.support.nodes import eventually


class Desk:
    """Operations for tests."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.go_on = asyncio.Event()
        self.operations = {
            "Echo": Operation(self.echo),
            "Refuse": Operation(self.refuse),
            "Break": Operation(self.break_down),
            "Unsayable": Operation(self.unsayable),
            "Large": Operation(self.large),
            "Wait": Operation(self.wait),
            "Late": Operation(self.wait, seconds=0.05),
        }

    async def echo(self, payload: dict[str, Any]) -> Mapping[str, object]:
        return payload

    async def refuse(self, payload: dict[str, Any]) -> Mapping[str, object]:
        raise KeyConflict("other bytes", {"why": 1})

    async def break_down(self, payload: dict[str, Any]) -> Mapping[str, object]:
        raise ValueError("a secret of the inside")

    async def unsayable(self, payload: dict[str, Any]) -> Mapping[str, object]:
        return {"what": object()}

    async def large(self, payload: dict[str, Any]) -> Mapping[str, object]:
        self.begun.set()
        return {"text": "x" * payload["size"]}

    async def wait(self, payload: dict[str, Any]) -> Mapping[str, object]:
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            self.ended.set()
        return {"waited": True}


class Served:
    def __init__(self, server: ControlServer, desk: Desk, path: Path) -> None:
        self.server = server
        self.desk = desk
        self.path = path

    def asker(self) -> Asker:
        return Asker(self.path)

    async def is_free(self) -> bool:
        """Whether nobody is connected."""
        return not self.server._tasks


@asynccontextmanager
async def serving(folder: Path, idle_seconds: float = IDLE_SECONDS) -> AsyncIterator[Served]:
    desk = Desk()
    server = ControlServer(operations=desk.operations, idle_seconds=idle_seconds)
    path = folder / "control.sock"
    await server.start(Place(path, folder))
    try:
        yield Served(server, desk, path)
    finally:
        await server.close()


def test_requests_and_answers_have_the_form_of_the_protocol(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            assert await asker.send(b'{"op":"Echo","payload":{"a":1}}\n') == {
                "op": "Echo",
                "requestId": None,
                "status": 200,
                "ok": True,
                "payload": {"a": 1},
            }
            assert (await asker.send(b'{"op":"Echo","requestId":"7","payload":{}}\r\n'))["requestId"] == "7"
            assert await asker.ask("Refuse") == {
                "op": "Refuse",
                "requestId": None,
                "status": 409,
                "ok": False,
                "error": "KEY_CONFLICT",
                "message": "other bytes",
                "payload": {"why": 1},
            }

    run(story())


def test_requests_of_one_connection_are_answered_in_their_order(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            asker.write(b'{"op":"Wait","payload":{}}\n{"op":"Echo","payload":{}}\n{"op":"Echo","payload"')
            await served.desk.begun.wait()
            async with served.asker() as other:
                assert (await other.ask("Echo"))["ok"]
            served.desk.go_on.set()
            assert [(await asker.read())["op"] for _ in range(2)] == ["Wait", "Echo"]
            asker.write(b':{"last":true}}')
            asker.write_eof()  # it needs no new line
            assert (await asker.read())["payload"] == {"last": True}
            assert await asker.at_end()

    run(story())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", "EMPTY_JSON"),
        (b"{", "BAD_JSON"),
        (b"[]", "BAD_JSON"),
        (b'{"op":"\xff"}', "BAD_JSON"),
        (b"{}", "NO_OP"),
        (b'{"op":1}', "BAD_REQUEST_FORMAT"),
        (b'{"op":"Dance"}', "UNKNOWN_OP"),
        (b'{"op":"Echo"}', "NO_PAYLOAD"),
        (b'{"op":"Echo","payload":[]}', "BAD_PAYLOAD"),
    ],
)
def test_bad_input_gets_a_clear_error_and_ends_nothing(run: Run, tmp_path: Path, line: bytes, error: str) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            answer = await asker.send(line + b"\n")
            assert (answer["status"], answer["ok"], answer["error"]) == (400, False, error)
            assert answer["message"]
            assert (await asker.ask("Echo"))["ok"]

    run(story())


def test_a_line_that_is_too_long_is_refused(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            async with served.asker() as asker:
                longest = b'{"op":"Echo","payload":{}}'.ljust(MAX_LINE_BYTES) + b"\n"
                assert (await asker.send(longest))["ok"]
            for too_long in (b" " + longest, bytes(3 * MAX_LINE_BYTES)):
                async with served.asker() as asker:
                    answer = await asker.send(too_long)
                    assert (answer["status"], answer["error"]) == (413, "TOO_LARGE")
                    assert await asker.at_end()

    run(story())


@pytest.mark.parametrize("op", ["Break", "Unsayable"])
def test_a_defect_is_logged_and_not_told(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, op: str) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            answer = await asker.ask(op)
            assert (answer["status"], answer["error"]) == (500, "INTERNAL_ERROR")
            assert answer["message"] == "the node could not do this: its log has the cause"
            assert (await asker.ask("Echo"))["ok"]

    run(story())
    [record] = caplog.records
    assert record.levelno == logging.ERROR and record.message == f"a defect in {op}" and record.exc_info


def test_what_takes_too_long_is_ended(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            answer = await asker.ask("Late")
            assert (answer["status"], answer["error"]) == (503, "SERVER_BUSY")
            assert answer["message"] == "Late was not done within 0.05 s: look whether it was, then ask again"
            assert served.desk.ended.is_set()
            assert (await asker.ask("Echo"))["ok"]

    run(story())


def test_who_says_nothing_is_let_go(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, idle_seconds=0.05) as served, served.asker() as silent, served.asker() as half:
            half.write(b'{"op":')
            for asker in (silent, half):
                answer = await asker.read()
                assert (answer["status"], answer["error"]) == (400, "BAD_REQUEST_FORMAT")
                assert answer["message"] == "no line within 0.05 s: connect again"
                assert await asker.at_end()

    run(story())


def test_who_does_not_read_is_let_go(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, idle_seconds=2) as served, served.asker() as asker:
            asker.pause()
            asker.write(b'{"op":"Large","payload":{"size":10000000}}\n')
            await served.desk.begun.wait()
            await eventually(served.is_free)

    run(story())


def test_a_large_answer_arrives_whole(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as asker:
            asker.write(b'{"op":"Large","payload":{"size":10000000}}\n')
            asker.write_eof()
            assert len((await asker.read())["payload"]["text"]) == 10_000_000
            assert await asker.at_end()

    run(story())


def test_there_is_room_for_so_many(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            askers = [served.asker() for _ in range(MAX_CONNECTIONS)]
            for asker in askers:
                await asker.__aenter__()
                assert (await asker.ask("Echo"))["ok"]
            async with served.asker() as one_more:
                answer = await one_more.read()
                assert (answer["status"], answer["error"], answer["payload"]) == (
                    503,
                    "SERVER_BUSY",
                    {"retryAfterMs": 1000},
                )
                assert await one_more.at_end()
            for asker in askers:
                asker.leave()
            await eventually(served.is_free)
            async with served.asker() as asker:
                assert (await asker.ask("Echo"))["ok"]

    run(story())


def test_who_leaves_early_harms_nobody(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="shine_node")

    async def story() -> None:
        async with serving(tmp_path) as served:
            with connect_to(served.path, LIMIT) as connection:
                connection.sendall(b'{"op":"Wait","payload":{}}\n')
                await served.desk.begun.wait()
            served.desk.go_on.set()
            await eventually(served.is_free)
            async with served.asker() as asker:
                assert (await asker.ask("Echo"))["ok"]

    run(story())
    assert [record.message for record in caplog.records] == ["somebody left the control socket before the answer"]


def test_the_end_of_the_node_ends_all(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served, served.asker() as idle, served.asker() as waiting:
            assert (await idle.ask("Echo"))["ok"]
            waiting.write(b'{"op":"Wait","payload":{}}\n')
            await served.desk.begun.wait()
            await served.server.close()
            assert served.desk.ended.is_set()
            assert await idle.at_end() and await waiting.at_end()
            await served.server.close()

    run(story())
    assert list(tmp_path.iterdir()) == []


def test_who_comes_at_the_end_is_turned_away(tmp_path: Path) -> None:
    """On the event loop of the node alone: that of Python 3.11 forgets to close what it accepts at this moment."""

    async def story() -> None:
        for turns in range(8):  # of the loop, so that the end comes at each step of the arrival
            async with serving(tmp_path) as served, served.asker() as asker:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await served.server.close()
                assert await asker.at_end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), LIMIT))
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_never_started_can_be_closed(run: Run) -> None:
    run(ControlServer(operations={}).close())
