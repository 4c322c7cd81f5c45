"""The pages of an LMDB file as bytes: its two heads, and the nodes of a page, each checked before it is believed; pure.

LMDB itself trusts its file: a number that points behind the end of the file, or of a page, ends the process by a
signal. What is read here is read with every bound checked, so that damage becomes an exception with words.
"""

from __future__ import annotations

import itertools
import struct
import sys
from typing import Final, NamedTuple

from shine_node.protocol.errors import ShineError

__all__ = [
    "MAX_PAGE_BYTES",
    "NO_PAGE",
    "PAGE_HEAD_BYTES",
    "WORD_BYTES",
    "DamagedPage",
    "ForeignFile",
    "Head",
    "Node",
    "Tree",
    "check_overflow",
    "free_key",
    "free_pages",
    "looks_like_store",
    "overflow_pages",
    "read_head",
    "read_nodes",
    "read_tree",
]

WORD_BYTES: Final = struct.calcsize("P")
MAX_PAGE_BYTES: Final = 65536
MIN_PAGE_BYTES: Final = 512
NO_PAGE: Final = 2 ** (8 * WORD_BYTES) - 1
"""The root of an empty tree."""
META_PAGES: Final = 2
MAX_KEY_BYTES: Final = 511
MAX_DEPTH: Final = 32

BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
_LOOSE_MARKS = 0x8010
"""What a page may carry over from the memory of the process that wrote it; nobody looks at it."""
BIG_DATA, SUB_DATA = 1, 2
INTEGER_KEY: Final = 8
_FREE_FLAGS = 0x4009
"""What the tree of free pages may say of the file: a single file, a fixed map, keys that are numbers."""

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_LITTLE = sys.byteorder == "little"
_WORD = "Q" if WORD_BYTES == 8 else "I"
_PAGE = struct.Struct(f"={_WORD}HHHH")
PAGE_HEAD_BYTES: Final = _PAGE.size
_TREE = struct.Struct(f"=IHH{5 * _WORD}")
_META = struct.Struct(f"=II{2 * _WORD}{_TREE.size}s{_TREE.size}s{2 * _WORD}")
_NODE = struct.Struct("=HHHH")
_NODE_BYTES: Final = 8
_ONE_WORD = struct.Struct(f"={_WORD}")


class DamagedPage(ShineError):
    """The file is damaged; the text says where and how, as a part of a sentence."""


class ForeignFile(ShineError):
    """The file is sound, as far as can be seen, and of another kind of machine or program; the text says which."""


class Tree(NamedTuple):
    """What the file says of one of its trees."""

    pad: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class Head(NamedTuple):
    """The newer one of the two heads."""

    page_size: int
    last_page: int
    position: int
    """The number of the last commit."""
    map_size: int
    free: Tree
    main: Tree

    @property
    def pages(self) -> int:
        """How many pages the file has, also where its end was never written."""
        return self.last_page + 1


class Node(NamedTuple):
    """One entry of a page. Of a branch only ``key`` and ``page`` count; ``size`` is that of the value of a leaf."""

    key: bytes
    page: int
    """The child of a branch; the first page of a long value of a leaf, else 0."""
    size: int
    value: bytes
    """Of a leaf, empty where it is on pages of its own."""
    flags: int


def read_head(data: bytes, size: int, *, position: int | None = None) -> Head:
    """Read the two heads of a file and return the newer one, as LMDB does.

    Args:
        data: the first ``2 * MAX_PAGE_BYTES`` of the file, or all of a shorter one.
        size: of the file.
        position: the number of the commit whose head is wanted instead.

    Raises:
        DamagedPage: it is no LMDB file, or its heads are damaged.
        ForeignFile: it was written on a machine with another size or order of numbers, or by another LMDB.
    """
    page_size = _page_size(data)
    metas = [_read_meta(data, number * page_size, number) for number in range(META_PAGES)]
    head = metas[metas[1].position > metas[0].position]
    if position is not None:
        found = [meta for meta in metas if meta.position == position]
        if not found:
            raise DamagedPage(f"it has no head of commit {position}")
        [head, *_] = found
    if head.page_size != page_size or metas[0].page_size != metas[1].page_size:
        raise DamagedPage("its two heads contradict each other")
    if head.last_page < META_PAGES - 1 or head.pages * page_size > max(head.map_size, size):
        raise DamagedPage(f"its head says that it has {head.pages} pages of {page_size} bytes")
    return head


