"""What is unread: of messages that come late by their times, and of those that have no text here."""

from __future__ import annotations

from pathlib import Path

from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message
from tests.support.chat import Tab
from tests.support.nodes import LocalServer, now_ms
from tests.support.web import Web
from tests.web.test_feed import incoming, listen, seen

HOUR_MS = 3_600_000
UNREAD = "chat.dialogs()[0]?.unread"
SETTLED = "chat._messages._feed._asking === null && !chat._messages._feed._listing"


async def numbers(tab: Tab) -> tuple[int, int]:
    """Return the unread messages of the only chat as the tab and as the server counts them."""
    await seen(tab, SETTLED)
    asked = "async () => (await chat._link.request('ListDialogs')).dialogs[0].unread"
    return await tab.look(UNREAD), await tab.page.evaluate(asked)


def test_what_comes_late_is_counted(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        start_ms = now_ms() - HOUR_MS

        def late(text: str, after_ms: int) -> SignedPair:
            return make_message(bob, "alice", text, time_ms=start_ms + after_ms)

        await alice.sent("bob", "are you there?")
        await server.send(late("on my way", 10))
        await seen(alice, "chat.messages('bob').some(({ text }) => text === 'on my way')")
        assert await numbers(alice) == (1, 1)
        assert (await alice.call("dialogs"))[0]["last"]["text"] == "are you there?"

        # Where the chat is not loaded only the server can know.
        await alice.reload(server)
        await alice.online()
        await seen(alice, f"{UNREAD} === 1 && {SETTLED}")
        second = late("still on my way", 20)
        await server.send(second)
        await seen(alice, f"{UNREAD} === 2")
        assert await numbers(alice) == (2, 2)
        incoming(server, second)  # as if the list had counted it before the event
        await seen(alice, f"{UNREAD} === 3")
        assert await numbers(alice) == (2, 2)
        edit = make_edit(bob, second.message, "nearly there", revision_ms=now_ms())
        await server.send(edit)
        for number in range(20):  # one answer for all
            await server.send(late(f"and {number}", 30 + number))
        await seen(alice, f"{UNREAD} === 22")
        assert await numbers(alice) == (22, 22)
        assert [m["unread"] for m in await alice.call("dialogs")] == [22]

        # What was read already is not unread again, whenever it comes.
        assert len(await alice.texts("bob", 23)) == 23
        read = next(m for m in await alice.call("messages", "bob") if m["text"] == "nearly there")
        await alice.call("read", "bob", read)
        await seen(alice, f"{UNREAD} === 20 && chat._messages._outbox.items.length === 0")
        await server.send(late("before it", 15))
        await seen(alice, "chat.messages('bob').some(({ text }) => text === 'before it')")
        assert await numbers(alice) == (20, 20)

    listen(browser, tmp_path, story)


def test_what_is_no_text_is_unread_until_it_was_seen(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await server.send(make_message(bob, "alice", b"\x00\x01", time_ms=now_ms()))
        await seen(alice, f"{UNREAD} === 1")
        [opaque] = await alice.until("messages.length === 1", "bob")
        assert (opaque["problem"], await numbers(alice)) == ("not-text", (1, 1))
        await alice.call("read", "bob", opaque)
        assert await alice.look(UNREAD) == 0
        await seen(alice, "chat._messages._outbox.items.length === 0")
        assert await numbers(alice) == (0, 0)
        await alice.page.evaluate("() => chat._messages._feed.dialogs()")
        assert await alice.look(UNREAD) == 0
        await alice.reload(server)
        await alice.online()
        assert await numbers(alice) == (0, 0)

    listen(browser, tmp_path, story)
