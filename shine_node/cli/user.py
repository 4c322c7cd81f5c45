"""``user add|list|show|resync|sign-out``: the users of this server; the running node is asked, or its store opened."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shine_node.cli.common import OK, REFUSED, UNUSABLE, SubCommands, add_config_option, complain

if TYPE_CHECKING:
    from shine_node.config import Config, LimitsConfig
    from shine_node.control.users import NewUser
    from shine_node.store.environment import Store
    from shine_node.store.usage import Used
    from shine_node.store.users import Registration

__all__ = ["add_parser", "owner_problem", "run_add", "run_list", "run_resync", "run_show", "run_sign_out"]

MAX_RECORD_BYTES = 64 * 1024
_KEYS = ("login", "solana_key", "blockchain_key", "device_key")


def add_parser(commands: SubCommands) -> None:
    """Describe the commands."""
    parser = commands.add_parser("user", help="add and show users of this server")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add = actions.add_parser(
        "add",
        help="add a user, or a newer record of one",
        description="Adds a user, or a newer record of one, whether the node runs or not. Either --record, the signed"
        " record that the chat page and `shine-node account new` give to a person for the operator; or the login and"
        " its three keys (Base64), for a user that this server alone knows, and whom the page and `account` refuse.",
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

    resync = actions.add_parser(
        "resync",
        help="send a user's other server everything again",
        description="Lets the running node send all settings and messages of a user to the user's other server again,"
        " bit by bit, as after a loss there. What that server has changes nothing, and nobody else is sent anything.",
    )
    add_config_option(resync)
    whom = resync.add_mutually_exclusive_group(required=True)
    whom.add_argument("login", nargs="?")
    whom.add_argument("--all", action="store_true", help="of every user who has another server")
    resync.set_defaults(run=run_resync)

    leave = actions.add_parser(
        "sign-out",
        help="end all sessions of a user",
        description="Ends all sessions of a user at this server, and their connections, whether the node runs or not:"
        " such as for a device that was lost. Whoever has the device key can create a new session; a lost key is"
        " replaced by the user, with the recovery key, which ends the sessions everywhere.",
    )
    add_config_option(leave)
    leave.add_argument("login")
    leave.set_defaults(run=run_sign_out)


def run_add(arguments: argparse.Namespace) -> int:
    """Add a user, or a newer record.

    Raises:
        ConfigError, StoreError, Refusal, AskRefused: nothing was stored; a plain ``ShineError``: there is no such file;
        ControlError: the node that runs could not be asked.
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
    if arguments.record is not None:
        return _add(config, arguments.config, {"record": _read_payload(arguments.record)})
    return _add(config, arguments.config, {"identity": _payload_of(arguments)})


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
    with view_store(_store_to_read(config)) as txn:
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

    from shine_node.clock import SystemClock
    from shine_node.config import load_config
    from shine_node.protocol.access import record_payload
    from shine_node.protocol.logins import check_login, login_key
    from shine_node.store.usage import snapshot_usage
    from shine_node.store.users import get_records, get_registration
    from shine_node.store.view import view_store

    config = load_config(arguments.config)
    login = login_key(check_login(arguments.login))
    with view_store(_store_to_read(config)) as txn:
        registration = get_registration(txn, login)
        records = get_records(txn, login)
        used = snapshot_usage(txn, login)
    if registration is None:
        complain(f"nobody is known here as {arguments.login}")
        return REFUSED
    described = {
        **_described(registration, config.server.login),
        **_used(used, config.limits, SystemClock().now_ms()),
    }
    older = [record_payload(record) for record in records if record != registration.record]
    if arguments.json:
        print(orjson.dumps({**described, "history": older}, option=orjson.OPT_INDENT_2).decode())
        return OK
    servers = [f"{server.server_login} {server.url}" for server in registration.record.access_servers]
    for name, value in {**described, "accessServers": ", ".join(servers), "older records": len(older)}.items():
        print(f"{name:<17} {'–' if value is None else value}")
    return OK


def run_resync(arguments: argparse.Namespace) -> int:
    """Have everything of a user, or of all, sent to the other server again, and print how much that is.

    Raises:
        ConfigError, ControlError: the node does not run, or cannot be asked; AskRefused: not a user of this server.
    """
    from shine_node.cli.control import ask
    from shine_node.config import load_config

    config = load_config(arguments.config)
    payload = {} if arguments.all else {"login": arguments.login}
    done = ask(config, arguments.config, "MarkUnsynced", payload)
    print(f"{done['settings']} settings and {done['messages']} messages go to the other server again")
    return OK


