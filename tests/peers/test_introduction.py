from typing import Any

import pytest
from websockets.asyncio.client import connect

from shine_node.peers.introduction import HelloFailed, introduce, judge_hello
from shine_node.protocol.envelope import Answer
from tests.peers.conftest import Run
from tests.support.scripted_peer import PeerConnection, ScriptedPeer

pytestmark = pytest.mark.core

GOOD = {
    "accepted": True,
    "serverLogin": "server2",
    "protocolVersion": 1,
    "capabilities": ["dm-sync", "settings-sync", "block-sync", "connection-pool"],
}


def answer(payload: dict[str, Any], status: int = 200, error: str = "") -> Answer:
    return Answer("1", status, error, "text", payload)


def test_the_answer_of_the_seed() -> None:
    hello = judge_hello(answer(GOOD), "server2")
    assert hello is not None
    assert hello.in_force("connection-pool")
    assert not hello.in_force("something-else")


def test_logins_compare_in_lower_case() -> None:
    assert judge_hello(answer({**GOOD, "serverLogin": "SERVER2"}), "Server2") is not None


def test_an_older_peer_does_not_know_the_operation() -> None:
    assert judge_hello(answer({}, 400, "UNKNOWN_OP"), "server2") is None


def test_a_success_is_no_older_peer_whatever_stands_in_error() -> None:
    assert judge_hello(answer(GOOD, 200, "UNKNOWN_OP"), "server2") is not None


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (answer({}, 426, "UNSUPPORTED_PROTOCOL"), "426 UNSUPPORTED_PROTOCOL: text"),
        (answer({}, 500, "INTERNAL_ERROR"), "500 INTERNAL_ERROR"),
        (answer({**GOOD, "accepted": False}), "not accepted"),
        (answer({**GOOD, "serverLogin": "server3"}), "answered by server3, not by server2"),
        (answer({**GOOD, "protocolVersion": 2}), "not usable: UNSUPPORTED_PROTOCOL"),
        (answer({**GOOD, "serverLogin": 7}), "not usable: BAD_REQUEST_FORMAT"),
        (answer({}), "not usable: BAD_FIELDS"),
    ],
)
def test_answers_that_make_the_link_useless(given: Answer, complaint: str) -> None:
    with pytest.raises(HelloFailed, match=complaint):
        judge_hello(given, "server2")


def test_the_hello_is_sent_as_the_seed_has_it_and_its_own_answer_counts(run: Run) -> None:
    async def reply(connection: PeerConnection, request: dict[str, Any]) -> None:
        await connection.send("no json")
        await connection.answer({**request, "requestId": "another"}, {**GOOD, "serverLogin": "server3"})
        await connection.answer(request, GOOD)

    async def story() -> None:
        async with ScriptedPeer(script={"ServerHello": reply}) as peer:
            async with connect(peer.url, proxy=None, compression=None) as ours:
                hello = await introduce(ours, "41", own_login="server1", expected_login="server2")
            assert hello is not None
            assert hello.server_login == "server2"
            [request] = peer.connections[0].requests
            assert (request["op"], request["requestId"]) == ("ServerHello", "41")
            assert (request["payload"]["serverLogin"], request["payload"]["protocolVersion"]) == ("server1", 1)

    run(story())
