"""The node's own certificate: read at the start, and anew when its files change, without dropping a connection."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TypeAlias

from shine_node.clock import Clock
from shine_node.protocol.errors import ShineError

__all__ = ["Certificate", "CertificateError"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 5
"""A file that has changed is read when it has stayed the same for as long: a certificate and its key are replaced one
after the other."""

_Marks: TypeAlias = tuple[tuple[int, ...] | None, ...]


class CertificateError(ShineError):
    """The certificate or its key cannot be used; the text says what to do."""


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
        self._loaded: _Marks = ()
        self._read(cert, key)
        self._seen: _Marks = self._loaded
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the sockets that listen; it stays the same."""
        self.context.sni_callback = self._choose

    def load(self, cert: Path, key: Path) -> None:
        """Read a certificate that may lie elsewhere now; handshakes from now on show it.

        Raises:
            CertificateError: nothing has changed.
        """
        try:
            self._read(cert, key)
        except CertificateError as error:
            self.problem = str(error)
            raise
        self.problem = ""

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
            self.load(*self._paths)
        except CertificateError as error:
            log.error("%s. The certificate of before stays in use; the files are read again when they change", error)
        else:
            log.info("the certificate has changed and was read: %s", self._paths[0])

    def _read(self, cert: Path, key: Path) -> None:
        marks = _marks((cert, key))  # before the reading: what changes after it is a change
        self._current = _load(cert, key)
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
