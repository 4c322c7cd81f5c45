import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shine_node.configuration.build import build_config
from shine_node.configuration.lines import find_lines
from shine_node.configuration.model import Config, ListenAddress, SyncServer
from shine_node.configuration.options import OPTIONS, PEERS, SECTIONS, options_of
from shine_node.configuration.problems import ConfigError
from shine_node.configuration.sources import Source
from tests.configuration.test_kinds import AROUND, AROUND_32

MINIMAL = '[server]\nlogin = "home"\nurl = "wss://home.example/ws"\n'


def source(text, name="main.toml"):
    return Source(tomllib.loads(text), name, find_lines(text))


def build(*texts, around=AROUND):
    return build_config([source(text, f"{number}.toml") for number, text in enumerate(texts)], around)


def problems(*texts, around=AROUND):
    with pytest.raises(ConfigError) as raised:
        build(*texts, around=around)
    return [str(problem) for problem in raised.value.problems]


def test_the_defaults():
    config = build(MINIMAL)
    assert (config.server.login, config.server.url) == ("home", "wss://home.example/ws")
    assert config.server.listen == (ListenAddress("127.0.0.1", 7070),)
    assert config.server.data_dir == Path("/var/state")
    assert config.server.tls_cert is config.server.tls_key is config.server.pool.ca_file is None
    assert config.sync_servers == ()
    assert config.delivery.schedule_seconds == (0, 30, 300, 1500, 3600)
    assert config.storage.map_size_mib == 16384
    assert build(MINIMAL, around=AROUND_32).storage.map_size_mib == 1024
    assert config.registration.mode == "closed"


def test_every_option_reaches_its_attribute():
    written = {
        "server.login": "n", "server.url": "wss://n.example/ws", "server.listen": [":1"], "server.dataDir": "d",
        "server.tlsCert": "c", "server.tlsKey": "k", "server.pool.caFile": "a", "registration.mode": "open",
        "delivery.scheduleSeconds": [0, 1], "log.level": "debug", "log.format": "json",
        "server.pool.callerTimeoutSeconds": 36, "limits.maxFrameBytes": 1048577, "storage.whenDamaged": "stop",
        "limits.blockedPeers": ["bad"], "limits.blockedAddresses": ["192.0.2.7"],
    }  # fmt: skip
    table = {}
    for option in OPTIONS:
        if option.section == PEERS:
            continue
        inner = table
        for part in option.section.split("."):
            inner = inner.setdefault(part, {})
        default = option.default
        other = not default if isinstance(default, bool) else default + 1 if isinstance(default, int) else "other"
        inner[option.key] = written.get(option.name, other)
    config, defaults = build_config([Source(table)], AROUND), build(MINIMAL)
    for option in OPTIONS:
        if option.section != PEERS:
            part, default_part = config, defaults
            for name in option.section.split("."):
                part, default_part = getattr(part, name), getattr(default_part, name)
            assert getattr(part, option.attribute) != getattr(default_part, option.attribute), option.name


def test_a_later_source_wins():
    config = build(
        MINIMAL + 'listen = [":1", ":2"]\n[delivery]\nmaxConcurrent = 5\nleaseMs = 1001',
        "server.listen = ':3'\n[delivery]\nmaxConcurrent = 6\nscheduleSeconds = [0]",
        "[delivery]\nmaxConcurrent = 7",
    )
    assert config.server.listen == (ListenAddress("", 3),)
    assert (config.delivery.max_concurrent, config.delivery.lease_ms) == (7, 1001)
    assert config.delivery.schedule_seconds == (0,)


def peer(login, number=0):
    return f'[[sync_servers]]\nlogin = "{login}"\nurl = "wss://{login.lower()}{number}.example/ws"\n'


def test_entries_of_sync_servers_add_up_and_replace_by_login():
    config = build(MINIMAL + peer("a") + peer("b"), peer("c"), peer("B", 1))
    assert config.sync_servers == (
        SyncServer("a", "wss://a0.example/ws"),
        SyncServer("B", "wss://b1.example/ws"),
        SyncServer("c", "wss://c0.example/ws"),
    )


def test_a_server_stands_once_in_a_source():
    assert problems(MINIMAL + peer("a") + peer("A")) == [
        '0.toml:8: sync_servers.login = "A" stands twice: remove one of the two entries'
    ]


