"""The pages of a file fit together, or it is noticed before LMDB trusts them; no damage ends a process by a signal."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shine_node.store.environment import Transaction
from shine_node.store.layout import Table, pack_number
from shine_node.store.pages import NO_PAGE, DamagedPage, read_head
from shine_node.store.structure import check_snapshot, check_structure, examine, is_store, read_file_head
from tests.store.opening import Opener, opener
from tests.store.rooms import MAP_SIZE, opened
from tests.store.verifying.full import full_store

PAGE = 4096


def grow(path: Path) -> None:
    """Make trees of several levels, long values and lists of free pages."""

    def some(start: int) -> None:
        def work(txn: Transaction) -> None:
            for number in range(start, start + 150):
                size = 9_000 if number % 50 == 0 else 300
                txn.put(Table.CONTAINERS, pack_number(number), random.Random(number).randbytes(size))
                txn.put(Table.META, b"peer_mark %d" % number, b"x" * 50)
            for number in range(start, start + 150, 3):
                txn.delete(Table.CONTAINERS, pack_number(number))

        store.write_now(work)

    with opened(path) as store:
        for start in range(1, 1200, 150):
            some(start)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound store."""
    path = full_store(tmp_path_factory.mktemp("content"))
    grow(path)
    content = path.read_bytes()
    assert len(content) > 80 * PAGE
    return content


