"""Which revision stays: the vectors in every order of arrival, and that the rule is one order for all servers."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.protocol.container import MESSAGE_OUT, parse_container
from shine_node.protocol.errors import KeyConflict, Refusal, StaleRevision
from shine_node.protocol.revisions import Arrival, Known, judge, refuse_conflict
from tests.support.vectors import cases

REPLACES = (Arrival.FIRST, Arrival.NEWER, Arrival.CONFLICT_WINS)


def arrive(known: Known | None, arriving: Known) -> Arrival:
    return judge(known, revision_ms=arriving.revision_ms, signature=arriving.signature, digest=arriving.digest)


def settle(arrivals: Iterable[Known]) -> Known | None:
    """What stays on a server that keeps to ``judge``, between servers: conflicts are no errors there."""
    known = None
    for arriving in arrivals:
        if arrive(known, arriving) in REPLACES:
            known = arriving
    return known


def revision(*blobs_hex: str) -> Known:
    """What is kept of the copies of one revision, the incoming one (or the only one) first."""
    blobs = [bytes.fromhex(text) for text in blobs_hex]
    first = parse_container(blobs[0], max_body_bytes=65536)
    return Known(first.revision_ms, first.signature, hashlib.sha256(b"".join(blobs)).digest(), False)


# The vectors


@pytest.mark.parametrize("case", cases("revisions", kind="copy"))
def test_the_copy_that_stays_in_the_vectors(case: dict[str, Any]) -> None:
    revisions = [revision(blob) for blob in case["blobsHex"]]
    orders = [*case["arrivalOrders"], *itertools.islice(itertools.permutations(range(len(revisions))), 120)]
    for order in orders:
        assert settle(revisions[index] for index in order) == revisions[case["winner"]]
        again = [*order, *order]  # repetitions change nothing
        assert settle(revisions[index] for index in again) == revisions[case["winner"]]


@pytest.mark.parametrize("case", cases("revisions", kind="pair"))
def test_the_pair_that_stays_in_the_vectors(case: dict[str, Any]) -> None:
    pairs = [revision(pair["incomingHex"], pair["outgoingHex"]) for pair in case["pairs"]]
    for order in itertools.permutations(pairs):
        assert settle(order) == pairs[case["winner"]]


@pytest.mark.parametrize("case", cases("revisions", kind="sendMessagePair"))
def test_what_a_client_meets_in_the_vectors(case: dict[str, Any]) -> None:
    pairs = {name: revision(pair["incomingHex"], pair["outgoingHex"]) for name, pair in case["pairs"].items()}
    known = None
    for step in case["steps"]:
        arrival = arrive(known, pairs[step["pair"]])
        status, error = 200, None
        try:
            refuse_conflict(arrival)
        except Refusal as refusal:
            status, error = refusal.status, refusal.code
        else:
            known = pairs[step["pair"]] if arrival in REPLACES else known
        assert (status, error) == (step["status"], step["error"])
    assert known == pairs[case["storedAfter"]]


@pytest.mark.parametrize("case", cases("revisions", kind="tombstone"))
def test_a_removed_message_stays_removed_in_the_vectors(case: dict[str, Any]) -> None:
    known: Known | None = None
    assert case["everyStepStatus"] == 200
    for name in case["steps"]:
        item = case["items"][name]
        incoming = parse_container(bytes.fromhex(item["incomingHex"]), max_body_bytes=65536)
        if incoming.message_type > MESSAGE_OUT:
            if incoming.reference is not None and incoming.reference.base_key == case["baseKey"]:
                known = known._replace(removed=True) if known else Known(0, b"", b"", True)
            continue
        assert incoming.message.base_key == case["baseKey"]
        arriving = revision(item["incomingHex"], item["outgoingHex"])
        arrival = arrive(known, arriving)
        refuse_conflict(arrival)
        if arrival in REPLACES:
            known = arriving
    assert known is not None
    assert known.removed is case["removed"]


# Each answer by itself

KNOWN = Known(100, b"\x80", b"digest", False)


@pytest.mark.parametrize(
    ("known", "arriving", "arrival"),
    [
        (None, KNOWN, Arrival.FIRST),
        (KNOWN, KNOWN, Arrival.SAME),
        (KNOWN, Known(101, b"\x00", b"other", False), Arrival.NEWER),
        (KNOWN, Known(99, b"\xff", b"other", False), Arrival.OLDER),
        (KNOWN, Known(100, b"\x81", b"other", False), Arrival.CONFLICT_WINS),
        (KNOWN, Known(100, b"\x7f", b"other", False), Arrival.CONFLICT_LOSES),
        # The incoming copies are the same and the outgoing ones differ.
        (KNOWN, Known(100, b"\x80", b"e", False), Arrival.CONFLICT_WINS),
        (KNOWN, Known(100, b"\x80", b"a", False), Arrival.CONFLICT_LOSES),
    ],
)
def test_an_arrival(known: Known | None, arriving: Known, arrival: Arrival) -> None:
    assert arrive(known, arriving) is arrival


def test_a_removed_message_keeps_its_digest_for_repetition_and_conflict_only() -> None:
    removed = KNOWN._replace(removed=True)
    assert arrive(removed, KNOWN) is Arrival.SAME
    assert arrive(removed, KNOWN._replace(digest=b"other", signature=b"\xff")) is Arrival.CONFLICT_WINS
    assert arrive(removed, KNOWN._replace(digest=b"other", signature=b"\x01")) is Arrival.CONFLICT_LOSES
    for revision_ms in (0, 99, 101):
        assert arrive(removed, KNOWN._replace(digest=b"other", revision_ms=revision_ms)) is Arrival.REMOVED


@pytest.mark.parametrize("revision_ms", [0, 100])
def test_a_message_whose_tombstone_came_first_is_removed(revision_ms: int) -> None:
    assert arrive(Known(0, b"", b"", True), KNOWN._replace(revision_ms=revision_ms)) is Arrival.REMOVED


@pytest.mark.parametrize("arrival", Arrival)
def test_what_a_client_may_not_submit(arrival: Arrival) -> None:
    refusals = {
        Arrival.OLDER: StaleRevision,
        Arrival.CONFLICT_WINS: KeyConflict,
        Arrival.CONFLICT_LOSES: KeyConflict,
    }
    if arrival in refusals:
        with pytest.raises(refusals[arrival]):
            refuse_conflict(arrival)
    else:
        refuse_conflict(arrival)


# Properties

revisions = st.builds(
    Known, st.integers(0, 3), st.binary(min_size=1, max_size=2), st.binary(min_size=2, max_size=2), st.just(False)
)
distinct_revisions = st.lists(revisions, min_size=1, max_size=6, unique_by=lambda known: known.digest)


@given(distinct_revisions, st.data())
def test_what_stays_does_not_hang_on_the_order_of_arrival(found: list[Known], data: st.DataObject) -> None:
    order = data.draw(st.permutations(found * 2))
    assert settle(order) == settle(found) == max(found)


@given(distinct_revisions)
def test_the_rule_is_a_total_order(found: list[Known]) -> None:
    for one, other in itertools.permutations(found, 2):
        assert (arrive(one, other) in REPLACES) is not (arrive(other, one) in REPLACES)
        assert Arrival.SAME not in (arrive(one, other), arrive(other, one))
    for one, two, three in itertools.permutations(found, 3):
        if arrive(one, two) in REPLACES and arrive(two, three) in REPLACES:
            assert arrive(one, three) in REPLACES
    for one in found:
        assert arrive(one, one) is Arrival.SAME


@given(distinct_revisions, st.integers(0, 6))
def test_nothing_replaces_a_message_removed_before_it_came(found: list[Known], turns: int) -> None:
    known = Known(0, b"", b"", True)
    for arriving in found[turns:] + found[:turns]:
        assert arrive(known, arriving) is Arrival.REMOVED
