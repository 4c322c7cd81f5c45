"""``inbox``: what there is to read, the oldest first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shine_node.cli.common import OK, UNUSABLE, SubCommands, add_keys_option, complain, key_file, number_between

__all__ = ["add_parser", "run"]

RECEIPT_SECONDS = 60


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "inbox",
        help="show messages",
        description="Shows the newest messages, the oldest of them first, of one chat or of all; with --unread the"
        " oldest of those that came in and are unread.",
    )
    parser.add_argument("login", nargs="?", help="only the chat with this one")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=number_between(1, 500),
        default=20,
        help="how many at most, 1 to 500 (default: %(default)s)",
    )
    parser.add_argument("--unread", action="store_true", help="only what came in and is unread")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--mark-read",
        action="store_true",
        help="send a read receipt for what was shown; it covers all that came before it in the chat",
    )
    add_keys_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print messages, and mark them read if that was asked for.

    Raises:
        KeyFileError, SealingUnavailable, ClientError.
    """
    import asyncio

    from shine_node.protocol.logins import is_login

    if arguments.login is not None and not is_login(arguments.login):
        complain("the login must be 1 to 30 of A-Z a-z 0-9 _ . - and begin with a letter or digit")
        return UNUSABLE
    return asyncio.run(_show(arguments, key_file(arguments)))


async def _show(arguments: argparse.Namespace, keys: Path) -> int:
    from shine_node.cli.lines import json_line, message_fields, message_line
    from shine_node.client.inbox import make_receipts, newest_messages, unread_messages
    from shine_node.client.keyfile import load_key_file
    from shine_node.client.online import read_online
    from shine_node.client.sending import submit
    from shine_node.clock import SystemClock

    clock = SystemClock()
    find = unread_messages if arguments.unread else newest_messages
    messages = await read_online(keys, lambda at: find(at.history, arguments.login, arguments.limit), clock=clock)
    for message in messages:
        print(json_line(message_fields(message)) if arguments.json else message_line(message))
    sys.stdout.flush()  # nothing is marked that could not be shown
    if arguments.mark_read:
        account = load_key_file(keys)
        for receipt in make_receipts(account.identity, messages, clock.now_ms):
            await submit(account.servers, receipt, clock=clock, limit_seconds=RECEIPT_SECONDS)
    return OK
