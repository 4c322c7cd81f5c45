import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest

from shine_node.cli import check_ports
from shine_node.cli.check_ports import find_ports, judge_listening
from shine_node.cli.findings import Level, Situation
from shine_node.cli.node_user import NodeUser
from shine_node.cli.unit import Unit
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
        (errno.EACCES, True, Level.OK, "used by the running node itself"),
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


def test_rights_of_a_unit_that_is_not_known():
    finding = judge_listening(ADDRESS, errno.EACCES, running=False, user="", sure=False)
    assert finding.level is Level.WARNING and finding.text.endswith("unless it has that already")


@pytest.fixture
def low_port():
    """A free port that nobody but root may listen on; the tests of the node bind port 0, never one of these."""
    least = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if os.geteuid() != 0 or least < 2:
        pytest.skip("needs root, and a system on which low ports are root's")
    for port in range(least - 1, 0, -1):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    pytest.skip("needs a low port that is free")


def test_root_looks_with_the_rights_of_the_node(tmp_path, monkeypatch, low_port):
    here = situation(tmp_path, f"127.0.0.1:{low_port}")
    [finding] = find_ports(here)
    assert finding.level is Level.OK and finding.text.endswith("is free")
    monkeypatch.setattr(check_ports, "SYSTEMD", tmp_path)
    [finding] = find_ports(here._replace(user=NodeUser(54321, 54321)))
    assert finding.level is Level.WARNING and "unless it has that already" in finding.text
    monkeypatch.setattr(check_ports, "SYSTEMD", tmp_path / "none")
    [finding] = find_ports(here._replace(user=NodeUser(54321, 54321)))
    assert finding.level is Level.ERROR and "is not allowed to the node's user" in finding.text
    unit = Unit("shine-node", "", False, "strict", "yes", (), ())
    [finding] = find_ports(here._replace(user=NodeUser(54321, 54321), unit=unit))
    assert finding.level is Level.ERROR
    [finding] = find_ports(here._replace(user=NodeUser(54321, 54321), unit=unit._replace(low_ports=True)))
    assert finding.level is Level.OK
    with socket.create_server(("127.0.0.1", low_port)):
        [finding] = find_ports(here._replace(user=NodeUser(54321, 54321)))
    assert finding.level is Level.ERROR and "is used by" in finding.text


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
