"""Reading what a peer sends over a link."""

from __future__ import annotations

from websockets.asyncio.client import ClientConnection

from shine_node.protocol.envelope import Answer, decode_answer

__all__ = ["BinaryFrame", "next_answer"]


class BinaryFrame(Exception):
    """The peer sent a binary frame, which no server does."""


async def next_answer(connection: ClientConnection) -> Answer | None:
    """Return the next frame as an answer, ``None`` for one that is none.

    Raises:
        BinaryFrame: the connection is to be closed with 1003.
        ConnectionClosed: there is nothing more to read.
    """
    frame = await connection.recv()
    if isinstance(frame, bytes):
        raise BinaryFrame("the peer sent a binary frame")
    return decode_answer(frame)
