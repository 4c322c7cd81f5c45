from shine_node.config import config_from_mapping
from shine_node.configuration.model import SyncServer
from shine_node.configuration.reload import Reload, plan_reload

OWN = {"login": "home", "url": "wss://home.example/ws"}
FRIEND = {"login": "friend", "url": "wss://friend.example/ws"}


def config(server=None, **sections):
    return config_from_mapping({"server": {**OWN, **(server or {})}, **sections})


def test_nothing_new():
    assert plan_reload(config(), config()) == Reload(config(), (), ())


def test_what_is_reloaded_is_taken_and_the_rest_waits_for_a_restart():
    read = config(
        {"listen": ":1", "tlsCert": "c", "tlsKey": "k", "pool": {"maxConnections": 5}, "info": {"origin": "me"}},
        log={"level": "debug", "format": "json"},
        limits={"maxConnections": 7},
        registration={"token": "geheim"},
        sync_servers=[FRIEND],
    )
    plan = plan_reload(config(), read)
    assert plan.changed == ("server.tlsCert", "server.tlsKey", "limits.maxConnections", "log.level", "sync_servers")
    assert plan.need_restart == (
        "server.listen",
        "server.info.origin",
        "server.pool.maxConnections",
        "registration.token",
        "log.format",
    )
    assert plan.config == config(
        {"tlsCert": "c", "tlsKey": "k"}, log={"level": "debug"}, limits={"maxConnections": 7}, sync_servers=[FRIEND]
    )
    assert plan.config.sync_servers == (SyncServer("friend", "wss://friend.example/ws"),)
    assert plan_reload(plan.config, read).changed == ()
    assert "geheim" not in repr(plan)
