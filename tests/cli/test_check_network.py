import asyncio
import contextlib
import socket
import ssl
import threading
from typing import Any

import orjson
from websockets.asyncio.server import serve

from shine_node import RELEASED_MS
from shine_node.cli import check_network
from shine_node.cli.check_network import (
    CLOCKS_APART_MS,
    Seen,
    Unreached,
    find_network,
    judge_difference,
    judge_own,
    judge_peer,
    judge_trust,
)
from shine_node.cli.findings import Level, Situation
from shine_node.config import SyncServer, config_from_mapping
from shine_node.protocol.envelope import encode_answer
from tests.peers.certificates import Authority
from tests.support.nodes import now_ms

URL = "wss://home.example/ws"
WELL = Seen("Home", URL, 0, None)
FRIEND = SyncServer("friend", "wss://friend.example/ws")
POOL = {"allowInsecurePeers": True, "allowPrivatePeers": True}


def situation(folder, url=URL, *, running=True, offline=False, pool=None, peers=()):
    server = {"login": "home", "url": url, "pool": POOL | (pool or {})}
    config = config_from_mapping({"server": server, "sync_servers": list(peers)})
    return Situation(config, folder / "node.toml", (url,) if running else (), offline)


@contextlib.contextmanager
def other_loop():
    """A loop in a thread of its own: what is tested makes its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def server(answers, *, tls=None):
    """A server of WebSockets that answers operations with payloads, and yields its port."""

    async def handle(link):
        async for frame in link:
            asked = orjson.loads(frame)
            await link.send('{"event": true, "op": "Noise", "payload": {}}')
            await link.send(encode_answer(asked["op"], asked["requestId"], answers[asked["op"]]))

    async def begin():
        return await serve(handle, "127.0.0.1", 0, ssl=tls)

    async def end(listening):
        listening.close()
        await listening.wait_closed()

    with other_loop() as loop:
        listening = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            asyncio.run_coroutine_threadsafe(end(listening), loop).result(30)


@contextlib.contextmanager
def says(data):
    """A port where whoever connects is told some bytes, and nothing if there are none."""

    def talk(listening):
        with contextlib.suppress(OSError):
            while True:
                link, _ = listening.accept()
                links.append(link)
                link.sendall(data)
                if data:
                    link.shutdown(socket.SHUT_WR)

    links: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=talk, args=(listening,))
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for link in links:
            link.close()


def hello(login: str, **changes: Any) -> dict[str, Any]:
    return {
        "ServerHello": {"serverLogin": login, "accepted": True},
        "GetServerInfo": {"serverLogin": login, "url": URL},
        "Ping": {"ts": now_ms()},
        **changes,
    }


def only(findings):
    (finding,) = findings
    return finding.level, finding.subject, finding.text


# What it means


def test_this_server_answers(tmp_path):
    here = situation(tmp_path)
    assert judge_own(here, WELL) == (Level.OK, "reach", f"home answers at {URL}")
    assert judge_own(here, WELL._replace(days_left=21)).level is Level.OK
    level, _, text = judge_own(here, WELL._replace(days_left=20))
    assert level is Level.WARNING and "expires in 20 days" in text


def test_another_one_answers_or_none(tmp_path):
    here = situation(tmp_path)
    level, _, text = judge_own(here, WELL._replace(login="other"))
    assert level is Level.ERROR and f"at {URL} answers other and not home" in text
    assert "answers something else" in judge_own(here, WELL._replace(login="")).text
    level, _, text = judge_own(here, WELL._replace(url="wss://old.example/ws"))
    assert level is Level.WARNING and "wss://old.example/ws" in text
    level, _, text = judge_own(here, Unreached("no answer within 5 s", True))
    assert level is Level.WARNING and "hairpin NAT" in text
    level, _, text = judge_own(here, Unreached("its name is not known: x", False))
    assert level is Level.ERROR and "hairpin" not in text


def test_peers():
    seen = Seen("Friend", "", 0, None)
    assert judge_peer(FRIEND, seen) == (Level.OK, "sync_servers", "friend answers at wss://friend.example/ws")
    assert judge_peer(FRIEND, seen._replace(login="foe")).level is Level.WARNING
    assert "something else" in judge_peer(FRIEND, seen._replace(login="")).text
    level, _, text = judge_peer(FRIEND, Unreached("refused", True))
    assert level is Level.WARNING and "friend cannot be reached at wss://friend.example/ws (refused)" in text


def test_who_trusts_this_server(tmp_path):
    here = situation(tmp_path)
    assert judge_trust(here, WELL) == judge_trust(here, Unreached("refused", True)) == []
    level, subject, text = only(judge_trust(here, Unreached("not trusted", False, untrusted=True)))
    assert (level, subject) == (Level.WARNING, "reach") and "to the browsers and the other servers" in text


def test_clocks():
    assert judge_difference("friend", CLOCKS_APART_MS) == judge_difference("friend", -CLOCKS_APART_MS) == []
    level, subject, text = only(judge_difference("friend", 60_000))
    assert (level, subject) == (Level.WARNING, "clock") and "friend is 60 s ahead of this" in text
    assert "60 s behind" in only(judge_difference("friend", -60_000))[2]


# Looks


def test_nothing_is_asked_where_that_is_not_wanted(tmp_path):
    level, _, text = only(find_network(situation(tmp_path, offline=True)))
    assert level is Level.OK and "--offline" in text


def test_an_address_that_is_still_to_be_set_is_not_visited(tmp_path):
    assert find_network(situation(tmp_path, "wss://home-12ab.invalid/ws")) == []


def test_a_node_that_does_not_run_is_not_asked(tmp_path):
    level, subject, text = only(find_network(situation(tmp_path, running=False)))
    assert (level, subject) == (Level.OK, "reach") and "check again then" in text


def test_the_own_address(tmp_path):
    answers = hello("home")
    with server(answers) as port:
        url = f"ws://127.0.0.1:{port}/ws"
        answers["GetServerInfo"]["url"] = url
        assert only(find_network(situation(tmp_path, url))) == (Level.OK, "reach", f"home answers at {url}")
        answers["GetServerInfo"] = {"serverLogin": 5}
        assert only(find_network(situation(tmp_path, url)))[0] is Level.ERROR


def test_the_peers(tmp_path):
    with (
        server(hello("friend")) as friend,
        server(hello("\x1b[2Jfoe", Ping={})) as foe,
        server(hello("late", Ping={"ts": RELEASED_MS})) as late,
    ):
        peers = [
            {"login": login, "url": f"ws://127.0.0.1:{port}/ws"}
            for login, port in (("friend", friend), ("other", foe), ("late", late))
        ]
        found = find_network(situation(tmp_path, running=False, peers=peers))
    assert [finding.level for finding in found] == [Level.OK, Level.OK, Level.WARNING, Level.OK, Level.WARNING]
    assert "answers ?[2Jfoe and not other" in found[2].text
    assert "the clock of late is" in found[4].text and "behind" in found[4].text


def test_certificates(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    with server(hello("friend"), tls=authority.server_context("localhost")) as port:
        url = f"wss://localhost:{port}/ws"
        peers = [{"login": "friend", "url": url}]
        level, why = unreached(tmp_path, url)
        assert level is Level.ERROR and why.startswith("its certificate is not trusted: ")
        _, peer = find_network(situation(tmp_path, running=False, peers=peers))
        assert peer.level is Level.WARNING and "its certificate is not trusted: " in peer.text
        trusted = situation(tmp_path, running=False, peers=peers, pool={"caFile": str(authority.ca_file)})
        assert [finding.level for finding in find_network(trusted)] == [Level.OK, Level.OK]
        own = situation(tmp_path, url, pool={"caFile": str(authority.ca_file)})
        answered, private = find_network(own)
        assert "answers friend and not home" in answered.text, "as it is to the node, which knows the authority"
        assert private.level is Level.WARNING and "server.pool.caFile vouches for" in private.text
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1
        level, _, text = only(find_network(situation(tmp_path, url)))
        assert level is Level.ERROR and "answers friend and not home" in text
        assert len(find_network(own)) == 1, "the system knows it too"
    broken = situation(tmp_path, running=False, pool={"caFile": str(tmp_path / "none")})
    assert only(find_network(broken))[:2] == (Level.ERROR, "caFile")


def unreached(folder, url):
    level, _, text = only(find_network(situation(folder, url)))
    assert f"{url} cannot be reached (" in text
    return level, text.partition("reached (")[2].partition("): look")[0]


def test_what_answers_otherwise(tmp_path):
    with says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as port:
        level, why = unreached(tmp_path, f"ws://127.0.0.1:{port}/ws")
        assert level is Level.ERROR and why == "it answers with HTTP status 404"
        level, why = unreached(tmp_path, f"wss://127.0.0.1:{port}/ws")
        assert level is Level.ERROR and why.startswith("it does not speak TLS there")
    with says(b"SSH-2.0-OpenSSH\r\n") as port:
        level, why = unreached(tmp_path, f"ws://127.0.0.1:{port}/ws")
        assert level is Level.ERROR and why.startswith("it is no such server")
    level, why = unreached(tmp_path, f"ws://127.0.0.1:{port}/ws")
    assert level is Level.WARNING and "hairpin" not in why


def test_what_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(check_network, "SECONDS", 0.2)
    with says(b"") as port:
        level, why = unreached(tmp_path, f"ws://127.0.0.1:{port}/ws")
    assert level is Level.WARNING and why == "no answer within 0.2 s"


def lookup_that_fails(number):
    def look_up(*arguments, **named):
        raise socket.gaierror(number, "as the test has it")

    return look_up


def test_names_that_are_not_known_and_servers_of_names_that_do_not_answer(tmp_path, monkeypatch):
    url = "ws://home.test/ws"
    friend = {"login": "friend", "url": "ws://friend.test/ws"}
    monkeypatch.setattr(socket, "getaddrinfo", lookup_that_fails(socket.EAI_NONAME))
    level, why = unreached(tmp_path, url)
    assert level is Level.ERROR and why.startswith("its name is not known")
    monkeypatch.setattr(socket, "getaddrinfo", lookup_that_fails(socket.EAI_AGAIN))
    own, peer = find_network(situation(tmp_path, url, peers=[friend]))
    assert own.level is Level.WARNING and "look at this machine's DNS, and check again" in own.text
    assert peer.level is Level.WARNING and "(no server of names answers)" in peer.text


def test_peers_that_are_not_asked_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(check_network, "MAX_PEERS", 1)
    with server(hello("friend")) as port:
        url = f"ws://127.0.0.1:{port}/ws"
        peers = [{"login": login, "url": url} for login in ("friend", "other")]
        _, friend, rest = find_network(situation(tmp_path, running=False, peers=peers))
    assert friend.level is Level.OK
    assert rest.level is Level.OK and rest.text.startswith("the first 1 of 2 were asked")
