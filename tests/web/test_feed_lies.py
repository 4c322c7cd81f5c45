"""A server that lies about signed messages: whose they are, of when, which revision, and whether they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_edit, make_message
from shine_node.protocol.encoding import encode_base64
from tests.support.chat import Tab
from tests.support.nodes import LocalServer, now_ms, register
from tests.support.web import Web
from tests.web.test_feed import incoming, listen, seen

DAY_MS = 86_400_000

# From now on the pages of the chat with Bob and the list of chats are what the test says.
LIE = """([messages, anew]) => {
  window.honest ??= chat._link.request;
  window.receipts ??= [];
  chat._link.request = async function (op, payload, ms) {
    if (op === "SendMessagePair") receipts.push(payload);
    if (op === "GetDirectMessages") return { messages, cursor: null, hasMore: false };
    if (op === "ListDialogs") {
      const dialogs = messages.map((lastMessage) => ({ peerLogin: "bob", lastMessage, unread: 0 }));
      return { dialogs, cursor: null, hasMore: false };
    }
    return window.honest.call(this, op, payload, ms);
  };
  if (anew) chat._messages._feed.begin();
}"""


def listed(pair: SignedPair, **fields: Any) -> dict[str, Any]:
    """Return a pair's incoming copy as a server lists it, with some fields as it likes."""
    message = pair.message
    shape = {"baseKey": pair.base_key, "direction": "in", "timeMs": message.time_ms, "revisionMs": pair.revision_ms}
    return shape | {"read": False, "deleted": False, "blobB64": encode_base64(pair.incoming)} | fields


async def lie(alice: Tab, *messages: dict[str, Any], anew: bool = False) -> list[dict[str, Any]]:
    """Have Alice open the chat where the server lists these; ``anew``: as after a reconnect."""
    await alice.page.evaluate(LIE, [list(messages), anew])
    if anew:
        await alice.page.evaluate("() => chat._messages._feed.dialogs()")
    await alice.call("openChat", "bob")
    found: list[dict[str, Any]] = await alice.call("messages", "bob")
    return found


