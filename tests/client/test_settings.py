"""Settings as a client signs them: what the vectors have."""

from __future__ import annotations

from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.client.settings import make_setting
from shine_node.protocol.errors import BadFields
from shine_node.protocol.settings import setting_payload, setting_text
from shine_node.protocol.signatures import is_signed_by
from tests.support.vectors import cases, load_vectors

ALICE = Identity.generate("Alice")


def test_a_setting_is_signed_by_the_device_key() -> None:
    setting = make_setting(ALICE, "theme", "dark\n", time_ms=5)
    assert setting_text(setting) == b"SHiNe/UserParameter:Alicetheme5dark\n"
    assert is_signed_by(ALICE.device.public, setting_text(setting), setting.signature)
    assert setting.device_key == ALICE.device.public


@pytest.mark.parametrize("case", cases("user_params"))
def test_what_the_vectors_accept_is_what_is_made(case: dict[str, Any]) -> None:
    keys = load_vectors("user_params")["keys"][case["user"]]
    root, chain, device = (bytes.fromhex(keys[f"{kind}SeedHex"]) for kind in ("root", "blockchain", "device"))
    user = Identity.from_seeds(case["user"], root=root, blockchain=chain, device=device)
    payload = case["payload"]
    if case["error"] is None:
        made = make_setting(user, payload["param"], payload["value"], time_ms=payload["time_ms"])
        assert setting_payload(made) == payload


@pytest.mark.parametrize("param", ["", "1", "a b"])
def test_a_name_that_is_not_allowed_is_not_signed(param: str) -> None:
    with pytest.raises(BadFields):
        make_setting(ALICE, param, "x", time_ms=5)
