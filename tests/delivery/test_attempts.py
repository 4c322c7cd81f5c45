"""One attempt: whom it asks, whom it calls, and what counts as a success (PROTOCOL.md §3, §5.2, §5.3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shine_node.client.identity import KeyPair
from shine_node.delivery import attempts
from shine_node.delivery.attempts import Attempts, Copies
from shine_node.delivery.background import Background
from shine_node.peers.pool import Pool, PoolSettings
from shine_node.protocol.access import AccessServer, record_payload
from shine_node.protocol.encoding import encode_base64
from shine_node.protocol.errors import (
    CallerTimeout,
    LinkDown,
    LinkError,
    LinkLost,
    QueueFull,
    RequestTimeout,
)
from tests.delivery.rooms import (
    RECEIVE_INCOMING,
    RECEIVE_OUTCOMING,
    SET_ACCESS,
    STATUS,
    Held,
    Payload,
    Rooms,
    answers,
    breaks,
    copies_of,
    down,
    refuses,
    run,
    until,
)
from tests.store.rooms import NOW, OWN, identity, make_pair, servers
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

PAIR = make_pair("alice", "bob")
COPIES = copies_of(PAIR)
EDIT = copies_of(make_pair("alice", "bob", revision_ms=NOW + 5, body=b"new"))


class Tried:
    """Attempts of one server, and the background in which slower calls go on."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.peers = rooms.peers
        self.background = Background()
        self.attempts = Attempts(
            peers=rooms.peers, users=rooms.users, clock=rooms.clock, own_login=OWN, background=self.background
        )


@contextlib.asynccontextmanager
async def tried(
    folder: Path, *, alice: tuple[str, ...] = (OWN, "a2"), bob: tuple[str, ...] = ("r1", "r2")
) -> AsyncIterator[Tried]:
    async with Rooms(folder) as rooms:
        await rooms.know("alice", *alice)
        await rooms.know("bob", *bob)
        it = Tried(rooms)
        try:
            yield it
        finally:
            await it.background.close()


def says(payload: Payload) -> Held:
    """Answer with just this payload."""

    async def behaviour(server: AccessServer, op: str, asked: Payload) -> Payload:
        return payload

    held = Held(behaviour)
    held.release()
    return held


def raises(error: LinkError) -> Held:
    async def behaviour(server: AccessServer, op: str, payload: Payload) -> Payload:
        raise error

    held = Held(behaviour)
    held.release()
    return held


# The recipient's servers


def test_both_servers_of_the_recipient_are_called_in_parallel_with_the_incoming_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            one, two = Held(), Held()
            it.peers.on("r1", RECEIVE_INCOMING, one)
            it.peers.on("r2", RECEIVE_INCOMING, two)
            attempt = asyncio.create_task(it.attempts.call_recipient(COPIES))
            await until(lambda: one.waiting and two.waiting)
            assert not attempt.done()
            for call in it.peers.calls:
                assert call.payload == {
                    "incomingBlobB64": encode_base64(PAIR.incoming.blob),
                    "sourceServerLogin": OWN,
                }
            one.release()
            two.release()
            assert await attempt is True
            assert it.peers.summary == [("r1", RECEIVE_INCOMING), ("r2", RECEIVE_INCOMING)]

    run(story())


def test_the_first_success_decides_and_the_other_call_goes_on_by_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            slow = Held()
            it.peers.on("r1", RECEIVE_INCOMING, slow)
            assert await it.attempts.call_recipient(COPIES) is True
            assert slow.waiting == 1
            assert len(it.background) == 1
            slow.release()
            await until(lambda: not it.background)
            assert slow.waiting == 0

    run(story())


def test_a_failure_waits_for_the_last_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            slow = Held(down)
            it.peers.on("r1", RECEIVE_INCOMING, down)
            it.peers.on("r2", RECEIVE_INCOMING, slow)
            attempt = asyncio.create_task(it.attempts.call_recipient(COPIES))
            await until(lambda: slow.waiting)
            assert not attempt.done()
            slow.release()
            assert await attempt is False

    run(story())


