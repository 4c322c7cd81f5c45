"""Pages as bytes: what is sound is read as LMDB wrote it, and each number that points elsewhere is noticed."""

from __future__ import annotations

import struct
from pathlib import Path

import lmdb
import pytest

from shine_node.store.pages import (
    BIG_DATA,
    NO_PAGE,
    WORD_BYTES,
    DamagedPage,
    ForeignFile,
    check_overflow,
    free_key,
    free_pages,
    looks_like_store,
    overflow_pages,
    read_head,
    read_nodes,
    read_tree,
)

PAGE = 4096
HEAD = 16
META = HEAD  # where the head begins in its page
DBS = META + 24
LAST_PAGE, POSITION = META + 24 + 96, META + 24 + 104

pytestmark = pytest.mark.skipif(WORD_BYTES != 8, reason="the offsets are those of 64-bit machines")


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """A file with a tree of two levels and a long value."""
    path = tmp_path / "file.mdb"
    with lmdb.open(str(path), subdir=False, map_size=2**20) as env:
        for number in range(3):
            with env.begin(write=True) as txn:
                for key in range(60):
                    txn.put(b"%04d" % key, bytes(100 + number))
                txn.put(b"long", bytes(10_000))
    content = path.read_bytes()
    assert struct.unpack_from("I", content, DBS)[0] == PAGE
    return content


def changed(content: bytes, at: int, form: str, value: int) -> bytes:
    data = bytearray(content)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def page_of(content: bytes, number: int) -> bytes:
    return content[number * PAGE : (number + 1) * PAGE]


def root_of(content: bytes) -> int:
    return read_head(content, len(content)).main.root


def test_the_newer_head_is_read(content: bytes) -> None:
    head = read_head(content, len(content))
    assert head.page_size == PAGE
    assert head.pages == head.last_page + 1 == len(content) // PAGE
    assert head.main.entries == 61
    assert head.main.depth == 2
    assert head.map_size == 2**20
    older = read_head(content, len(content), position=head.position - 1)
    assert older.position == head.position - 1
    with pytest.raises(DamagedPage, match="no head of commit 77"):
        read_head(content, len(content), position=77)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is empty"),
        (bytes(9000), "nothing but zeros"),
        (b"x", "cut off within its head"),
        (b"some text " * 1000, "no store at all"),
    ],
)
def test_what_is_no_file_of_lmdb(data: bytes, text: str) -> None:
    with pytest.raises(DamagedPage, match=text):
        read_head(data, len(data))


@pytest.mark.parametrize("length", [30, 150, PAGE, PAGE + 10, PAGE + 100])
def test_a_head_that_is_cut_off(content: bytes, length: int) -> None:
    with pytest.raises(DamagedPage, match="cut off within"):
        read_head(content[:length], length)


@pytest.mark.parametrize(
    ("at", "form", "value", "text"),
    [
        (DBS, "I", 4095, "no store at all"),
        (DBS, "I", 8192, "one of its two heads|contradict"),
        (PAGE + DBS, "I", 8192, "contradict"),
        (META, "I", 1, "first one of its two heads"),
        (PAGE + META, "I", 1, "second one of its two heads"),
        (PAGE + META + 4, "I", 2, "second one of its two heads"),
        (PAGE, "Q", 5, "second one of its two heads"),
        (PAGE + 10, "H", 2, "second one of its two heads"),
        (DBS + 4, "H", 0, "first one of its two heads"),
        (DBS + 48 + 4, "H", 4, "first one of its two heads"),
        (DBS + 48 + 6, "H", 99, "99 levels"),
        (DBS + 48 + 6, "H", 0, "0 levels"),
    ],
)
def test_a_damaged_head(content: bytes, at: int, form: str, value: int, text: str) -> None:
    data = changed(content, at, form, value)
    with pytest.raises(DamagedPage, match=text):
        read_head(data, len(data))


@pytest.mark.parametrize("last_page", [0, 2**40])
def test_a_number_of_pages_that_cannot_be(content: bytes, last_page: int) -> None:
    data = changed(changed(content, LAST_PAGE, "Q", last_page), PAGE + LAST_PAGE, "Q", last_page)
    with pytest.raises(DamagedPage, match="its head says that it has"):
        read_head(data, len(data))


@pytest.mark.parametrize(
    ("word", "order", "text"),
    [(8, ">", "64-bit, big-endian"), (4, "<", "32-bit, little-endian"), (4, ">", "32-bit, big-endian")],
)
def test_files_of_other_machines(word: int, order: str, text: str) -> None:
    data = bytearray(2 * PAGE)
    struct.pack_into(f"{order}II", data, word + 8, 0xBEEFC0DE, 1)
    with pytest.raises(ForeignFile, match=text):
        read_head(bytes(data), len(data))


