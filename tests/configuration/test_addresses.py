import ipaddress

import pytest

from shine_node.configuration.addresses import Listen, Login, Logins, Networks, Url, is_placeholder
from shine_node.configuration.kinds import BadValue
from shine_node.configuration.model import ListenAddress
from tests.configuration.test_kinds import AROUND, refusal


def test_logins():
    assert Login().parse("Home_1.x-y", AROUND) == "Home_1.x-y"
    assert {refusal(Login(), text) for text in ("", "-a", "a" * 31, "a b", "Ж", "a\n")} == {"is no login"}
    assert refusal(Login(), 5) == "is no text in quotes"
    assert "1 to 30" in Login().expected


@pytest.mark.parametrize(
    "url",
    [
        "wss://a.example/ws",
        "ws://127.0.0.1:7070/ws",
        "wss://[2001:db8::1]:8443/ws",
        "wss://a.example",
        "wss://a.example:443/x?y=z@w",
        "wss://a_b.example/" + "x" * 237,
    ],
)
def test_urls(url):
    assert Url().parse(url, AROUND) == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "is no server URL"),
        ("https://a.example/ws", "is no server URL"),
        ("WSS://a.example/ws", "is no server URL"),
        ("wss://a b/ws", "is no server URL"),
        ("wss://ä.example/ws", "is no server URL"),
        ("wss://a.example/" + "x" * 241, "is no server URL"),
        ("wss:///ws", "has no valid host and port"),
        ("wss://:443/ws", "has no valid host and port"),
        ("wss://a.example:0/ws", "has no valid host and port"),
        ("wss://a.example:65536/ws", "has no valid host and port"),
        ("wss://a.example:x/ws", "has no valid host and port"),
        ("wss://[::1/ws", "has no valid host and port"),
        ("wss://user:geheim@a.example/ws", "holds a user name or password, which servers do not use"),
        ("wss://a.example/ws#part", "has a part after #"),
        (7, "is no text in quotes"),
    ],
)
def test_what_is_no_url(url, reason):
    assert refusal(Url(), url) == reason


def test_a_password_in_a_url_is_not_shown():
    assert "geheim" not in Url().show("wss://user:geheim@a.example/ws")
    assert Url().show("wss://a.example") == '"wss://a.example"'
    assert Url().show(7) == "7"
    assert "wss://HOST/ws" in Url().expected


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("127.0.0.1:7070", [("127.0.0.1", 7070)]),
        ("localhost:0", [("localhost", 0)]),
        ("my-node.example:65535", [("my-node.example", 65535)]),
        ("[::1]:7070", [("::1", 7070)]),
        ("[fe80::1%eth0]:7070", [("fe80::1%eth0", 7070)]),
        (":7070", [("", 7070)]),
        (["127.0.0.1:1", "[::1]:1"], [("127.0.0.1", 1), ("::1", 1)]),
        (("127.0.0.1:0", "127.0.0.1:0"), [("127.0.0.1", 0), ("127.0.0.1", 0)]),
        ([":0", "127.0.0.1:0"], [("", 0), ("127.0.0.1", 0)]),
    ],
)
def test_addresses_to_listen_on(value, addresses):
    assert Listen().parse(value, AROUND) == tuple(ListenAddress(*address) for address in addresses)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is no address with a port"),
        ("7070", "is no address with a port"),
        ("127.0.0.1", "is no address with a port"),
        ("::1:7070", "is no address with a port"),
        ("[]:7070", "is no address with a port"),
        ("a:7070\n", "is no address with a port"),
        ("a:٣", "is no address with a port"),
        ("a:-1", "is no address with a port"),
        ("a:65536", "has a port over 65535"),
        ("[127.0.0.1]:1", "has no valid IP address"),
        ("[x]:1", "has no valid IP address"),
        ("1.2.3:1", "has no valid IP address"),
        ("256.1.1.1:1", "has no valid IP address"),
        ("*:7070", "has no valid host"),
        ("a b:1", "has no valid host"),
        ("-a:1", "has no valid host"),
        (("a" * 40 + ".") * 7 + "a:1", "has no valid host"),
        ("wss://a:1", "is no address with a port"),
        ([], "has 0 entries"),
        ([":1"] * 17, "has 17 entries"),
        ([":1", 2], "is no text in quotes"),
        ([[":1"]], "is no text in quotes"),
        (7070, "is no text in quotes"),
        ([":1", ":1"], "takes port 1 twice"),
        ([":1", "127.0.0.1:1"], "takes port 1 twice"),
        (["127.0.0.1:1", ":1"], "takes port 1 twice"),
        (["127.0.0.1:1", "127.0.0.1:1"], "takes port 1 twice"),
    ],
)
def test_what_is_no_address(value, reason):
    with pytest.raises(BadValue, match="^" + reason.replace(".", r"\.") + "$"):
        Listen().parse(value, AROUND)
    assert "[IPV6]:PORT" in Listen().expected


def test_addresses_that_are_still_to_be_set():
    assert is_placeholder("wss://pi-12ab.invalid/ws")
    assert is_placeholder("wss://PI.INVALID.:7070/ws")
    for url in ("wss://invalid.example/ws", "wss://xinvalid/ws", "ws://127.0.0.1:7070/ws", "wss://[::1]/invalid"):
        assert not is_placeholder(url)


def test_lists_of_logins():
    assert Logins().parse(["One", "two", "ONE"], AROUND) == frozenset({"one", "two"})
    assert Logins().parse((), AROUND) == frozenset()
    assert refusal(Logins(), "one") == "is no list"
    assert refusal(Logins(), ["one", "a b"]) == "has an entry that is no login"
    assert refusal(Logins(), ["one", 5]) == "is no text in quotes"
    assert refusal(Logins(), ["x"] * 1001) == "has 1001 entries"
    assert "1000" in Logins().expected


def test_lists_of_networks():
    assert Networks().parse(["192.0.2.7", "2001:db8::/32"], AROUND) == (
        ipaddress.ip_network("192.0.2.7/32"),
        ipaddress.ip_network("2001:db8::/32"),
    )
    assert Networks().parse(["::ffff:10.0.0.1", "::ffff:a00:0/104", "::ffff:0:0/96"], AROUND) == (
        ipaddress.ip_network("10.0.0.1/32"),
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("0.0.0.0/0"),
    )
    assert Networks().parse(["fe80::1%eth0", "fe80::%eth0/64", "::/0"], AROUND) == (
        ipaddress.ip_network("fe80::1/128"),
        ipaddress.ip_network("fe80::/64"),
        ipaddress.ip_network("::/0"),
    )
    assert Networks().parse([], AROUND) == ()
    assert refusal(Networks(), "192.0.2.7") == "is no list"
    assert refusal(Networks(), [7]) == "is no text in quotes"
    for wrong in ("192.0.2.7/24", "home.example", "", "192.0.2.0/33"):
        assert refusal(Networks(), [wrong]).startswith("has an entry that is no network: ")
    assert refusal(Networks(), ["::1"] * 1001) == "has 1001 entries"
    assert "2001:db8::/32" in Networks().expected
