"""``block``, ``unblock`` and ``blocked``: from whom the account's servers take nothing."""

from __future__ import annotations

import argparse

from shine_node.cli.common import OK, UNUSABLE, SubCommands, add_keys_option, complain, key_file

__all__ = ["add_parser", "run"]


def add_parser(commands: SubCommands) -> None:
    """Describe the commands."""
    for name, text in (
        ("block", "take no more messages from somebody"),
        ("unblock", "take messages from somebody again"),
    ):
        about = (
            f"{text[0].upper()}{text[1:]}: what was received stays, and the other one sees that nothing is delivered."
        )
        parser = commands.add_parser(name, help=text, description=about)
        parser.add_argument("login", help="whose messages")
        add_keys_option(parser)
        parser.set_defaults(run=run, blocked=name == "block")
    about = "Shows the logins that are blocked, one to a line."
    parser = commands.add_parser("blocked", help="show whose messages are not taken", description=about)
    add_keys_option(parser)
    parser.set_defaults(run=run, login=None, blocked=False)


def run(arguments: argparse.Namespace) -> int:
    """Change or print the list.

    Raises:
        KeyFileError, ClientError, TooManyBlocked, ListContended.
    """
    import asyncio

    from shine_node.protocol.logins import is_login

    if arguments.login is not None and not is_login(arguments.login):
        complain("the login must be 1 to 30 of A-Z a-z 0-9 _ . - and begin with a letter or digit")
        return UNUSABLE
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    from shine_node.client.blocking import change_blocked, read_blocked
    from shine_node.client.joining import find_registered
    from shine_node.client.keyfile import load_key_file
    from shine_node.client.online import connect_first
    from shine_node.clock import SystemClock

    keys, clock = key_file(arguments), SystemClock()
    account = load_key_file(keys)
    async with connect_first(account.servers) as (connection, _):
        account = await find_registered(connection, keys, account, clock=clock)
        if arguments.login is None:
            for login in await read_blocked(connection, account.identity):
                print(login)
            return OK
        now_ms, blocked = clock.now_ms(), arguments.blocked
        _, changed = await change_blocked(connection, account.identity, arguments.login, blocked=blocked, now_ms=now_ms)
    if not changed:
        complain(f"{arguments.login} {'is blocked already' if blocked else 'is not blocked'}")
    return OK
