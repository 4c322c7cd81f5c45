"""Whatever bit is flipped, a repair ends, and takes no more than it must."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shine_node.store.layout import Table, unpack_number
from shine_node.store.verifying.people import MOST_RECORDS
from shine_node.store.verifying.records import needs_no_signature, read_record
from tests.store.verifying.flips import Bench, Row, Rows, bench, flip_bit, moved
from tests.store.verifying.full import fill, fill_people

ITEM = {Table.HISTORY, Table.CONTAINERS}
"""What an item is whole with: where one of its rows is damaged, the other goes too."""


@pytest.fixture(scope="module")
def people() -> Iterator[Bench]:
    with bench(fill_people) as found:
        yield found


@pytest.fixture(scope="module")
def full() -> Iterator[Bench]:
    with bench(fill) as found:
        yield found


def demand(store: Bench, damage: Rows) -> None:
    """Demand that a repair takes no row that was not damaged, but the other half of a damaged item.

    Of a user without a signature there are two copies. Where both can be right, and nothing else tells, the one among
    the records counts, and the other one is written down.
    """
    lost = store.lost(store.mend(damage), damage)
    in_doubt = {
        (Table.USERS, registration.record.key.encode())
        for value in damage.values()
        if value is not None and (registration := read_record(value)) is not None and needs_no_signature(registration)
    }
    halves = len({row for row in damage if row[0] in ITEM})
    assert {row for row in lost if row[0] not in ITEM} <= in_doubt, (damage, lost)
    assert len(lost - in_doubt) <= halves, (damage, lost)


def test_every_byte_of_every_access_record(people: Bench) -> None:
    older, newest, bob, dave = people.of(Table.ACCESS_RECORDS).items()
    for one, other in ((older, bob), (newest, dave)):
        for at in range(max(len(one[1]), len(other[1]))):
            demand(people, {row: flip_bit(value, at, at) for row, value in (one, other) if at < len(value)})


def test_every_bit_of_the_number_of_an_access_record(people: Bench) -> None:
    """Its entry among the keys follows; a number that never was given becomes again what that entry has."""
    for (row, value), bit in itertools.product(people.of(Table.ACCESS_RECORDS).items(), range(0, 64, 3)):
        key = flip_bit(row[1], bit // 8, bit)
        if (row[0], key) in people.rows:
            continue
        if unpack_number(key) < MOST_RECORDS:
            demand(people, moved(row, value, key))
        else:
            assert people.mend(moved(row, value, key)).rows == people.rows


def test_every_row_of_users_and_their_indexes_is_written_anew(people: Bench) -> None:
    for (table, key), value in people.of(Table.USERS, Table.ACCESS_CURRENT, Table.ACCESS_HISTORY).items():
        row = (table, key)
        for at in range(0, len(value), 7):
            assert people.mend({row: flip_bit(value, at, at)}).rows == people.rows
        for at in range(len(key)):
            assert people.mend(moved(row, value, flip_bit(key, at, at))).rows == people.rows
        assert people.mend({row: None}).rows == people.rows


def test_some_bits_of_every_row_of_every_table(full: Bench) -> None:
    for number, (row, value) in enumerate(full.rows.items()):
        if value:
            demand(full, {row: flip_bit(value, number * 37 % len(value), number)})
        demand(full, moved(row, value, flip_bit(row[1], number * 7 % len(row[1]), number)))


def test_every_byte_of_the_names_in_meta_and_of_a_session(full: Bench) -> None:
    """After a repair a backup and an export succeed: the bench demands it of every damage."""
    for row, value in full.of(Table.META).items():
        for at in range(len(row[1])):
            full.mend(moved(row, value, flip_bit(row[1], at, 7)))
    for row, value in full.of(Table.SESSIONS).items():
        for at in range(len(value)):
            full.mend({row: flip_bit(value, at, at)})


@settings(deadline=None)
@given(st.data())
def test_several_bits_of_access_records(people: Bench, data: st.DataObject) -> None:
    demand(people, data.draw(_several(people.of(Table.ACCESS_RECORDS))))


def test_the_empty_place_of_another_item_stays(full: Bench) -> None:
    """Where a row's number and digest are damaged at once."""
    key = b"alice\0bob\0\5" + bytes.fromhex("0000019d345cf4f40000000702")
    value = bytes.fromhex("0201000000000000000600000000000000000000019d345cf30000000001")
    assert (Table.HISTORY, key) in full.rows
    demand(full, {(Table.HISTORY, key): value})
    demand(full, {(Table.HISTORY, key): value + b"\0"})


@settings(deadline=None)
@given(st.data())
def test_several_bits_of_any_row(full: Bench, data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(Table))
    demand(full, data.draw(_several(full.of(table))))


@st.composite
def _several(draw: st.DrawFn, rows: dict[Row, bytes]) -> Rows:
    """One row with several bits flipped, or cut off, or with more behind it."""
    row, value = draw(st.sampled_from(sorted(rows.items(), key=lambda item: (item[0][0].value, item[0][1]))))
    for _ in range(draw(st.integers(1, 4))):
        if value:
            value = flip_bit(value, draw(st.integers(0, len(value) - 1)), draw(st.integers(0, 7)))
    how = draw(st.sampled_from(("flipped", "flipped", "cut", "longer")))
    return {row: {"flipped": value, "cut": value[: len(value) // 2], "longer": value + b"\0"}[how]}
