"""Takes the lines of an export into a store, in bounded transactions; what is there already is passed over.

Each line stands for itself: one that is forged or does not fit is refused, and the others go on. So an import that was
interrupted is begun again, and goes on where it ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shine_node.protocol.access import User, signed_text
from shine_node.protocol.container import Container
from shine_node.protocol.encoding import read_base64, read_text
from shine_node.protocol.errors import (
    BadFields,
    BadSignature,
    Refusal,
    RootKeyMismatch,
    UserAlreadyExists,
    UserNotFound,
)
from shine_node.protocol.settings import check_setting_key, setting_text, signature_invalid
from shine_node.protocol.signatures import is_signed_by
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number, unpack_number
from shine_node.store.lineage import LINEAGE, add_runs
from shine_node.store.messages import identical
from shine_node.store.owner import OWNER_KEY
from shine_node.store.placing import place_item
from shine_node.store.portable import (
    HeldSession,
    HeldSetting,
    parse_item,
    parse_line,
    parse_registration,
    parse_resync,
    parse_runs,
    parse_session,
    parse_setting_line,
)
from shine_node.store.resync import Resync, all_resyncs, begin_resync, put_resync
from shine_node.store.schema import SCHEMA_KEY
from shine_node.store.sessions import add_session, close_sessions, get_session
from shine_node.store.settings import acknowledge_setting, get_setting, index_row, put_setting
from shine_node.store.users import (
    Registration,
    access_servers,
    add_record,
    get_registration,
    get_user,
    has_record,
    other_server,
)

__all__ = ["Check", "Imported", "Importer", "Line"]

NO_BOUND = 2**31
"""Of the settings and sessions of a user: the store that was exported had one already."""
MAX_META_NAME_BYTES = 400
_DOUBTS = (b"peer_doubt ", b"peer_doubt_before ")
_OF_THE_STORE = (SCHEMA_KEY, OWNER_KEY)

Check = tuple[bytes, bytes, bytes]
"""A public key, the bytes that were signed, the signature."""

Verify = Callable[[Sequence[Check]], Sequence[bool]]


class Line(NamedTuple):
    """One line, without its end, and its number in the file, from 1."""

    number: int
    data: bytes


class Imported(NamedTuple):
    """What has become of lines: stored, known before or of no use here, or refused."""

    stored: int = 0
    known: int = 0
    refused: int = 0


class _Work(NamedTuple):
    """One good line: what has to be signed, and what stores it and says whether it has changed anything."""

    number: int
    checks: Sequence[Check]
    store: Callable[[Transaction], bool]
    forged: Refusal
    other_keys: tuple[bytes, ...] = ()
    """Which may have signed it as well."""


class Importer:
    """Takes lines, some at a time.

    Args:
        store: whose writer does not run.
        own_login: this server's login, in lower case.
        foreign: the export is another server's: only what is of users of this server is taken.
        verify: says of each signature whether it holds.
        refuse: is told of each line that is refused: its number, and why.
    """

    def __init__(
        self,
        store: Store,
        *,
        own_login: str,
        foreign: bool,
        refuse: Callable[[int, Refusal], object],
        verify: Verify | None = None,
    ) -> None:
        self._store = store
        self._own_login = own_login
        self._foreign = foreign
        self._refuse = refuse
        self._verify = verify or _verify
        self.imported = Imported()
        """Of all lines so far."""

    def refuse(self, number: int, refusal: Refusal) -> None:
        """Count a line that cannot even be read, and say so of it as of any other that is refused."""
        self._count(refused=1)
        self._refuse(number, refusal)

    def take(self, lines: Sequence[Line]) -> None:
        """Store some lines, in their order, those of one type in one transaction.

        Raises:
            StorageFull, InternalError, ServerBusy: what was stored before stays.
        """
        parsed = [(line.number, found) for line in lines if (found := self._parse(line)) is not None]
        for type_, group in itertools.groupby(parsed, key=lambda entry: str(entry[1]["type"])):
            self._take_group(type_, list(group))

    def _parse(self, line: Line) -> dict[str, Any] | None:
        try:
            found = parse_line(line.data)
            if found["type"] not in _MAKERS:
                raise BadFields(f"nothing is known of the type {found['type']}")
        except Refusal as refusal:
            self.refuse(line.number, refusal)
            return None
        return found

    def _take_group(self, type_: str, group: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        works: list[_Work] = []
        users: dict[str, User | None] = {}
        with self._store.read() as txn:
            for number, line in group:
                try:
                    works.append(_MAKERS[type_](self, txn, users, number, line))
                except Refusal as refusal:
                    self.refuse(number, refusal)
        good = self._checked(works)

        def store(txn: Transaction) -> list[Refusal | bool]:
            return [_stored(txn, work) for work in good]

        for work, end in zip(good, self._store.write_now(store) if good else [], strict=True):
            if isinstance(end, Refusal):
                self.refuse(work.number, end)
            else:
                self._count(stored=end, known=not end)

    def _checked(self, works: Sequence[_Work]) -> list[_Work]:
        """Return those whose signatures hold."""
        checks = [check for work in works for check in work.checks]
        results = iter(self._verify(checks) if checks else [])
        good = []
        for work in works:
            held = list(itertools.islice(results, len(work.checks)))
            if all(one or self._signed_by_other(work, check) for one, check in zip(held, work.checks, strict=True)):
                good.append(work)
            else:
                self.refuse(work.number, work.forged)
        return good

    def _signed_by_other(self, work: _Work, check: Check) -> bool:
        _, text, signature = check
        return any(self._verify([(key, text, signature)])[0] for key in work.other_keys)

    def _count(self, *, stored: int = 0, known: int = 0, refused: int = 0) -> None:
        before = self.imported
        self.imported = Imported(before.stored + stored, before.known + known, before.refused + refused)

    # -- what each type of line takes ---------------------------------------------------------------------------

    def _record(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        registration = parse_registration(line)
        record, checks = registration.record, list[Check]()
        if not registration.local:
            if not has_record(txn, record):
                checks = [(record.solana_key, signed_text(record), record.signature)]
        elif not record.names_server(self._own_login):
            raise BadFields("this user is of another server alone")
        forged = BadSignature("the record is not signed by its root key")
        return _Work(number, checks, lambda txn: _store_record(txn, registration, self._own_login), forged)

    def _resync(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        work = parse_resync(line)
        return _Work(number, [], lambda txn: not self._foreign and _store_resync(txn, work), _NOT_SIGNED)

    def _setting(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        held = parse_setting_line(line)
        setting = held.setting
        if not self._takes(txn, setting.key):
            return _Work(number, [], _nothing, _NOT_SIGNED)
        checks: list[Check] = []
        if get_setting(txn, setting.key, setting.param) != setting:
            user = _known(txn, users, setting.key)
            if setting.device_key not in self._other_keys(user):
                check_setting_key(setting, user.device_key_at(setting.time_ms))
            checks = [(setting.device_key, setting_text(setting), setting.signature)]
        return _Work(number, checks, lambda txn: _store_setting(txn, held, self._own_login), signature_invalid(setting))

    def _session(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        held = parse_session(line)
        _known(txn, users, held.session.login)
        return _Work(number, [], lambda txn: not self._foreign and _store_session(txn, held), _NOT_SIGNED)

    def _item(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        item = parse_item(line)
        if not self._takes(txn, item.key.owner):
            return _Work(number, [], _nothing, _NOT_SIGNED)
        checks: list[Check] = []
        other_keys: tuple[bytes, ...] = ()
        if not item.row.removed and identical(txn, item.key, *item.blobs) is None:
            sender = _known(txn, users, item.key.message.from_login)
            copies = [copy for copy in (item.incoming, item.outgoing) if copy is not None]
            checks = [_check_of(copy, sender) for copy in copies]
            other_keys = self._other_keys(sender)
        forged = BadSignature("a copy is not signed by the sender's device key")
        own_login, foreign = self._own_login, self._foreign

        def store(txn: Transaction) -> bool:
            return place_item(txn, item, own_login=own_login, foreign=foreign)

        return _Work(number, checks, store, forged, other_keys)

    def _meta(self, txn: Transaction, users: dict[str, User | None], number: int, line: Mapping[str, Any]) -> _Work:
        name = read_text(line, "name").encode()
        if len(name) > MAX_META_NAME_BYTES or name in _OF_THE_STORE:
            raise BadFields("this is no name of what a store says of itself")
        runs = parse_runs(line) if name == LINEAGE else []
        value = read_base64(line, "valueB64") if name != LINEAGE else b""
        if name.startswith(_DOUBTS) and len(value) != 8:
            raise BadFields("a time has eight bytes")
        # A store that lacks lines must not say that it holds all that lay before them.
        whole = not self._foreign and not self.imported.refused
        return _Work(number, [], lambda txn: whole and _store_meta(txn, name, value, runs), _NOT_SIGNED)

    def _other_keys(self, user: User) -> tuple[bytes, ...]:
        """Return which keys of a user may have signed what was taken in once, beside the one of its time.

        A record that was learned later may say of that time that another key was in force then.
        """
        return () if self._foreign else tuple(key for _, key in user.device_keys)

    def _takes(self, txn: Transaction, owner: str) -> bool:
        """Say whether what is of an owner is wanted here; all of it in an export of this server's own."""
        if not self._foreign:
            return True
        return any(server.server_login.lower() == self._own_login for server in access_servers(txn, owner))


