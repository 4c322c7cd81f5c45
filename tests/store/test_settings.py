"""Settings in the store: the newest stays, and the other server's rows name what it has not acknowledged."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from shine_node.protocol.errors import TooLarge
from shine_node.protocol.settings import Setting, setting_payload
from shine_node.store import settings as settings_module
from shine_node.store.environment import Store, Transaction
from shine_node.store.layout import Table, pack_number
from shine_node.store.lineage import get_doubt
from shine_node.store.resync import begin_resync
from shine_node.store.settings import (
    FRAME_BYTES,
    SettingsPage,
    acknowledge_setting,
    all_settings,
    count_settings,
    get_setting,
    index_row,
    list_settings,
    mark_settings,
    put_setting,
    read_unsynced,
)
from tests.store.rooms import NOW, OWN, opened, register

pytestmark = pytest.mark.core

OTHER = "Other.Server"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "shine.mdb") as store:
        store.write_now(lambda txn: register(txn, "Alice", OWN, OTHER))
        store.write_now(lambda txn: register(txn, "bob", OWN, OTHER))
        store.write_now(lambda txn: register(txn, "lonely", OWN))
        yield store


def a_setting(login: str = "Alice", param: str = "theme", *, time_ms: int = NOW, value: str = "dark") -> Setting:
    """A setting with a signature that tells values apart; the store takes it as checked."""
    return Setting(login, param, time_ms, value, b"\1" * 32, value.encode().ljust(64, b"\0"))


def put(store: Store, setting: Setting, *, now_ms: int = NOW, synced: bool = False, most: int = 1000) -> bool:
    """Store a setting; ``synced``: the other server brings it."""
    from_server = OTHER.upper() if synced else None
    return store.write_now(
        lambda txn: put_setting(txn, setting, now_ms=now_ms, own_login=OWN, most=most, from_server=from_server)
    )


def get(store: Store, login: str = "alice", param: str = "theme") -> Setting | None:
    with store.read() as txn:
        return get_setting(txn, login, param)


def rows(store: Store) -> list[bytes]:
    """The whole index, each of its rows as it stands."""
    with store.read() as txn:
        found = dict(txn.scan(Table.SETTINGS_UNSYNCED))
    assert set(found.values()) <= {b""}
    return list(found)


def row(setting: Setting, changed_at_ms: int = NOW, server: str = OTHER) -> bytes:
    name = f"{setting.key}\0{setting.param}".encode()
    return server.lower().encode() + b"\0" + pack_number(changed_at_ms) + name


def page(
    store: Store,
    *,
    server: str = OTHER,
    after: bytes = b"",
    limit: int = 100,
    max_bytes: int = 2**20,
    peer_bytes: int | None = None,
    owners: set[str] | None = None,
) -> SettingsPage:
    with store.read() as txn:
        return read_unsynced(
            txn,
            server,
            serves=lambda owner: owners is None or owner in owners,
            after=after,
            limit=limit,
            max_bytes=max_bytes,
            peer_bytes=peer_bytes,
        )


# What stays


def test_a_setting_is_stored_as_it_was_signed(store: Store) -> None:
    setting = a_setting("ALICE", value="Привет\n\0")
    assert get(store) is None
    assert put(store, setting) is True
    assert get(store) == setting
    assert get(store, "alice", "them") is None
    assert get(store, "alic", "theme") is None


def test_the_newest_stays_whatever_the_order_of_arrival(store: Store) -> None:
    arrivals = [a_setting(time_ms=NOW + n % 3, value=f"v{n}") for n in range(9)]
    for seed in range(5):
        random.Random(seed).shuffle(arrivals)
        best: list[Setting] = []
        for setting in arrivals:
            stored = put(store, setting)
            if not seed:
                assert stored is (not best or setting.order > best[-1].order)
                if stored:
                    best.append(setting)
        assert get(store) == max(arrivals, key=lambda setting: setting.order)


def test_a_name_too_many_is_refused_and_a_name_that_is_there_is_not(store: Store) -> None:
    for param in ("a", "b", "c"):
        assert put(store, a_setting(param=param), most=3)
    with pytest.raises(TooLarge, match="Alice has 3 settings"):
        put(store, a_setting(param="d"), most=3)
    assert put(store, a_setting(param="b", value="x"), most=3)
    assert put(store, a_setting("bob", "d"), most=3), "each user has a number of names"
    with store.read() as txn:
        assert [count_settings(txn, login) for login in ("alice", "bob", "ali", "lonely")] == [3, 1, 0, 0]
    assert len(rows(store)) == 4


def test_settings_are_listed_by_name(store: Store) -> None:
    names = ["a", "B", "c:d", "c.d", "aa", "a-"]
    for name in names:
        put(store, a_setting(param=name))
    put(store, a_setting("bob", "zz"))
    with store.read() as txn:
        listed = [setting.param for setting in list_settings(txn, "alice")]
        assert listed == sorted(names)
        assert [setting.param for setting in list_settings(txn, "alice", after="a-")] == sorted(names)[3:]
        assert [setting.param for setting in list_settings(txn, "alice", after="b")] == ["c.d", "c:d"]
        assert list(list_settings(txn, "alice", after="zzz")) == []
        assert next(list_settings(txn, "bob")) == a_setting("bob", "zz")


# What the other server has to learn


def test_a_change_has_a_row_and_what_the_other_server_has_has_none(store: Store) -> None:
    put(store, a_setting(param="here"))
    put(store, a_setting(param="there"), synced=True)
    put(store, a_setting("lonely"))
    put(store, a_setting("lonely", time_ms=NOW + 1))
    assert rows(store) == [row(a_setting(param="here"))]


def test_each_revision_has_a_row_of_its_own_also_within_one_instant_and_when_the_clock_goes_back(store: Store) -> None:
    for number, now_ms in enumerate((NOW, NOW, NOW - 5000, NOW + 10)):
        assert put(store, a_setting(time_ms=NOW + number), now_ms=now_ms)
    assert rows(store) == [row(a_setting(), NOW + 10)]
    put(store, a_setting(time_ms=NOW + 9), now_ms=NOW + 5)
    assert rows(store) == [row(a_setting(), NOW + 11)]


def test_what_came_from_the_other_server_takes_the_place_of_what_it_would_have_been_sent(store: Store) -> None:
    put(store, a_setting())
    assert put(store, a_setting(time_ms=NOW + 1), synced=True)
    assert rows(store) == []
    assert put(store, a_setting(time_ms=NOW + 2))
    assert rows(store) == [row(a_setting(), NOW + 2)]


def test_the_same_again_from_the_other_server_shows_that_it_has_it(store: Store) -> None:
    put(store, a_setting())
    assert put(store, a_setting()) is False
    assert len(rows(store)) == 1
    assert put(store, a_setting(), synced=True) is False
    assert rows(store) == []
    put(store, a_setting("lonely"))
    assert put(store, a_setting("lonely"), synced=True) is False


def test_what_came_from_the_other_server_is_in_doubt(store: Store) -> None:
    def doubt() -> int | None:
        with store.read() as txn:
            return get_doubt(txn, OTHER.lower())

    put(store, a_setting(time_ms=NOW + 1), now_ms=NOW + 3)
    assert put(store, a_setting(), synced=True) is False
    assert doubt() is None, "that one is older"
    put(store, a_setting(time_ms=NOW + 1), synced=True)
    assert doubt() == NOW + 3
    put(store, a_setting("Alice", "other"), now_ms=NOW + 2, synced=True)
    assert doubt() == NOW + 2


def test_an_older_one_from_the_other_server_shows_that_it_lacks_the_newer_one(store: Store) -> None:
    newer = a_setting(time_ms=NOW + 1)
    put(store, newer, synced=True)
    assert put(store, a_setting()) is False
    assert rows(store) == [], "a client's old setting says nothing about the other server"
    assert put(store, a_setting(), synced=True) is False
    assert rows(store) == [row(newer)]
    assert get(store) == newer


def test_what_somebody_else_brings_has_yet_to_be_told_to_the_other_server(store: Store) -> None:
    def brings(txn: Transaction, setting: Setting) -> bool:
        return put_setting(txn, setting, now_ms=NOW, own_login=OWN, most=9, from_server="third.server")

    newer = a_setting(time_ms=NOW + 1)
    assert store.write_now(lambda txn: brings(txn, newer)) is True
    assert store.write_now(lambda txn: brings(txn, newer)) is False
    assert store.write_now(lambda txn: brings(txn, a_setting())) is False
    assert rows(store) == [row(newer)]


def test_a_change_leaves_nothing_under_a_server_of_before(store: Store) -> None:
    put(store, a_setting())

    def moves(txn: Transaction) -> None:
        register(txn, "Alice", OWN, "newer.server", time_ms=NOW + 1)
        begin_resync(txn, "alice", former=OTHER)

    store.write_now(moves)
    assert put(store, a_setting(time_ms=NOW + 1), now_ms=NOW + 7)
    assert rows(store) == [row(a_setting(), NOW + 7, "newer.server")]


# Pages


def test_a_page_has_the_oldest_change_first(store: Store) -> None:
    changes = [a_setting("Alice", "b"), a_setting("bob", "a"), a_setting("Alice", "a")]
    for number, setting in enumerate(changes):
        put(store, setting, now_ms=NOW + number)
    found = page(store)
    assert [entry.setting for entry in found.entries] == changes
    assert (found.more, found.cursor) == (False, row(changes[-1], NOW + 2))
    assert page(store, after=found.cursor) == SettingsPage([], found.cursor, False)
    assert page(store, server="other") == page(store, server="other.server2") == SettingsPage([], b"", False)


def test_a_sync_id_names_one_revision_of_one_setting(store: Store) -> None:
    put(store, a_setting("Alice", "b.c"))
    put(store, a_setting("bob", "c"))
    before = {entry.sync_id for entry in page(store).entries}
    put(store, a_setting("Alice", "b.c", time_ms=NOW + 1))
    after = {entry.sync_id for entry in page(store).entries}
    assert len(before) == len(after) == 2
    assert len(before & after) == 1


def test_pages_are_bounded_by_number(store: Store) -> None:
    for number in range(5):
        put(store, a_setting(param=f"p{number}x"), now_ms=NOW + number)
    found: list[str] = []
    after, sizes, more = b"", [], True
    while more:
        got = page(store, after=after, limit=2)
        found += [entry.setting.param for entry in got.entries]
        sizes.append(len(got.entries))
        after, more = got.cursor, got.more
    assert (found, sizes) == ([f"p{number}x" for number in range(5)], [2, 2, 1])


def test_pages_are_bounded_by_bytes_yet_hold_one_setting(store: Store) -> None:
    sizes = [10, 10, 5000, 10]
    for number, size in enumerate(sizes):
        put(store, a_setting(param=f"p{number}x", value="v" * size), now_ms=NOW + number)
    got: list[list[int]] = []
    after, more = b"", True
    while more:
        found = page(store, after=after, max_bytes=1000)
        got.append([len(entry.setting.value) for entry in found.entries])
        after, more = found.cursor, found.more
    assert got == [[10, 10], [5000], [10]]


def size_of(setting: Setting, sync_id: str) -> int:
    """How many bytes a setting takes in a list as it travels."""
    return len(orjson.dumps({"syncId": sync_id, **setting_payload(setting)})) + len(",")


def test_no_setting_is_larger_as_it_travels_than_it_is_taken_to_be(store: Store) -> None:
    setting = a_setting("a" * 30, "p" * 64, value='Привет\n\0"')
    longest = f"{2**64 - 1:x}/{setting.key}/{setting.param}"
    stored = orjson.dumps(setting_payload(setting))
    assert size_of(setting, longest) <= FRAME_BYTES + len(stored)


def test_what_the_peer_cannot_take_is_passed_over_and_the_cursor_moves_on(store: Store) -> None:
    sizes = [5000, 10, 11, 5000, 5000, 12]
    for number, size in enumerate(sizes):
        put(store, a_setting(param=f"p{number}x", value="v" * size), now_ms=NOW + number)
    ids = [entry.sync_id for entry in page(store).entries]
    got: list[list[int]] = []
    too_large = []
    after, more = b"", True
    while more:
        found = page(store, after=after, peer_bytes=1000)
        got.append([len(entry.setting.value) for entry in found.entries])
        too_large.append(found.too_large)
        after, more = found.cursor, found.more
    assert got == [[10, 11], [12]]
    assert too_large == [ids[0], ids[3]], "the first of each page"
    everything = page(store, peer_bytes=2**20)
    assert (len(everything.entries), everything.more, everything.too_large) == (6, False, "")
    nothing = page(store, peer_bytes=0)
    assert (nothing.entries, nothing.more, nothing.cursor) == ([], False, after)
    alone = page(store, max_bytes=1, peer_bytes=20_000)
    assert [len(entry.setting.value) for entry in alone.entries] == [5000], "it is above the usual, yet it fits"


def test_a_page_holds_just_what_the_peer_can_take(store: Store) -> None:
    for number in range(3):
        put(store, a_setting(param=f"p{number}x"), now_ms=NOW + number)
    one = FRAME_BYTES + len(orjson.dumps(setting_payload(a_setting(param="p0x"))))
    sizes = [len(page(store, peer_bytes=most).entries) for most in (one - 1, one, 2 * one - 1, 2 * one)]
    assert sizes == [0, 1, 1, 2]


def test_a_page_looks_at_a_bounded_amount_of_what_the_peer_cannot_take(store: Store) -> None:
    for number in range(4):
        put(store, a_setting(param=f"p{number}x", value="v" * 5000), now_ms=NOW + number)
    most = 3 * (FRAME_BYTES + len(orjson.dumps(setting_payload(a_setting(param="p0x", value="v" * 5000))))) - 1
    part = page(store, peer_bytes=1, max_bytes=most)
    assert (part.entries, part.more) == ([], True)
    assert part.cursor == page(store, limit=3).cursor
    assert page(store, after=part.cursor, peer_bytes=1, max_bytes=most).more is False


def test_settings_of_others_are_passed_over_and_do_not_make_a_page_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "MAX_LOOKED_AT", 3)
    for number in range(7):
        put(store, a_setting("bob", f"p{number}x"), now_ms=NOW + number)
    put(store, a_setting(), now_ms=NOW + 7)
    pages = [page(store, owners={"alice"})]
    while pages[-1].more:
        pages.append(page(store, owners={"alice"}, after=pages[-1].cursor))
    assert [len(found.entries) for found in pages] == [0, 0, 1]
    assert pages[-1].entries[0].setting == a_setting()


def test_a_row_without_its_setting_is_passed_over(store: Store) -> None:
    put(store, a_setting(), now_ms=NOW + 1)
    store.write_now(lambda txn: txn.put(Table.SETTINGS_UNSYNCED, row(a_setting("bob", "gone")), b""))
    assert [entry.setting for entry in page(store).entries] == [a_setting()]


# Acknowledgements


def test_an_acknowledgement_is_of_one_revision(store: Store) -> None:
    put(store, a_setting())
    [first] = page(store).entries
    put(store, a_setting(time_ms=NOW + 1))
    assert store.write_now(lambda txn: acknowledge_setting(txn, first.row)) is False
    [second] = page(store).entries
    assert second.setting == a_setting(time_ms=NOW + 1)
    assert store.write_now(lambda txn: acknowledge_setting(txn, second.row)) is True
    assert store.write_now(lambda txn: acknowledge_setting(txn, second.row)) is False
    assert page(store).entries == []
    assert get(store) == a_setting(time_ms=NOW + 1)


# All of them again


def mark(store: Store, *, former: str = "", other: str = OTHER, limit: int = 100) -> list[int]:
    """Mark in steps until all is done, and return what each did."""
    done: list[int] = []
    after: bytes | None = b""
    while after is not None:
        step = functools.partial(
            mark_settings, owner="alice", former=former, other=other, since_ms=0, after=after, limit=limit
        )
        count, after = store.write_now(step)
        done.append(count)
    return done


def test_all_settings_of_an_owner_become_unsynced_in_bounded_steps(store: Store) -> None:
    names = [f"p{number}x" for number in range(6)]
    for name in names:
        put(store, a_setting(param=name), synced=True)
    put(store, a_setting("bob"), synced=True)
    assert mark(store, limit=4) == [4, 2]
    assert mark(store, limit=6) == [6]
    assert rows(store) == [row(a_setting(param=name)) for name in names]


def test_a_step_reads_no_more_than_some_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "MAX_BYTES_A_STEP", 3000)
    for number in range(5):
        put(store, a_setting(param=f"p{number}x", value="v" * 600), synced=True)
    assert mark(store) == [2, 2, 1]
    assert len(rows(store)) == 5


def test_the_rows_of_a_former_server_go(store: Store) -> None:
    put(store, a_setting())
    put(store, a_setting("bob"))
    mark(store, former=OTHER, other="newer")
    assert rows(store) == [row(a_setting(), server="newer"), row(a_setting("bob"))]
    mark(store, former="newer", other="")
    assert rows(store) == [row(a_setting("bob"))]


def test_an_owner_without_settings_is_done_at_once(store: Store) -> None:
    assert mark(store) == [0]


def test_what_is_stored_is_what_the_layout_says(store: Store) -> None:
    put(store, a_setting(), now_ms=NOW + 3)
    with store.read() as txn:
        [(key, value)] = txn.scan(Table.SETTINGS)
    assert key == b"alice\0theme"
    assert value[:8] == pack_number(NOW + 3)
    assert orjson.loads(value[8:]) == setting_payload(a_setting())


def test_all_settings_of_everybody_and_the_row_that_each_has_in_the_index(store: Store) -> None:
    put(store, a_setting("bob"), now_ms=NOW + 2)
    put(store, a_setting(param="z"), now_ms=NOW + 1)
    put(store, a_setting())
    with store.read() as txn:
        found = list(all_settings(txn))
    assert found == [(NOW, a_setting()), (NOW + 1, a_setting(param="z")), (NOW + 2, a_setting("bob"))]
    assert sorted(index_row(OTHER, changed_at_ms, setting) for changed_at_ms, setting in found) == sorted(rows(store))


def test_settings_that_have_not_changed_since_stay_as_they_are(store: Store) -> None:
    put(store, a_setting(param="old"), synced=True)
    put(store, a_setting(param="new"), now_ms=NOW + 1, synced=True)
    step = functools.partial(mark_settings, owner="alice", former="", other=OTHER, since_ms=NOW + 1, after=b"", limit=9)
    assert store.write_now(step) == (2, None)
    assert rows(store) == [index_row(OTHER, NOW + 1, a_setting(param="new"))]
