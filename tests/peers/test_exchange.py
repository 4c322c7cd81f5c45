import asyncio
import math
from typing import Any

import orjson
import pytest

from shine_node.peers.exchange import Exchange
from shine_node.peers.priorities import Priority
from shine_node.peers.queue import LinkRequest
from shine_node.protocol.envelope import Answer
from shine_node.protocol.errors import CallerTimeout, LinkDown, LinkLost, PeerRefused, QueueFull, RequestTimeout

LOOP = asyncio.new_event_loop()
LOOP.close()
START = 1000.0


class Wire:
    """What an exchange sent, and which deadlines it named."""

    def __init__(self, *, max_waiting: int = 3, connected: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.deadlines: list[float] = []
        self.exchange = Exchange(
            "server2", max_waiting=max_waiting, request_seconds=12, on_deadline=self.deadlines.append
        )
        if connected:
            self.connect()

    def connect(self, now: float = START) -> None:
        self.exchange.connect(lambda frame: self.sent.append(orjson.loads(frame)), now)

    def ask(
        self, name: str, priority: Priority = Priority.NORMAL, *, now: float = START, seconds: float = 35
    ) -> LinkRequest:
        request = LinkRequest("Op", {"name": name}, priority, now + seconds, asyncio.Future(loop=LOOP))
        self.exchange.submit(request, now)
        return request

    def answer(self, index: int = -1, *, status: int = 200, now: float = START) -> bool:
        sent = self.sent[index]
        code = "" if status < 300 else "CODE"
        return self.exchange.receive(
            Answer(sent["requestId"], status, code, "why", {"to": sent["payload"]["name"]}), now
        )

    @property
    def names(self) -> list[str]:
        return [sent["payload"]["name"] for sent in self.sent]


def failure(request: LinkRequest) -> BaseException:
    error = request.future.exception()
    assert error is not None
    return error


def test_a_free_slot_is_used_at_once() -> None:
    wire = Wire()
    one = wire.ask("one")
    assert wire.sent == [{"op": "Op", "requestId": "1", "payload": {"name": "one"}}]
    assert wire.exchange.busy
    assert wire.answer()
    assert one.future.result() == {"to": "one"}
    assert not wire.exchange.busy
    assert wire.exchange.succeeded == 1


def test_one_in_flight_then_by_priority_then_by_arrival() -> None:
    wire = Wire(max_waiting=10)
    wire.ask("running", Priority.BULK)
    for name, priority in [("b1", 2), ("n1", 1), ("r1", 0), ("b2", 2), ("r2", 0)]:
        wire.ask(name, Priority(priority))
    assert wire.names == ["running"]
    for _ in range(6):
        wire.answer()
    assert wire.names == ["running", "r1", "r2", "n1", "b1", "b2"]
    assert not wire.exchange.busy


def test_without_a_connection_requests_wait_for_it() -> None:
    wire = Wire(connected=False)
    one = wire.ask("one", Priority.BULK)
    wire.ask("two", Priority.REALTIME)
    assert wire.sent == []
    wire.connect()
    assert wire.names == ["two"]
    wire.answer()
    wire.answer()
    assert one.future.result() == {"to": "one"}


def test_a_full_queue_refuses_at_once_and_the_running_one_does_not_count() -> None:
    wire = Wire(max_waiting=2)
    for name in ("running", "w1", "w2"):
        wire.ask(name)
    with pytest.raises(QueueFull) as caught:
        wire.ask("too many", Priority.REALTIME)
    assert (caught.value.server, caught.value.op) == ("server2", "Op")
    assert wire.exchange.failed == 1
    assert wire.exchange.last_error == "Op at server2: queue full"


def test_a_refusal_carries_what_the_peer_said() -> None:
    wire = Wire()
    one = wire.ask("one")
    wire.answer(status=507)
    error = failure(one)
    assert isinstance(error, PeerRefused)
    assert (error.status, error.code, error.op) == (507, "CODE", "Op")
    assert error.payload == {"to": "one"}
    assert wire.exchange.failed == 1
    assert "507 CODE: why" in wire.exchange.last_error


def test_what_the_peer_says_cannot_forge_lines_of_the_log() -> None:
    wire = Wire()
    one = wire.ask("one")
    wire.exchange.receive(Answer(wire.sent[0]["requestId"], 400, "A\nB", "why\n\x1b[2Jnot", {}), START)
    assert str(failure(one)) == wire.exchange.last_error == "Op at server2: refused (400 A?B: why??[2Jnot)"


@pytest.mark.parametrize("status", [100, 199, 300, 304, 400, 599])
def test_only_200_to_299_is_a_success(status: int) -> None:
    wire = Wire()
    one = wire.ask("one")
    wire.answer(status=status)
    assert isinstance(failure(one), PeerRefused)


def test_answers_to_nothing_are_dropped() -> None:
    wire = Wire()
    one = wire.ask("one")
    assert not wire.exchange.receive(Answer("another", 200, "", "", {}), START)
    assert not wire.exchange.receive(Answer(None, 200, "", "", {}), START)
    assert not one.future.done()
    assert wire.answer()
    assert not wire.answer(), "the second answer to the same request"
    two = wire.ask("two")
    assert not wire.answer(0), "nor is it taken for the next one's"
    assert not two.future.done()


def test_a_refusal_for_the_rate_without_an_id_is_for_the_one_under_way() -> None:
    wire = Wire()
    running, waiting = wire.ask("running"), wire.ask("waiting")
    other = Answer(None, 503, "SERVER_BUSY", "why", {})
    assert not wire.exchange.receive(other, START)
    unread = Answer(None, 429, "RATE_LIMITED", "why", {"retryAfterMs": 70})
    assert wire.exchange.receive(unread, START)
    error = failure(running)
    assert isinstance(error, PeerRefused)
    assert (error.code, error.payload) == ("RATE_LIMITED", {"retryAfterMs": 70})
    assert wire.names == ["running", "waiting"] and not waiting.future.done()
    assert wire.answer()
    assert not wire.exchange.receive(unread, START), "nothing is under way"


def test_the_callers_time_includes_waiting() -> None:
    wire = Wire()
    wire.ask("running", seconds=100)
    waiting = wire.ask("waiting", seconds=5)
    patient = wire.ask("patient", seconds=50)
    assert wire.exchange.next_deadline() == START + 5
    assert not wire.exchange.expire(START + 4.9)
    assert not waiting.future.done()
    assert not wire.exchange.expire(START + 5)
    assert isinstance(failure(waiting), CallerTimeout)
    assert "still waiting" in str(failure(waiting))
    wire.answer()
    assert wire.names == ["running", "patient"], "who gave up has left the queue"
    assert not patient.future.done()
    assert wire.exchange.timed_out == 1


def test_a_request_whose_caller_gave_up_keeps_the_slot_until_its_own_time_out() -> None:
    wire = Wire()
    one = wire.ask("one", seconds=5)
    two = wire.ask("two", seconds=50)
    assert not wire.exchange.expire(START + 5)
    assert isinstance(failure(one), CallerTimeout)
    assert "under way" in str(failure(one))
    assert wire.names == ["one"]
    assert wire.exchange.next_deadline() == START + 12
    assert wire.exchange.expire(START + 12), "the slot is freed"
    assert wire.names == ["one", "two"]
    assert isinstance(failure(one), CallerTimeout)
    assert (wire.exchange.timed_out, wire.exchange.failed) == (1, 0), "it is counted once"
    wire.answer()
    assert two.future.result() == {"to": "two"}


def test_an_answer_after_the_caller_gave_up_frees_the_slot() -> None:
    wire = Wire()
    wire.ask("one", seconds=5)
    wire.ask("two")
    wire.exchange.expire(START + 5)
    assert wire.answer(0)
    assert wire.names == ["one", "two"]
    assert (wire.exchange.succeeded, wire.exchange.timed_out) == (0, 1)
    wire.ask("three", seconds=5)
    wire.answer()
    wire.exchange.expire(START + 5)
    assert wire.answer(status=500)
    assert (wire.exchange.failed, wire.exchange.timed_out) == (0, 2)


def test_a_sent_request_has_its_own_time_and_a_late_answer_is_dropped() -> None:
    wire = Wire()
    one = wire.ask("one")
    two = wire.ask("two", seconds=60)
    assert START + 12 in wire.deadlines
    assert not wire.exchange.expire(START + 11.9)
    assert wire.exchange.expire(START + 12)
    assert isinstance(failure(one), RequestTimeout)
    assert wire.names == ["one", "two"]
    assert not wire.answer(0), "late, and never matched to another"
    assert not two.future.done()
    assert wire.exchange.next_deadline() == START + 24, "the time of the second one runs from its sending"
    assert wire.answer(1)


def test_with_equal_times_the_request_time_out_is_what_is_told() -> None:
    wire = Wire()
    one = wire.ask("one", seconds=12)
    assert wire.exchange.expire(START + 12)
    assert isinstance(failure(one), RequestTimeout)


def test_a_cancelled_caller_leaves_the_queue_but_not_the_slot() -> None:
    wire = Wire()
    one, two, three = wire.ask("one"), wire.ask("two"), wire.ask("three")
    for request in (one, two):
        request.future.cancel()
        wire.exchange.abandon(request)
    assert wire.names == ["one"]
    assert wire.exchange.next_deadline() == START + 12
    wire.answer()
    assert wire.names == ["one", "three"]
    assert wire.exchange.succeeded == 1
    three.future.cancel()
    wire.exchange.abandon(three)
    assert wire.exchange.expire(START + 12)
    assert wire.exchange.timed_out == 1


def test_a_lost_link_fails_all_of_its_requests() -> None:
    wire = Wire()
    requests = [wire.ask(name) for name in ("running", "w1", "w2")]
    gone = wire.ask("gone")
    gone.future.cancel()
    wire.exchange.disconnect(LinkLost, "cut")
    for request in requests:
        assert isinstance(failure(request), LinkLost)
        assert str(failure(request)) == "Op at server2: link lost (cut)"
    assert not wire.exchange.busy
    assert wire.exchange.failed == 4
    assert wire.exchange.last_error == "cut"
    assert wire.exchange.next_deadline() == math.inf
    wire.ask("later")
    assert wire.names == ["running"], "nothing is sent, and nothing ever a second time"
    wire.connect()
    assert wire.names == ["running", "later"]
    assert not wire.answer(0), "an answer to a request of the lost connection"


def test_a_link_that_could_not_be_opened_fails_those_that_wait() -> None:
    wire = Wire(connected=False)
    one = wire.ask("one")
    wire.exchange.disconnect(LinkDown, "refused")
    assert isinstance(failure(one), LinkDown)


def test_detached_it_lets_requests_wait() -> None:
    wire = Wire()
    wire.exchange.detach()
    wire.ask("one")
    assert wire.sent == []
    wire.connect()
    assert wire.names == ["one"]


def test_a_payload_that_is_no_json_is_its_callers_defect_and_takes_no_slot() -> None:
    wire = Wire()
    running = wire.ask("running")
    bad = LinkRequest("Op", {"x": object()}, Priority.NORMAL, START + 35, asyncio.Future(loop=LOOP))
    wire.exchange.submit(bad, START)
    after = wire.ask("after")
    wire.answer()
    assert isinstance(failure(bad), TypeError)
    assert wire.names == ["running", "after"]
    assert running.future.done()
    assert not after.future.done()


def test_request_ids_are_never_used_twice() -> None:
    wire = Wire()
    for _ in range(5):
        wire.ask("x")
        wire.answer()
        wire.exchange.disconnect(LinkLost, "")
        wire.connect()
        wire.exchange.next_id()
    ids = [sent["requestId"] for sent in wire.sent]
    assert len(set(ids)) == 5


def test_nothing_to_do_has_no_deadline() -> None:
    wire = Wire()
    assert wire.exchange.next_deadline() == math.inf
    assert not wire.exchange.expire(START + 1e9)