def test_a_failure_before_the_success_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            it.peers.on("r1", RECEIVE_INCOMING, down)
            assert await it.attempts.call_recipient(COPIES) is True

    run(story())


@pytest.mark.parametrize("error", [LinkDown, LinkLost, QueueFull, CallerTimeout, RequestTimeout])
def test_no_connection_and_no_answer_are_failures(tmp_path: Path, error: type[LinkError]) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, raises(error("r1", RECEIVE_INCOMING)))
            assert await it.attempts.call_recipient(COPIES) is False
            assert len(it.peers.calls) == 1, "the schedule repeats, not the attempt"

    run(story())


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (421, "NOT_ACCESS_SERVER"),
        (400, "BAD_CONTAINER"),
        (413, "TOO_LARGE"),
        (429, "RATE_LIMITED"),
        (503, "SERVER_BUSY"),
        (507, "STORAGE_FULL"),
        (500, "INTERNAL_ERROR"),
        (404, "NO_SUCH_PAGE"),
        (422, "NOT_AUTHENTICATED"),
    ],
)
def test_an_error_final_or_not_is_a_failure_like_any_other(tmp_path: Path, status: int, code: str) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, refuses(status, code))
            assert await it.attempts.call_recipient(COPIES) is False
            assert it.peers.summary == [("r1", RECEIVE_INCOMING)], "no records are told"

    run(story())


def test_no_route_is_a_failed_attempt_and_no_error(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=()) as it:
            assert await it.attempts.call_recipient(COPIES) is False
            unknown = copies_of(make_pair("alice", "carol"))
            assert await it.attempts.call_recipient(unknown) is False
            assert it.peers.calls == []

    run(story())


def test_this_server_is_passed_over_however_it_is_spelled(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=(OWN.upper(), "r2")) as it:
            assert await it.attempts.call_recipient(COPIES) is True
            assert it.peers.summary == [("r2", RECEIVE_INCOMING)]
            await it.rooms.know("bob", OWN, time_ms=NOW)
            assert await it.attempts.call_recipient(COPIES) is False
            assert len(it.peers.calls) == 1

    run(story())


def test_routes_are_read_anew_for_each_attempt(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            await it.attempts.call_recipient(COPIES)
            await it.rooms.know("bob", "r3", time_ms=NOW)
            await it.attempts.call_recipient(COPIES)
            assert it.peers.summary == [("r1", RECEIVE_INCOMING), ("r3", RECEIVE_INCOMING)]

    run(story())


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"incomingKey": None},
        {"incomingKey": ""},
        {"incomingKey": True},
        {"incomingKey": [COPIES.incoming_key]},
        {"incomingKey": "alice|bob|1|2|1"},
        {"incomingKey": COPIES.outgoing_key},
        {"incomingKey": COPIES.incoming_key + " "},
        {"incomingKey": COPIES.incoming_key.upper()},
        {"outgoingKey": COPIES.incoming_key},
        {"ok": True, "stored": True},
    ],
)
def test_a_success_that_does_not_name_the_copy_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, payload: Payload
) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, says(payload))
            assert await it.attempts.call_recipient(COPIES) is False
            assert it.peers.summary == [("r1", RECEIVE_INCOMING)], "the schedule repeats, not the attempt"
            it.peers.on("r1", RECEIVE_INCOMING, says({"incomingKey": COPIES.incoming_key, "more": 1}))
            assert await it.attempts.call_recipient(COPIES) is True

    run(story())
    assert "not taken as stored" in caplog.text


