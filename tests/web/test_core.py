"""People chat through the page's core, over two real nodes: what they see, and what they find again."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shine_node.client.identity import Identity
from shine_node.protocol.access import record_payload
from shine_node.protocol.container import FORMAT_SEALED, parse_container
from shine_node.protocol.encoding import decode_base64
from tests.support.chat import Tab, chat_nodes
from tests.support.nodes import LocalServer, now_ms
from tests.support.operator import operator_adds
from tests.support.web import Web

Talk = Callable[[Tab, Tab, LocalServer, LocalServer], Awaitable[None]]


def talk(browser: Web, folder: Path, story: Talk) -> None:
    """Have Alice at one server and Bob at another one."""

    async def told() -> None:
        async with chat_nodes(folder, "server1", "server2") as (one, two):
            alice, _ = await Tab.register(browser, "Alice", one)
            bob, _ = await Tab.register(browser, "bob", two)
            await alice.online()
            await bob.online()
            try:
                await story(alice, bob, one, two)
                assert alice.defects == bob.defects == []
            finally:
                await alice.page.context.close()
                await bob.page.context.close()

    browser.run(told())


def test_two_people_talk_and_see_their_ticks(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        assert await alice.call("search", "Bob") == ["bob"]  # asked for at the other server
        first = await alice.send("bob", "Привет, Боб 👋")
        assert (first["state"], first["text"], first["out"], first["read"]) == (
            "waiting",
            "Привет, Боб 👋",
            True,
            False,
        )
        seen = await bob.until("messages.length === 1", "alice")
        assert (seen[0]["text"], seen[0]["out"], seen[0]["state"]) == ("Привет, Боб 👋", False, None)
        assert (seen[0]["key"], seen[0]["peer"], seen[0]["timeMs"]) == (first["key"], "Alice", first["timeMs"])
        dialogs = await bob.call("dialogs")
        assert [(one["peer"], one["unread"], one["last"]["text"]) for one in dialogs] == [("Alice", 1, seen[0]["text"])]
        await alice.until("messages[0].state === 'delivered' && !messages[0].read", "bob")

        await bob.call("read", "alice", seen[0])
        assert (await bob.call("dialogs"))[0]["unread"] == 0
        await alice.until("messages[0].state === 'delivered' && messages[0].read", "bob")
        await bob.sent("alice", "И тебе привет")
        assert await alice.texts("bob", 2) == ["Привет, Боб 👋", "И тебе привет"]
        assert await bob.texts("Alice", 2) == ["Привет, Боб 👋", "И тебе привет"]

    talk(browser, tmp_path, story)


def test_what_is_sent_is_sealed_for_its_readers(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "nobody else reads this")
        listed = await alice.page.evaluate(
            """async () => (await chat._link.request("GetDirectMessages", { peerLogin: "bob" })).messages"""
        )
        own = parse_container(decode_base64(listed[0]["blobB64"], "blobB64"), max_body_bytes=65536)
        assert own.body_format == FORMAT_SEALED
        assert b"nobody else" not in own.blob

    talk(browser, tmp_path, story)


def test_a_message_is_edited_and_removed(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        first, second = await alice.sent("bob", "tomorow"), await alice.sent("bob", "whispered")
        await bob.until("messages.length === 2", "alice")
        await alice.call("edit", first, "tomorrow")
        shown = (await alice.call("messages", "bob"))[0]
        assert (shown["text"], shown["edited"], shown["state"]) == ("tomorrow", True, "waiting")
        await alice.until("messages[0].state === 'delivered' && messages[0].edited", "bob")
        seen = await bob.until("messages[0].edited", "alice")
        assert [(one["text"], one["edited"]) for one in seen] == [("tomorrow", True), ("whispered", False)]
        assert seen[0]["revisionMs"] > seen[0]["timeMs"] == first["timeMs"]

        await alice.call("remove", second)
        assert [one["deleted"] for one in await alice.call("messages", "bob")] == [False, True]
        seen = await bob.until("messages[1].deleted", "alice")
        assert (seen[1]["text"], seen[1]["key"]) == (None, second["key"])
        dialogs = await bob.call("dialogs")
        assert dialogs[0]["last"]["deleted"] is True
        assert await alice.refused("edit", second, "again") == "FORBIDDEN"
        assert await bob.refused("remove", seen[0]) == "FORBIDDEN"
        assert "whispered" not in await bob.page.evaluate(STORED)

    talk(browser, tmp_path, story)


# All that the browser keeps, as one text.
STORED = """async () => {
  const done = (request) => new Promise((resolve) => { request.onsuccess = () => resolve(request.result); });
  const db = await done(indexedDB.open("shine"));
  const all = [];
  for (const name of db.objectStoreNames) all.push([name, await done(db.transaction(name).objectStore(name).getAll())]);
  db.close();
  return JSON.stringify(all, (_, value) => value instanceof Uint8Array ? String.fromCharCode(...value) : value);
}"""


def test_what_is_written_offline_is_sent_in_order_when_the_server_is_back(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "before")
        await one.stop()
        await alice.until("chat.state.link !== 'online'")
        first = await alice.send("bob", "first")
        assert first["state"] == "waiting"
        await alice.send("bob", "second")
        await alice.call("edit", first, "first, edited")
        await alice.call("setDraft", "bob", "half a sen")
        assert "half a sen" in await alice.page.evaluate(STORED)

        state = await alice.reload(one)  # the tab may be closed meanwhile
        assert (state["account"], state["link"]) == ({"login": "Alice"}, "connecting")
        await alice.call("openChat", "bob")
        shown = await alice.call("messages", "bob")
        assert [(m["text"], m["state"]) for m in shown] == [
            ("before", "delivered"),
            ("first, edited", "waiting"),
            ("second", "waiting"),
        ]
        assert await alice.call("draft", "BOB") == "half a sen"
        dialogs = await alice.call("dialogs")
        assert [(d["peer"], d["last"]["text"], d["draft"]) for d in dialogs] == [("bob", "second", "half a sen")]
        assert await alice.call("loadOlder", "bob") is False

        await one.start()
        await alice.until("messages.every((one) => one.state === 'delivered')", "bob")
        assert await bob.texts("alice", 3) == ["before", "first, edited", "second"]
        assert await alice.look("JSON.stringify(chat._messages._outbox.items)") == "[]"

    talk(browser, tmp_path, story)


def test_somebody_is_written_to_before_their_keys_can_be_asked_for(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await one.stop()
        await alice.until("chat.state.link !== 'online'")
        message = await alice.send("bob", "not sealed yet")
        assert (message["state"], message["text"]) == ("waiting", "not sealed yet")
        assert (await alice.send("nobody", "is there anybody?"))["state"] == "waiting"
        await alice.reload(one)
        assert [m["text"] for m in await alice.call("messages", "bob")] == ["not sealed yet"]
        await one.start()
        assert await bob.texts("alice", 1) == ["not sealed yet"]
        shown = await alice.until("messages[0].state === 'refused'", "nobody")
        assert (shown[0]["problem"], shown[0]["text"]) == ("USER_NOT_FOUND", "is there anybody?")
        await alice.call("remove", shown[0])
        assert await alice.call("messages", "nobody") == []

    talk(browser, tmp_path, story)


def test_a_second_browser_is_the_same_person_by_the_recovery_key(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "from the first browser")
        await bob.sent("alice", "an answer")
        key = await alice.call("recoveryKey")
        assert all(len(group) == 4 for group in key.partition(":")[2].split("-")[:-1])
        other = await Tab.open(browser, await browser.profile(), one)
        assert await other.look("chat.state.account") is None
        await other.call("recover", "  " + key.lower().replace("-", " \n "))
        assert await other.look("chat.state.account.login") == "Alice"
        await other.online()
        assert await other.texts("bob", 2) == ["from the first browser", "an answer"]
        assert await other.call("recoveryKey") == key
        await other.sent("bob", "from the second browser")
        assert (await alice.texts("bob", 3))[-1] == "from the second browser"
        assert await bob.texts("alice", 3) == await other.texts("bob", 3)
        assert len(await alice.call("sessions")) == 2
        assert other.defects == []
        await other.page.context.close()

    talk(browser, tmp_path, story)


def test_tabs_share_one_session_drafts_and_what_waits(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        assert len(await second.call("sessions")) == 1
        await second.call("setDraft", "bob", "shared")
        await alice.until("chat.draft('bob') === 'shared'")
        assert ["drafts", "bob"] in await alice.look("told")
        await second.call("setDraft", "bob", "")
        await alice.until("chat.draft('bob') === ''")

        await alice.sent("bob", "one")  # by the tab that was first: it has the lock
        await second.sent("bob", "two")  # handed over to it, or sent by itself
        assert await second.texts("bob", 2) == await alice.texts("bob", 2) == ["one", "two"]
        await bob.sent("alice", "three")
        [*_, last] = await second.until("messages.length === 3", "bob")
        await alice.until("messages.length === 3", "bob")
        await second.call("read", "bob", last)
        await alice.until("chat.dialogs()[0].unread === 0")

        await alice.page.close()  # the lock goes over
        await second.sent("bob", "four")
        assert await bob.texts("alice", 4) == ["one", "two", "three", "four"]
        assert second.defects == []

    talk(browser, tmp_path, story)


def test_a_session_that_is_closed_elsewhere_waits_for_its_person(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        other = await Tab.open(browser, await browser.profile(), one)
        await other.call("recover", await alice.call("recoveryKey"))
        await other.online()
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        sessions = await other.call("sessions")
        assert [session["client"] for session in sessions] == ["Chrome, Linux"] * 2
        [closed] = [session["id"] for session in sessions if not session["current"]]
        await other.call("closeSession", closed)
        for tab in (alice, second):
            await tab.until("chat.state.problem?.code === 'SESSION_CLOSED' && chat.state.link === 'offline'")
        await alice.look("window.dispatchEvent(new Event('online'))")
        assert await alice.look("chat.state.link") == "offline"
        assert [session["id"] for session in await other.call("sessions")] != [closed]

        await alice.call("reconnect")  # or by loading the page anew
        for tab in (alice, second):
            await tab.until("chat.state.link === 'online' && chat.state.problem === null")
        sessions = await alice.call("sessions")
        assert len(sessions) == 2
        assert closed not in [session["id"] for session in sessions]
        await alice.sent("bob", "still here")
        assert await second.texts("bob", 1) == ["still here"]
        assert other.defects == second.defects == []
        await other.page.context.close()

    talk(browser, tmp_path, story)


def test_who_logs_out_leaves_nothing_behind(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "a word")
        await alice.call("setSetting", "theme", "dark")
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        key = await alice.call("recoveryKey")
        await alice.call("logOut")
        for tab in (alice, second):
            await tab.until("chat.state.account === null && chat.state.link === 'online' && !chat.state.problem")
            assert (await tab.call("dialogs"), await tab.call("messages", "bob")) == ([], [])
            assert await tab.refused("send", "bob", "x") == "NOT_AUTHENTICATED"
        kept = await alice.page.evaluate(STORED)
        assert "alice" not in kept.lower()
        assert await alice.call("setting", "theme") == "dark"
        await alice.call("recover", key)
        await alice.online()
        await second.online()
        assert len(await alice.call("sessions")) == 1
        assert await second.texts("bob", 1) == ["a word"]

    talk(browser, tmp_path, story)


def test_pages_of_a_long_chat_are_loaded_and_found_again(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.page.evaluate(
            "async () => { for (let i = 0; i < 105; i++) await chat.send('bob', `message ${i}`); }"
        )
        for count in (15, 30, 45, 60, 75, 90, 105):  # each part has a bound of its own
            await alice.until(f"messages.filter((one) => one.state === 'delivered').length >= {count}", "bob")
        await bob.call("reconnect")
        await bob.online()
        await bob.until("chat.dialogs()[0]?.unread === 105")
        await bob.call("openChat", "alice")
        assert len(await bob.call("messages", "alice")) == 50
        assert (await bob.call("dialogs"))[0]["unread"] == 105
        assert await bob.call("loadOlder", "alice") is True
        assert await bob.call("loadOlder", "alice") is False
        expected = [f"message {number}" for number in range(105)]
        assert [m["text"] for m in await bob.call("messages", "alice")] == expected

        # What happens to the oldest one while nobody listens is found again, as far as the chat is loaded.
        await bob.look("chat._link.stop()")
        await alice.call("remove", (await alice.call("messages", "bob"))[0])
        await alice.until("chat._messages._outbox.items.length === 0")
        await bob.look("chat._link.start()")
        await bob.page.wait_for_function("() => chat.messages('alice')[0].deleted", timeout=60_000)
        assert [m["text"] for m in await bob.call("messages", "alice")] == [None, *expected[1:]]

    talk(browser, tmp_path, story)


def test_one_writes_to_oneself(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("alice", "a note")
        await alice.reload(one)
        await alice.online()
        shown = await alice.until("messages.length === 1", "Alice")
        assert (shown[0]["text"], shown[0]["out"], shown[0]["peer"]) == ("a note", True, "Alice")
        await alice.call("remove", shown[0])
        await alice.until("messages[0].deleted", "alice")

    talk(browser, tmp_path, story)


@pytest.mark.parametrize(
    ("registration", "token", "code"),
    [
        ({"mode": "token", "token": "a word"}, "a word", None),
        ({"mode": "token", "token": "a word"}, "another", "REGISTRATION_CLOSED"),
        ({"mode": "closed"}, "", "REGISTRATION_CLOSED"),
    ],
)
def test_registration_obeys_the_server(
    browser: Web, tmp_path: Path, registration: dict[str, Any], token: str, code: str | None
) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", registration=registration) as (one,):
            tab = await Tab.open(browser, await browser.profile(), one)
            info = await tab.call("serverInfo")
            assert (info["serverLogin"], info["registration"]) == ("server1", registration["mode"])
            if code is None:
                await tab.call("register", {"login": "carol", "token": token})
                await tab.online()
            else:
                assert await tab.refused("register", {"login": "carol", "token": token}) == code
                assert await tab.look("chat.state.account") is None
            assert tab.defects == []
            await tab.page.context.close()

    browser.run(story())


def test_who_cannot_come_in_is_told_why(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        key = await alice.call("recoveryKey")
        tab = await Tab.open(browser, await browser.profile(), two)
        assert await tab.refused("register", {"login": "no spaces", "token": ""}) == "BAD_LOGIN"
        assert await tab.refused("register", {"login": "BOB", "token": ""}) == "USER_ALREADY_EXISTS"
        for wrong in ("", "ABCD", key[:-1], key[:-2] + ("2" if key[-2] != "2" else "3") + key[-1], key + "0", "ключ"):
            assert await tab.refused("recover", wrong) == "BAD_RECOVERY_KEY"
        await bob.call("search", "alice")  # makes her known at the other server
        assert await tab.refused("recover", key) == "NOT_ACCESS_SERVER"
        assert await alice.refused("register", {"login": "more"}) == "ALREADY_SIGNED_IN"
        assert await alice.refused("send", "bob", "x" * 70_000) == "TOO_LARGE"
        assert await alice.refused("send", "two words", "x") == "BAD_LOGIN"
        await two.stop()
        await tab.until("chat.state.link === 'offline'")
        assert await tab.refused("search", "al") == "OFFLINE"
        await tab.page.context.close()

    talk(browser, tmp_path, story)


def test_a_registration_whose_answer_is_lost_is_made_again_with_the_same_keys(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (one,):
            tab = await Tab.open(browser, await browser.profile(), one)
            await tab.page.evaluate(
                """() => {
                  const { request } = chat._link;
                  chat._link.request = async function (op, ...rest) {
                    const answer = await request.call(this, op, ...rest);
                    if (op !== "AddUser") return answer;
                    chat._link.request = request;
                    throw Object.assign(new Error("lost"), { code: "OFFLINE", retryable: true });
                  };
                }"""
            )
            assert await tab.refused("register", {"login": "dave"}) == "OFFLINE"
            await tab.reload(one)
            await tab.call("register", {"login": "Dave"})
            await tab.online()
            assert await tab.look("chat.state.account.login") == "Dave"
            await tab.page.context.close()

    browser.run(story())


WRONG_CLOCK = "const now = Date.now; Date.now = () => now() + (window.wrongMs ?? %d);"


def test_a_browser_with_a_clock_that_is_a_little_wrong_goes_by_the_servers(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            profile = await browser.profile()
            await profile.add_init_script(WRONG_CLOCK % (10 * 60 * 1000))
            tab = await Tab.open(browser, profile, server)
            await tab.call("register", {"login": "late"})
            await tab.online()
            message = await tab.sent("late", "what time is it?")
            assert abs(message["timeMs"] - now_ms()) < 60_000
            assert await tab.look("chat.state.problem") is None
            await server.stop()
            await tab.reload(server)  # it is remembered where there is no server to ask
            offline = await tab.send("late", "and now?")
            assert abs(offline["timeMs"] - now_ms()) < 60_000
            assert tab.defects == []
            await profile.close()

    browser.run(story())


@pytest.mark.parametrize("hours", [-2, 2])
def test_no_server_sets_the_clock_of_what_is_signed_by_hours(browser: Web, tmp_path: Path, hours: int) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            wrong_ms = hours * 3_600_000
            profile = await browser.profile()
            await profile.add_init_script(WRONG_CLOCK % wrong_ms)
            tab = await Tab.open(browser, profile, server)
            assert await tab.refused("register", {"login": "alice"}) == "TIME_SKEW"
            await tab.page.evaluate("window.wrongMs = 0")  # the clock is set
            await tab.call("register", {"login": "alice"})
            await tab.online()
            assert await tab.look("chat.state.problem") is None

            await tab.reload(server)  # and is wrong again: the session begins all the same, and the person is told
            await tab.online()
            problem = await tab.look("chat.state.problem")
            assert problem["code"] == "CLOCKS_DIFFER"
            assert abs(problem["byMs"] - 7_200_000) < 60_000
            message = await tab.send("alice", "by the clock of this device")
            assert abs(message["timeMs"] - now_ms() - wrong_ms) < 60_000
            await tab.reload(server)
            assert await tab.look("chat._skewMs") == 0
            assert tab.defects == []
            await profile.close()

    browser.run(story())


def test_nothing_is_sealed_for_a_record_that_nobody_has_signed(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        registration = {"mode": "open", "allowUnsigned": True}
        async with chat_nodes(tmp_path, "server1", registration=registration) as (server,):
            unsigned = record_payload(Identity.generate("bob").access_record([], time_ms=1))
            for field in ("accessServers", "timeMs", "signatureB64"):
                del unsigned[field]
            await server.request("AddUser", unsigned)
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            await alice.send("bob", "are you really Bob?")
            shown = await alice.until("messages[0]?.state === 'refused'", "bob")
            assert shown[0]["problem"] == "BAD_SIGNATURE"
            await alice.page.context.close()

    browser.run(story())


def test_an_account_that_the_operator_of_a_closed_server_adds(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", registration={"mode": "closed"}) as (one,):
            tab = await Tab.open(browser, await browser.profile(), one)
            assert await tab.call("waiting") is None
            assert await tab.call("join") is False
            assert await tab.refused("prepare", {"login": "no spaces"}) == "BAD_LOGIN"
            made = await tab.call("prepare", {"login": "Carol"})
            assert made["recoveryKey"].startswith("Carol:")
            again = await tab.call("prepare", {"login": "Carol"})
            assert again["recoveryKey"] == made["recoveryKey"], "the same keys"
            await tab.reload(one)
            assert await tab.call("waiting") == {"login": "Carol", "record": again["record"]}
            assert await tab.call("join") is False
            assert (await operator_adds(one, json.dumps(made["record"]))).startswith("Carol: added\n")
            assert await tab.call("join") is True
            await tab.online()
            assert await tab.call("waiting") is None
            assert await tab.call("recoveryKey") == made["recoveryKey"]
            await tab.sent("carol", "to myself")
            assert await tab.refused("join") == "ALREADY_SIGNED_IN"
            other = await Tab.open(browser, await browser.profile(), one)
            assert await other.refused("prepare", {"login": "CAROL"}) == "USER_ALREADY_EXISTS"
            assert await other.call("waiting") is None
            assert tab.defects == other.defects == []

    browser.run(story())


@pytest.mark.parametrize("act", ["register", "prepare"])
def test_what_a_server_says_of_itself_is_looked_at_before_it_is_signed(browser: Web, tmp_path: Path, act: str) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", registration={"mode": "open"}) as (one,):
            tab = await Tab.open(browser, await browser.profile(), one)
            await tab.page.evaluate(
                """() => {
                  window.signed = [];
                  const honest = chat._link.request;
                  chat._link.request = async function (op, payload, ms) {
                    if (op === "AddUser") signed.push(payload);
                    const answer = await honest.call(this, op, payload, ms);
                    return op === "GetServerInfo" ? { ...answer, ...lies } : answer;
                  };
                }"""
            )
            await tab.look("void (window.lies = { serverLogin: 'no login\\nwith lines' })")
            assert await tab.refused(act, {"login": "carol"}) == "INTERNAL_ERROR"
            assert (await tab.look("signed"), await tab.call("waiting")) == ([], None)
            for number, url in enumerate(("javascript:1", None, "ws://host/\nanother")):
                await tab.look(f"void (window.lies = {json.dumps({'url': url})})")
                login = f"carol{number}"
                made = await tab.call(act, {"login": login})
                record = made["record"] if act == "prepare" else await tab.look("signed.at(-1)")
                assert record["login"] == login
                assert record["accessServers"] == [{"serverLogin": "server1", "url": one.url}]
                if act == "register":
                    await tab.call("logOut")
            assert tab.defects == []
            await tab.page.context.close()

    browser.run(story())
