"""``send``: one sealed message, seen through until a server has taken it, or until it is delivered."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shine_node.cli.common import (
    OK,
    REFUSED,
    UNUSABLE,
    SubCommands,
    add_keys_option,
    complain,
    key_file,
    number_between,
)

__all__ = ["add_parser", "read_text", "run"]

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""The greatest body that any server takes; most take far less, and say so."""
UNKNOWN = "unknown"
REFUSED_STATE = "refused"


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "send",
        help="send a message",
        description="Sends a message that only its recipient and you can read, waits for the server's answer, and"
        " prints the state of the delivery. Exit status: 0 accepted or delivered (with --wait: delivered), 1 refused,"
        " failed, or no answer, 2 the command line is wrong.",
    )
    parser.add_argument("login", help="whom to send it to")
    parser.add_argument("text", nargs="?", default="-", help="what to send; - or nothing: the standard input")
    parser.add_argument("--wait", choices=["delivered"], help="wait until it is delivered, or has failed")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=number_between(1, 86400),
        default=60,
        help="how long to wait and to try, 1 to 86400 (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON object")
    add_keys_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send a message and print its state.

    Raises:
        nothing for what goes wrong at a server, with the key file or with the sealing: it is told as the state is.
    """
    import asyncio

    from shine_node.protocol.logins import is_login

    if not is_login(arguments.login):
        complain("the recipient must be 1 to 30 of A-Z a-z 0-9 _ . - and begin with a letter or digit")
        return UNUSABLE
    try:
        text = read_text(arguments.text)
    except ValueError as problem:
        complain(str(problem))
        return UNUSABLE
    waits = arguments.wait is not None
    return asyncio.run(_send(key_file(arguments), arguments.login, text, waits, arguments.timeout, arguments.json))


def read_text(given: str) -> str:
    """Return the text to send: what was given, or for ``-`` the standard input without the line end at its end.

    Raises:
        ValueError: it is empty, too long, or no UTF-8; the text says so.
    """
    if given == "-":
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        data = data.removesuffix(b"\n").removesuffix(b"\r")
    else:
        data = given.encode(errors="surrogateescape")
    if not data:
        raise ValueError("there is nothing to send")
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"the text is over {MAX_TEXT_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("the text is not valid UTF-8") from None


async def _send(keys: Path, login: str, text: str, waits: bool, limit_seconds: int, as_json: bool) -> int:
    from shine_node.cli.lines import json_line, visible
    from shine_node.client.connection import ClientError, Connection, RequestRefused
    from shine_node.client.joining import find_registered
    from shine_node.client.keyfile import load_key_file
    from shine_node.client.messages import SignedPair, make_sealed_message
    from shine_node.client.online import make_people
    from shine_node.client.people import PersonError
    from shine_node.client.sealing import check_sealing
    from shine_node.client.sending import ACCEPTED, DELIVERED, Outgoing, await_delivery, submit
    from shine_node.clock import SystemClock
    from shine_node.protocol.errors import ShineError

    clock = SystemClock()

    async def seal(connection: Connection) -> SignedPair:
        account = await find_registered(connection, keys, load_key_file(keys), clock=clock)
        person = await make_people(keys, account, clock=clock).find(connection, login)
        reader = person.record.device_key
        return make_sealed_message(account.identity, person.record.login, text, reader=reader, time_ms=clock.now_ms())

    message, error = Outgoing(seal), None
    try:
        check_sealing()
        servers = load_key_file(keys).servers
        bring = await_delivery if waits else submit
        state = await bring(servers, message, clock=clock, limit_seconds=limit_seconds)
    except (RequestRefused, PersonError) as refused:
        complain(str(refused))
        state, error = REFUSED_STATE, refused.code
    except ClientError as problem:
        state = UNKNOWN
        complain(f"{problem}: {_what_is_known(message.pair is not None, login)}")
    except ShineError as problem:  # with the key file, or the library that seals
        complain(str(problem))
        state = REFUSED_STATE
    if as_json:
        key, time_ms = (message.pair.base_key, message.pair.message.time_ms) if message.pair else (None, None)
        fields = {"type": "sent", "key": key, "peer": login.lower(), "timeMs": time_ms}
        print(json_line({**fields, "state": state, "error": error}))
    else:
        print(visible(state))
    if waits and state == ACCEPTED:
        complain(f"not delivered within {limit_seconds} s: the server goes on trying")
    return OK if state == DELIVERED or (state == ACCEPTED and not waits) else REFUSED


def _what_is_known(is_sealed: bool, login: str) -> str:
    if is_sealed:
        return f"it is not known whether the message was accepted, `shine-node inbox {login}` may tell"
    return "nothing was sent"
