"""What a server tells unasked, true or not: events in a chat, and a server that lies."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from shine_node.client.identity import Identity, KeyPair
from shine_node.client.messages import SignedPair, make_edit, make_message, make_receipt, make_tombstone
from shine_node.protocol.access import record_payload
from shine_node.protocol.encoding import encode_base64
from tests.support.chat import Tab, chat_nodes
from tests.support.nodes import LocalServer, now_ms, register
from tests.support.web import Web

Story = Callable[[Tab, Identity, LocalServer], Awaitable[None]]


def listen(browser: Web, folder: Path, story: Story) -> None:
    """Have Alice in a browser, and Bob, whose copies the test makes, at one server."""

    async def told() -> None:
        async with chat_nodes(folder, "server1") as (server,):
            bob = Identity.generate("Bob")
            await register(bob, [server])
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            try:
                await story(alice, bob, server)
                assert alice.defects == []
            finally:
                await alice.page.context.close()

    browser.run(told())


def incoming(server: LocalServer, pair: SignedPair, blob: bytes | None = None) -> None:
    """Tell Alice of her copy of a pair."""
    payload = {"incomingKey": pair.incoming_key, "baseKey": pair.base_key, "fromLogin": "Bob"}
    copy = {"blobB64": encode_base64(pair.incoming if blob is None else blob)}
    server.node._live.push("alice", "IncomingDirectMessage", payload | copy)


async def seen(tab: Tab, condition: str) -> None:
    """Wait for what events alone bring about."""
    await tab.page.wait_for_function(f"() => {condition}", timeout=30_000)


def test_messages_edits_receipts_and_tombstones_come_by_themselves(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        first = make_message(bob, "Alice", "Hello", time_ms=now_ms())
        incoming(server, first)
        await seen(alice, "chat.dialogs()[0]?.unread === 1 && chat.dialogs()[0].last.text === 'Hello'")
        assert (await alice.call("dialogs"))[0]["peer"] == "Bob"
        edit = make_edit(bob, first.message, "Hello, Alice", revision_ms=now_ms() + 1)
        incoming(server, edit)
        incoming(server, first)  # late: the edit stays
        await seen(alice, "chat.dialogs()[0].last.edited && chat.dialogs()[0].unread === 1")
        assert (await alice.call("dialogs"))[0]["last"]["text"] == "Hello, Alice"

        own = await alice.send("bob", "Hi")
        await seen(alice, "chat.messages('bob').at(-1).state === 'delivered'")
        message = make_message(bob, "alice", "", time_ms=own["timeMs"]).message
        assert not (await alice.call("messages", "bob"))[-1]["read"]
        key = own["key"].split("|")
        reference = message._replace(from_login="alice", to_login="bob", nonce=int(key[3]))
        incoming(server, make_receipt(bob, reference, time_ms=now_ms()))
        await seen(alice, "chat.messages('bob').at(-1).read")

        incoming(server, make_tombstone(bob, first.message, time_ms=now_ms()))
        await seen(alice, "chat.messages('bob')[0].deleted && chat.dialogs()[0].unread === 0")
        incoming(server, edit)  # what is removed stays removed
        second = make_message(bob, "alice", "Bye", time_ms=now_ms() + 1000)
        incoming(server, second)
        await seen(alice, "chat.dialogs()[0].last.text === 'Bye'")
        assert [m["text"] for m in await alice.call("messages", "bob")] == [None, "Hi", "Bye"]

    listen(browser, tmp_path, story)


def test_another_devices_messages_and_receipts_come_by_themselves(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        other = await Tab.open(browser, await browser.profile(), server)
        await other.call("recover", await alice.call("recoveryKey"))
        await other.online()
        pair = make_message(bob, "alice", "one", time_ms=now_ms())
        await server.send(pair)
        incoming(server, pair)
        await seen(other, "chat.dialogs()[0]?.unread === 1")
        await seen(alice, "chat.dialogs()[0]?.unread === 1")
        # What the other device has made, as the server tells it.
        made = await alice.page.evaluate(
            """async () => {
              const [container, bytes] = [await import("/core/container.js"), await import("/core/bytes.js")];
              const { last } = chat.dialogs()[0], { device } = chat._identity;
              const own = { from: "alice", to: "bob", timeMs: last.timeMs + 1, nonce: 7 };
              const texts = [bytes.utf8("from afar"), bytes.utf8("from afar")];
              const message = await container.signPair(device, own, container.MESSAGE, container.TEXT, texts);
              const receipt = await container.signReference(device, own, container.RECEIPT, last.key);
              for (const pair of [message, receipt]) {
                await chat._link.request("SendMessagePair", container.pairPayload(pair));
              }
              return [message, receipt].map(({ outgoing }) => bytes.toBase64(outgoing));
            }"""
        )
        for blob in made:
            payload = {"outgoingKey": "", "baseKey": "", "toLogin": "Bob", "blobB64": blob, "deliveryState": "accepted"}
            server.node._live.push("alice", "OutgoingDirectMessage", payload)
        await seen(other, "chat.dialogs()[0].unread === 0 && chat.dialogs()[0].last.text === 'from afar'")
        key = (await other.call("dialogs"))[0]["last"]["key"]
        for state in ("failed", "delivered"):
            payload = {"outgoingKey": f"{key}|2", "baseKey": key, "deliveryState": state}
            server.node._live.push("alice", "DmDeliveryStateChanged", payload)
            await seen(other, f"chat.dialogs()[0].last.state === '{state}'")
        receipts = {"outgoingKey": "alice|bob|5|5|4", "baseKey": "alice|bob|5|5", "deliveryState": "failed"}
        server.node._live.push("alice", "DmDeliveryStateChanged", receipts)
        server.node._live.push("alice", "SomethingNewer", {"any": 1})
        incoming(server, make_message(bob, "alice", "two", time_ms=now_ms() + 60_000))
        await seen(other, "chat.dialogs()[0].last.text === 'two'")
        await other.page.context.close()

    listen(browser, tmp_path, story)


def test_what_nobody_has_signed_is_not_shown(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await alice.call("openChat", "bob")
        pair = make_message(bob, "alice", "forged", time_ms=now_ms())
        incoming(server, pair, pair.incoming[:-1] + bytes([pair.incoming[-1] ^ 1]))
        incoming(server, pair, pair.incoming[:-1])
        incoming(server, make_message(bob, "carol", "not for her", time_ms=now_ms()))
        incoming(server, make_message(Identity.generate("Bob"), "alice", "another Bob", time_ms=now_ms()))
        incoming(server, make_message(bob, "alice", "true", time_ms=now_ms()))
        await seen(alice, "chat.messages('bob').length > 0")
        assert [m["text"] for m in await alice.call("messages", "bob")] == ["true"]

        opaque = make_message(bob, "alice", b"\x00", time_ms=pair.message.time_ms)
        # A server that lists what is not signed, not sealed for her, or no text.
        await alice.page.evaluate(
            """([forged, opaque]) => {
              const { request } = chat._link;
              chat._link.request = async function (op, payload, ms) {
                const answer = await request.call(this, op, payload, ms);
                if (op === "GetDirectMessages") {
                  const [, , timeMs] = forged.baseKey.split("|");
                  const shape = { direction: "in", timeMs: Number(timeMs), revisionMs: 0, read: false, deleted: false };
                  answer.messages = [{ ...shape, ...forged }, { ...shape, ...opaque }, { junk: 1 }, null];
                }
                return answer;
              };
            }""",
            [
                {"baseKey": pair.base_key, "blobB64": encode_base64(pair.outgoing)},
                {"baseKey": opaque.base_key, "blobB64": encode_base64(opaque.incoming)},
            ],
        )
        problems = {m["problem"] for m in await alice.until("messages.length === 2", "bob")}
        assert problems == {"bad-signature", "not-text"}

    listen(browser, tmp_path, story)


def test_nothing_is_sealed_for_somebody_whose_root_key_has_changed(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await alice.sent("bob", "for Bob")
        stranger = Identity.generate("bob").access_record([server.access], time_ms=now_ms())
        await alice.page.evaluate(
            """async (stranger) => {
              const { request } = chat._link;
              chat._link.request = async function (op, payload, ms) {
                if (op === "GetUserAccess") return { exists: true, ...stranger, history: [] };
                return request.call(this, op, payload, ms);
              };
              (await chat._messages._people.remembered("bob")).checkedMs = 0;
            }""",
            record_payload(stranger),
        )
        key = (await alice.send("bob", "for whom?"))["key"]
        shown = await alice.until("messages.at(-1).state === 'refused'", "bob")
        assert (shown[-1]["key"], shown[-1]["problem"]) == (key, "ROOT_KEY_MISMATCH")
        assert shown[0]["text"] == "for Bob"

    listen(browser, tmp_path, story)


def test_more_events_than_are_worth_taking_are_found_again(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        pair = make_message(bob, "alice", "stored", time_ms=now_ms())
        await server.send(pair)
        for _ in range(3000):
            server.node._live.push("alice", "IncomingDirectMessage", {"fromLogin": "Bob", "blobB64": ""})
        await seen(alice, "chat.dialogs()[0]?.last.text === 'stored'")
        assert (await alice.call("dialogs"))[0]["unread"] == 1

    listen(browser, tmp_path, story)


def test_a_tab_that_was_too_slow_finds_everything_again(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await alice.call("openChat", "bob")
        for connection in list(server.node._live._by_login["alice"]):
            connection.outbound.end(1013, "too slow")
        await server.send(make_message(bob, "alice", "missed", time_ms=now_ms()))
        await seen(alice, "chat.messages('bob')[0]?.text === 'missed' && chat.state.link === 'online'")
        assert await alice.look("chat.state.problem") is None

    listen(browser, tmp_path, story)


def test_each_device_key_counts_at_its_time(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await server.send(make_message(bob, "alice", "from the old device", time_ms=now_ms()))
        assert await alice.texts("bob", 1) == ["from the old device"]
        seed = secrets.token_bytes(32)
        moved = bob.with_device(KeyPair.from_seed(seed))
        record = record_payload(moved.access_record([server.access], time_ms=now_ms() + 1000))
        assert (await server.request("SetUserAccess", record))["applied"]
        await server.send(make_message(moved, "alice", "from the new one", time_ms=now_ms() + 2000))
        assert await alice.texts("bob", 2) == ["from the old device", "from the new one"]
        forged = make_message(bob, "alice", "with the old key", time_ms=now_ms() + 3000)
        incoming(server, forged)
        incoming(server, make_message(moved, "alice", "true", time_ms=now_ms() + 4000))
        await seen(alice, "chat.messages('bob').at(-1).text === 'true'")
        assert "with the old key" not in [m["text"] for m in await alice.call("messages", "bob")]

        # What she writes now is sealed for the key that counts now.
        await alice.page.evaluate(
            """() => {
              const { request } = chat._link;
              chat._link.request = function (op, payload, ms) {
                if (op === "SendMessagePair") window.sent = payload;
                return request.call(this, op, payload, ms);
              };
            }"""
        )
        await alice.sent("bob", "for the new device")
        opened = await alice.page.evaluate(
            """async (seed) => {
              const [bytes, container] = [await import("/core/bytes.js"), await import("/core/container.js")];
              const [keys, seal] = [await import("/core/keys.js"), await import("/core/seal.js")];
              const device = await keys.KeyPair.fromSeed(bytes.fromHex(seed));
              const { body, baseKey } = container.parseContainer(bytes.fromBase64(sent.incomingBlobB64));
              return seal.open(body, device, baseKey);
            }""",
            seed.hex(),
        )
        assert opened == "for the new device"

    listen(browser, tmp_path, story)