def read_tree(data: bytes) -> Tree:
    """Read what a tree is described with.

    Raises:
        DamagedPage: the description cannot be.
    """
    if len(data) != _TREE.size:
        raise DamagedPage(f"the description of a table has {len(data)} bytes")
    tree = Tree(*_TREE.unpack(data))
    if (tree.root == NO_PAGE) != (tree.depth == 0) or tree.depth > MAX_DEPTH:
        raise DamagedPage(f"a table says that it has {tree.depth} levels")
    return tree


def read_nodes(data: bytes, number: int, page_size: int, *, leaf: bool) -> list[Node]:
    """Read the entries of a page of a tree, each within the page.

    Args:
        data: the page.
        number: its number, which it must bear.
        leaf: which kind it must be.

    Raises:
        DamagedPage: it is another page, or something in it points out of it.
    """
    own, _, flags, lower, upper = _PAGE.unpack_from(data)
    wanted = LEAF if leaf else BRANCH
    if own != number or flags & ~_LOOSE_MARKS != wanted:
        raise DamagedPage(f"page {number} is not the page that belongs there")
    if not PAGE_HEAD_BYTES <= lower <= upper <= page_size or lower % 2:
        raise DamagedPage(f"page {number} has no sound table of entries")
    nodes: list[Node] = []
    for place in struct.unpack_from(f"={(lower - PAGE_HEAD_BYTES) // 2}H", data, PAGE_HEAD_BYTES):
        if not upper <= place <= page_size - _NODE_BYTES:
            raise DamagedPage(f"page {number} has an entry outside of it")
        first, second, node_flags, key_size = _NODE.unpack_from(data, place)
        low, high = (first, second) if _LITTLE else (second, first)
        key_end = place + _NODE_BYTES + key_size
        if key_end > page_size or key_size > MAX_KEY_BYTES:
            raise DamagedPage(f"page {number} has a key that goes beyond it")
        key = data[place + _NODE_BYTES : key_end]
        if leaf:
            nodes.append(_leaf_node(data, number, page_size, key, key_end, low | high << 16, node_flags))
        else:
            child = low | high << 16 | (node_flags << 32 if WORD_BYTES == 8 else 0)
            nodes.append(Node(key, child, 0, b"", 0))
    if len(nodes) < (1 if leaf else 2):
        raise DamagedPage(f"page {number} has {len(nodes)} entries")
    return nodes


def overflow_pages(size: int, page_size: int) -> int:
    """Return how many pages a long value takes."""
    return (PAGE_HEAD_BYTES - 1 + size) // page_size + 1


def check_overflow(data: bytes, number: int, pages: int) -> None:
    """Check the first page of a long value.

    Raises:
        DamagedPage: it is another page, or too short a stretch.
    """
    own, _, flags, low, high = _PAGE.unpack_from(data)
    first, second = (low, high) if _LITTLE else (high, low)
    if own != number or flags & ~_LOOSE_MARKS != OVERFLOW or first | second << 16 != pages:
        raise DamagedPage(f"page {number} is not the long value that belongs there")


def free_pages(value: bytes) -> tuple[int, ...]:
    """Return the pages of one list of free pages.

    Raises:
        DamagedPage: the list is not as long as it says, or in no order.
    """
    words = len(value) // WORD_BYTES
    if words < 1 or len(value) % WORD_BYTES:
        raise DamagedPage("a list of free pages is cut off")
    count, *pages = struct.unpack(f"={words}{_WORD}", value)
    if count > len(pages):
        raise DamagedPage("a list of free pages is longer than it is")
    listed = pages[:count]
    if any(page <= following for page, following in itertools.pairwise(listed)):
        raise DamagedPage("a list of free pages is in no order")
    return tuple(listed)


def free_key(key: bytes) -> int:
    """Return the number of a commit that a list of free pages has for its key.

    Raises:
        DamagedPage: the key is none.
    """
    if len(key) != WORD_BYTES:
        raise DamagedPage("a list of free pages has no number")
    return int(_ONE_WORD.unpack(key)[0])


