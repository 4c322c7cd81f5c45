from shine_node.config import config_from_mapping
from shine_node.configuration.model import SyncServer
from shine_node.configuration.reload import Reload, plan_reload

OWN = {"login": "home", "url": "wss://home.example/ws"}
FRIEND = {"login": "friend", "url": "wss://friend.example/ws"}


def config(server=None, **sections):
    return config_from_mapping({"server": {**OWN, **(server or {})}, **sections})


def test_nothing_new():
    assert plan_reload(config(), config()) == Reload(config(), (), (), {})


def test_what_is_reloaded_is_taken_and_the_rest_waits_for_a_restart():
    read = config(
        {"listen": ":1", "tlsCert": "c", "tlsKey": "k", "pool": {"maxConnections": 5}, "info": {"origin": "me"}},
        log={"level": "debug", "format": "json"},
        limits={"maxConnections": 7},
        registration={"token": "geheim"},
        sync_servers=[FRIEND],
    )
    plan = plan_reload(config(), read)
    assert plan.changed == (
        "server.tlsCert",
        "server.tlsKey",
        "limits.maxConnections",
        "log.level",
        "log.format",
        "sync_servers",
    )
    assert plan.need_restart == (
        "server.listen",
        "server.info.origin",
        "server.pool.maxConnections",
        "registration.token",
    )
    assert plan.config == config(
        {"tlsCert": "c", "tlsKey": "k"},
        log={"level": "debug", "format": "json"},
        limits={"maxConnections": 7},
        sync_servers=[FRIEND],
    )
    assert plan.config.sync_servers == (SyncServer("friend", "wss://friend.example/ws"),)
    assert plan_reload(plan.config, read).changed == ()
    assert "geheim" not in repr(plan)
    assert plan.values == {
        "server.listen": '["127.0.0.1:7070"] → [":1"]',
        "server.tlsCert": '"" → "/c"',
        "server.tlsKey": '"" → "/k"',
        "server.info.origin": '"" → "me"',
        "server.pool.maxConnections": "256 → 5",
        "registration.token": "changed",
        "limits.maxConnections": "2000 → 7",
        "log.level": '"info" → "debug"',
        "log.format": '"text" → "json"',
        "sync_servers": "friend: none → wss://friend.example/ws",
    }
    assert plan.describe(["limits.maxConnections", "registration.token"]) == (
        "limits.maxConnections (2000 → 7), registration.token (changed)"
    )
    assert plan.describe([]) == "nothing"


def test_peers_that_are_gone_elsewhere_and_in_another_order():
    other = {"login": "other", "url": "wss://other.example/ws"}
    moved = {**FRIEND, "url": "wss://new.example/ws"}

    def values(before, after):
        return plan_reload(config(sync_servers=before), config(sync_servers=after)).values["sync_servers"]

    assert values([FRIEND, other], [moved]) == (
        "friend: wss://friend.example/ws → wss://new.example/ws, other: wss://other.example/ws → none"
    )
    assert values([FRIEND, other], [other, FRIEND]) == "in another order"
