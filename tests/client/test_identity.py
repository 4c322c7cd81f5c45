"""Keys, signed access records."""

from __future__ import annotations

import pytest

from shine_node.client.identity import Identity, KeyPair
from shine_node.protocol.access import AccessServer, check_record, is_newer, parse_record, record_payload
from shine_node.protocol.errors import BadLogin, BadSignature
from shine_node.protocol.signatures import is_signed_by
from tests.support.vectors import load_vectors

NOW_MS = 1_774_700_000_000
SERVERS = (AccessServer("Server1", "wss://one.example/ws"), AccessServer("server2", "wss://two.example/ws"))


def alice(device: int = 3) -> Identity:
    return Identity.from_seeds("Alice", root=bytes([1] * 32), blockchain=bytes([2] * 32), device=bytes([device] * 32))


def test_seeds_give_the_keys_of_the_vectors() -> None:
    keys = load_vectors("pairs")["keys"]
    assert keys
    for login, known in keys.items():
        identity = Identity.from_seeds(
            login,
            root=bytes.fromhex(known["rootSeedHex"]),
            blockchain=bytes.fromhex(known["blockchainSeedHex"]),
            device=bytes.fromhex(known["deviceSeedHex"]),
        )
        assert identity.root.public.hex() == known["rootKeyHex"]
        assert identity.blockchain.public.hex() == known["blockchainKeyHex"]
        assert identity.device.public.hex() == known["deviceKeyHex"]


def test_a_signed_record_passes_the_checks_of_a_server() -> None:
    record = alice().access_record(SERVERS, time_ms=NOW_MS)
    parsed = parse_record(record_payload(record), allow_insecure=False)
    assert parsed == record
    assert (record.login, record.key, record.blockchain_name) == ("Alice", alice().key, "Alice-001")
    assert alice().key == "alice"
    assert check_record(parsed, known=None, now_ms=NOW_MS)
    with pytest.raises(BadSignature):
        check_record(parsed._replace(time_ms=NOW_MS + 1), known=None, now_ms=NOW_MS)


def test_another_device_key_counts_with_the_next_record() -> None:
    old = alice()
    new = old.with_device(KeyPair.from_seed(bytes([9] * 32)))
    assert new.device.public != old.device.public
    assert new.root == old.root
    first, second = old.access_record(SERVERS, time_ms=NOW_MS), new.access_record((), time_ms=NOW_MS + 1)
    assert second.device_key == new.device.public
    assert is_newer(second, first)
    assert check_record(second, known=first, now_ms=NOW_MS)


def test_generated_identities_differ_and_sign() -> None:
    one, two = Identity.generate("bob"), Identity.generate("bob")
    assert one.root.public != two.root.public
    assert len({one.root.public, one.blockchain.public, one.device.public}) == 3
    assert is_signed_by(one.device.public, b"text", one.device.sign(b"text"))
    assert not is_signed_by(two.device.public, b"text", one.device.sign(b"text"))


def test_what_is_no_identity_is_refused() -> None:
    with pytest.raises(BadLogin):
        Identity.generate("al ice")
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        KeyPair.from_seed(bytes(31))
    for chain in (-1, 1000):
        with pytest.raises(ValueError, match="from 0 to 999"):
            Identity.from_seeds("bob", root=bytes(32), blockchain=bytes(32), device=bytes(32), chain=chain)


def test_a_secret_key_is_not_printed() -> None:
    identity = alice()
    for pair in (identity.root, identity.blockchain, identity.device):
        assert pair.secret[:32].hex() not in repr(identity)
        assert repr(pair.secret)[2:-1] not in repr(identity)
        assert pair.public.hex() in repr(identity)
