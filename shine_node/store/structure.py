"""Whether the pages of an LMDB file fit together, found out without LMDB, which would trust them.

A look at the edges reads what the opening of a store touches: all of the free list and of the names of tables, the
first and the last path of each table. A thorough one reads every page but the inside of long values.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shine_node.store.pages import (
    BIG_DATA,
    INTEGER_KEY,
    MAX_PAGE_BYTES,
    META_PAGES,
    NO_PAGE,
    PAGE_HEAD_BYTES,
    SUB_DATA,
    DamagedPage,
    Head,
    Node,
    Tree,
    check_overflow,
    free_key,
    free_pages,
    looks_like_store,
    overflow_pages,
    read_head,
    read_nodes,
    read_tree,
)

__all__ = ["check_snapshot", "check_structure", "examine", "is_store", "read_file_head"]

ReadPages = Callable[[int, int], bytes]
"""Returns so many pages from a number on; fewer bytes where the file ends."""


class _Found(NamedTuple):
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int


def examine(path: Path, *, thorough: bool) -> Head | None:
    """Look through a store's file, which nobody may be writing.

    Returns:
        Its head; ``None`` where there is no file, or one with nothing in it: LMDB makes a new store of it.

    Raises:
        DamagedPage: the file is damaged.
        ForeignFile: it is another machine's, or another LMDB's.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return None
        head = _head_of(descriptor, size)
        check_structure(head, size // head.page_size, _reader(descriptor, head), thorough=thorough)
        return head
    finally:
        os.close(descriptor)


def read_file_head(path: Path) -> Head:
    """Return the head of a store's file as it is now.

    Raises:
        DamagedPage, ForeignFile, OSError: as ``examine``; an empty file is a damaged one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _head_of(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def is_store(descriptor: int) -> bool:
    """Say whether an open file begins like a store, sound or not, of this machine or of another.

    Raises:
        OSError: it cannot be read.
    """
    return looks_like_store(os.pread(descriptor, 2 * MAX_PAGE_BYTES, 0))


def check_snapshot(path: Path, position: int) -> None:
    """Look at every page of one commit of a file that is being written; a reader must keep that commit from going.

    Raises:
        DamagedPage, ForeignFile, OSError: as ``examine``; also where two more commits have been made meanwhile.
    """
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        head = read_head(os.pread(descriptor, 2 * MAX_PAGE_BYTES, 0), size, position=position)
        check_structure(head, size // head.page_size, _reader(descriptor, head), thorough=True)


def check_structure(head: Head, file_pages: int, read: ReadPages, *, thorough: bool) -> None:
    """Walk the trees of a file of so many whole pages from a head.

    Raises:
        DamagedPage: something does not fit.
    """
    walk = _Walk(head, file_pages, read)
    listed: list[int] = []

    def list_free(node: Node) -> None:
        pages = free_pages(walk.value(node))
        if pages and not META_PAGES <= pages[-1] <= pages[0] <= head.last_page:
            raise DamagedPage("a list of free pages names pages that are not there")
        listed.extend(pages)

    tables: list[tuple[bytes, Tree]] = []

    def list_table(node: Node) -> None:
        if node.flags & SUB_DATA:
            tables.append((node.key, read_tree(node.value)))

    walk.tree(head.free, whole=True, visit=list_free)
    walk.tree(head.main, whole=True, visit=list_table)
    for name, tree in tables:
        if tree.flags or tree.pad:
            raise DamagedPage(f"the table {name.decode('ascii', 'replace')} is of an unknown kind")
        try:
            walk.tree(tree, whole=thorough)
        except DamagedPage as error:
            raise DamagedPage(f"{error}, in the table {name.decode('ascii', 'replace')}") from None
    for page in listed:
        walk.take(page)


class _Walk:
    """A walk over pages, each of which has one place only."""

    def __init__(self, head: Head, file_pages: int, read: ReadPages) -> None:
        self._head = head
        self._read = read
        self._taken = bytearray(b"\1" * META_PAGES).ljust(min(head.pages, file_pages), b"\0")
        """By number; of pages behind the end of the file, which can only be free ones, it is not known."""

    def take(self, number: int, count: int = 1) -> None:
        """Take note that pages are used.

        Raises:
            DamagedPage: they are not in the file, or used elsewhere.
        """
        if number < META_PAGES or number + count > self._head.pages:
            raise DamagedPage(f"page {number} is named, and the file has {self._head.pages}")
        if any(self._taken[number : number + count]):
            raise DamagedPage(f"page {number} is used twice")
        count = min(count, len(self._taken) - number)
        if count > 0:
            self._taken[number : number + count] = b"\1" * count

    def page(self, number: int) -> bytes:
        """Return a page that is used."""
        self.take(number)
        return self._whole(number, 1)

    def value(self, node: Node) -> bytes:
        """Return the value of an entry of a leaf, whose long pages have been taken."""
        if not node.flags & BIG_DATA:
            return node.value
        data = self._whole(node.page, overflow_pages(node.size, self._head.page_size))
        return data[PAGE_HEAD_BYTES : PAGE_HEAD_BYTES + node.size]

    def tree(self, tree: Tree, *, whole: bool, visit: Callable[[Node], None] = lambda node: None) -> None:
        """Walk one tree, or only its first and its last path."""
        if tree.root == NO_PAGE:
            if tree.entries:
                raise DamagedPage(f"{tree.entries} entries have no page")
            return
        numbers = bool(tree.flags & INTEGER_KEY)
        found = self._subtree(tree.root, tree.depth, None, None, numbers, (True, True), whole, visit)
        said = _Found(tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        if whole and found != said:
            raise DamagedPage(f"there are {found.entries} entries where {said.entries} are counted, or other pages")

    def _subtree(
        self,
        number: int,
        depth: int,
        low: bytes | None,
        high: bytes | None,
        numbers: bool,
        edges: tuple[bool, bool],
        whole: bool,
        visit: Callable[[Node], None],
    ) -> _Found:
        leaf = depth == 1
        nodes = read_nodes(self.page(number), number, self._head.page_size, leaf=leaf)
        keys = [node.key for node in nodes]
        if not leaf:
            keys[0] = low if low is not None else b""  # the first key of a branch is not written
        _check_order(number, keys, low, high, numbers)
        if leaf:
            return _Found(0, 1, sum(self._long_value(node, visit) for node in nodes), len(nodes))
        ends = [*keys[1:], high]
        total = _Found(1, 0, 0, 0)
        for index, node in enumerate(nodes):
            own_edges = edges[0] and index == 0, edges[1] and index == len(nodes) - 1
            if not whole and not any(own_edges):
                continue
            start = keys[index] if index else low
            part = self._subtree(node.page, depth - 1, start, ends[index], numbers, own_edges, whole, visit)
            total = _Found(*(one + other for one, other in zip(total, part, strict=True)))
        return total

    def _long_value(self, node: Node, visit: Callable[[Node], None]) -> int:
        pages = 0
        if node.flags & BIG_DATA:
            pages = overflow_pages(node.size, self._head.page_size)
            self.take(node.page, pages)
            check_overflow(self._whole(node.page, 1), node.page, pages)
            self._whole(node.page + pages - 1, 1)
        visit(node)
        return pages

    def _whole(self, number: int, count: int) -> bytes:
        data = self._read(number, count)
        if len(data) < count * self._head.page_size:
            raise DamagedPage(f"page {number} of {self._head.pages} is cut off")
        return data


def _check_order(number: int, keys: list[bytes], low: bytes | None, high: bytes | None, numbers: bool) -> None:
    if numbers:
        order = [free_key(key) if key else -1 for key in keys]
        rising = all(one < other for one, other in itertools.pairwise(order))
        within = (not low or order[0] >= free_key(low)) and (high is None or order[-1] < free_key(high))
    else:
        rising = all(one < other for one, other in itertools.pairwise(keys))
        within = (low is None or keys[0] >= low) and (high is None or keys[-1] < high)
    if not rising or not within:
        raise DamagedPage(f"the keys of page {number} are in no order")


def _reader(descriptor: int, head: Head) -> ReadPages:
    return lambda number, count: os.pread(descriptor, count * head.page_size, number * head.page_size)


def _head_of(descriptor: int, size: int) -> Head:
    return read_head(os.pread(descriptor, 2 * MAX_PAGE_BYTES, 0), size)
