"""A client that somebody else wrote, from PROTOCOL.md alone: nothing here imports the package, the server is a process.

It registers, makes sessions, sends, reads, gets events, edits, says that it has read, and removes; over two servers.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import websockets
from nacl.signing import SigningKey

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60
STORY_SECONDS = 240

TEXT, REFERENCE = 1, 3
MESSAGE, RECEIPT, TOMBSTONE = 1, 3, 5


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- the server ---


def write_config(folder: Path, login: str) -> Path:
    """Write the configuration of a node on loopback that anybody may register at."""
    folder.mkdir()
    config = folder / "node.toml"
    config.write_text(
        f"""
        [server]
        login = "{login}"
        url = "ws://127.0.0.1/ws"
        listen = "127.0.0.1:0"
        dataDir = "{folder / "data"}"
        [server.pool]
        allowInsecurePeers = true
        allowPrivatePeers = true
        [delivery]
        firstAttemptTimeoutMs = 60000
        [storage]
        mapSizeMiB = 64
        [registration]
        mode = "open"
        """,
        encoding="utf-8",
    )
    return config


@asynccontextmanager
async def server(folder: Path, login: str) -> AsyncIterator[str]:
    """Start a node as an operator would, and yield where it says that it listens."""
    config = write_config(folder, login)
    environment = {name: value for name, value in os.environ.items() if name != "RUNTIME_DIRECTORY"}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "shine_node.py"),
            "run",
            "--config",
            str(config),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
        )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        assert line.startswith("listening on ws://"), (line, (folder / "log").read_text(encoding="utf-8"))
        yield line.removeprefix("listening on ").strip()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# --- users and containers ---


class User:
    """Keys, and what they sign."""

    def __init__(self, login: str) -> None:
        self.login = login
        self.root, self.blockchain, self.device = (SigningKey.generate() for _ in range(3))

    def record(self, *servers: tuple[str, str]) -> dict[str, Any]:
        """The access record of §3."""
        keys = [b64(bytes(key.verify_key)) for key in (self.root, self.blockchain, self.device)]
        time_ms, chain = now_ms(), f"{self.login}-001"
        lines = ["SHiNE/UserAccess:1", self.login, chain, *keys, str(len(servers))]
        lines += [f"{login} {url}" for login, url in servers]
        text = "\n".join([*lines, str(time_ms)])
        return {
            "login": self.login,
            "blockchainName": chain,
            "solanaKey": keys[0],
            "blockchainKey": keys[1],
            "deviceKey": keys[2],
            "accessServers": [{"serverLogin": login, "url": url} for login, url in servers],
            "timeMs": time_ms,
            "signatureB64": b64(self.root.sign(text.encode()).signature),
        }

    def container(
        self,
        to: str,
        kind: int,
        body: bytes,
        *,
        time_ms: int,
        nonce: bytes,
        revision_ms: int = 0,
        body_format: int = TEXT,
    ) -> bytes:
        """One copy, as §4 lays it out."""
        to_bytes, from_bytes = to.encode(), self.login.encode()
        unsigned = b"".join(
            [
                b"SHiNE_DM\x01",
                bytes([len(to_bytes)]) + to_bytes,
                bytes([len(from_bytes)]) + from_bytes,
                struct.pack(">Q", time_ms) + nonce,
                struct.pack(">HQB", kind, revision_ms, body_format),
                struct.pack(">I", len(body)) + body,
            ]
        )
        return unsigned + self.device.sign(unsigned).signature


class Message:
    """A message, receipt or tombstone of a user: its keys, and its two copies in any revision."""

    def __init__(self, author: User, to: str, kind: int, body: str) -> None:
        self.author, self.to, self.kind, self.body = author, to, kind, body
        self.time_ms, self.nonce = now_ms(), os.urandom(4)
        number = int.from_bytes(self.nonce, "big")
        self.base_key = f"{author.login.lower()}|{to.lower()}|{self.time_ms}|{number}"
        self.incoming_key = f"{self.base_key}|{kind}"
        self.outgoing_key = f"{self.base_key}|{kind + 1}"

    def pair(self, body: str | None = None, *, revision_ms: int = 0) -> dict[str, str]:
        """The payload of ``SendMessagePair``."""
        copies = [
            self.author.container(
                self.to,
                kind,
                (self.body if body is None else body).encode(),
                time_ms=self.time_ms,
                nonce=self.nonce,
                revision_ms=revision_ms,
                body_format=TEXT if self.kind == MESSAGE else REFERENCE,
            )
            for kind in (self.kind, self.kind + 1)
        ]
        return {"incomingBlobB64": b64(copies[0]), "outgoingBlobB64": b64(copies[1])}

    def answer(self, state: str) -> dict[str, str]:
        """What ``SendMessagePair`` answers."""
        return {
            "baseKey": self.base_key,
            "incomingKey": self.incoming_key,
            "outgoingKey": self.outgoing_key,
            "deliveryState": state,
        }


# --- the wire ---


class Refused(Exception):
    """An answer that is no success."""


class Client:
    """One connection: requests with their answers, and events in between."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self._events: deque[tuple[str, dict[str, Any]]] = deque()

    async def ask(self, op: str, **payload: Any) -> dict[str, Any]:
        """Make a request and return the payload of its success."""
        self._number += 1
        request_id = f"foreign-{self._number}"
        await self._socket.send(json.dumps({"op": op, "requestId": request_id, "payload": payload}))
        while True:
            frame = await self._frame()
            if frame.get("event"):
                self._keep(frame)
                continue
            assert (frame["op"], frame["requestId"]) == (op, request_id)
            assert isinstance(frame["payload"], dict)
            assert frame["ok"] is (200 <= frame["status"] < 300)
            if frame["ok"]:
                return dict(frame["payload"])
            raise Refused(frame["status"], frame["error"])

    async def event(self) -> tuple[str, dict[str, Any]]:
        """Return the next event, oldest first."""
        while not self._events:
            self._keep(await self._frame())
        return self._events.popleft()

    async def quiet(self) -> bool:
        """Whether no event is left that was sent before now."""
        await self.ask("Ping")
        return not self._events

    async def end(self) -> int:
        """Wait until the server ends the connection, and return the code."""
        try:
            while True:
                await self._frame()
        except websockets.exceptions.ConnectionClosed as closed:
            assert closed.rcvd is not None
            return closed.rcvd.code

    async def create_session(self, user: User, session: SigningKey) -> str:
        """``AuthChallenge`` and ``CreateAuthSession`` (§8.1)."""
        nonce = (await self.ask("AuthChallenge", login=user.login))["authNonce"]
        key, time_ms = "ed25519/" + b64(bytes(session.verify_key)), now_ms()
        text = f"AUTH_CREATE_SESSION:{user.login}:{key}:the password:{time_ms}:{nonce}"
        made = await self.ask(
            "CreateAuthSession",
            login=user.login,
            sessionKey=key,
            storagePwd="the password",
            timeMs=time_ms,
            authNonce=nonce,
            deviceKey=b64(bytes(user.device.verify_key)),
            signatureB64=b64(user.device.sign(text.encode()).signature),
            clientInfo="a foreign client",
        )
        assert len(base64.b64decode(made["sessionId"] + "=")) == 32
        return str(made["sessionId"])

    async def log_in(self, session_id: str, session: SigningKey) -> None:
        """``SessionChallenge`` and ``SessionLogin`` (§8.1)."""
        nonce = (await self.ask("SessionChallenge", sessionId=session_id))["nonce"]
        time_ms = now_ms()
        text = f"SESSION_LOGIN:{session_id}:{time_ms}:{nonce}"
        answer = await self.ask(
            "SessionLogin",
            sessionId=session_id,
            sessionKey="ed25519/" + b64(bytes(session.verify_key)),
            timeMs=time_ms,
            signatureB64=b64(session.sign(text.encode()).signature),
            clientInfo="a foreign client, again",
        )
        assert answer == {"storagePwd": "the password"}

    async def chat(self, peer: str) -> list[dict[str, Any]]:
        """Return a chat, the newest message first, read page by page."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.ask("GetDirectMessages", peerLogin=peer, limit=1, **cursor)
            found += page["messages"]
            if not page["hasMore"]:
                return found
            cursor = {"cursor": page["cursor"]}

    async def _frame(self) -> dict[str, Any]:
        frame = json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE))
        assert isinstance(frame, dict)
        return frame

    def _keep(self, frame: dict[str, Any]) -> None:
        assert frame["event"] is True
        assert (frame["status"], frame["ok"]) == (200, True)
        assert isinstance(frame["requestId"], str)
        self._events.append((frame["op"], frame["payload"]))


def told_incoming(message: Message, pair: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return "IncomingDirectMessage", {
        "incomingKey": message.incoming_key,
        "baseKey": message.base_key,
        "fromLogin": message.author.login,
        "blobB64": pair["incomingBlobB64"],
    }


def told_outgoing(message: Message, pair: dict[str, str], state: str, to: str) -> tuple[str, dict[str, Any]]:
    return "OutgoingDirectMessage", {
        "outgoingKey": message.outgoing_key,
        "baseKey": message.base_key,
        "toLogin": to,
        "blobB64": pair["outgoingBlobB64"],
        "deliveryState": state,
    }


def told_state(message: Message, state: str) -> tuple[str, dict[str, Any]]:
    return "DmDeliveryStateChanged", {
        "outgoingKey": message.outgoing_key,
        "baseKey": message.base_key,
        "deliveryState": state,
    }


class Scene:
    """Alice at one server, Bob at another, and their devices."""

    def __init__(self, urls: dict[str, str], stack: AsyncExitStack) -> None:
        self._urls = urls
        self._stack = stack
        self.alice, self.bob = User("Alice"), User("bob")
        self.session = SigningKey.generate()
        """The key of all sessions: whoever has it logs in to them."""

    async def connect(self, login: str) -> Client:
        socket = await self._stack.enter_async_context(
            websockets.connect(self._urls[login], proxy=None, open_timeout=PATIENCE, max_size=2**24)
        )
        return Client(socket)

    async def register(self) -> None:
        records = [self.alice.record(("One", self._urls["One"])), self.bob.record(("Two", self._urls["Two"]))]
        for login in self._urls:
            client = await self.connect(login)
            for record in records:
                assert await client.ask("AddUser", **record) == {}


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        urls = {login: await stack.enter_async_context(server(folder / login, login)) for login in ("One", "Two")}
        here = Scene(urls, await stack.enter_async_context(AsyncExitStack()))
        await here.register()
        yield here


def test_a_conversation(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as here:
            alice, bob = here.alice, here.bob
            phone, desk, bobs = await here.connect("One"), await here.connect("One"), await here.connect("Two")

            # sessions
            session_id = await phone.create_session(alice, here.session)
            await desk.log_in(session_id, here.session)
            await bobs.create_session(bob, here.session)
            [listed] = (await phone.ask("ListSessions"))["sessions"]
            assert listed["sessionId"] == session_id
            assert listed["clientInfoFromClient"] == "a foreign client, again"
            assert set(listed) == {
                "sessionId",
                "clientInfoFromClient",
                "clientInfoFromRequest",
                "geo",
                "lastAuthenticatedAtMs",
            }

            # send
            message = Message(alice, "bob", MESSAGE, "Привет, Боб")
            pair = message.pair()
            for _ in range(2):
                assert await phone.ask("SendMessagePair", **pair) == message.answer("delivered")
            assert await bobs.event() == told_incoming(message, pair)
            assert await desk.event() == told_outgoing(message, pair, "accepted", "bob")
            assert await desk.event() == told_state(message, "delivered")
            assert await phone.event() == told_state(message, "delivered")

            # read
            [at_bobs] = await bobs.chat("alice")
            assert at_bobs == {
                "messageKey": message.incoming_key,
                "baseKey": message.base_key,
                "direction": "in",
                "timeMs": message.time_ms,
                "revisionMs": 0,
                "blobB64": pair["incomingBlobB64"],
                "read": False,
                "deleted": False,
            }
            [dialog] = (await bobs.ask("ListDialogs"))["dialogs"]
            assert dialog == {"peerLogin": "Alice", "lastMessage": at_bobs, "unread": 1}

            # edit
            revision_ms = message.time_ms + 1
            edit = message.pair("Привет, дорогой Боб", revision_ms=revision_ms)
            assert await phone.ask("SendMessagePair", **edit) == message.answer("delivered")
            assert await bobs.event() == told_incoming(message, edit)
            assert await desk.event() == told_outgoing(message, edit, "accepted", "bob")
            for device in (desk, phone):
                assert [await device.event() for _ in range(2)] == [
                    told_state(message, "accepted"),
                    told_state(message, "delivered"),
                ]
            [at_bobs] = await bobs.chat("ALICE")
            assert (at_bobs["revisionMs"], at_bobs["blobB64"]) == (revision_ms, edit["incomingBlobB64"])

            # receipt
            receipt = Message(bob, "Alice", RECEIPT, message.base_key)
            read = receipt.pair()
            assert await bobs.ask("SendMessagePair", **read) == receipt.answer("delivered")
            for device in (phone, desk):
                assert await device.event() == told_incoming(receipt, read)
            assert await bobs.event() == told_state(receipt, "delivered")
            [at_alices] = await desk.chat("bob")
            assert (at_alices["direction"], at_alices["read"], at_alices["deliveryState"]) == ("out", True, "delivered")
            [dialog] = (await bobs.ask("ListDialogs"))["dialogs"]
            assert dialog["unread"] == 0

            # tombstone
            tombstone = Message(alice, "bob", TOMBSTONE, message.base_key)
            removal = tombstone.pair()
            assert await desk.ask("SendMessagePair", **removal) == tombstone.answer("delivered")
            assert await bobs.event() == told_incoming(tombstone, removal)
            assert await phone.event() == told_outgoing(tombstone, removal, "accepted", "bob")
            for device in (phone, desk):
                assert await device.event() == told_state(tombstone, "delivered")
            for [removed] in (await bobs.chat("alice"), await phone.chat("bob")):
                assert removed["deleted"] is True
                assert "blobB64" not in removed

            # the end
            for device in (phone, desk, bobs):
                assert await device.quiet()
            assert await phone.ask("CloseActiveSession", sessionId=session_id) == {}
            for device in (phone, desk):
                assert await device.end() == 1008
            assert await bobs.quiet()

    asyncio.run(asyncio.wait_for(story(), STORY_SECONDS))


def test_many_messages_both_ways_and_what_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as here:
            phone, bobs = await here.connect("One"), await here.connect("Two")
            await phone.create_session(here.alice, here.session)
            await bobs.create_session(here.bob, here.session)

            wanted: list[str] = []
            for number in range(25):
                for author, to, sender, reader in (
                    (here.alice, "BOB", phone, bobs),
                    (here.bob, "alice", bobs, phone),
                ):
                    message = Message(author, to, MESSAGE, f"number {number}")
                    pair = message.pair()
                    assert await sender.ask("SendMessagePair", **pair) == message.answer("delivered")
                    assert await sender.event() == told_state(message, "delivered")
                    assert await reader.event() == told_incoming(message, pair)
                    wanted.append(message.base_key)
            for client, peer in ((phone, "bob"), (bobs, "alice")):
                found = [entry["baseKey"] for entry in await client.chat(peer)]
                assert sorted(found) == sorted(wanted)
                times = [int(base_key.split("|")[2]) for base_key in found]
                assert times == sorted(times, reverse=True)

            message = Message(here.alice, "bob", MESSAGE, "hello")
            good = message.pair()
            incoming = base64.b64decode(good["incomingBlobB64"])
            forged = b64(incoming[:-1] + bytes([incoming[-1] ^ 1]))
            long = b64(incoming + b"\0")
            for change, refusal in (
                ({"incomingBlobB64": forged}, (422, "BAD_SIGNATURE")),
                ({"incomingBlobB64": long}, (400, "BAD_CONTAINER")),
                ({"outgoingBlobB64": good["incomingBlobB64"]}, (400, "PAIR_MISMATCH")),
                ({"outgoingBlobB64": None}, (400, "BAD_FIELDS")),
            ):
                assert await refusal_of(phone, "SendMessagePair", **good | change) == refusal
            assert await refusal_of(phone, "Sing") == (400, "UNKNOWN_OP")
            stranger = await here.connect("One")
            assert await refusal_of(stranger, "ListDialogs") == (422, "NOT_AUTHENTICATED")
            assert await bobs.quiet()

    asyncio.run(asyncio.wait_for(story(), STORY_SECONDS))


async def refusal_of(client: Client, op: str, **payload: Any) -> tuple[int, str]:
    """Make a request that is refused, and return status and code."""
    try:
        answer = await client.ask(op, **payload)
    except Refused as refused:
        status, code = refused.args
        return int(status), str(code)
    raise AssertionError(f"{op} was not refused: {answer}")


def test_nothing_of_the_package_is_used_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    imports = [line for line in source if line.startswith(("import ", "from "))]
    assert len(imports) > 10
    assert not [line for line in imports if "shine" in line or "tests" in line]
