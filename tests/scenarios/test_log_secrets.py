"""What the log never holds, whatever happens and however much it says: bodies, tokens, nonces, passwords, keys."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from pathlib import Path
from typing import Any

from shine_node.client.connection import Connection, RequestRefused
from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from shine_node.clock import SystemClock
from shine_node.protocol.access import record_payload
from shine_node.protocol.encoding import encode_base64
from tests.support.nodes import PATIENCE, ServerProcess, eventually, run, servers

MARK = "Geheimnis"
ALICE, BOB = Identity.generate("alice"), Identity.generate("bob")


class Talk:
    """A connection whose requests may well be refused, and the secrets that it said or heard."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.secrets: set[str] = set()

    async def ask(self, op: str, **payload: Any) -> dict[str, Any]:
        try:
            answer = await self._connection.request(op, payload, timeout=PATIENCE)
        except RequestRefused as refused:
            return {"refused": refused.code}
        self.secrets |= {answer[name] for name in ("authNonce", "nonce", "sessionId", "storagePwd") if name in answer}
        return answer


async def log_in(talk: Talk, user: Identity) -> None:
    """Make a session with a password that is marked, and try a wrong one before."""
    key, password = encode_base64(os.urandom(32)), f"{MARK}-password"
    for signs in (False, True):
        nonce = (await talk.ask("AuthChallenge", login=user.login))["authNonce"]
        time_ms = SystemClock().now_ms()
        text = f"AUTH_CREATE_SESSION:{user.login}:ed25519/{key}:{password}:{time_ms}:{nonce}"
        signature = user.device.sign(text.encode()) if signs else bytes(64)
        await talk.ask(
            "CreateAuthSession",
            login=user.login,
            sessionKey=f"ed25519/{key}",
            storagePwd=password,
            timeMs=time_ms,
            authNonce=nonce,
            deviceKey=encode_base64(user.device.public),
            signatureB64=encode_base64(signature),
            clientInfo=f"{MARK}-client",
        )


def test_no_secret_and_no_body_is_in_the_log(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "registration": {"mode": "token", "token": f"{MARK}-token"},
        "log": {"level": "debug"},
        "limits": {"maxBodyBytes": 1000},
    }
    token = {"registrationToken": f"{MARK}-token"}

    async def story() -> None:
        async with servers(ServerProcess, tmp_path, "one", "two", **sections) as (one, two):
            talks = [Talk(await server.connect()) for server in (one, two)]
            first, second = talks
            for user, home in ((ALICE, one), (BOB, two)):
                record = record_payload(user.access_record([home.access], time_ms=SystemClock().now_ms()))
                for talk in talks:
                    await talk.ask("AddUser", **record, registrationToken=f"{MARK}-wrong")
                    await talk.ask("AddUser", **record, **token)
                    await talk.ask("SetUserAccess", **record)
            await log_in(first, ALICE)
            await log_in(second, BOB)

            async def delivered() -> bool:
                pair = make_message(ALICE, "bob", f"{MARK}-body", time_ms=SystemClock().now_ms())
                answer = await first.ask("SendMessagePair", **pair.payload)
                return answer.get("deliveryState") == "delivered"

            await eventually(delivered)
            pair = make_message(ALICE, "bob", f"{MARK}-body", time_ms=SystemClock().now_ms())
            broken = bytearray(base64.b64decode(str(pair.payload["incomingBlobB64"])))
            broken[-1] ^= 1
            await first.ask("SendMessagePair", **{**pair.payload, "incomingBlobB64": encode_base64(bytes(broken))})
            await first.ask("SendMessagePair", **{**pair.payload, "incomingBlobB64": f"{MARK}!"})
            long = make_message(ALICE, "bob", MARK * 500, time_ms=SystemClock().now_ms())
            await first.ask("SendMessagePair", **long.payload)
            await first.ask(f"{MARK}-operation", x=f"{MARK}-payload")
            await first.ask("UpsertUserParam", login="alice", param="p", time_ms=1, value=f"{MARK}-value")
            await first.ask("GetDirectMessages", peerLogin="bob")
            settings = one.folder / "node.toml"
            settings.write_text(settings.read_text().replace(f"{MARK}-token", f"{MARK}-new"), encoding="utf-8")
            os.kill(one.process.pid, signal.SIGHUP)

            async def reloaded() -> bool:
                return "registration.token (changed)" in one.process.log_tail(10_000)

            await eventually(reloaded)
            settings.write_text("[registration]\n" + f'token = ["{MARK}-bad"]\n', encoding="utf-8")
            os.kill(one.process.pid, signal.SIGHUP)

            async def refused() -> bool:
                return "nothing was reloaded" in one.process.log_tail(10_000)

            await eventually(refused)
            await two.stop()
            await first.ask(
                "SendMessagePair", **make_message(ALICE, "bob", f"{MARK}-late", time_ms=SystemClock().now_ms()).payload
            )

            async def debugged() -> bool:
                return "DEBUG" in one.process.log_tail(10_000)

            await eventually(debugged)
            logs = "\n".join((server.folder / "node.log").read_text(encoding="utf-8") for server in (one, two))
            secrets = {*first.secrets, *second.secrets}
            assert len(secrets) >= 4, "nonces and sessions"
            copies = {str(blob) for blob in pair.payload.values()}
            for secret in {MARK, encode_base64(MARK.encode())[:8], *secrets, *copies}:
                assert secret not in logs
            await asyncio.gather(*(talk._connection.close() for talk in talks))

    run(story())