@pytest.fixture(scope="module")
def sound(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a file: Hypothesis writes down what a test is given."""
    path = tmp_path_factory.mktemp("sound") / "sound.mdb"
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def opening() -> Iterator[Opener]:
    with opener() as found:
        yield found


def test_a_sound_store_is_sound(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    path.write_bytes(content)
    head = examine(path, thorough=True)
    assert head is not None
    assert head == examine(path, thorough=False) == read_file_head(path)
    assert head.free.entries
    check_snapshot(path, head.position)
    with pytest.raises(DamagedPage, match="no head of commit"):
        check_snapshot(path, head.position + 1)


def test_no_file_and_an_empty_one_are_new_stores(tmp_path: Path) -> None:
    assert examine(tmp_path / "missing", thorough=True) is None
    (tmp_path / "empty").touch()
    assert examine(tmp_path / "empty", thorough=True) is None
    with pytest.raises(DamagedPage, match="is empty"):
        read_file_head(tmp_path / "empty")


def test_a_look_at_the_edges_reads_few_pages(content: bytes) -> None:
    head = read_head(content, len(content))
    counts = []
    for thorough in (False, True):
        read: set[int] = set()

        def pages(number: int, count: int, read: set[int] = read) -> bytes:
            read.update(range(number, number + count))
            return content[number * PAGE : (number + count) * PAGE]

        check_structure(head, len(content) // PAGE, pages, thorough=thorough)
        counts.append(len(read))
    assert counts[0] < counts[1] / 2


@pytest.mark.parametrize("share", [*(number / 23 for number in range(1, 23)), 0.999])
def test_a_store_that_is_cut_off_is_told_and_kept(
    tmp_path: Path, content: bytes, opening: Opener, share: float
) -> None:
    path = tmp_path / "shine.mdb"
    cut = content[: int(len(content) * share)]
    path.write_bytes(cut)
    assert opening(path) == "damaged"
    assert path.read_bytes() == cut


@pytest.mark.parametrize("length", [1, 15, 16, 100, 152, 4000, 4096, 4097, 4250, 8191, 8192, 8193, 12288])
def test_a_store_that_is_cut_off_near_its_head(tmp_path: Path, content: bytes, opening: Opener, length: int) -> None:
    path = tmp_path / "shine.mdb"
    path.write_bytes(content[:length])
    assert opening(path) == "damaged"
    assert path.read_bytes() == content[:length]


@pytest.mark.parametrize("pages", [(0,), (1,), (0, 1), (2,)], ids=str)
def test_pages_of_zeros(tmp_path: Path, content: bytes, opening: Opener, pages: tuple[int, ...]) -> None:
    path = tmp_path / "shine.mdb"
    data = bytearray(content)
    for page in pages:
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    found = opening(path)
    assert found == "damaged" or (found == "opened" and pages == (2,))
    assert found == "opened" or path.read_bytes() == data


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("word", [4, 8])
def test_a_store_of_another_machine_is_refused_and_kept(tmp_path: Path, opening: Opener, order: str, word: int) -> None:
    data = bytearray(20 * PAGE)
    struct.pack_into(f"{order}II", data, word + 8, 0xBEEFC0DE, 1)
    path = tmp_path / "shine.mdb"
    path.write_bytes(data)
    native = (order, word) == ("<", 8)
    assert opening(path) == ("damaged" if native else "refused")
    assert path.read_bytes() == data


flips = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=flips, heads=st.booleans())
def test_no_flipped_byte_ends_the_opening_by_a_signal(
    tmp_path: Path, sound: Path, opening: Opener, flips: list[tuple[float, int]], heads: bool
) -> None:
    data = bytearray(sound.read_bytes())
    for share, mask in flips:
        at = int(share * (400 if heads else len(data)))
        at += PAGE if heads and at >= 200 else 0
        data[at] ^= mask
    path = tmp_path / "shine.mdb"
    path.write_bytes(data)
    found = opening(path)
    assert found in ("opened", "damaged", "refused"), found
    assert found == "opened" or path.read_bytes() == data


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page=st.floats(0, 1, exclude_max=True),
    changes=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_what_the_thorough_look_lets_pass_can_be_read_to_the_end(
    tmp_path: Path, sound: Path, page: float, changes: list[tuple[int, int]]
) -> None:
    """The beginning of a page is where its numbers are."""
    data = bytearray(sound.read_bytes())
    start = int(page * (len(data) // PAGE)) * PAGE
    for at, value in changes:
        data[start + at] = value
    path = tmp_path / "shine.mdb"
    path.write_bytes(data)
    try:
        examine(path, thorough=True)
    except DamagedPage:
        return
    except Exception as error:  # a file of another machine, where the magic number was met
        assert "kind" in str(error) or "format" in str(error)
        return
    read_all(path)


def read_all(path: Path) -> None:
    """Read every value, which is safe in this process if the look was right."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=30, map_size=MAP_SIZE) as env:
        for table in Table:
            db = env.open_db(table.value, create=False)
            with env.begin(db=db) as txn:
                for _ in txn.cursor():
                    pass


def put_word(data: bytearray, at: int, value: int) -> None:
    struct.pack_into("Q", data, at, value)


def test_a_page_that_is_used_twice_and_one_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE) as env, env.begin(write=True) as txn:
        for number in range(200):
            txn.put(b"%05d" % number, bytes(200))
    sound = path.read_bytes()
    head = read_head(sound, len(sound))
    assert head.main.depth == 2
    root = head.main.root * PAGE
    places = struct.unpack_from("HH", sound, root + 16)
    children = [struct.unpack_from("HH", sound, root + place) for place in places]
    for child, text in (
        (children[0], "is used twice|not the page|no order"),
        ((60_000, 0), "is named, and the file has"),
    ):
        data = bytearray(sound)
        struct.pack_into("HH", data, root + places[1], *child)
        path.write_bytes(data)
        with pytest.raises(DamagedPage, match=text):
            examine(path, thorough=True)


def test_counts_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    sound = path.read_bytes()
    newest = (read_head(sound, len(sound)).position % 2) * PAGE
    entries, root = newest + 16 + 24 + 48 + 8 + 24, newest + 16 + 24 + 48 + 8 + 32
    for changes, text in (
        ({entries: 7}, "1 entries where 7 are counted"),
        ({root: NO_PAGE}, "levels"),
    ):
        data = bytearray(sound)
        for at, value in changes.items():
            put_word(data, at, value)
        path.write_bytes(data)
        with pytest.raises(DamagedPage, match=text):
            examine(path, thorough=True)
    data = bytearray(sound)
    put_word(data, root, NO_PAGE)
    struct.pack_into("H", data, root - 34, 0)
    path.write_bytes(data)
    with pytest.raises(DamagedPage, match="1 entries have no page"):
        examine(path, thorough=True)


