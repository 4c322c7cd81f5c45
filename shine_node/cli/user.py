"""``user add|list|show``: the users of this server, in its store; to add one, the node must be stopped."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_config_option, complain

if TYPE_CHECKING:
    from shine_node.config import Config
    from shine_node.protocol.access import AccessRecord
    from shine_node.store.users import Registration

__all__ = ["add_parser", "owner_problem", "run_add", "run_list", "run_show"]

MAX_RECORD_BYTES = 64 * 1024
_KEYS = ("login", "solana_key", "blockchain_key", "device_key")


def add_parser(commands: SubCommands) -> None:
    """Describe the commands."""
    parser = commands.add_parser("user", help="add and show users of this server")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add = actions.add_parser(
        "add",
        help="add a user, or a newer record of one",
        description="Adds a user, or a newer record of one. The node must be stopped. Either --record, a signed record,"
        " or the login and its three keys (Base64), for a user that this server alone knows.",
    )
    add_config_option(add)
    add.add_argument("--record", metavar="FILE", help="a signed access record in JSON; - is the standard input")
    add.add_argument("--login")
    add.add_argument("--blockchain-name", metavar="NAME", help="the login, a dash, three digits (default: LOGIN-001)")
    add.add_argument("--solana-key", metavar="KEY", help="the root key")
    add.add_argument("--blockchain-key", metavar="KEY")
    add.add_argument("--device-key", metavar="KEY")
    add.set_defaults(run=run_add)

    show_all = actions.add_parser("list", help="list the users of this server", description="Lists users by login.")
    add_config_option(show_all)
    show_all.add_argument("--all", action="store_true", help="also users of other servers that are known here")
    show_all.add_argument("--json", action="store_true", help="one JSON object a line")
    show_all.set_defaults(run=run_list)

    show = actions.add_parser("show", help="show one user", description="Shows all that is known of one user.")
    add_config_option(show)
    show.add_argument("login")
    show.add_argument("--json", action="store_true", help="one JSON object, with all older records")
    show.set_defaults(run=run_show)


def run_add(arguments: argparse.Namespace) -> int:
    """Add a user, or a newer record.

    Raises:
        ConfigError, StoreError, Refusal: nothing was stored; a plain ``ShineError``: there is no such file.
    """
    from shine_node.config import load_config

    given = [name for name in (*_KEYS, "blockchain_name") if getattr(arguments, name) is not None]
    if arguments.record is not None and given:
        complain(f"--record holds all of the user: leave out --{given[0].replace('_', '-')}")
        return UNUSABLE
    missing = [name for name in _KEYS if name not in given]
    if arguments.record is None and missing:
        complain(f"give --record FILE, or also {', '.join('--' + name.replace('_', '-') for name in missing)}")
        return UNUSABLE
    config = load_config(arguments.config)
    payload = _read_payload(arguments.record) if arguments.record is not None else _payload_of(arguments)
    return _add(config, payload, signed=arguments.record is not None)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the users, by login; also while the node runs.

    Raises:
        ConfigError, StoreError.
    """
    import orjson

    from shine_node.config import load_config
    from shine_node.store.users import list_users
    from shine_node.store.view import view_store

    config = load_config(arguments.config)
    with view_store(_store_file(config, must_exist=True)) as txn:
        registrations = list(list_users(txn))  # the snapshot is not kept open for a slow reader of this output
    for registration in registrations:
        standing = _standing(registration, config.server.login)
        if standing == "known" and not arguments.all:
            continue
        if arguments.json:
            print(orjson.dumps(_described(registration, config.server.login)).decode())
        else:
            servers = ", ".join(server.server_login for server in registration.record.access_servers)
            print(f"{registration.record.login:<30}  {standing:<6}  {servers}".rstrip())
    return OK


def run_show(arguments: argparse.Namespace) -> int:
    """Print one user; also while the node runs.

    Raises:
        ConfigError, StoreError, BadLogin.
    """
    import orjson

    from shine_node.config import load_config
    from shine_node.protocol.access import record_payload
    from shine_node.protocol.logins import check_login, login_key
    from shine_node.store.users import get_records, get_registration
    from shine_node.store.view import view_store

    config = load_config(arguments.config)
    login = login_key(check_login(arguments.login))
    with view_store(_store_file(config, must_exist=True)) as txn:
        registration = get_registration(txn, login)
        records = get_records(txn, login)
    if registration is None:
        complain(f"nobody is known here as {arguments.login}")
        return REFUSED
    described = _described(registration, config.server.login)
    older = [record_payload(record) for record in records if record != registration.record]
    if arguments.json:
        print(orjson.dumps({**described, "history": older}, option=orjson.OPT_INDENT_2).decode())
        return OK
    servers = [f"{server.server_login} {server.url}" for server in registration.record.access_servers]
    for name, value in {**described, "accessServers": ", ".join(servers), "older records": len(older)}.items():
        print(f"{name:<15} {'–' if value is None else value}")
    return OK


