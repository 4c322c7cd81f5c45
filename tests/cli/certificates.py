"""Self-signed Ed25519 certificates for tests, made with what the node has anyway."""

from __future__ import annotations

import base64
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shine_node.protocol.signatures import key_pair, sign

ED25519 = b"\x30\x05\x06\x03\x2b\x65\x70"  # AlgorithmIdentifier of 1.3.101.112
COMMON_NAME = b"\x06\x03\x55\x04\x03"
ALTERNATIVE_NAMES = b"\x06\x03\x55\x1d\x11"

KEY_WITH_A_PASS_PHRASE = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAiHhAfsBL/5OQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEECjU+1Rkzh2jCEfUcBLAC/YEQOIG
TE8t089QOwcdyp9JkgM2ZeNNavkRWxUJhG2ttOGIr5R9ZBY82uxKm2pmFOHnFcpM
o4+WdKb1/mdxjjAm5ac=
-----END ENCRYPTED PRIVATE KEY-----
"""


def write_certificate(
    folder: Path,
    *,
    name: str = "tls",
    seed: bytes = bytes(32),
    host: str = "localhost",
    days: int = 3650,
    alternative_names: bool = True,
) -> tuple[Path, Path]:
    """Write a certificate and its key, valid from yesterday on, and return their paths."""
    public, secret = key_pair(seed)
    begin = datetime.now(UTC) - timedelta(days=1)
    subject = _der(0x30, _der(0x31, _der(0x30, COMMON_NAME, _der(0x0C, host.encode()))))
    names = _der(0x04, _der(0x30, _der(0x82, host.encode())))
    extensions = _der(0xA3, _der(0x30, _der(0x30, ALTERNATIVE_NAMES, names)))
    body = _der(
        0x30,
        _der(0xA0, _der(0x02, b"\x02")),
        _der(0x02, b"\x01"),
        ED25519,
        subject,
        _der(0x30, _time(begin), _time(begin + timedelta(days=days))),
        subject,
        _der(0x30, ED25519, _der(0x03, b"\0", public)),
        extensions if alternative_names else b"",
    )
    certificate = _der(0x30, body, ED25519, _der(0x03, b"\0", sign(secret, body)))
    key = _der(0x30, _der(0x02, b"\0"), ED25519, _der(0x04, _der(0x04, seed)))
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path, label, data in zip(paths, ("CERTIFICATE", "PRIVATE KEY"), (certificate, key), strict=True):
        lines = textwrap.fill(base64.b64encode(data).decode(), 64)
        path.write_text(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
        path.chmod(0o600)
    return paths


def _time(moment: datetime) -> bytes:
    return _der(0x18, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _der(tag: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    length = len(data)
    if length < 128:
        return bytes([tag, length]) + data
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + data
