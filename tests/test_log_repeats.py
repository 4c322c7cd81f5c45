"""Lines that come again and again: one in a while, and how many there were."""

from __future__ import annotations

from shine_node.log_repeats import Repeats, Summary


def test_a_line_is_written_once_in_a_while_and_the_rest_is_counted() -> None:
    repeats: Repeats[str] = Repeats(seconds=60)
    assert repeats.admit("a", "first", 0)
    assert [repeats.admit("a", "again", now) for now in (1, 2, 59.9)] == [False] * 3
    assert list(repeats.over(59.9)) == []
    assert list(repeats.over(60)) == [Summary("first", 3, 60)]
    assert not repeats.admit("a", "again", 60), "it has just been told of"
    assert list(repeats.over(119)) == []
    assert list(repeats.over(121)) == [Summary("first", 1, 61)]
    assert list(repeats.over(200)) == [], "nothing came since"
    assert repeats.admit("a", "anew", 200)


def test_what_did_not_come_again_is_not_told() -> None:
    repeats: Repeats[str] = Repeats(seconds=60)
    assert repeats.admit("a", "a", 0)
    assert repeats.admit("b", "b", 30)
    assert not repeats.admit("b", "b", 31)
    assert list(repeats.over(60)) == []
    assert repeats.admit("a", "a", 60)
    assert list(repeats.over(90)) == [Summary("b", 1, 60)]


def test_of_too_many_the_earliest_are_forgotten_and_told() -> None:
    repeats: Repeats[str] = Repeats(seconds=60, most=2)
    for name in "ab":
        assert repeats.admit(name, name, 0)
    assert not repeats.admit("a", "a", 1)
    assert list(repeats.excess(1)) == []
    assert repeats.admit("c", "c", 2)
    assert list(repeats.excess(2)) == [Summary("a", 1, 2)]
    assert repeats.admit("d", "d", 3)
    assert list(repeats.excess(3)) == [], "of b there is nothing to tell"
    assert repeats.admit("a", "a", 4), "it is forgotten"


def test_at_the_end_all_is_told() -> None:
    repeats: Repeats[str] = Repeats()
    for name in "ab":
        assert repeats.admit(name, name, 0)
    assert not repeats.admit("b", "b", 1)
    assert list(repeats.end(5)) == [Summary("b", 1, 5)]
    assert list(repeats.end(5)) == []
