import contextlib
import errno
import os
import socket

import pytest

from shine_node.cli import check_ports
from shine_node.cli.check_ports import find_ports, judge_listening
from shine_node.cli.findings import Level, Situation
from shine_node.config import ListenAddress, config_from_mapping

ADDRESS = ListenAddress("127.0.0.1", 7070)


def situation(folder, listen, *, listening=()):
    server = {"login": "home", "url": "wss://home.example/ws", "dataDir": "data", "listen": listen}
    return Situation(config_from_mapping({"server": server}, base_dir=folder), folder / "node.toml", listening)


@contextlib.contextmanager
def busy_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("problem", "running", "level", "words"),
    [
        (0, False, Level.OK, "is free"),
        (errno.EADDRINUSE, True, Level.OK, "used by the running node itself"),
        (errno.EADDRINUSE, False, Level.ERROR, "is used by nginx (PID 7): stop that"),
        (errno.EACCES, False, Level.ERROR, "CAP_NET_BIND_SERVICE"),
        (errno.EADDRNOTAVAIL, False, Level.ERROR, "no address of this machine"),
        (errno.EINVAL, False, Level.ERROR, "cannot be listened on (Invalid argument)"),
    ],
)
def test_what_binding_says(problem, running, level, words):
    finding = judge_listening(ADDRESS, problem, running=running, user="nginx (PID 7)")
    assert (finding.level, finding.subject) == (level, "port")
    assert finding.text.startswith("127.0.0.1:7070 ") and words in finding.text


def test_whoever_cannot_be_seen_is_somebody():
    assert "another program" in judge_listening(ADDRESS, errno.EADDRINUSE, running=False, user="").text


def test_ports_of_this_machine(tmp_path):
    with busy_port() as port:
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}"))
        assert finding.level is Level.ERROR
        assert f"(PID {os.getpid()})" in finding.text
        own = (f"ws://127.0.0.1:{port}/ws",)
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}", listening=own))
        assert finding.level is Level.OK and "running node itself" in finding.text
        [finding] = find_ports(situation(tmp_path, f":{port}"))
        assert finding.level is Level.ERROR, "of all addresses one is used"
    free, taken = find_ports(situation(tmp_path, [f"127.0.0.1:{port}", "192.0.2.1:7070"]))
    assert free.level is Level.OK
    assert taken.level is Level.ERROR and "no address of this machine" in taken.text
    [finding] = find_ports(situation(tmp_path, "nowhere.invalid:7070"))
    assert finding.level is Level.ERROR
    assert find_ports(situation(tmp_path, "127.0.0.1:0")) == []


def test_a_machine_without_ipv6_listens_on_the_rest(tmp_path, monkeypatch):
    real = socket.socket

    def no_ipv6(family=socket.AF_INET, *arguments):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return real(family, *arguments)

    with busy_port() as port:
        pass
    monkeypatch.setattr(check_ports.socket, "socket", no_ipv6)
    [finding] = find_ports(situation(tmp_path, f":{port}"))
    assert finding.level is Level.OK
    [finding] = find_ports(situation(tmp_path, f"[::1]:{port}"))
    assert finding.level is Level.ERROR


def test_a_machine_that_hides_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(check_ports, "PROC", tmp_path)
    with busy_port() as port:
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}"))
        assert "another program (root can see which)" in finding.text
        (tmp_path / "net").mkdir()
        table = f"  sl  local_address\n   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n"
        (tmp_path / "net" / "tcp").write_text(table)
        (tmp_path / "7").mkdir()
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}"))
        assert "another program (root can see which)" in finding.text
        (tmp_path / "7" / "fd").mkdir()
        (tmp_path / "7" / "comm").write_text("nginx\n")
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}"))
        assert "another program" in finding.text
        (tmp_path / "7" / "fd" / "3").symlink_to("socket:[4711]")
        [finding] = find_ports(situation(tmp_path, f"127.0.0.1:{port}"))
        assert "nginx (PID 7)" in finding.text