def test_a_table_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE, max_dbs=3) as env:
        env.open_db(b"doubles", dupsort=True)
    with pytest.raises(DamagedPage, match="the table doubles is of an unknown kind"):
        examine(path, thorough=False)


def test_free_pages_that_are_not_there(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    head = read_head(content, len(content))
    assert head.free.depth == 1
    page = head.free.root * PAGE
    place = page + struct.unpack_from("H", content, page + 16)[0]
    data = bytearray(content)
    put_word(data, place + 8 + 8 + 8, 2**40)
    path.write_bytes(data)
    with pytest.raises(DamagedPage, match="names pages that are not there"):
        examine(path, thorough=False)


def test_free_pages_that_are_in_use(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    head = read_head(content, len(content))
    page = head.free.root * PAGE
    count = (struct.unpack_from("H", content, page + 12)[0] - 16) // 2
    for index in range(count):
        place = page + struct.unpack_from("H", content, page + 16 + 2 * index)[0]
        if struct.unpack_from("Q", content, place + 16)[0] == 1 or index == count - 1:
            break
    data = bytearray(content)
    put_word(data, place + 16, 1)  # one page is listed: that of the names of the tables
    put_word(data, place + 24, head.main.root)
    path.write_bytes(data)
    with pytest.raises(DamagedPage, match="is used twice"):
        examine(path, thorough=True)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        examine(tmp_path, thorough=False)


def test_damage_in_a_table_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    marker = content.rindex(pack_number(1001) + random.Random(1001).randbytes(300)[:10])
    data = bytearray(content)
    data[marker // PAGE * PAGE + 10] = 0xFF
    path.write_bytes(data)
    with pytest.raises(DamagedPage, match="in the table containers"):
        examine(path, thorough=True)


def test_a_list_of_free_pages_that_is_long(tmp_path: Path) -> None:
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE) as env:
        with env.begin(write=True) as txn:
            for number in range(900):
                txn.put(b"%04d" % number, bytes(3000))
        with env.begin(write=True) as txn:
            for number in range(900):
                txn.delete(b"%04d" % number)
    head = examine(path, thorough=True)
    assert head is not None
    assert head.free.overflow_pages


def test_keys_in_no_order(tmp_path: Path) -> None:
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=MAP_SIZE) as env, env.begin(write=True) as txn:
        txn.put(b"aaaa", b"1")
        txn.put(b"bbbb", b"2")
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"AAAA"))
    with pytest.raises(DamagedPage, match="in no order"):
        examine(path, thorough=True)


def test_a_free_page_may_lie_behind_the_end_of_the_file(content: bytes) -> None:
    head = read_head(content, len(content))

    def pages(number: int, count: int) -> bytes:
        return content[number * PAGE : (number + count) * PAGE]

    check_structure(head, 3, pages, thorough=True)  # what is not known of pages behind the end is not asked


def test_a_page_that_is_cut_off(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shine.mdb"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedPage, match=r"page [0-9]+ of [0-9]+ is cut off"):
        examine(path, thorough=True)


def test_what_begins_like_a_store(tmp_path: Path) -> None:
    def begins(content: bytes) -> bool:
        (tmp_path / "file").write_bytes(content)
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
        try:
            return is_store(descriptor)
        finally:
            os.close(descriptor)

    with opened(tmp_path / "shine.mdb"):
        pass
    content = (tmp_path / "shine.mdb").read_bytes()
    assert begins(content)
    assert begins(bytes(4096) + content[4096:]), "its first page is lost"
    for other in (b"", b"x", bytes(100_000), b"a picture of a cat" * 10_000, b"x" * 8192 + content[8192:]):
        assert not begins(other)
    foreign = struct.pack(">I", 0xBEEFC0DE)
    assert begins(bytes(12) + foreign), "of a machine of another kind"