def looks_like_store(data: bytes) -> bool:
    """Say whether the beginning of a file, or what can be its second page, is that of an LMDB file of any machine.

    Args:
        data: the first ``2 * MAX_PAGE_BYTES`` of the file, or all of a shorter one.
    """
    pages = [0, *(2**power for power in range(8, 17) if MIN_PAGE_BYTES <= 2**power <= MAX_PAGE_BYTES)]
    magics = {struct.pack(order + "I", _MAGIC) for order in "<>"}
    return any(data[page + word + 8 : page + word + 12] in magics for page in pages for word in (4, 8))


def _page_size(data: bytes) -> int:
    """Return the size of the pages of a file that begins with the head of one for this machine."""
    if not data.strip(b"\0"):
        raise DamagedPage("it holds nothing but zeros" if data else "it is empty")
    kind = _kind(data)
    if kind is not None:
        raise ForeignFile(kind)
    if len(data) < PAGE_HEAD_BYTES + _META.size:
        raise DamagedPage("it is cut off within its head")
    size = _size_of_pages(data[PAGE_HEAD_BYTES:])
    if not MIN_PAGE_BYTES <= size <= MAX_PAGE_BYTES or size & (size - 1):
        raise DamagedPage("its head is damaged, or it is no store at all")
    return size


def _size_of_pages(meta: bytes) -> int:
    return int(struct.unpack_from("=I", meta, 8 + 2 * WORD_BYTES)[0])


def _kind(data: bytes) -> str | None:
    """Say what other machine or program a file is for, ``None`` where it is for this one or for none at all."""
    for word, bits in ((8, 64), (4, 32)):
        for order, name in (("<", "little-endian"), (">", "big-endian")):
            at = word + 8
            if len(data) < at + 8 or struct.unpack_from(f"{order}I", data, at)[0] != _MAGIC:
                continue
            if word != WORD_BYTES or (order == "<") != _LITTLE:
                return f"it was written on a machine of another kind ({bits}-bit, {name})"
            version = struct.unpack_from(f"{order}I", data, at + 4)[0]
            # Both heads say so, or it is a damaged byte and no other version.
            size = _size_of_pages(data[at : at + _META.size]) if len(data) >= at + _META.size else 0
            second = data[size + at : size + at + 8] if size else b""
            if version != _VERSION and second == struct.pack(f"{order}II", _MAGIC, version):
                return f"it was written by another LMDB (format {version}, this one knows {_VERSION})"
    return None


def _read_meta(data: bytes, start: int, number: int) -> Head:
    if len(data) < start + PAGE_HEAD_BYTES + _META.size:
        raise DamagedPage("it is cut off within its heads")
    own, _, flags, _, _ = _PAGE.unpack_from(data, start)
    magic, version, _, map_size, free, main, last_page, position = _META.unpack_from(data, start + PAGE_HEAD_BYTES)
    if own != number or not flags & META or magic != _MAGIC or version != _VERSION:
        raise DamagedPage(f"the {('first', 'second')[number]} one of its two heads is damaged")
    size = _size_of_pages(data[start + PAGE_HEAD_BYTES :])
    head = Head(size, last_page, position, map_size, read_tree(free), read_tree(main))
    if head.free.flags & ~_FREE_FLAGS or not head.free.flags & INTEGER_KEY or head.main.flags or head.main.pad:
        raise DamagedPage(f"the {('first', 'second')[number]} one of its two heads is damaged")
    return head


def _leaf_node(data: bytes, number: int, page_size: int, key: bytes, key_end: int, size: int, flags: int) -> Node:
    if not key or flags & ~(BIG_DATA | SUB_DATA):
        raise DamagedPage(f"page {number} has an entry of an unknown kind")
    if flags & BIG_DATA:
        if key_end + WORD_BYTES > page_size:
            raise DamagedPage(f"page {number} has a value that goes beyond it")
        return Node(key, int(_ONE_WORD.unpack_from(data, key_end)[0]), size, b"", flags)
    if key_end + size > page_size:
        raise DamagedPage(f"page {number} has a value that goes beyond it")
    return Node(key, 0, size, data[key_end : key_end + size], flags)