@pytest.mark.parametrize("status", ["200", "299"])
@pytest.mark.parametrize("rest", ['"payload":[]', '"payload":{},"ok":false', '"payload":"stored"', '"ok":true'])
def test_nor_is_one_that_says_nothing_at_all_over_a_real_link(tmp_path: Path, status: str, rest: str) -> None:
    async def stored_nothing(connection: PeerConnection, request: Payload) -> None:
        await connection.send(f'{{"requestId":"{request["requestId"]}","status":{status},{rest}}}')

    async def story() -> None:
        async with (
            Rooms(tmp_path) as rooms,
            ScriptedPeer("r1", {RECEIVE_INCOMING: stored_nothing}) as peer,
        ):
            pool = Pool(
                own_login=OWN,
                own_url="ws://127.0.0.1:9/ws",
                settings=PoolSettings(allow_insecure_peers=True, allow_private_peers=True),
                clock=rooms.clock,
                known_peers=list,
            )
            await pool.start()
            background = Background()
            try:
                await rooms.users.add(identity("bob").access_record([AccessServer("r1", peer.url)], time_ms=NOW))
                it = Attempts(peers=pool, users=rooms.users, clock=rooms.clock, own_login=OWN, background=background)
                assert await it.call_recipient(COPIES) is False
                peer.script = {}
                assert await it.call_recipient(COPIES) is True
            finally:
                await background.close()
                await pool.close()

    run(story())


def test_a_server_whose_successes_say_nothing_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MAX_COMPLAINTS", 2)

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    async def story() -> None:
        async with tried(tmp_path, bob=("r1", "r2")) as it:
            for server in ("r1", "r2"):
                it.peers.on(server, RECEIVE_INCOMING, says({}))
            for _ in range(3):
                assert await it.attempts.call_recipient(COPIES) is False
            assert sorted(line.split()[0] for line in warnings()) == ["r1", "r2"]
            assert "answers ReceiveIncomingMessage without the incomingKey" in warnings()[0]
            await it.rooms.know("bob", "r3", time_ms=NOW)
            it.peers.on("r3", RECEIVE_INCOMING, says({}))
            assert await it.attempts.call_recipient(COPIES) is False
            assert len(warnings()) == 2, "no more servers are remembered than that"

    run(story())


def test_a_defect_is_not_taken_for_an_answer_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1", "r2")) as it:
            for server in ("r1", "r2"):
                it.peers.on(server, RECEIVE_INCOMING, breaks)
            with pytest.raises(ZeroDivisionError):
                await it.attempts.call_recipient(COPIES)
            await until(lambda: not it.background)
            assert "background work failed" in caplog.text

    run(story())


# A server that does not know the sender's present key


@pytest.mark.parametrize(("status", "code"), [(404, "USER_NOT_FOUND"), (422, "BAD_SIGNATURE")])
def test_it_is_told_the_senders_records_oldest_first_and_called_once_more(
    tmp_path: Path, status: int, code: str
) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            rekeyed = identity("alice").with_device(KeyPair.from_seed(bytes(32)))
            await it.rooms.users.add(rekeyed.access_record(servers(OWN), time_ms=NOW))
            it.peers.on("r1", RECEIVE_INCOMING, refuses(status, code))

            async def now_it_knows(server: AccessServer, op: str, payload: Payload) -> Payload:
                if payload["timeMs"] == NOW:
                    it.peers.on("r1", RECEIVE_INCOMING, answers())
                return {"applied": True}

            it.peers.on("r1", SET_ACCESS, now_it_knows)
            assert await it.attempts.call_recipient(COPIES) is True
            assert it.peers.summary == [
                ("r1", RECEIVE_INCOMING),
                ("r1", SET_ACCESS),
                ("r1", SET_ACCESS),
                ("r1", RECEIVE_INCOMING),
            ]
            told = [call.payload for call in it.peers.calls if call.op == SET_ACCESS]
            assert told == [record_payload(record) for record in it.rooms.users.records("alice")]
            assert [payload["timeMs"] for payload in told] == [NOW - 1000, NOW]
            assert it.peers.calls[0].payload == it.peers.calls[-1].payload

    run(story())


def test_a_second_refusal_ends_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            assert await it.attempts.call_recipient(COPIES) is False
            assert it.peers.count("r1", RECEIVE_INCOMING) == 2
            assert it.peers.count("r1", SET_ACCESS) == 1

    run(story())


