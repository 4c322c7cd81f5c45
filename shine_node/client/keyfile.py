"""The file of an account on this machine: its secret, its servers, its sessions, and whose root keys it has seen.

One JSON object in a file that only its owner can read. It is made whole or not at all, never over another one, and is
replaced whole; programs that change it at the same time wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from shine_node.client.identity import Identity
from shine_node.client.secret import SECRET_BYTES, make_identity
from shine_node.clock import Clock
from shine_node.protocol.access import AccessServer, is_server_url
from shine_node.protocol.encoding import decode_base64, encode_base64
from shine_node.protocol.errors import ShineError
from shine_node.protocol.logins import is_login

__all__ = ["Account", "KeyFileError", "SavedSession", "create_key_file", "default_key_file", "load_key_file"]
__all__ += ["remove_key_file", "update_key_file"]

FILE_MODE = 0o600
FOLDER_MODE = 0o700
MAX_FILE_BYTES = 4 * 1024 * 1024
LOCK_PAUSE_SECONDS = 0.05
LOCK_TRIES = 200


class KeyFileError(ShineError):
    """The key file cannot be used; the text says why, and what to do."""


class SavedSession(NamedTuple):
    """A session at one server: its id there, and the seed of its key."""

    session_id: str
    seed: bytes

    def __repr__(self) -> str:
        return f"SavedSession({self.session_id!r})"  # the seed must not reach a log or a traceback


class Account(NamedTuple):
    """What a key file holds.

    ``servers`` are where the account is at home, the first one is asked first. ``registered`` is whether a server has
    taken it. ``sessions`` are by URL, ``root_keys`` by login in lower case, as they were first seen; ``record_times``,
    too, the ``timeMs`` of the newest record that was seen, Unix milliseconds.
    """

    login: str
    secret: bytes
    servers: tuple[AccessServer, ...]
    registered: bool
    sessions: dict[str, SavedSession]
    root_keys: dict[str, bytes]
    record_times: dict[str, int] = {}  # noqa: RUF012  # never changed in place

    @property
    def identity(self) -> Identity:
        """The login with its keys."""
        return make_identity(self.login, self.secret)

    def __repr__(self) -> str:
        return f"Account({self.login!r}, {self.servers!r})"  # the secret must not reach a log or a traceback


def default_key_file() -> Path:
    """Return ``$XDG_CONFIG_HOME/shine-node/keys.json``, below ``~/.config`` where that is not set."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"  # a relative one does not count
    return folder / "shine-node" / "keys.json"


def create_key_file(path: Path, account: Account) -> None:
    """Write a new file, whole or not at all.

    Raises:
        KeyFileError: there is one already, or it cannot be written.
    """
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with _written_beside(path, account) as made:
            os.link(made, path, follow_symlinks=False)  # unlike a renaming it fails where there is a file
            _sync_folder(path)
    except FileExistsError:
        raise KeyFileError(
            f"{path} is there already, and is never overwritten: name another file with --keys"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None


def load_key_file(path: Path) -> Account:
    """Return what a file holds.

    Raises:
        KeyFileError: there is none, others than its owner can read it, or it is no key file.
    """
    descriptor = _open(path)
    try:
        return _load(descriptor, path)
    finally:
        os.close(descriptor)


async def update_key_file(path: Path, change: Callable[[Account], Account], *, clock: Clock) -> Account:
    """Change what a file holds as it is now, and return it; others who change it wait for this one, up to 10 s.

    Raises:
        KeyFileError: as ``load_key_file``; or another program has kept it locked.
    """
    for _ in range(LOCK_TRIES):
        with _locked(path) as descriptor:
            if descriptor is not None:
                account = _load(descriptor, path)
                changed = change(account)
                if changed != account:
                    _replace(path, changed)
                return changed
        await clock.sleep(LOCK_PAUSE_SECONDS)
    raise KeyFileError(f"{path} is in use by another program: try again")


def remove_key_file(path: Path) -> None:
    """Remove a file that was made for an account which no server took; one that is gone is no error.

    Raises:
        KeyFileError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be removed: {error.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Lock the file that the path names, for the block; ``None`` where another one holds it or has just replaced it."""
    descriptor = _open(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield descriptor if _is_at(descriptor, path) else None
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise KeyFileError(f"{path} is not there: make an account with `shine-node account new` or `recover`") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None


def _load(descriptor: int, path: Path) -> Account:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"{path} is no file")
    if status.st_mode & 0o077:
        raise KeyFileError(f"{path} can be read by others than its owner: run chmod 600 on it, if they have not")
    data = os.pread(descriptor, MAX_FILE_BYTES + 1, 0)
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError("too large")
        return _decode(orjson.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, ShineError):
        raise KeyFileError(f"{path} is no key file of this program, or was damaged") from None


def _replace(path: Path, account: Account) -> None:
    path = path.resolve()  # a link goes on pointing at the file
    try:
        with _written_beside(path, account) as made:
            made.replace(path)
            _sync_folder(path)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _written_beside(path: Path, account: Account) -> Iterator[Path]:
    """Write what is to become a file into a new one beside it, on disk, which is gone after the block."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(orjson.dumps(_encode(account), option=orjson.OPT_INDENT_2) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(account: Account) -> dict[str, object]:
    return {
        "login": account.login,
        "secretB64": encode_base64(account.secret),
        "servers": [{"serverLogin": server.server_login, "url": server.url} for server in account.servers],
        "registered": account.registered,
        "sessions": {
            url: {"sessionId": session.session_id, "seedB64": encode_base64(session.seed)}
            for url, session in account.sessions.items()
        },
        "rootKeys": {login: encode_base64(key) for login, key in account.root_keys.items()},
        "recordTimes": account.record_times,
    }


def _decode(document: Any) -> Account:
    """Return what a document holds; any of several errors says that it is none."""
    login, registered = document["login"], document["registered"]
    servers = tuple(AccessServer(str(one["serverLogin"]), str(one["url"])) for one in document["servers"])
    if not is_login(login) or not isinstance(registered, bool):
        raise ValueError("login, registered")
    if not servers or not all(is_server_url(server.url, allow_insecure=True) for server in servers):
        raise ValueError("servers")
    return Account(
        login,
        _bytes(document["secretB64"]),
        servers,
        registered,
        {url: SavedSession(str(one["sessionId"]), _bytes(one["seedB64"])) for url, one in document["sessions"].items()},
        {login: _bytes(key) for login, key in document["rootKeys"].items()},
        # Files of earlier versions have none.
        {login: _time(time_ms) for login, time_ms in document.get("recordTimes", {}).items()},
    )


def _time(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("recordTimes")
    return value


def _bytes(text: str) -> bytes:
    data = decode_base64(text, "a key")
    if len(data) != SECRET_BYTES:
        raise ValueError("length")
    return data