def test_what_is_required():
    assert problems("[log]", "[crypto]") == [
        '0.toml: server.login is missing: write it below [server], for example login = "myserver"',
        '0.toml: server.url is missing: write it below [server], for example url = "wss://myserver.example/ws"',
    ]
    assert problems(MINIMAL + '[[sync_servers]]\nurl = "wss://x.example/ws"') == [
        '0.toml:4: sync_servers.login is missing: write it below [[sync_servers]], for example login = "friend"'
    ]
    assert problems("[server]\nlogin = 1\nurl = 2") == [
        "0.toml:2: server.login = 1 is no text in quotes: write 1 to 30 of A-Z a-z 0-9 _ . - with a letter or digit"
        " first",
        "0.toml:3: server.url = 2 is no text in quotes: write wss://HOST/ws or wss://HOST:PORT/ws,"
        " at most 256 printable ASCII characters",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server.pol]\npingIdleSeconds = 1", "4: server.pol is no setting of this program: did you mean server.pool?"),
        ("pingIdleSeconds = 5", "4: server.pingIdleSeconds is no setting of this program: did you mean server.pool.p"),
        ("TlsCert = 'x'", "4: server.TlsCert is no setting of this program: did you mean server.tlsCert? Correct it"),
        ("[limits]\nmaxBodyByte = 5", "5: limits.maxBodyByte is no setting of this program: did you mean limits.maxB"),
        ("[sync_server]", "4: sync_server is no setting of this program: did you mean sync_servers? Correct it or"),
        ("zzz = 5", "4: server.zzz is no setting of this program: it has no effect here, so remove it"),
        ('"a\\nb" = 5', '4: server."a\\nb" is no setting of this program: it has no effect here, so remove it'),
        ('["server.pool"]', '4: "server.pool" is no setting of this program: it has no effect'),
        (f"{'x' * 300} = 1", f'4: server."{"x" * 40}" is no setting'),
        ("pool = 5", "4: server.pool is a section: write [server.pool]"),
        ("[[log]]", "4: log is a section: write [log]"),
        ("[sync_servers]\nlogin = 'a'", "4: sync_servers is a list of sections: write [[sync_servers]]"),
        ("[x]\n[x.y]\nz = 1", "4: x is no setting of this program: it has no effect here, so remove it"),
        ("[log]\nlevel = 'loud'", "5: log.level = \"loud\" is none of the choices: write \"debug\", \"info\","),
        ("[sync]\npageLimit = 501", "5: sync.pageLimit = 501 is out of range: write a whole number from 1 to 500, or"
                                    " remove it for the default, 100"),
        ("[storage]\nmapSizeMiB = nan", "5: storage.mapSizeMiB = nan is no whole number: write a whole number from 8"),
        ("[crypto]\nthreads = true", "5: crypto.threads = true is no whole number: write a whole number from 1 to 64"),
    ],
)  # fmt: skip
def test_one_mistake(text, problem):
    (found,) = problems(MINIMAL + text)
    assert found.startswith(f"0.toml:{problem}")


def test_entries_of_sync_servers_that_are_wrong():
    text = f"""sync_servers = [
      {{ login = "a", url = "wss://a.example/ws", token = "geheim" }},
      {{ login = "a b", url = 5 }},
      {{ }},
    ]
    {MINIMAL}"""
    found = problems(text)
    assert len(found) == 5
    assert found[0].startswith("0.toml:1: sync_servers.token is no setting")
    assert 'sync_servers.login = "a b" is no login' in found[1]
    assert "sync_servers.url = 5 is no text" in found[2]
    assert "geheim" not in "".join(found)
    assert problems("sync_servers = [1]\n" + MINIMAL) == [
        "0.toml:1: sync_servers is a list of sections: write [[sync_servers]]"
    ]


def test_all_mistakes_of_all_sources_come_in_order():
    found = problems(
        '[[sync_servers]]\nlogin = "home"\nurl = "ws://x.example/ws"\n'
        '[log]\nlevel = 1\n[server]\nlogin = "home"\ntlsKey = "k"\n',
        "[log]\nformat = 1\n[server.pool]\ncallerTimeoutSeconds = 1",
    )
    assert [problem.split(" ", 2)[:2] for problem in found] == [
        ["0.toml:2:", "sync_servers.login"],
        ["0.toml:3:", "sync_servers.url"],
        ["0.toml:5:", "log.level"],
        ["0.toml:8:", "server.tlsKey"],
        ["0.toml:", "server.url"],
        ["1.toml:2:", "log.format"],
        ["1.toml:4:", "server.pool.callerTimeoutSeconds"],
    ]


def test_a_rule_that_a_default_breaks_points_at_the_option_that_was_written():
    found = problems(MINIMAL + "[limits]\nmaxBodyBytes = 1000000")
    assert found == [
        "0.toml:5: limits.maxFrameBytes = 1048576 is too small for limits.maxBodyBytes = 1000000:"
        " raise the first to at least 4065536, or lower the second"
    ]


def test_a_wrong_value_is_not_judged_by_the_rules_with_what_stood_before():
    found = problems(MINIMAL + "[server.pool]\ncallerTimeoutSeconds = 5", "server.pool.callerTimeoutSeconds = 0")
    assert len(found) == 1 and "out of range" in found[0]


def test_no_message_shows_a_token():
    for text in (
        "[registration]\ntoken = 98765",
        "[registration]\ntoken = ['geheim']",
        "[registration]\ntoken = 'ge\\theim\x7f'".replace("'", '"').replace("\x7f", ""),
        "[registration]\ntokne = 'geheim'",
        "token = 'geheim'",
        "[token]\ngeheim = 1",
        "[registration]\nmode = 'tokn'\ntoken = 'geheim'",
    ):
        assert not any("98765" in problem or "heim" in problem for problem in problems(MINIMAL + text))


KEYS = st.sampled_from([*(option.key for option in OPTIONS), *(s.name.split(".")[-1] for s in SECTIONS), "x", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, VALUES))
def test_no_table_breaks_it(table):
    try:
        assert isinstance(build_config([Source(table)], AROUND), Config)
    except ConfigError as error:
        assert error.problems and all("\n" not in problem.text for problem in error.problems)


@given(st.sampled_from(options_of("limits") + options_of("server") + options_of("registration")), VALUES)
def test_no_value_breaks_it(option, value):
    table = {"server": {"login": "home", "url": "wss://home.example/ws"}}
    table.setdefault(option.section, {})[option.key] = value
    try:
        assert isinstance(build_config([Source(table)], AROUND), Config)
    except ConfigError as error:
        assert any(option.name in problem.text for problem in error.problems)