def test_the_next_attempt_tells_and_repeats_again_but_not_one_that_follows_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, refuses(422, "BAD_SIGNATURE"))
            await it.attempts.call_recipient(COPIES)
            for _ in range(20):
                assert await it.attempts.call_recipient(COPIES) is False
            assert it.peers.count("r1", RECEIVE_INCOMING) == 2 + 20
            assert it.peers.count("r1", SET_ACCESS) == 1
            await it.rooms.clock.advance(30)
            await it.attempts.call_recipient(COPIES)
            assert it.peers.count("r1", RECEIVE_INCOMING) == 2 + 20 + 2
            assert it.peers.count("r1", SET_ACCESS) == 2

    run(story())


def test_messages_of_one_moment_share_one_telling_and_all_are_repeated(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            telling = Held(answers(applied=True))
            late = Held(refuses(404, "USER_NOT_FOUND"))
            it.peers.on("r1", SET_ACCESS, telling)
            it.peers.on("r1", RECEIVE_INCOMING, late)
            slow = asyncio.create_task(it.attempts.call_recipient(COPIES))
            await until(lambda: late.waiting)
            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            quick = [asyncio.create_task(it.attempts.call_recipient(COPIES)) for _ in range(50)]
            await until(lambda: telling.waiting and it.peers.count("r1", RECEIVE_INCOMING) == 51)
            it.peers.on("r1", RECEIVE_INCOMING, answers())
            telling.release()
            assert await asyncio.gather(*quick) == [True] * 50
            late.release()
            assert await slow is True, "it was refused for what the server was told meanwhile"
            assert it.peers.count("r1", SET_ACCESS) == 1
            assert it.peers.count("r1", RECEIVE_INCOMING) == 102

    run(story())


def test_a_sender_without_signed_records_is_told_nothing_of(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            unsigned = identity("carol").access_record(servers(OWN), time_ms=0)._replace(signature=b"")
            await it.rooms.users.add(unsigned, local=True)
            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            assert await it.attempts.call_recipient(copies_of(make_pair("carol", "bob"))) is False
            assert it.peers.summary == [("r1", RECEIVE_INCOMING)], "and so there is nothing to repeat it for"

    run(story())


def test_a_server_that_cannot_be_told_is_not_called_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            it.peers.on("r1", SET_ACCESS, down)
            assert await it.attempts.call_recipient(COPIES) is False
            assert it.peers.count("r1", RECEIVE_INCOMING) == 1

    run(story())


def test_a_server_that_takes_no_record_is_told_each_once_and_still_called_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, bob=("r1",)) as it:
            await it.rooms.know("alice", OWN, "a3", time_ms=NOW)
            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            it.peers.on("r1", SET_ACCESS, refuses(400, "UNKNOWN_OP"))
            assert await it.attempts.call_recipient(COPIES) is False
            assert [op for _, op in it.peers.summary] == [RECEIVE_INCOMING, SET_ACCESS, SET_ACCESS, RECEIVE_INCOMING]

    run(story())


def test_a_record_that_is_refused_does_not_keep_the_others_from_the_server(tmp_path: Path) -> None:
    """A user who moved here: to a server that never heard of the user, only the record that names us is a first one."""

    async def story() -> None:
        async with tried(tmp_path, alice=("old.server",), bob=("r1",)) as it:
            await it.rooms.know("alice", "a1", time_ms=NOW - 10)
            await it.rooms.know("alice", OWN, time_ms=NOW)
            told: list[int] = []

            async def first_must_name_us(server: AccessServer, op: str, payload: Payload) -> Payload:
                names_us = any(entry["serverLogin"] == OWN for entry in payload["accessServers"])
                if not names_us and NOW not in told:
                    return await refuses(403, "FORBIDDEN")(server, op, payload)
                told.append(payload["timeMs"])
                it.peers.on("r1", RECEIVE_INCOMING, answers())
                return {"applied": True}

            it.peers.on("r1", RECEIVE_INCOMING, refuses(404, "USER_NOT_FOUND"))
            it.peers.on("r1", SET_ACCESS, first_must_name_us)
            assert await it.attempts.call_recipient(COPIES) is True
            assert told == [NOW, NOW - 1000, NOW - 10], "and the older ones follow, so that history can be checked"

    run(story())


# The sender's other server


def test_asking_names_the_message_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            it.peers.on("a2", STATUS, answers(messageKey=COPIES.outgoing_key, known=True, delivered=True))
            assert await it.attempts.ask_other_server(COPIES) is True
            [call] = it.peers.calls
            assert (call.server, call.op, call.payload) == ("a2", STATUS, {"messageKey": COPIES.outgoing_key})

    run(story())


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"known": True},
        {"known": True, "delivered": False},
        {"known": False, "delivered": False},
        {"known": True, "delivered": True, "messageKey": "alice|bob|1|2|2"},
        {"known": True, "delivered": True, "messageKey": None},
        {"known": True, "delivered": "true"},
        {"known": True, "delivered": 1},
        {"known": True, "delivered": None},
    ],
)
def test_anything_but_delivered_true_is_a_no(tmp_path: Path, payload: Payload) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            it.peers.on("a2", STATUS, answers(**payload))
            assert await it.attempts.ask_other_server(COPIES) is False

    run(story())


