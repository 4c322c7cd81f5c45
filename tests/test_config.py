import math
from pathlib import Path

import pytest

from shine_node.config import (
    ConfigError,
    ListenAddress,
    SyncServer,
    config_from_mapping,
    load_config,
)
from shine_node.protocol.errors import ShineError

OWN = {"login": "home", "url": "wss://home.example/ws"}
TEXT = '[server]\nlogin = "home"\nurl = "wss://home.example/ws"\n'


def write(folder, text=TEXT, **drop_ins):
    (folder / "node.toml").write_text(text)
    (folder / "conf.d").mkdir()
    for name, drop_in in drop_ins.items():
        (folder / "conf.d" / f"{name}.toml").write_text(drop_in)
    return folder / "node.toml"


def test_a_file_and_its_drop_ins(tmp_path):
    path = write(
        tmp_path,
        TEXT + "[log]\nlevel = 'error'",
        a="server.dataDir = 'data'\nserver.tlsCert = '../c'\nserver.tlsKey = '/k'",
        b="[log]\nlevel = 'debug'\n[[sync_servers]]\nlogin = 'f'\nurl = 'wss://f.example/ws'",
    )
    config = load_config(path, environ={})
    assert config.server.data_dir == tmp_path / "data"
    assert config.server.tls_cert == tmp_path / ".." / "c"  # beside the main file's folder, not that of conf.d
    assert config.server.tls_key == Path("/k")
    assert config.log.level == "debug"
    assert config.sync_servers == (SyncServer("f", "wss://f.example/ws"),)


def test_a_relative_name_of_the_file(tmp_path, monkeypatch):
    write(tmp_path, TEXT + 'dataDir = "data"')
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("node.toml")).server.data_dir == tmp_path / "data"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "/var/lib/shine-node"),
        ({"STATE_DIRECTORY": ""}, "/var/lib/shine-node"),
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, "/var/lib/a"),
    ],
)
def test_the_default_folder(tmp_path, environ, folder, monkeypatch):
    path = write(tmp_path)
    assert load_config(path, environ=environ).server.data_dir == Path(folder)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert load_config(path).server.data_dir == Path(folder)
    path.write_text(TEXT + 'dataDir = "/srv"')
    assert load_config(path, environ=environ).server.data_dir == Path("/srv")


def test_credentials_are_the_default_of_the_certificate(tmp_path):
    path, folder = write(tmp_path), tmp_path / "credentials"
    folder.mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(folder)}
    assert load_config(path, environ=environ).server.tls_cert is None
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_text("-----BEGIN")
    server = load_config(path, environ=environ).server
    assert (server.tls_cert, server.tls_key) == (folder / "tls.crt", folder / "tls.key")
    path.write_text(TEXT + 'tlsCert = ""\ntlsKey = ""')
    assert load_config(path, environ=environ).server.tls_cert is None
    path.write_text(TEXT + 'tlsCert = "/a"\ntlsKey = "/b"')
    assert load_config(path, environ=environ).server.tls_cert == Path("/a")


def test_mistakes_of_files_and_lines(tmp_path):
    path = write(tmp_path, "[server]\nlogin = 1\n", a="[registration]\ntoken = 5\nmode = 'no'")
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert isinstance(raised.value, ShineError)
    lines = str(raised.value).split("\n")
    assert [line.split(" ")[0] for line in lines] == [
        f"{path}:2:",
        f"{path}:",
        f"{tmp_path}/conf.d/a.toml:2:",
        f"{tmp_path}/conf.d/a.toml:3:",
    ]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no such file: `shine-node init` writes one"):
        load_config(tmp_path / "none.toml")


def test_without_a_file():
    config = config_from_mapping(
        {
            "server": {**OWN, "listen": ("127.0.0.1:0", "[::1]:0"), "dataDir": "data"},
            "delivery": {"scheduleSeconds": (0, 1)},
        },
        base_dir=Path("/tmp/x"),
    )
    assert config.server.listen == (ListenAddress("127.0.0.1", 0), ListenAddress("::1", 0))
    assert config.server.data_dir == Path("/tmp/x/data")
    assert config.delivery.schedule_seconds == (0, 1)
    assert config_from_mapping({"server": OWN}).server.data_dir == Path("/var/lib/shine-node")
    assert config_from_mapping({"server": OWN}, default_data_dir=Path("/d")).server.data_dir == Path("/d")


def test_32_bit():
    assert config_from_mapping({"server": OWN}, is_32_bit=True).storage.map_size_mib == 1024
    assert config_from_mapping({"server": OWN}, is_32_bit=False).storage.map_size_mib == 16384
    with pytest.raises(ConfigError, match=r"storage.mapSizeMiB = 4096 is out of range"):
        config_from_mapping({"server": OWN, "storage": {"mapSizeMiB": 4096}}, is_32_bit=True)


@pytest.mark.parametrize("value", [True, 1.0, math.nan, math.inf, "1", None, [1], {"a": 1}])
def test_numbers_are_whole_numbers(value):
    with pytest.raises(ConfigError, match="is no whole number") as raised:
        config_from_mapping({"server": OWN, "crypto": {"threads": value, "maxQueue": value}})
    assert len(raised.value.problems) == 2