def test_the_fields_of_a_checked_message_are_those_that_were_signed(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        pair = make_message(bob, "alice", "I owe you 100", time_ms=now_ms())
        time_ms = pair.message.time_ms
        (wrong,) = await lie(alice, listed(pair, timeMs=time_ms - 90 * DAY_MS))
        assert (wrong["text"], wrong["problem"], wrong["timeMs"]) == (None, "bad-signature", time_ms)
        (first,) = await lie(alice, listed(pair))
        assert (first["text"], first["problem"]) == ("I owe you 100", None)
        for fields in (
            {"direction": "out"},
            {"revisionMs": 9 * 10**15},
            {"deliveryState": "read by all"},
            {"timeMs": 1},
        ):
            for anew in (False, True):
                assert await lie(alice, listed(pair, **fields), anew=anew) == [first], fields
        edit = make_edit(bob, pair.message, "I owe you 200", revision_ms=time_ms + 5)
        (edited,) = await lie(alice, listed(edit, revisionMs=0))
        assert (edited["text"], edited["revisionMs"]) == ("I owe you 200", time_ms + 5)

        # Nothing of another chat, and no state that is none.
        other = make_message(bob, "carol", "not for her", time_ms=time_ms)
        assert await lie(alice, listed(edit), listed(other)) == [edited]
        own = await alice.send("bob", "mine")
        await seen(alice, "chat.messages('bob').at(-1).state !== 'waiting'")
        payload = {"outgoingKey": own["key"] + "|2", "baseKey": own["key"], "deliveryState": "eaten"}
        server.node._live.push("alice", "DmDeliveryStateChanged", payload)
        server.node._live.push("alice", "DmDeliveryStateChanged", payload | {"deliveryState": "failed"})
        await seen(alice, "chat.messages('bob').at(-1).state === 'failed'")

    listen(browser, tmp_path, story)


def test_what_is_not_proven_marks_nothing_read(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        pair = make_message(bob, "alice", "unread", time_ms=now_ms())
        later = make_message(bob, "alice", "forged", time_ms=now_ms() + DAY_MS)
        forged = listed(later, blobB64=encode_base64(pair.incoming), read=True)
        shown = await lie(alice, listed(pair), forged, listed(pair, timeMs=now_ms() + DAY_MS, read=True))
        assert [(one["text"], one["read"]) for one in shown] == [("unread", False), (None, False)]
        deleted = listed(later, deleted=True, read=True)
        del deleted["blobB64"]
        assert [one["read"] for one in await lie(alice, listed(pair), deleted, anew=True)] == [False, False]
        assert (await lie(alice, listed(pair, read=True)))[0]["read"]

    listen(browser, tmp_path, story)


def test_no_receipt_is_signed_for_what_is_not_proven(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        pair = make_message(bob, "alice", "true", time_ms=now_ms())
        await server.send(pair)
        later = make_message(bob, "alice", "forged", time_ms=now_ms() + DAY_MS)
        opaque = make_message(bob, "alice", b"\x00", time_ms=now_ms() + 1)
        forged = listed(later, blobB64=encode_base64(later.incoming[:-1] + bytes([later.incoming[-1] ^ 1])))
        shown = await lie(alice, listed(pair), forged, listed(opaque))
        assert [one["problem"] for one in shown] == [None, "not-text", "bad-signature"]
        await alice.call("read", "bob", shown[2])
        await alice.call("read", "bob", {"key": "bob|alice|4102444800000|1", "timeMs": 4102444800000, "out": False})
        assert await alice.look("chat._messages._outbox.items.length + receipts.length") == 0
        assert not any(one["read"] for one in await alice.call("messages", "bob"))
        assert await alice.look("chat.dialogs()[0].unread") == 2, "nobody can read the forged one"
        await alice.page.evaluate("() => chat._messages._feed.dialogs()")
        assert await alice.look("chat.dialogs()[0].unread") == 2

        # Of one that is, the time and the key are those of its container, whatever is said beside it.
        await alice.call("read", "bob", shown[0] | {"timeMs": 4102444800000})
        await seen(alice, "receipts.length === 1 && chat._messages._outbox.items.length === 0")
        reference = await alice.page.evaluate(
            """async () => {
              const [bytes, container] = [await import("/core/bytes.js"), await import("/core/container.js")];
              return container.parseContainer(bytes.fromBase64(receipts[0].incomingBlobB64)).reference.baseKey;
            }"""
        )
        assert reference == pair.base_key
        assert await alice.look("chat._messages._history.chat('bob').inReadMs") == pair.message.time_ms

    listen(browser, tmp_path, story)


def test_an_older_revision_and_what_was_deleted_do_not_come_back(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        time_ms = now_ms()
        first = make_message(bob, "alice", "first", time_ms=time_ms)
        edit = make_edit(bob, first.message, "edited", revision_ms=time_ms + 5)
        other = make_message(bob, "alice", "other", time_ms=time_ms + 10)
        gone = listed(edit, deleted=True)
        del gone["blobB64"]

        async def texts(*messages: dict[str, Any]) -> list[str | None]:
            return [one["text"] for one in await lie(alice, *messages, anew=True)]

        assert await texts(listed(edit), listed(other)) == ["edited", "other"]
        assert await texts(listed(first), listed(other)) == ["edited", "other"]
        assert await texts(listed(other)) == ["other"]
        assert await texts(listed(first), listed(other)) == ["edited", "other"], (
            "known, though it was not listed meanwhile"
        )
        assert await texts(listed(first)) == ["edited"]
        assert (await alice.call("dialogs"))[0]["last"]["text"] == "edited"
        assert await texts(listed(first), listed(other)) == ["edited", "other"]

        # So it is for what this browser has stored, also where the chat is not open and an event says it.
        await alice.reload(server)
        await alice.online()
        incoming(server, first)
        incoming(server, make_message(bob, "alice", "mark", time_ms=time_ms + 20))
        await seen(alice, "chat.dialogs()[0].last.text === 'mark'")
        assert await texts(listed(first), listed(other)) == ["edited", "other"]

        assert await texts(gone, listed(other)) == [None, "other"]
        assert await texts(listed(edit), listed(other)) == [None, "other"]
        assert await texts(listed(other)) == ["other"]
        assert await texts(listed(edit)) == [None]
        assert (await alice.call("dialogs"))[0]["last"]["deleted"]
        assert await texts(listed(edit), listed(other)) == [None, "other"]
        await alice.reload(server)
        await alice.online()
        incoming(server, edit)
        incoming(server, make_message(bob, "alice", "mark", time_ms=time_ms + 30))
        await seen(alice, f"chat.dialogs()[0].last.timeMs === {time_ms + 30}")
        assert (await texts(listed(edit), listed(other)))[0] is None

    listen(browser, tmp_path, story)


# The chat with Bob in pages of one entry, with empty ones before each: a server passes over many rows at a time.
PAGES = """([messages, empty]) => {
  window.honest ??= chat._link.request;
  window.pages = 0;
  chat._link.request = async function (op, payload, ms) {
    if (op !== "GetDirectMessages") return window.honest.call(this, op, payload, ms);
    const place = Number(payload.cursor ?? 0), every = empty + 1;
    pages++;
    const found = place % every === empty ? [messages[(place - empty) / every]] : [];
    return { messages: found, cursor: String(place + 1), hasMore: place + 1 < messages.length * every };
  };
}"""


def test_empty_pages_are_passed_over(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        start_ms = now_ms()
        pairs = [make_message(bob, "alice", f"{number}", time_ms=start_ms + number) for number in range(3)]
        newest_first = [listed(pair) for pair in reversed(pairs)]
        await alice.page.evaluate(PAGES, [newest_first, 2])
        await alice.call("openChat", "bob")
        assert await alice.call("messages", "bob") == []
        for texts in (["2"], ["1", "2"], ["0", "1", "2"]):
            more = await alice.call("loadOlder", "bob")
            assert [m["text"] for m in await alice.call("messages", "bob")] == texts
        assert (more, await alice.page.evaluate("pages")) == (False, 9)

        # On a new connection all that was loaded is found again, and no server keeps the page asking for ever.
        await alice.page.evaluate(PAGES, [newest_first, 1])
        await alice.page.evaluate("() => chat._messages._feed.begin()")
        await alice.call("openChat", "bob")
        assert [m["text"] for m in await alice.call("messages", "bob")] == ["0", "1", "2"]
        assert await alice.page.evaluate("pages") == 6
        await alice.page.evaluate(PAGES, [newest_first, 1000])
        await alice.page.evaluate("() => chat._messages._feed.begin()")
        await alice.call("openChat", "bob")
        assert await alice.page.evaluate("pages") == 6
        assert await alice.call("loadOlder", "bob")
        assert await alice.page.evaluate("pages") == 11

    listen(browser, tmp_path, story)


def test_what_came_unsealed_says_so(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        plain = make_message(bob, "alice", "on a postcard", time_ms=now_ms())
        (shown,) = await lie(alice, listed(plain))
        assert (shown["text"], shown["plain"]) == ("on a postcard", True)
        incoming(server, make_message(bob, "alice", "another", time_ms=now_ms() + 1))
        await seen(alice, "chat.messages('bob').length === 2 && chat.messages('bob')[1].plain")
        await alice.send("bob", "a letter")
        await seen(alice, "chat.messages('bob').some(({ text, plain }) => text === 'a letter' && !plain)")

    listen(browser, tmp_path, story)


# A server that has the list of chats begin with pages as the test says: each has no chat, and says that there is more.
LISTS = """([pages, still]) => {
  const { request } = chat._link;
  window.lists = 0;
  chat._link.request = async function (op, payload, ms) {
    if (op !== "ListDialogs" || lists >= pages) return request.call(this, op, { ...payload, cursor: undefined }, ms);
    return { dialogs: [], hasMore: true, cursor: ++lists && still ? "same" : String(lists) };
  };
}"""


def test_a_list_of_chats_comes_to_an_end(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        await server.send(make_message(bob, "alice", "hello", time_ms=now_ms()))
        await seen(alice, "chat.dialogs().length === 1")
        listing = "() => chat._messages._feed.dialogs()"
        for pages, still, asked in ((10**6, False, 5), (10**6, True, 2)):
            await alice.page.evaluate(LISTS, [pages, still])
            await alice.page.evaluate(listing)
            assert await alice.look("lists") == asked
            await alice.reload(server)
            await alice.online()
        await server.send(make_message(bob, "alice", "again", time_ms=now_ms()))
        await alice.page.evaluate(LISTS, [3, False])
        await alice.page.evaluate("() => { chat._messages._history.chat('bob').unread = 7; }")
        await alice.page.evaluate(listing)
        assert await alice.look("[lists, chat.dialogs()[0].unread]") == [3, 2]

        # Nor does a chat go on for ever where the same cursor comes again and again.
        await alice.page.evaluate(PAGES, [[], 10**6])
        await alice.page.evaluate(
            """() => {
              const { request } = chat._link;
              chat._link.request = async function (op, ...rest) {
                const answer = await request.call(this, op, ...rest);
                return op === "GetDirectMessages" ? { messages: [], cursor: "0", hasMore: true } : answer;
              };
            }"""
        )
        await alice.call("openChat", "bob")
        assert not await alice.call("loadOlder", "bob")
        assert await alice.look("pages") == 2

    listen(browser, tmp_path, story)


# What is handed in for signing is noted in `signed`: the logins to which the pairs go, as the containers have them.
SIGNED = """async () => {
  const [bytes, container] = [await import("/core/bytes.js"), await import("/core/container.js")];
  const { request } = chat._link;
  window.signed = [];
  chat._link.request = async function (op, payload, ms) {
    if (op === "SendMessagePair") {
      signed.push(container.parseContainer(bytes.fromBase64(payload.incomingBlobB64)).to);
    }
    const answer = await request.call(this, op, payload, ms);
    if (op === "ListDialogs") for (const one of answer.dialogs) one.peerLogin = window.called ?? one.peerLogin;
    return answer;
  };
}"""

KELVIN = "\N{KELVIN SIGN}ate"
"""What becomes "kate" in lower case, and is no login."""


def test_no_login_is_signed_that_is_none(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        kate = Identity.generate("kate")
        await register(kate, [server])
        await alice.page.evaluate(SIGNED)
        blob = encode_base64(make_message(kate, "alice", "hello", time_ms=now_ms()).incoming)
        payload = {"incomingKey": "", "baseKey": "", "fromLogin": KELVIN, "blobB64": blob}
        server.node._live.push("alice", "IncomingDirectMessage", payload)
        await server.send(make_message(kate, "alice", "hi", time_ms=now_ms()))
        await seen(alice, "chat.dialogs()[0]?.last.text === 'hi'")
        for called in (KELVIN, 7, None, "kate:1"):
            await alice.page.evaluate("(called) => { window.called = called; }", called)
            await alice.page.evaluate("() => chat._messages._feed.dialogs()")
            assert [dialog["peer"] for dialog in await alice.call("dialogs")] == ["kate"], called
        await alice.sent("kate", "answer")
        assert await alice.look("signed") == ["kate"]

    listen(browser, tmp_path, story)


# A server that says of itself, and of the user who comes back, what the test says; `records` are those handed in.
NAMES = """([info, user]) => {
  const { request } = chat._link;
  window.records = [];
  chat._link.request = async function (op, payload, ms) {
    if (op === "AddUser") records.push(payload);
    const answer = await request.call(this, op, payload, ms);
    return { ...answer, ...(op === "GetServerInfo" && info), ...(op === "GetUserAccess" && user) };
  };
}"""


def test_a_record_names_only_what_can_be_a_server(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        key = await alice.call("recoveryKey")
        for name in ("home\n1", "", 7, None, KELVIN):
            tab = await Tab.open(browser, await browser.profile(), server)
            await tab.page.evaluate(NAMES, [{"serverLogin": name}, {}])
            assert await tab.refused("register", {"login": "kate"}) == "INTERNAL_ERROR", name
            assert await tab.look("records") == []
            await tab.page.context.close()
        tab = await Tab.open(browser, await browser.profile(), server)
        url = "wss://home.example/ws\nother wss://else.example/ws"
        await tab.page.evaluate(NAMES, [{"url": url}, {}])
        await tab.call("register", {"login": "kate"})
        assert await tab.look("records[0].accessServers") == [{"serverLogin": "server1", "url": server.url}]
        await tab.page.context.close()

        # Nor does the server say how somebody is called.
        for user in ({"login": "al\u0131ce"}, {"login": 7}, {"accessServers": "all"}, {"accessServers": [None, {}]}):
            tab = await Tab.open(browser, await browser.profile(), server)
            await tab.page.evaluate(NAMES, [{}, user])
            code = "USER_NOT_FOUND" if "login" in user else "NOT_ACCESS_SERVER"
            assert await tab.refused("recover", key) == code, user
            await tab.page.context.close()

    listen(browser, tmp_path, story)


def test_a_login_that_only_looks_alike_is_nobody_who_comes_back(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Identity, server: LocalServer) -> None:
        kate, key = await Tab.register(browser, "kate", server)
        await kate.page.context.close()
        tab = await Tab.open(browser, await browser.profile(), server)
        await tab.page.evaluate(NAMES, [{}, {"login": KELVIN}])
        assert await tab.refused("recover", key) == "USER_NOT_FOUND"
        await tab.page.context.close()

    listen(browser, tmp_path, story)
