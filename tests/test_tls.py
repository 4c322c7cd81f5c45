"""The node's own certificate, over real handshakes on both event loops."""

from __future__ import annotations

import asyncio
import datetime
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from shine_node.tls import CHECK_SECONDS, Certificate, CertificateError, Shown, look_at
from tests.cli.certificates import KEY_WITH_A_PASS_PHRASE, write_certificate
from tests.peers.certificates import Authority
from tests.support.clock import ManualClock

Run = Callable[[Coroutine[Any, Any, None]], None]

LIMIT = 60
VALID = "valid until DATE → valid until DATE"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_story(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(asyncio.wait_for(story, LIMIT))

    return run_story


def write_rsa(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate whose key is of another kind than those of ``write_certificate``."""
    secret = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(secret, hashes.SHA256())
    )
    cert, key = folder / "rsa.crt", folder / "rsa.key"
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, key


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [re.sub(r"\d{4}-\d\d-\d\d", "DATE", record.message) for record in caplog.records]


def der(cert: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(cert.read_text())


def put_in_place(new: tuple[Path, Path], old: tuple[Path, Path]) -> None:
    """Replace a certificate and its key, as renewals do."""
    for source, target in zip(new, old, strict=True):
        source.rename(target)


class Client:
    """A connection that says something and hears it again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    async def echo(self) -> bytes:
        self._writer.write(b"still there?\n")
        return await self._reader.readline()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Server:
    """What listens with a certificate."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self, name: str = "localhost", version: ssl.TLSVersion = VERSIONS[1]) -> Client:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=context, server_hostname=name)
        return Client(*streams)

    async def shown(self, name: str = "localhost", version: ssl.TLSVersion = VERSIONS[1]) -> bytes:
        client = await self.connect(name, version)
        await client.echo()
        await client.close()
        return client.shown


@asynccontextmanager
async def listening(certificate: Certificate) -> AsyncIterator[Server]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificate.context)
    async with server:
        yield Server(server.sockets[0].getsockname()[1])


def test_each_handshake_shows_the_certificate_that_was_loaded_last(run: Run, tmp_path: Path) -> None:
    first, second = write_rsa(tmp_path), write_certificate(tmp_path)

    async def story() -> None:
        certificate = Certificate(*first)
        async with listening(certificate) as server:
            connected = await server.connect()
            assert connected.shown == der(first[0])
            for paths in (first, second, first):
                certificate.load(*paths)
                for version in VERSIONS:
                    for name in ("localhost", "elsewhere.example", "127.0.0.1"):  # an address is not told to the server
                        assert await server.shown(name, version) == der(paths[0])
                assert await connected.echo() == b"still there?\n"
            await connected.close()

    run(story())


def test_files_that_change_are_read_once_they_stay_the_same(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    used = write_certificate(tmp_path)
    old = der(used[0])

    async def story() -> None:
        clock = ManualClock()
        certificate = Certificate(*used)
        watching = asyncio.ensure_future(certificate.watch(clock))
        async with listening(certificate) as server:
            connected = await server.connect()
            await clock.advance(10 * CHECK_SECONDS)
            assert caplog.records == []

            new = write_certificate(tmp_path, name="new", seed=b"\1" * 32)
            new_der = der(new[0])
            new[0].rename(used[0])
            await clock.advance(CHECK_SECONDS)  # the key of before does not belong to it, and nobody complains yet
            assert await server.shown() == old
            new[1].rename(used[1])
            await clock.advance(CHECK_SECONDS)
            assert await server.shown() == old
            await clock.advance(CHECK_SECONDS)
            assert await server.shown() == new_der != old
            assert await connected.echo() == b"still there?\n"
            await connected.close()
        watching.cancel()
        await asyncio.wait([watching])

    run(story())
    assert told(caplog) == [f"the certificate has changed and was read: {used[0]} ({VALID})"]


def look_twice(certificate: Certificate) -> None:
    certificate.look()
    certificate.look()


def test_a_file_with_a_mistake_leaves_the_old_certificate_in_use(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = write_certificate(tmp_path)
    old, old_text = der(used[0]), used[0].read_text()
    other = write_certificate(tmp_path, name="other", seed=b"\1" * 32)

    async def story() -> None:
        certificate = Certificate(*used)

        async def stays() -> None:
            for version in VERSIONS:
                assert await server.shown(version=version) == old

        async with listening(certificate) as server:
            for spoil, problem in (
                (lambda: used[0].write_text("no certificate"), "cannot be used"),
                (lambda: used[0].write_text(other[0].read_text()), "they do not belong together"),
                (used[0].unlink, f"server.tlsCert = {used[0]} cannot be read (No such file or directory)"),
            ):
                caplog.clear()
                spoil()
                for _ in range(3):
                    look_twice(certificate)
                    await stays()
                [record] = caplog.records  # it is told of once
                assert record.levelno == logging.ERROR
                assert problem in record.message and problem in certificate.problem
                assert "The certificate of before stays in use; the files are read again when" in record.message
            used[0].write_text(old_text)
            look_twice(certificate)
            assert certificate.problem == ""
            await stays()
            put_in_place(other, used)
            look_twice(certificate)
            assert await server.shown() == der(used[0]) != old

    run(story())


def test_a_place_that_holds_none_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    used = write_certificate(tmp_path)
    other = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    certificate = Certificate(*used)
    with pytest.raises(CertificateError, match="let the node's user read it") as caught:
        certificate.load(used[0], tmp_path / "none.key")
    assert str(caught.value).startswith(f"server.tlsKey = {tmp_path / 'none.key'} cannot be read")
    assert certificate.problem == str(caught.value)
    put_in_place(other, used)
    look_twice(certificate)  # it is still the files of before that are looked at
    assert certificate.problem == ""
    assert told(caplog) == [f"the certificate has changed and was read: {used[0]} ({VALID})"]


def test_what_loading_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = write_certificate(tmp_path)
    certificate = Certificate(*used)
    assert certificate.load(*used) == ""
    until = [datetime.datetime.fromtimestamp(certificate.not_after_ms / 1000, datetime.UTC)]
    renewed = write_certificate(tmp_path, name="renewed", days=4000)
    put_in_place(renewed, used)
    changed = certificate.load(*used)
    until.append(datetime.datetime.fromtimestamp(certificate.not_after_ms / 1000, datetime.UTC))
    assert changed == f"valid until {until[0]:%Y-%m-%d} → valid until {until[1]:%Y-%m-%d}"
    assert (until[1] - until[0]).days in (349, 350)

    def gone(path: Path) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", gone)  # removed just when it had been loaded
    assert certificate.load(*used)


def test_files_that_are_written_again_as_they_were_are_no_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    used = write_certificate(tmp_path)
    certificate = Certificate(*used)
    put_in_place(write_certificate(tmp_path, name="again"), used)
    used[0].write_bytes(used[0].read_bytes())
    before = used[0].read_bytes()
    certificate.load(*used)
    used[0].write_bytes(before)
    look_twice(certificate)
    assert caplog.records == []


def test_a_place_that_was_told_is_looked_at_from_then_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    used = write_certificate(tmp_path)
    other = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    third = write_certificate(tmp_path, name="third", seed=b"\2" * 32)
    certificate = Certificate(*used)
    certificate.load(*other)
    used[0].unlink()
    look_twice(certificate)
    assert caplog.records == []
    put_in_place(third, other)
    look_twice(certificate)
    assert told(caplog) == [f"the certificate has changed and was read: {other[0]} ({VALID})"]


def test_what_cannot_be_used_at_the_start(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    other_cert, _ = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    with pytest.raises(CertificateError, match="they do not belong together"):
        Certificate(other_cert, key)
    key.write_text(KEY_WITH_A_PASS_PHRASE)
    with pytest.raises(CertificateError, match="the key without a pass phrase"):
        Certificate(cert, key)
    with pytest.raises(CertificateError, match=r"server\.tlsCert = .* cannot be read \(Is a directory\)"):
        Certificate(tmp_path, key)


# What those who connect see


def expires(path: Path) -> int:
    return int(x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()) * 1000


def test_what_is_seen_of_a_certificate_that_signs_itself(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path, host="home.example")
    shown = look_at(cert, key, "home.example")
    assert shown == Shown(("home.example",), shown.not_before_ms, expires(cert), True, True, 1, shown.untrusted)
    assert shown.not_after_ms - shown.not_before_ms == 3650 * 86_400_000
    assert "self" in shown.untrusted
    assert Certificate(cert, key).not_after_ms == expires(cert)
    assert not look_at(cert, key, "other.example").names_host
    assert not look_at(cert, key, "192.0.2.7").names_host


def test_what_is_seen_of_one_that_has_expired(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path, host="home.example", days=-3)
    shown = look_at(cert, key, "home.example")
    assert shown.not_after_ms == expires(cert)
    assert shown.names_host, "that it has expired is another matter"


@pytest.mark.parametrize(
    ("names", "host", "named"),
    [
        (("*.example.org",), "home.example.org", True),
        (("*.example.org",), "a.home.example.org", False),
        (("*.example.org",), "example.org", False),
        (("a.example", "home.example"), "HOME.example", True),
        (("192.0.2.7",), "192.0.2.7", True),
        (("192.0.2.7",), "192.0.2.8", False),
        (("2001:db8::1",), "2001:db8::1", True),
    ],
)
def test_for_whom_it_is(tmp_path: Path, names: tuple[str, ...], host: str, named: bool) -> None:
    authority = Authority(tmp_path)
    path = tmp_path / "both.pem"
    authority.write(path, *names)
    assert look_at(path, path, host).names_host is named


def test_an_authority_that_this_machine_knows_vouches_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    path = tmp_path / "both.pem"
    authority.write(path, "home.example")
    shown = look_at(path, path, "home.example")
    assert (shown.self_signed, shown.certificates) == (False, 1)
    assert "issuer" in shown.untrusted
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    assert look_at(path, path, "home.example").untrusted == ""
    path.write_bytes(path.read_bytes() + authority.ca_file.read_bytes())
    assert look_at(path, path, "home.example").certificates == 2


def test_one_that_cannot_be_used_is_not_looked_at(tmp_path: Path) -> None:
    cert, _ = write_certificate(tmp_path)
    with pytest.raises(CertificateError):
        look_at(cert, tmp_path / "none", "home.example")


def test_one_without_names(tmp_path: Path) -> None:
    cert, key = write_rsa(tmp_path)
    shown = look_at(cert, key, "home.example")
    assert (shown.names, shown.names_host) == ((), False)