Maker = Callable[[Importer, Transaction, dict[str, User | None], int, Mapping[str, Any]], _Work]

_MAKERS: dict[str, Maker] = {
    "record": Importer._record,
    "resync": Importer._resync,
    "setting": Importer._setting,
    "session": Importer._session,
    "item": Importer._item,
    "meta": Importer._meta,
}
_NOT_SIGNED = BadSignature("this line has nothing that is signed")


def _verify(checks: Sequence[Check]) -> Sequence[bool]:
    return [is_signed_by(*check) for check in checks]


def _nothing(txn: Transaction) -> bool:
    return False


def _stored(txn: Transaction, work: _Work) -> Refusal | bool:
    try:
        return work.store(txn)
    except Refusal as refusal:  # none has written anything before it refuses
        return refusal


def _known(txn: Transaction, users: dict[str, User | None], login: str) -> User:
    if login not in users:
        users[login] = get_user(txn, login)
    user = users[login]
    if user is None:
        raise UserNotFound(f"no record of {login} is known here")
    return user


def _check_of(copy: Container, sender: User) -> Check:
    return sender.device_key_at(copy.effective_ms), copy.signed_part, copy.signature


def _store_record(txn: Transaction, registration: Registration, own_login: str) -> bool:
    """Store a record with what follows from it, as from one that comes from elsewhere (``directory.users``)."""
    record = registration.record
    known = get_registration(txn, record.key)
    if known is not None and known.record.solana_key != record.solana_key:
        raise RootKeyMismatch("another root key was seen first for this login")
    if known is not None and has_record(txn, record):
        return False
    if known is not None and registration.local:
        raise UserAlreadyExists("this login is taken")  # the word of a file is not enough for one more key
    before = other_server(txn, record.key, own_login)
    newest = add_record(txn, record, local=registration.local, bch_limit=registration.bch_limit)
    if newest and known is not None and known.record.device_key != record.device_key:
        close_sessions(txn, record.key)
    after = other_server(txn, record.key, own_login)
    former, other = (server.server_login.lower() if server is not None else "" for server in (before, after))
    if former != other and _has_entries(txn, record.key):
        begin_resync(txn, record.key, former=former)
    return True