@pytest.mark.parametrize("failure", [down, refuses(400, "UNKNOWN_OP"), refuses(500, "INTERNAL_ERROR")])
def test_an_error_or_a_missing_operation_is_a_no(tmp_path: Path, failure: Held) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            it.peers.on("a2", STATUS, failure)
            assert await it.attempts.ask_other_server(COPIES) is False

    run(story())


def test_without_another_server_nobody_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path, alice=(OWN,)) as it:
            assert await it.attempts.ask_other_server(COPIES) is False
            await it.rooms.know("alice", "a1", "a2", time_ms=NOW)
            assert await it.attempts.ask_other_server(COPIES) is False, "this one is no longer hers"
            assert it.peers.calls == []

    run(story())


def test_about_an_edit_only_an_answer_that_repeats_its_revision_counts(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            delivered = {"messageKey": EDIT.outgoing_key, "known": True, "delivered": True}
            for revision, taken in (({}, False), ({"revisionMs": NOW}, False), ({"revisionMs": NOW + 5}, True)):
                it.peers.on("a2", STATUS, answers(**delivered, **revision))
                assert await it.attempts.ask_other_server(EDIT) is taken
            assert it.peers.calls[0].payload == {"messageKey": EDIT.outgoing_key, "revisionMs": NOW + 5}

    run(story())


def test_the_whole_pair_is_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with tried(tmp_path) as it:
            other = it.rooms.users.other_server("alice")
            assert other is not None
            assert await it.attempts.hand_over(other, COPIES) is True
            [call] = it.peers.calls
            assert (call.server, call.op) == ("a2", RECEIVE_OUTCOMING)
            assert call.payload == {
                "incomingBlobB64": encode_base64(PAIR.incoming.blob),
                "outgoingBlobB64": encode_base64(PAIR.outgoing.blob),
                "sourceServerLogin": OWN,
            }
            it.peers.on("a2", RECEIVE_OUTCOMING, says({"outgoingKey": COPIES.outgoing_key}))
            assert await it.attempts.hand_over(other, COPIES) is True
            for payload in ({}, {"outgoingKey": COPIES.incoming_key}, {"incomingKey": COPIES.outgoing_key}):
                it.peers.on("a2", RECEIVE_OUTCOMING, says(payload))
                assert await it.attempts.hand_over(other, COPIES) is False
            it.peers.on("a2", RECEIVE_OUTCOMING, down)
            assert await it.attempts.hand_over(other, COPIES) is False

    run(story())


@pytest.mark.parametrize("message_type", [1, 3, 5])
def test_the_keys_of_what_is_carried(message_type: int) -> None:
    copies = Copies(PAIR.incoming.message, message_type, 0, b"", b"")
    assert copies.incoming_key == f"alice|bob|{NOW}|1|{message_type}"
    assert copies.outgoing_key == f"alice|bob|{NOW}|1|{message_type + 1}"
