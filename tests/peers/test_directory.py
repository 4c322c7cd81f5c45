import random

from shine_node.peers.directory import KnownPeer, known_peers
from shine_node.protocol.access import AccessRecord, AccessServer

OWN = AccessServer("Home", "wss://home.example/ws")


def record(login: str, time_ms: int, *servers: AccessServer, signature: bytes = b"s" * 64) -> AccessRecord:
    return AccessRecord(login, f"{login}-001", b"r" * 32, b"b" * 32, b"d" * 32, servers, time_ms, signature)


def far(login: str, place: str) -> AccessServer:
    return AccessServer(login, f"wss://{place}.example/ws")


def test_nobody_is_known() -> None:
    assert known_peers("home", [], []) == []


def test_the_configuration_and_the_other_servers_of_own_users_are_permanent() -> None:
    records = [
        record("alice", 1, OWN, far("Second", "second")),
        record("bob", 1, far("third", "third"), far("fourth", "fourth")),
    ]
    assert known_peers("HOME", [far("Sync", "sync")], records) == [
        KnownPeer("Sync", "wss://sync.example/ws", True),
        KnownPeer("Second", "wss://second.example/ws", True),
        KnownPeer("third", "wss://third.example/ws", False),
        KnownPeer("fourth", "wss://fourth.example/ws", False),
    ]


def test_never_this_server_itself_whatever_a_record_says_of_it() -> None:
    records = [record("alice", 9, far("hOmE", "thief"), far("x", "x"))]
    found = known_peers("home", [far("HOME", "elsewhere")], records)
    assert [peer.server_login for peer in found] == ["x"]


def test_the_configuration_decides_over_every_record() -> None:
    records = [record("alice", 99, OWN, far("sync", "thief")), record("bob", 100, far("SYNC", "thief2"))]
    assert known_peers("home", [far("Sync", "sync")], records) == [KnownPeer("Sync", "wss://sync.example/ws", True)]


def test_then_the_newest_record_of_a_user_of_this_server() -> None:
    records = [
        record("bob", 500, far("s", "stranger")),
        record("alice", 10, OWN, far("s", "old")),
        record("carol", 20, far("S", "newer"), OWN),
        record("dave", 600, far("s", "stranger2")),
    ]
    for _ in range(10):
        random.Random(1).shuffle(records)
        assert known_peers("home", [], records) == [KnownPeer("S", "wss://newer.example/ws", True)]


def test_then_the_newest_of_any_and_of_two_equal_times_the_greater_signature() -> None:
    records = [
        record("bob", 20, far("s", "older"), signature=b"z" * 64),
        record("carol", 30, far("s", "smaller"), signature=b"a" * 64),
        record("dave", 30, far("s", "greater"), signature=b"b" * 64),
    ]
    for order in (records, records[::-1]):
        assert known_peers("home", [], order) == [KnownPeer("s", "wss://greater.example/ws", False)]


def test_one_pass_over_the_records_is_enough() -> None:
    assert len(known_peers("home", [], iter([record("bob", 1, far("s", "s"))]))) == 1
