"""The node's own certificate: read at the start, and anew when its files change, without dropping a connection."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypedDict

from shine_node.clock import Clock
from shine_node.protocol.errors import ShineError

__all__ = ["Certificate", "CertificateError", "Shown", "look_at"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 5
"""A file that has changed is read when it has stayed the same for as long: a certificate and its key are replaced one
after the other."""

_FLIGHTS = 4
"""Turns that a handshake of any version takes at most."""
_NO_CHECK_TIME = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``: a certificate that has expired is to be looked at too."""
_MISMATCH_CODES = frozenset({62, 64})
"""OpenSSL's numbers for a host, or an address, that a certificate does not name."""

_Marks: TypeAlias = tuple[tuple[int, ...] | None, ...]


class CertificateError(ShineError):
    """The certificate or its key cannot be used; the text says what to do."""


class Shown(NamedTuple):
    """What those who connect see of a certificate.

    ``names`` are the hosts and addresses that it is for, times are Unix milliseconds. ``names_host`` says whether the
    host that was asked for is one of them, ``untrusted`` why the authorities of this machine do not vouch for it, empty
    if they do. ``certificates`` is how many the file has.
    """

    names: tuple[str, ...]
    not_before_ms: int
    not_after_ms: int
    names_host: bool
    self_signed: bool
    certificates: int
    untrusted: str


class Certificate:
    """What the endpoint shows to those who connect by ``wss://``.

    A handshake begins with ``context`` and goes on with the context that was loaded last. Each one that is loaded is a
    whole new one: in one that is loaded again, a certificate with another kind of key would stand beside the old one.

    Args:
        cert: ``server.tlsCert``.
        key: ``server.tlsKey``.

    Raises:
        CertificateError.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self.problem = ""
        """Why the certificate could not be read anew the last time; empty if it could."""
        self.not_after_ms = 0
        """When the certificate that is shown expires, Unix milliseconds."""
        self._loaded: _Marks = ()
        self._read(cert, key)
        self._seen: _Marks = self._loaded
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the sockets that listen; it stays the same."""
        self.context.sni_callback = self._choose

    def load(self, cert: Path, key: Path) -> str:
        """Read a certificate that may lie elsewhere now; handshakes from now on show it.

        Returns:
            Until when the one of before and this one are valid, for people; empty where it is the same one.

        Raises:
            CertificateError: nothing has changed.
        """
        before, until = self._digest, _date(self.not_after_ms)
        try:
            self._read(cert, key)
        except CertificateError as error:
            self.problem = str(error)
            raise
        self.problem = ""
        return "" if self._digest == before else f"valid until {until} → valid until {_date(self.not_after_ms)}"

    async def watch(self, clock: Clock) -> None:
        """Look at the files every ``CHECK_SECONDS``, until cancelled."""
        while True:
            await clock.sleep(CHECK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read the certificate if its files have changed since, and not since the last look."""
        before, self._seen = self._seen, _marks(self._paths)
        if self._seen == self._loaded or self._seen != before:
            return
        self._loaded = self._seen  # whatever comes of it: a file with a mistake is told of once
        try:
            changed = self.load(*self._paths)
        except CertificateError as error:
            log.error("%s. The certificate of before stays in use; the files are read again when they change", error)
        else:
            if changed:
                log.info("the certificate has changed and was read: %s (%s)", self._paths[0], changed)

    def _read(self, cert: Path, key: Path) -> None:
        marks = _marks((cert, key))  # before the reading: what changes after it is a change
        current, digest = _load(cert, key), _digest(cert)
        self.not_after_ms = _decoded(current)["not_after_ms"]
        self._current = current
        self._digest = digest
        self._paths = cert, key
        self._loaded = marks

    def _choose(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._current


def _marks(paths: tuple[Path, Path]) -> _Marks:
    """Return what differs when a file was written or replaced; ``None`` for one that is not there."""
    marks: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            marks.append(None)
        else:
            marks.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(marks)


def _digest(cert: Path) -> bytes:
    """Return what differs when the certificate, or one of its chain, is another one; the key belongs to it."""
    try:
        return hashlib.sha256(cert.read_bytes()).digest()
    except OSError:  # it was there a moment ago: it is being replaced, which the next look notices
        return b""


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")


def _load(cert: Path, key: Path) -> ssl.SSLContext:
    for path, name in ((cert, "server.tlsCert"), (key, "server.tlsKey")):
        try:
            path.open("rb").close()
        except OSError as error:
            text = (
                f"{name} = {path} cannot be read ({error.strerror}): correct the path, or let the node's user read it"
            )
            raise CertificateError(text) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A pass phrase would be asked for at the terminal, of which a service has none: it counts as a mistake.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = "they do not belong together" if "KEY_VALUES_MISMATCH" in str(error) else f"{error}"
        text = (
            f"{cert} and {key} cannot be used ({reason}): they must be PEM, the key without a pass phrase, of one pair"
        )
        raise CertificateError(text) from None
    return context


def look_at(cert: Path, key: Path, host: str) -> Shown:
    """Return what those who connect to a host would see of a certificate, by a handshake in memory.

    Args:
        host: a name or an address.

    Raises:
        CertificateError: it cannot be used at all.
    """
    served = _load(cert, key)
    own = _decoded(served)
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    refused = _refused(served, trusting, None)
    naming = _trusting_itself(served)
    naming.check_hostname = True
    misnamed = _refused(served, naming, host)
    return Shown(
        names=own["names"],
        not_before_ms=own["not_before_ms"],
        not_after_ms=own["not_after_ms"],
        names_host=misnamed is None or misnamed.verify_code not in _MISMATCH_CODES,
        self_signed=own["self_signed"],
        certificates=cert.read_bytes().count(b"-----BEGIN CERTIFICATE-----"),
        untrusted="" if refused is None else refused.verify_message,
    )


class _Own(TypedDict):
    names: tuple[str, ...]
    not_before_ms: int
    not_after_ms: int
    self_signed: bool


def _decoded(served: ssl.SSLContext) -> _Own:
    """Return what a certificate says of itself: the library decodes only those of the other side that it trusts."""
    shown = _shake_hands(served, _trusting_itself(served), None).getpeercert() or {}
    names = shown.get("subjectAltName", ())
    return {
        "names": tuple(str(name[1]) for name in names if name[0] in ("DNS", "IP Address")),
        "not_before_ms": _milliseconds(shown["notBefore"]),
        "not_after_ms": _milliseconds(shown["notAfter"]),
        "self_signed": shown.get("subject") == shown.get("issuer"),
    }


def _milliseconds(time: object) -> int:
    return int(ssl.cert_time_to_seconds(str(time))) * 1000


def _trusting_itself(served: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificate of a server, and no other, at any time."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    own = _shake_hands(served, blind, None).getpeercert(binary_form=True)
    if own is None:
        raise AssertionError("a server shows its certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=own)
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME) | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _refused(served: ssl.SSLContext, client: ssl.SSLContext, host: str | None) -> ssl.SSLCertVerificationError | None:
    """Return why a client does not trust a server, ``None`` if it does."""
    try:
        _shake_hands(served, client, host)
    except ssl.SSLCertVerificationError as error:
        return error
    return None


def _shake_hands(served: ssl.SSLContext, client: ssl.SSLContext, host: str | None) -> ssl.SSLObject:
    """Make a handshake without a network, and return the client's side of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        served.wrap_bio(to_server, to_client, server_side=True),
    )
    for side in sides * _FLIGHTS:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return sides[0]
