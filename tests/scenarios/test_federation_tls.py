"""Real nodes that speak ``wss://`` with certificates of a private authority, and one whose certificate is wrong (§7).

The nodes are processes of their own, by the clock of the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.connection import Connection
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from tests.control.conftest import Asker
from tests.peers.certificates import Authority
from tests.support.devices import Device, copy_of
from tests.support.nodes import PATIENCE, ServerProcess, delivery_state, eventually, now_ms, register, run

QUICK = {
    "scheduleSeconds": [0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 30, 60, 90, 3600],
    "workerIntervalMs": 100,
}


class SecureServer(ServerProcess):
    """A server that is reached by ``wss://`` only, and accepts the certificates of the authorities in ``ca_file``."""

    def __init__(self, login: str, parent: Path, **sections: Mapping[str, Any]) -> None:
        super().__init__(login, parent, delivery=QUICK, **sections)
        self.certificate = self.folder / "server.pem"
        self.ca_file = self.folder / "authorities.pem"
        self._client_tls = ssl.create_default_context()
        self._client_tls.check_hostname = False
        self._client_tls.verify_mode = ssl.CERT_NONE  # the test's own client comes in whatever the certificate is
        files = {"tlsCert": str(self.certificate), "tlsKey": str(self.certificate)}
        pool = {"allowPrivatePeers": True, "caFile": str(self.ca_file), "refreshSeconds": 1}
        self.settings["server"] |= {"url": self.url, "pool": pool, **files}

    @property
    def url(self) -> str:
        return super().url.replace("ws://", "wss://")

    async def connect(self) -> Connection:
        return await Connection.open(self.url, open_timeout=PATIENCE, tls=self._client_tls)

    def shows(self, authority: Authority, host: str) -> None:
        """Have it show another certificate; the file is replaced in one go."""
        new = self.folder / "new.pem"
        authority.write(new, host)
        new.replace(self.certificate)

    def trusts(self, authority: Authority) -> None:
        """Have it accept the certificates of one authority."""
        self.ca_file.write_bytes(authority.ca_file.read_bytes())

    def hang_up(self) -> None:
        """Tell it to read its files again."""
        os.kill(self.process.pid, signal.SIGHUP)

    async def link_error(self, login: str) -> str:
        """Return the last error of its link to another server, as its operator sees it."""
        async with Asker(self.folder / "data" / "control.sock") as asker:
            status = (await asker.ask("Status"))["payload"]
        return " ".join(link["lastError"] for link in status["peers"]["links"] if link["serverLogin"] == login)


@pytest.mark.parametrize("mistake", ["wrong authority", "another name", "an authority that the sender does not know"])
def test_a_certificate_that_is_wrong_is_refused_and_when_it_is_put_right_no_message_is_lost(
    tmp_path: Path, mistake: str
) -> None:
    home, other = Authority(tmp_path, "home"), Authority(tmp_path, "other")
    alice, bob = Identity.generate("alice"), Identity.generate("bob")

    async def story() -> None:
        a1, b1 = SecureServer("a1", tmp_path), SecureServer("b1", tmp_path)
        for server in (a1, b1):
            server.trusts(home)
            server.shows(home, "127.0.0.1")
        if mistake == "wrong authority":
            b1.shows(other, "127.0.0.1")
        elif mistake == "another name":
            b1.shows(home, "elsewhere.example")
        else:
            a1.trusts(other)
        try:
            await a1.start()
            await b1.start()
            await register(alice, [a1], known_at=[b1])
            await register(bob, [b1], known_at=[a1])
            pairs = [make_message(alice, "bob", f"letter {number}", time_ms=now_ms() + number) for number in range(3)]
            for pair in pairs:
                assert await a1.send(pair) == "accepted"

            async def is_refused() -> bool:
                error = await a1.link_error("b1")
                return "certificate of 127.0.0.1 is not accepted" in error

            await eventually(is_refused)
            back = make_message(bob, "alice", "the way back is open", time_ms=now_ms())
            assert await b1.send(back) == "delivered", "a1 shows a good certificate"
            async with Device(b1, bob) as device:
                assert [message["direction"] for message in await device.chat("alice")] == ["out"]
            for pair in pairs:
                assert await delivery_state(a1, pair) == "accepted"

            if mistake == "wrong authority":
                b1.shows(home, "127.0.0.1")
                b1.hang_up()
            elif mistake == "another name":
                b1.shows(home, "127.0.0.1")  # found without a signal
            else:
                a1.trusts(home)
                a1.hang_up()

            async def all_delivered() -> bool:
                await asyncio.sleep(0.2)  # each look is some handshakes
                return [await delivery_state(a1, pair) for pair in pairs] == ["delivered"] * len(pairs)

            await eventually(all_delivered, timeout=3 * PATIENCE)
            written = {pair.base_key: pair for pair in (*pairs, back)}
            async with Device(b1, bob) as device:
                listed = [copy_of(message, written) for message in await device.chat("alice")]
            assert sorted(pair.base_key for pair in listed) == sorted(written), "each once, and as it was signed"
        finally:
            for server in (a1, b1):
                await server.discard()

    run(story())