def test_a_file_of_another_lmdb_says_so_in_both_heads(content: bytes) -> None:
    one = changed(content, META + 4, "I", 2)
    with pytest.raises(DamagedPage):
        read_head(one, len(one))
    both = changed(one, PAGE + META + 4, "I", 2)
    with pytest.raises(ForeignFile, match="format 2, this one knows 1"):
        read_head(both, len(both))
    with pytest.raises(DamagedPage):
        read_head(both[:30], 30)
    nonsense = changed(both, DBS, "I", 0)
    with pytest.raises(DamagedPage):
        read_head(nonsense, len(nonsense))


def test_the_nodes_of_a_branch_and_its_leaves(content: bytes) -> None:
    root = root_of(content)
    branches = read_nodes(page_of(content, root), root, PAGE, leaf=False)
    leaves = [
        node for branch in branches for node in read_nodes(page_of(content, branch.page), branch.page, PAGE, leaf=True)
    ]
    assert [node.key for node in leaves] == sorted([b"long", *(b"%04d" % key for key in range(60))])
    assert {len(node.value) for node in leaves if not node.flags} == {102}
    [long] = [node for node in leaves if node.flags]
    assert long.flags == BIG_DATA
    assert long.size == 10_000
    assert overflow_pages(long.size, PAGE) == 3
    check_overflow(page_of(content, long.page), long.page, 3)
    for number, pages in ((long.page + 1, 3), (long.page, 2)):
        with pytest.raises(DamagedPage, match="not the long value"):
            check_overflow(page_of(content, long.page), number, pages)


@pytest.mark.parametrize(
    ("at", "form", "value", "text"),
    [
        (0, "Q", 1, "not the page that belongs"),
        (10, "H", 4, "not the page that belongs"),
        (12, "H", 5000, "no sound table"),
        (12, "H", 17, "no sound table"),
        (14, "H", 5000, "no sound table"),
        (12, "H", HEAD, "has 0 entries"),
        (16, "H", 3, "an entry outside"),
        (16, "H", 4095, "an entry outside"),
    ],
)
def test_a_damaged_page(content: bytes, at: int, form: str, value: int, text: str) -> None:
    root = root_of(content)
    leaf = read_nodes(page_of(content, root), root, PAGE, leaf=False)[0].page
    data = changed(page_of(content, leaf), at, form, value)
    with pytest.raises(DamagedPage, match=text):
        read_nodes(data, leaf, PAGE, leaf=True)


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (6, 600, "a key that goes beyond"),
        (6, 0, "unknown kind"),
        (4, 4, "unknown kind"),
        (0, 5000, "a value that goes beyond"),
    ],
)
def test_a_damaged_node(content: bytes, at: int, value: int, text: str) -> None:
    root = root_of(content)
    leaf = read_nodes(page_of(content, root), root, PAGE, leaf=False)[0].page
    page = page_of(content, leaf)
    place = struct.unpack_from("H", page, HEAD)[0]
    with pytest.raises(DamagedPage, match=text):
        read_nodes(changed(page, place + at, "H", value), leaf, PAGE, leaf=True)


def test_a_long_value_that_names_no_page() -> None:
    page = bytearray(PAGE)
    place = PAGE - 12
    struct.pack_into("QHHHHH", page, 0, 5, 0, 2, HEAD + 2, place, place)
    struct.pack_into("HHHH", page, place, 1, 0, BIG_DATA, 4)
    page[place + 8 :] = b"keyx"
    with pytest.raises(DamagedPage, match="a value that goes beyond"):
        read_nodes(bytes(page), 5, PAGE, leaf=True)


def test_trees_that_are_none() -> None:
    with pytest.raises(DamagedPage, match="has 3 bytes"):
        read_tree(b"abc")
    assert read_tree(struct.pack("=IHH5Q", 0, 0, 0, 0, 0, 0, 0, NO_PAGE)).root == NO_PAGE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "cut off"),
        (b"x" * 12, "cut off"),
        (struct.pack("QQ", 2, 5), "longer than it is"),
        (struct.pack("QQQ", 2, 5, 6), "in no order"),
    ],
)
def test_lists_of_free_pages_that_are_none(value: bytes, text: str) -> None:
    with pytest.raises(DamagedPage, match=text):
        free_pages(value)


def test_lists_of_free_pages() -> None:
    assert free_pages(struct.pack("QQQQ", 2, 9, 7, 5)) == (9, 7)
    assert free_key(struct.pack("Q", 5)) == 5
    with pytest.raises(DamagedPage, match="no number"):
        free_key(b"abc")


def test_what_begins_like_a_store() -> None:
    magics = [struct.pack(order + "I", 0xBEEFC0DE) for order in "<>"]
    for magic in magics:
        for word in (4, 8):
            for page in (0, 512, 4096, 65536):
                assert looks_like_store(bytes(page + word + 8) + magic)
                assert not looks_like_store(bytes(page + word + 8) + magic[:3])
                assert not looks_like_store(bytes(page + word + 9) + magic)
    assert not looks_like_store(b"")
