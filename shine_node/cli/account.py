"""``account new|recover|show``: the account of this machine, with which ``send``, ``inbox`` and ``watch`` work."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_keys_option, complain, key_file

if TYPE_CHECKING:
    from shine_node.client.keyfile import Account
    from shine_node.client.registering import ServerToUse
    from shine_node.protocol.access import AccessRecord

__all__ = ["add_parser", "run_new", "run_recover", "run_show"]

MOST_SERVERS = 2
MAX_KEY_CHARACTERS = 4096


def add_parser(commands: SubCommands) -> None:
    """Describe the commands."""
    parser = commands.add_parser("account", help="make, recover and show the account that send, inbox and watch use")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    new = actions.add_parser(
        "new",
        help="make an account and register it",
        description="Makes an account with new keys, writes them to a file that only you can read, and registers it at"
        " one or two servers. Prints the recovery key. If a server could not be reached, run the same again. Where a"
        " server is closed, it prints a record, which is no secret, for the server's operator, who adds it with"
        " `shine-node user add --record -`; the account can be used as soon as that is done.",
    )
    new.add_argument("login", help="1 to 30 of A-Z a-z 0-9 _ . - and the first one a letter or digit")
    new.add_argument(
        "--server",
        metavar="[NAME=]URL",
        action="append",
        required=True,
        type=_server,
        help="where the account is to be at home, wss://HOST/ws; NAME if it does not say so itself; once or twice",
    )
    new.add_argument(
        "--token",
        metavar="T",
        action="append",
        default=[],
        help="the registration token of the server, if it has one; with two servers once for each, in the same order",
    )
    new.add_argument(
        "--record",
        metavar="FILE",
        help="register nothing: write the record for the server's operator to FILE; - is the standard output, with"
        " nothing else. Run again, it is a record of the same keys",
    )
    add_keys_option(new)
    new.set_defaults(run=run_new)

    recover = actions.add_parser(
        "recover",
        help="get an account back from its recovery key",
        description="Reads a recovery key from the terminal or the standard input, and writes the account's keys to a"
        " file that only you can read.",
    )
    recover.add_argument(
        "--server", metavar="[NAME=]URL", required=True, type=_server, help="a server that knows it, wss://HOST/ws"
    )
    add_keys_option(recover)
    recover.set_defaults(run=run_recover)

    show = actions.add_parser(
        "show",
        help="show the account",
        description="Shows the account. Its servers are asked only where it was not registered yet.",
    )
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--recovery-key", action="store_true", help="the recovery key alone, which is a secret")
    add_keys_option(show)
    show.set_defaults(run=run_show)


def run_new(arguments: argparse.Namespace) -> int:
    """Make an account and register it.

    Raises:
        BadLogin, LoginTaken, KeyFileError, ClientError: it is not registered, or not everywhere; a plain
        ``ShineError``: its record cannot be written.
    """
    import asyncio

    from shine_node.client.registering import AwaitsOperator, register
    from shine_node.clock import SystemClock

    servers: list[ServerToUse] = arguments.server
    tokens: list[str] = arguments.token
    if len(servers) > MOST_SERVERS:
        complain("give --server once or twice: an account has at most two servers")
        return UNUSABLE
    if len(tokens) > len(servers):
        complain("give --token at most once for each --server")
        return UNUSABLE
    tokens = tokens + [""] * (len(servers) - len(tokens))
    servers = [server._replace(token=token) for server, token in zip(servers, tokens, strict=True)]
    path = key_file(arguments)
    if arguments.record is not None:
        return _prepare(arguments, path, servers)
    try:
        account = asyncio.run(register(path, arguments.login, servers, clock=SystemClock()))
    except AwaitsOperator as waiting:
        complain(str(waiting))
        print(
            f"The keys are in {path}. Give this record, which is no secret, to the operator of {waiting.server_login},"
        )
        print("who adds it with `shine-node user add --record -`; `shine-node account show` says whether that is done:")
        print(_record_text(waiting.record))
        _print_recovery_key(waiting.account)
        return REFUSED
    print(f"{account.login} is registered at {_places(account)}; the keys are in {path}")
    _print_recovery_key(account)
    return OK


def _prepare(arguments: argparse.Namespace, path: Path, servers: list[ServerToUse]) -> int:
    """Make the account and write its record, alone where it goes to the standard output."""
    import asyncio

    from shine_node.client.keyfile import load_key_file
    from shine_node.client.registering import prepare
    from shine_node.clock import SystemClock
    from shine_node.protocol.errors import ShineError

    text = _record_text(asyncio.run(prepare(path, arguments.login, servers, clock=SystemClock())))
    account = load_key_file(path)
    hint = f"give it to the operator of {_places(account)}, who adds it with `shine-node user add --record -`"
    if arguments.record == "-":
        print(text)
        complain(f"this is the record of {account.login}: {hint}")
        complain(f"the keys are in {path}; `shine-node account show --recovery-key` is the only way back if it is lost")
        return OK
    try:
        Path(arguments.record).write_text(f"{text}\n", encoding="ascii")
    except OSError as error:
        raise ShineError(f"{arguments.record} cannot be written: {error.strerror}; run the same again") from None
    print(f"The keys are in {path}, the record of {account.login} is in {arguments.record}:")
    print(f"{hint}.")
    _print_recovery_key(account)
    return OK


def run_recover(arguments: argparse.Namespace) -> int:
    """Write the key file of an account anew.

    Raises:
        BadRecoveryKey, KeyFileError, PersonError, NotThisAccount, ClientError: nothing was written.
    """
    import asyncio

    from shine_node.client.registering import recover
    from shine_node.client.secret import parse_recovery_key

    login, secret = parse_recovery_key(_read_recovery_key())
    path = key_file(arguments)
    account = asyncio.run(recover(path, login, secret, arguments.server))
    print(f"{account.login} is recovered, at {_places(account)}; the keys are in {path}")
    return OK


def run_show(arguments: argparse.Namespace) -> int:
    """Print the account.

    Raises:
        KeyFileError, LoginTaken.
    """
    import asyncio

    from shine_node.cli.lines import json_line
    from shine_node.client.joining import ask_servers
    from shine_node.client.keyfile import load_key_file
    from shine_node.client.secret import write_recovery_key
    from shine_node.clock import SystemClock

    path = key_file(arguments)
    account = load_key_file(path)
    if arguments.recovery_key:
        print(write_recovery_key(account.login, account.secret))
        return OK
    account = asyncio.run(ask_servers(path, account, clock=SystemClock()))
    if not account.registered:
        again = " ".join(f"--server {server.server_login}={server.url}" for server in account.servers)
        complain(
            f"{account.login} is not registered yet, or its server cannot be reached: `shine-node account new"
            f" {account.login} {again}` tries again, and prints the record for the operator of a closed server"
        )
    fields = _fields(account)
    if arguments.json:
        print(json_line(fields))
        return OK
    for name, value in {
        **fields,
        "servers": _places(account),
        "registered": "yes" if account.registered else "no",
    }.items():
        print(f"{name:<15} {value}")
    return OK


def _server(text: str) -> ServerToUse:
    """Read a server of the command line: its URL, and before it its name, if that is given."""
    from shine_node.client.registering import ServerToUse
    from shine_node.protocol.access import is_server_url
    from shine_node.protocol.logins import is_login

    name, _, url = text.partition("=") if "=" in text.partition("://")[0] else ("", "", text)
    if not is_server_url(url, allow_insecure=True):
        raise argparse.ArgumentTypeError(f"must be wss://HOST/ws, or NAME=wss://HOST/ws, not {text!r}")
    if name and not is_login(name):
        raise argparse.ArgumentTypeError(f"{name!r} is no name of a server")
    return ServerToUse(url, name)


def _read_recovery_key() -> str:
    """Read a recovery key where it is not seen: it never stands on a command line, which others can read."""
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Recovery key: ")
    return sys.stdin.read(MAX_KEY_CHARACTERS)


def _record_text(record: AccessRecord) -> str:
    """Return a record as `user add --record` reads it: one line, which a person can copy."""
    from shine_node.cli.lines import json_line
    from shine_node.protocol.access import record_payload

    return json_line(record_payload(record))


def _print_recovery_key(account: Account) -> None:
    from shine_node.client.secret import write_recovery_key

    print("This recovery key is the only way back if that file is lost. Write it down, and show it to nobody:")
    print(write_recovery_key(account.login, account.secret))


def _places(account: Account) -> str:
    return ", ".join(f"{server.server_login} ({server.url})" for server in account.servers)


def _fields(account: Account) -> dict[str, Any]:
    from shine_node.protocol.encoding import encode_base64

    user = account.identity
    return {
        "login": user.login,
        "servers": [{"serverLogin": server.server_login, "url": server.url} for server in account.servers],
        "registered": account.registered,
        "blockchainName": user.blockchain_name,
        "solanaKey": encode_base64(user.root.public),
        "blockchainKey": encode_base64(user.blockchain.public),
        "deviceKey": encode_base64(user.device.public),
    }