def run_sign_out(arguments: argparse.Namespace) -> int:
    """End all sessions of a user, and print how many there were.

    Raises:
        ConfigError, StoreError, BadLogin, UserNotFound, AskRefused: nothing was ended; ControlError: the node that runs
        could not be asked.
    """
    from shine_node.cli.control import NodeNotRunning, ask
    from shine_node.config import load_config
    from shine_node.protocol.logins import check_login, login_key

    config = load_config(arguments.config)
    login = login_key(check_login(arguments.login))
    try:
        count = ask(config, arguments.config, "SignOut", {"login": login})["sessions"]
    except NodeNotRunning:
        count = _sign_out_offline(config, login)
    print(f"{login}: {count} {'session' if count == 1 else 'sessions'} ended")
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


def _add(config: Config, config_path: Path, payload: dict[str, Any]) -> int:
    import asyncio

    from shine_node.cli.control import NodeNotRunning, ask
    from shine_node.control.users import read_new_user

    new = read_new_user(payload, config)
    try:
        done = ask(config, config_path, "AddUser", payload)
    except NodeNotRunning:
        done = asyncio.run(_add_offline(config, new))
    login = done["login"]
    if not done["applied"]:
        print(f"{login}: nothing changed, this record or a newer one was known")
        return OK
    print(f"{login}: {'updated' if done['known'] else 'added'}")
    if new.local:
        print(f"{login} has no signed record: the chat page, `shine-node send` and other servers refuse this user")
    elif not done["servedHere"]:
        print(f"{login} is known here and not served here: the record does not name {config.server.login}")
    elif not done["known"]:
        print(f"{login} can begin now: the chat page and `shine-node send` find out by themselves")
    return OK


async def _add_offline(config: Config, new: NewUser) -> dict[str, object]:
    """Store a user by the node's own way in, while no node runs."""
    from shine_node.clock import SystemClock
    from shine_node.control.users import add_user
    from shine_node.crypto.pool import CryptoPool
    from shine_node.directory.users import Users
    from shine_node.store.owner import note_owner

    store, clock = _open_store(config, must_exist=False), SystemClock()
    crypto = CryptoPool(threads=1, max_queue=1)
    store.start()
    crypto.start()
    try:
        await note_owner(store, config.server.login.lower())
        users = Users(store=store, crypto=crypto, clock=clock, own_login=config.server.login)
        return await add_user(users, new)
    finally:
        crypto.close()
        store.close()


def _sign_out_offline(config: Config, login: str) -> int:
    from shine_node.control.sessions import end_sessions

    store = _open_store(config, must_exist=True)
    try:
        return store.write_now(lambda txn: end_sessions(txn, login))
    finally:
        store.close()


def _open_store(config: Config, *, must_exist: bool) -> Store:
    """Open the store of a node that does not run."""
    from shine_node.cli.store_place import find_store, settle_store
    from shine_node.clock import SystemClock
    from shine_node.store.environment import Store, StoreError

    path = _own_place(config, make=not must_exist)
    settle_store(path)
    if must_exist:
        find_store(config)
    try:
        return Store(path, map_size=config.storage.map_size_mib * 2**20, now_ms=SystemClock().now_ms())
    except StoreError as error:
        hint = "If that is the node, it is just starting or stopping: try again in a moment."
        raise StoreError(f"{error}\n{hint}") from None


def _store_to_read(config: Config) -> Path:
    from shine_node.cli.store_place import find_store

    _own_place(config)
    return find_store(config)


def _own_place(config: Config, *, make: bool = False) -> Path:
    """Return the place of the store's file in a folder that this user may use, which is made if that is wanted."""
    from shine_node.node import STORE_FILE
    from shine_node.store.environment import StoreError

    folder = config.server.data_dir
    path = folder / STORE_FILE
    try:
        if make:
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
            if sys.stdin.isatty():
                complain("paste the record, and end it with Enter and Ctrl-D")
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
        raise ShineError(
            f"{source} is not JSON ({error}): give exactly what the chat page or `shine-node account new` shows as the"
            " record, from the first brace to the last"
        ) from None
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


def _used(used: Used, limits: LimitsConfig, now_ms: int) -> dict[str, object]:
    """Return what a user has stored and sent today (UTC), and how much that may be: ``None`` is for no bound. Pure."""
    from shine_node.store.usage import day_of

    return {
        "storedBytes": used.stored_bytes,
        "maxStoredBytes": limits.max_stored_mib_per_user * 2**20 or None,
        "messagesToday": used.sent if used.day == day_of(now_ms) else 0,
        "maxMessagesPerDay": limits.max_messages_per_day or None,
    }


def _described(registration: Registration, own_login: str) -> dict[str, object]:
    from shine_node.protocol.access import record_payload

    return {
        **record_payload(registration.record),
        "standing": _standing(registration, own_login),
        "bchLimit": registration.bch_limit,
    }