def _store_resync(txn: Transaction, work: Resync) -> bool:
    if work in all_resyncs(txn, work.owner):
        return False
    if not _has_entries(txn, work.owner):
        put_resync(txn, work)  # all that it has passed comes after it, as it was
        return True
    before = list(all_resyncs(txn, work.owner))
    begin_resync(txn, work.owner, former=work.former, since_ms=work.since_ms)
    return before != list(all_resyncs(txn, work.owner))


def _has_entries(txn: Transaction, owner: str) -> bool:
    prefix = owner.encode() + b"\0"
    return any(next(txn.scan_keys(table, prefix=prefix), None) for table in (Table.SETTINGS, Table.HISTORY))


def _store_setting(txn: Transaction, held: HeldSetting, own_login: str) -> bool:
    setting = held.setting
    new = get_setting(txn, setting.key, setting.param) is None
    stored = put_setting(txn, setting, now_ms=held.changed_at_ms, own_login=own_login, most=NO_BOUND)
    other = other_server(txn, setting.key, own_login)
    if new and other is not None and other.server_login.lower() == held.synced:
        acknowledge_setting(txn, index_row(held.synced, held.changed_at_ms, setting))
    return stored


def _store_session(txn: Transaction, held: HeldSession) -> bool:
    session = held.session
    if get_session(txn, session.session_id) is not None:
        return False
    registration = get_registration(txn, session.login)
    if registration is None or registration.record.device_key != held.device_key:
        return False  # the device key was replaced since, which ends the sessions that the old one has made
    add_session(txn, session, greatest=NO_BOUND)
    return True


def _store_meta(txn: Transaction, name: bytes, value: bytes, runs: Sequence[tuple[bytes, int]]) -> bool:
    """Store what was known of other servers, where nothing is; of times since when there is doubt, the earlier one."""
    if name == LINEAGE:
        return add_runs(txn, runs)
    known = txn.get(Table.META, name)
    if known is None:
        txn.put(Table.META, name, value)
        return True
    if name.startswith(_DOUBTS) and unpack_number(value) < unpack_number(known):
        txn.put(Table.META, name, pack_number(unpack_number(value)))
        return True
    return False
