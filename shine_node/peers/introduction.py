"""``ServerHello`` on an outgoing link: what the answer makes of the link (PROTOCOL.md §7; seed 003)."""

from __future__ import annotations

from websockets.asyncio.client import ClientConnection

from shine_node.peers.answers import next_answer
from shine_node.protocol.envelope import Answer, encode_request
from shine_node.protocol.errors import Refusal, ShineError
from shine_node.protocol.hello import Hello, hello_payload, parse_hello

__all__ = ["HELLO_OP", "HelloFailed", "introduce", "judge_hello"]

HELLO_OP = "ServerHello"


class HelloFailed(ShineError):
    """The peer's answer to the hello makes the link useless; the text says why, for the operator."""


async def introduce(
    connection: ClientConnection, request_id: str, *, own_login: str, expected_login: str
) -> Hello | None:
    """Say hello and return what the peer said of itself, as ``judge_hello`` does. The time is the caller's to bound.

    Raises:
        HelloFailed: the link is useless.
        BinaryFrame, ConnectionClosed: there was no answer.
    """
    await connection.send(encode_request(HELLO_OP, request_id, hello_payload(own_login)))
    while True:
        answer = await next_answer(connection)
        if answer is not None and answer.request_id == request_id:
            return judge_hello(answer, expected_login)


def judge_hello(answer: Answer, expected_login: str) -> Hello | None:
    """Return what the peer said of itself; ``None`` for an older one, which does not know the operation.

    Args:
        answer: the answer to the hello.
        expected_login: the ``serverLogin`` under which the peer is known here; any case.

    Raises:
        HelloFailed: another server answers, it refuses, or it speaks another version.
    """
    if answer.error == "UNKNOWN_OP" and not answer.ok:
        return None
    if not answer.ok:
        raise HelloFailed(f"ServerHello refused with {answer.status} {answer.error}: {answer.message}")
    if answer.payload.get("accepted") is False:
        raise HelloFailed("ServerHello not accepted")
    try:
        hello = parse_hello(answer.payload)
    except Refusal as refusal:
        raise HelloFailed(f"the answer to ServerHello is not usable: {refusal}") from None
    if hello.server_login.lower() != expected_login.lower():
        raise HelloFailed(f"ServerHello answered by {hello.server_login}, not by {expected_login}")
    return hello
