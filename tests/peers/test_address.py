import pytest

from shine_node.peers.address import Endpoint, parse_endpoint, why_not_public


@pytest.mark.parametrize(
    ("url", "spelling"),
    [
        ("wss://example.org/ws", "wss://example.org/ws"),
        ("WSS://Example.ORG.:443/ws", "wss://example.org/ws"),
        ("wss://example.org", "wss://example.org/"),
        ("ws://example.org:80/ws", "ws://example.org/ws"),
        ("ws://example.org:443/ws", "ws://example.org:443/ws"),
        ("wss://example.org:8443/a/b?c=d", "wss://example.org:8443/a/b?c=d"),
        ("wss://[2001:0db8:0:0::1]:8443/ws", "wss://[2001:db8::1]:8443/ws"),
        ("wss://192.0.2.1/ws", "wss://192.0.2.1/ws"),
    ],
)
def test_one_spelling(url: str, spelling: str) -> None:
    endpoint = parse_endpoint(url)
    assert endpoint.url == spelling
    assert parse_endpoint(spelling) == endpoint


def test_the_parts() -> None:
    assert parse_endpoint("wss://Host:1/x?y") == Endpoint(True, "host", 1, "/x?y")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("https://example.org/", "wss:// or ws://"),
        ("example.org", "wss:// or ws://"),
        ("wss://", "name a host"),
        ("wss:///ws", "name a host"),
        ("wss://example.org:0/", "port from 1"),
        ("wss://example.org:99999/", "no URL"),
        ("wss://example.org:port/", "no URL"),
        ("wss://[::1/", "no URL"),
        ("wss://user@example.org/", "user name"),
        ("wss://user:secret@example.org/", "user name"),
        ("wss://example.org/#part", "fragment"),
        ("wss://example.org/#", "fragment"),
    ],
)
def test_what_is_no_url_of_a_server(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_endpoint(url)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "172.15.255.255",
        "223.255.255.255",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ],
)
def test_public_addresses(address: str) -> None:
    assert why_not_public(address) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "a loopback"),
        ("127.255.255.254", "a loopback"),
        ("::1", "a loopback"),
        ("0.0.0.0", "an unspecified"),
        ("::", "an unspecified"),
        ("10.0.0.1", "a private"),
        ("172.16.0.1", "a private"),
        ("172.31.255.255", "a private"),
        ("192.168.1.1", "a private"),
        ("100.64.0.1", "a private"),
        ("192.0.0.8", "a private"),
        ("fd12::1", "a private"),
        ("fec0::1", "a private"),
        ("169.254.169.254", "a link-local"),
        ("fe80::1", "a link-local"),
        ("fe80::1%eth0", "a link-local"),
        ("224.0.0.1", "a multicast"),
        ("ff02::1", "a multicast"),
        ("255.255.255.255", "a private"),
        ("::7f00:1", "a reserved"),
        ("::ffff:127.0.0.1", "a loopback"),
        ("::ffff:10.1.2.3", "a private"),
        ("64:ff9b::a01:203", "a private"),
        ("64:ff9b::7f00:1", "a loopback"),
        ("64:ff9b:1::1", "a private"),
        ("2002:7f00:1::", "a private"),
        ("2002:101:101::1", "a private"),
        ("2002:c0a8:101::1", "a private"),
    ],
)
def test_addresses_that_links_may_not_go_to(address: str, kind: str) -> None:
    assert why_not_public(address) == kind


def test_teredo_is_not_public() -> None:
    assert why_not_public("2001:0:102:304:0:0:80ff:fffe") is not None


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="does not appear"):
        why_not_public("example.org")