def owner_problem(folder: Path, *, user: int, owner: int) -> str | None:
    """Say why a user must not touch a data folder: what root makes there, the node's own user could not open.

    Args:
        user: the effective user id of this process.
        owner: the user id that the folder belongs to.
    """
    if user != 0 or owner == 0:
        return None
    import pwd

    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"#{owner}"
    return f"{folder} belongs to the user {name}: run this as that user, with sudo -u '{name}' in front"


def _add(config: Config, payload: dict[str, Any], *, signed: bool) -> int:
    import asyncio

    from shine_node.protocol.access import AccessRecord, AccessServer, parse_identity, parse_record
    from shine_node.protocol.encoding import read_optional_number

    if signed:
        record = parse_record(payload, allow_insecure=config.server.pool.allow_insecure_peers)
    else:
        login, blockchain_name, keys = parse_identity(payload)
        own = AccessServer(config.server.login, config.server.url)
        record = AccessRecord(login, blockchain_name, *keys, (own,), 0, b"")
    known, applied = asyncio.run(_store(config, record, signed, read_optional_number(payload, "bchLimit")))
    if not applied:
        print(f"{record.login}: nothing changed, this record or a newer one was known")
        return OK
    print(f"{record.login}: {'updated' if known else 'added'}")
    if not record.names_server(config.server.login):
        print(f"{record.login} is known here and not served here: the record does not name {config.server.login}")
    return OK


async def _store(config: Config, record: AccessRecord, signed: bool, bch_limit: int | None) -> tuple[bool, bool]:
    """Store a record by the node's own way in; return whether the login was known, and whether this is the newest."""
    from shine_node.clock import SystemClock
    from shine_node.crypto.pool import CryptoPool
    from shine_node.directory.users import Users
    from shine_node.store.environment import Store, StoreError

    path = _store_file(config, must_exist=False)
    try:
        store = Store(path, map_size=config.storage.map_size_mib * 2**20)
    except StoreError as error:
        raise StoreError(f"{error}\nUsers can be added while the node is stopped, and shown at any time.") from None
    crypto = CryptoPool(threads=1, max_queue=1)
    store.start()
    crypto.start()
    try:
        users = Users(store=store, crypto=crypto, clock=SystemClock(), own_login=config.server.login)
        known = users.get(record.key) is not None
        applied = await users.add(record, must_be_new=not signed, local=not signed, bch_limit=bch_limit)
    finally:
        crypto.close()
        store.close()
    return known, applied


def _store_file(config: Config, *, must_exist: bool) -> Path:
    """Return the store's file, whose folder is made where that is allowed."""
    from shine_node.node import STORE_FILE
    from shine_node.store.environment import StoreError

    folder = config.server.data_dir
    path = folder / STORE_FILE
    try:
        if must_exist:
            path.stat()
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = owner_problem(folder, user=os.geteuid(), owner=folder.stat().st_uid)
    except FileNotFoundError:
        raise StoreError(f"{path} is not there yet: the first start of the node makes it, or `user add`") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be used ({error.strerror}): correct server.dataDir, or its owner") from None
    if problem is not None:
        raise StoreError(problem)
    return path


def _read_payload(source: str) -> dict[str, Any]:
    import orjson

    from shine_node.protocol.errors import ShineError

    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_RECORD_BYTES + 1)
        else:
            with Path(source).open("rb") as stream:
                data = stream.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise ShineError(f"{source} cannot be read: {error.strerror}") from None
    if len(data) > MAX_RECORD_BYTES:
        raise ShineError(f"{source} is larger than a record can be")
    try:
        payload = orjson.loads(data)
    except ValueError as error:
        raise ShineError(f"{source} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise ShineError(f"{source} must hold one JSON object, a record as it travels")
    return payload


def _payload_of(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "login": arguments.login,
        "blockchainName": arguments.blockchain_name or f"{arguments.login}-001",
        "solanaKey": arguments.solana_key,
        "blockchainKey": arguments.blockchain_key,
        "deviceKey": arguments.device_key,
    }


def _standing(registration: Registration, own_login: str) -> str:
    """Return what a user is here: ``local`` (unsigned, of this server alone), ``served``, or only ``known``."""
    if registration.local:
        return "local"
    return "served" if registration.record.names_server(own_login) else "known"


def _described(registration: Registration, own_login: str) -> dict[str, object]:
    from shine_node.protocol.access import record_payload

    return {
        **record_payload(registration.record),
        "standing": _standing(registration, own_login),
        "bchLimit": registration.bch_limit,
    }
