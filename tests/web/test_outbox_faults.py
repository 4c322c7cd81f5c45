"""What was written is neither lost nor sent against its writer's will, whatever fails on its way to the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import expect

from shine_node.protocol.container import parse_container
from shine_node.protocol.encoding import decode_base64
from tests.support.chat import Tab, chat_nodes
from tests.support.nodes import LocalServer, now_ms
from tests.support.web import Web
from tests.web.people import Place, live
from tests.web.test_core import STORED, talk
from tests.web.ui import eventually

SMALL = {"maxBodyBytes": 1000, "maxFrameBytes": 70_000, "maxBlockBytes": 1000}
MESSAGE, TOMBSTONE = 2, 6  # the types of outgoing copies

# Notes the containers that the tab hands over from now on.
WATCH = """() => {
  window.sent = [];
  const { request } = chat._link;
  chat._link.request = function (op, payload, ms) {
    if (op === "SendMessagePair") sent.push(payload.outgoingBlobB64);
    return request.call(this, op, payload, ms);
  };
}"""

# What the outbox and the drafts are on the disk, as [text or kind, ...].
ON_DISK = """() => new Promise((resolve) => {
  const opened = indexedDB.open("shine");
  opened.onsuccess = () => {
    const transaction = opened.result.transaction(["outbox", "drafts"]);
    const [outbox, drafts] = ["outbox", "drafts"].map((name) => transaction.objectStore(name).getAll());
    transaction.oncomplete = () => {
      opened.result.close();
      resolve([outbox.result.map(({ text, kind }) => text ?? kind), drafts.result.map(({ text }) => text)]);
    };
  };
})"""

# As on a full disk: the outbox takes nothing new until `letIn()`.
FULL = """() => {
  const { put } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.put = function (value, key) {
    if (this.name === "outbox") throw new DOMException("full", "QuotaExceededError");
    return put.call(this, value, key);
  };
  window.letIn = () => (IDBObjectStore.prototype.put = put);
}"""


async def handed_over(tab: Tab) -> list[tuple[int, bool]]:
    """Return the type of each container that was handed over since ``WATCH``, and whether it was an edit."""
    blobs = [decode_base64(text, "blob") for text in await tab.look("sent")]
    containers = [parse_container(blob, max_body_bytes=65536) for blob in blobs]
    return [(int(container.message_type), container.revision_ms > 0) for container in containers]


async def empty(tab: Tab) -> None:
    await tab.until("chat._messages._outbox.items.length === 0")


def seen(message: dict[str, Any], *names: str) -> list[Any]:
    return [message[name] for name in names]


# Between the field and the store


def test_a_page_that_ends_just_after_enter_loses_nothing(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice, bob = await place.friends()
        await alice.find("bob")
        await alice.ticked(await alice.write("bob", "before"), "delivered")
        pauses_ms = [0, 0, 1, 4, 12, 40]
        for number, pause_ms in enumerate(pauses_ms):
            text = f"important {number}"
            await alice.field("bob").fill(text)
            await eventually(alice.page, f"async (text) => (await ({ON_DISK})())[1].includes(text)", text)
            async with alice.page.expect_navigation():
                await alice.page.evaluate(
                    """(ms) => {
                      const key = { key: "Enter", bubbles: true, cancelable: true };
                      document.querySelector("textarea.field").dispatchEvent(new KeyboardEvent("keydown", key));
                      setTimeout(() => location.reload(), ms);
                    }""",
                    pause_ms,
                )
            await alice.online()
            await expect(alice.message("bob", "before")).to_be_visible()
            if await alice.field("bob").input_value() == text:
                await alice.field("bob").press("Enter")
            await alice.ticked(alice.message("bob", text), "delivered")
            await expect(alice.field("bob")).to_have_value("")
        await bob.enter("Alice")
        for number in range(len(pauses_ms)):
            await expect(bob.message("Alice", f"important {number}")).to_have_count(1)

    live(browser, tmp_path, story)


def test_a_message_and_the_end_of_its_draft_are_kept_in_one_step(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.look("chat._link.stop()")
        await alice.call("setDraft", "bob", "a word")
        await alice.page.evaluate(FULL)
        assert await alice.refused("send", "bob", "a word") == "NO_STORE"
        assert await alice.page.evaluate(ON_DISK) == [[], ["a word"]]
        assert (await alice.call("draft", "bob"), await alice.call("messages", "bob")) == ("a word", [])
        await alice.look("letIn()")
        await alice.send("bob", "a word")
        assert await alice.page.evaluate(ON_DISK) == [["a word"], []]
        assert await alice.call("draft", "bob") == ""

    talk(browser, tmp_path, story)


def test_what_is_sent_while_the_one_before_is_being_kept_comes_after_it(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.page.evaluate(
            "() => Promise.all(Array.from({ length: 8 }, (_, number) => chat.send('bob', `message ${number}`)))"
        )
        expected = [f"message {number}" for number in range(8)]
        shown = await alice.until("messages.length === 8 && messages.every((m) => m.state === 'delivered')", "bob")
        assert [m["text"] for m in shown] == expected
        assert len({m["timeMs"] for m in shown}) == 8
        assert await bob.texts("alice", 8) == expected

    talk(browser, tmp_path, story)


# What no server has is changed in place


def test_what_was_not_handed_over_is_changed_or_dropped_and_never_sent(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        known = await alice.sent("bob", "hello bob")
        await alice.look("chat._link.stop()")
        regretted = await alice.send("bob", "I regret this")
        await alice.call("remove", regretted)
        typo = await alice.send("bob", "typo texx")
        await alice.call("edit", typo, "typo text")
        await alice.call("edit", known, "hello, bob")
        await alice.call("edit", known, "hello, Bob")
        shown = await alice.call("messages", "bob")
        assert [(m["text"], m["edited"], m["state"]) for m in shown] == [
            ("hello, Bob", True, "waiting"),
            ("typo text", False, "waiting"),
        ]
        stored = await alice.page.evaluate(STORED)
        assert [text in stored for text in ("regret", "texx", "hello, bob", "typo text")] == [False, False, False, True]
        await alice.page.evaluate(WATCH)
        await alice.look("chat._link.start()")
        await empty(alice)
        assert await handed_over(alice) == [(MESSAGE, False), (MESSAGE, True)]
        seen_by_bob = await bob.until("messages[0]?.edited && messages.length === 2", "alice")
        assert [(m["text"], m["edited"]) for m in seen_by_bob] == [("hello, Bob", True), ("typo text", False)]

        await alice.look("chat._link.stop()")  # an edit that waits goes with its message
        await alice.call("edit", known, "a secret")
        await alice.call("remove", known)
        await alice.look("sent.length = 0")
        await alice.look("chat._link.start()")
        await empty(alice)
        assert await handed_over(alice) == [(TOMBSTONE, False)]

    talk(browser, tmp_path, story)


def test_the_tab_that_sends_respects_what_another_one_takes_back(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "hello bob")
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        # The first tab, which sends, is about to sign when the second one takes the text back.
        await alice.page.evaluate(
            """() => {
              const people = chat._messages._people, { current } = people;
              const going = new Promise((resolve) => { window.go = resolve; });
              people.current = async (login) => {
                window.reached = true;
                await going;
                return current.call(people, login);
              };
            }"""
        )
        await alice.page.evaluate(WATCH)
        first = await second.send("bob", "taken back")
        other = await second.send("bob", "befoer")
        await alice.page.wait_for_function("() => window.reached", timeout=30_000)
        await second.call("remove", first)
        await second.call("edit", other, "before")
        await alice.look("go()")
        await empty(alice)
        assert await bob.texts("alice", 2) == ["hello bob", "before"]
        assert await handed_over(alice) == [(MESSAGE, False)]
        assert second.defects == []

    talk(browser, tmp_path, story)


def test_what_was_handed_over_is_followed_by_an_edit_or_a_tombstone(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.page.evaluate(
            """() => {
              window.sent = [];
              window.honest = chat._link.request;
              chat._link.request = async function (op, payload, ms) {
                if (op !== "SendMessagePair") return honest.call(this, op, payload, ms);
                sent.push(payload.outgoingBlobB64);
                await honest.call(this, op, payload, ms);
                throw Object.assign(new Error("its answer is lost"), { code: "TIMED_OUT", retryable: true });
              };
            }"""
        )
        first, second = await alice.send("bob", "one"), await alice.send("alice", "two")
        await alice.page.wait_for_function("() => sent.length >= 2", timeout=30_000)
        await alice.call("edit", first, "one, edited")
        await alice.call("remove", second)
        await alice.look("chat._link.request = honest")
        await empty(alice)
        shown = await bob.until("messages[0]?.edited", "alice")
        assert seen(shown[0], "key", "text") == [first["key"], "one, edited"]
        await alice.until("messages.length === 1 && messages[0].deleted", "alice")

    talk(browser, tmp_path, story)


# Refusals


def test_an_edit_that_is_refused_stays_to_be_sent_again_or_discarded(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", limits=SMALL) as (server,):
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            message = await alice.sent("alice", "short")
            refused = ("text", "state", "refused", "problem")
            await alice.call("edit", message, "w" * 3000)
            await alice.until("messages[0].state === 'refused'", "alice")
            await alice.reload(server)
            await alice.online()
            [shown] = await alice.until("messages[0]?.state === 'refused'", "alice")
            assert seen(shown, *refused) == ["w" * 3000, "refused", "edit", "TOO_LARGE"]
            assert await alice.look("chat.state.problem") is None
            assert await alice.call("unsent") == {"messages": 1, "drafts": 0}
            await alice.call("resend", shown)  # as it is: refused again
            await alice.until(
                f"messages[0].state === 'refused' && messages[0].revisionMs > {shown['revisionMs']}", "alice"
            )
            await alice.call("edit", shown, "shortened")
            [shown] = await alice.until("messages[0].state === 'delivered'", "alice")
            assert seen(shown, "key", "text", "edited") == [message["key"], "shortened", True]
            assert await alice.look("chat._messages._outbox.items.length") == 0

            await alice.call("edit", shown, "w" * 3000)
            [shown] = await alice.until("messages[0].state === 'refused'", "alice")
            await alice.call("discard", shown)
            [shown] = await alice.call("messages", "alice")
            assert seen(shown, *refused) == ["shortened", "delivered", None, None]
            assert await alice.page.evaluate(ON_DISK) == [[], []]

            await alice.call("edit", shown, "w" * 3000)  # and one that is refused goes with its message
            [shown] = await alice.until("messages[0].state === 'refused'", "alice")
            await alice.call("remove", shown)
            await alice.until("messages[0].deleted", "alice")
            await empty(alice)
            assert "www" not in await alice.page.evaluate(STORED)
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_a_deletion_that_is_refused_is_made_again(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        message = await alice.sent("bob", "stays for now")
        await alice.page.evaluate(
            """() => {
              window.honest = chat._link.request;
              chat._link.request = async function (op, payload, ms) {
                if (op !== "SendMessagePair") return honest.call(this, op, payload, ms);
                throw Object.assign(new Error("no"), { code: "FORBIDDEN", answered: true });
              };
            }"""
        )
        for act in ("discard", "resend"):
            await alice.call("remove", message)
            [shown] = await alice.until("messages[0].state === 'refused'", "bob")
            assert seen(shown, "deleted", "text", "refused") == [False, "stays for now", "tombstone"]
            if act == "resend":
                await alice.look("chat._link.request = honest")
            await alice.call(act, shown)
            if act == "discard":
                [shown] = await alice.call("messages", "bob")
                assert seen(shown, "state", "refused", "problem") == ["delivered", None, None]
        await bob.until("messages[0].deleted", "alice")
        await empty(alice)

    talk(browser, tmp_path, story)


def test_a_store_that_fails_is_no_refusal(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        message = await alice.sent("bob", "hello bob")
        await alice.look("chat._link.stop()")
        await alice.call("edit", message, "edited while offline")
        await alice.send("bob", "second")
        await alice.page.evaluate(FULL)
        await alice.look("chat._link.start()")
        await alice.until("chat.state.problem?.code === 'NO_STORE'")  # it lasts, and so it is told
        shown = await alice.call("messages", "bob")
        assert [seen(m, "text", "state", "problem") for m in shown] == [
            ["edited while offline", "waiting", None],
            ["second", "waiting", None],
        ]
        await alice.look("letIn()")
        await empty(alice)
        await alice.until("chat.state.problem === null")
        await bob.until("messages[0]?.edited", "alice")
        assert await bob.texts("alice", 2) == ["edited while offline", "second"]

    talk(browser, tmp_path, story)


def test_what_cannot_be_sealed_for_its_reader_waits_for_its_writer(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        message = await alice.sent("bob", "hello bob")
        person = "chat._messages._people._known.get('bob')"
        await alice.look(f"Object.assign({person}, {{ problem: 'ROOT_KEY_MISMATCH', checkedMs: Date.now() }})")
        await alice.call("edit", message, "hello?")
        [shown] = await alice.until("messages[0].state === 'refused'", "bob")
        assert seen(shown, "text", "refused", "problem") == ["hello?", "edit", "ROOT_KEY_MISMATCH"]
        assert await alice.look("chat._messages._outbox.items[0].incoming") is None  # nobody was given anything
        await alice.look(f"{person}.problem = null")
        await alice.call("resend", shown)
        await bob.until("messages[0].text === 'hello?'", "alice")

    talk(browser, tmp_path, story)


def test_another_device_decides_over_what_was_refused_here(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", limits=SMALL) as (server,):
            alice, key = await Tab.register(browser, "alice", server)
            await alice.online()
            first, second = await alice.sent("alice", "one"), await alice.sent("alice", "two")
            for message in (first, second):
                await alice.call("edit", message, "w" * 3000)
            await alice.until("messages.every((m) => m.state === 'refused')", "alice")
            other = await Tab.open(browser, await browser.profile(), server)
            await other.call("recover", key)
            await other.online()
            await other.texts("alice", 2)
            await other.call("edit", first, "one, from elsewhere")
            await other.call("remove", second)
            await alice.until("messages[0].text === 'one, from elsewhere' && messages[1].deleted", "alice")
            await empty(alice)
            assert alice.defects == other.defects == []
            for tab in (alice, other):
                await tab.page.context.close()

    browser.run(story())


def test_only_the_frame_that_was_too_large_is_blamed_for_the_end_of_the_connection(
    browser: Web, tmp_path: Path
) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", limits=SMALL) as (server,):
            alice, _ = await Tab.register(browser, "alice", server)
            others = [(await Tab.register(browser, login, server))[0] for login in ("bob", "carol", "dave")]
            await alice.online()
            for login in ("bob", "carol"):
                await alice.sent(login, "hello")
            known = await alice.sent("dave", "hello")
            await alice.look("chat._link.stop()")
            await alice.send("bob", "L" * 60_000)
            await alice.send("carol", "short one")
            await alice.call("edit", known, "hello, edited")
            await alice.send("alice", "M" * 60_000)
            await alice.look("chat._link.start()")
            await alice.until("chat._messages._outbox.items.every(({ code }) => code)")
            last = {login: (await alice.call("messages", login))[-1] for login in ("bob", "carol", "dave", "alice")}
            assert {login: (m["text"][:13], m["problem"]) for login, m in last.items()} == {
                "bob": ("L" * 13, "TOO_LARGE"),
                "carol": ("short one", None),
                "dave": ("hello, edited", None),
                "alice": ("M" * 13, "TOO_LARGE"),
            }
            await alice.call("remove", last["bob"])
            await alice.call("discard", last["alice"])
            assert await alice.look("chat._messages._outbox.items.length") == 0
            for tab in (alice, *others):
                assert tab.defects == []
                await tab.page.context.close()

    browser.run(story())


# Clocks

WRONG = "() => { window.honest ??= Date.now; Date.now = () => honest.call(Date) + %d * 60_000; chat._link.again(); }"
RIGHT = "() => { Date.now = honest; chat._link.again(); }"


def test_what_was_refused_for_a_wrong_clock_can_be_sent_by_a_right_one(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        known = await alice.sent("bob", "hello bob")
        await alice.page.evaluate(WRONG % 40)
        await alice.until("chat.state.problem?.code === 'CLOCKS_DIFFER' && chat.state.link === 'online'")
        await alice.send("bob", "by a wrong clock")
        await alice.call("edit", known, "hello, bob")
        shown = await alice.until("messages.length === 2 && messages.every((m) => m.state === 'refused')", "bob")
        assert {m["problem"] for m in shown} == {"BAD_FIELDS"}
        await alice.page.evaluate(RIGHT)
        await alice.until("chat.state.problem === null && chat.state.link === 'online'")
        for message in shown:
            await alice.call("resend", message)
        again = await alice.until("messages.length === 2 && messages.every((m) => m.state === 'delivered')", "bob")
        assert [m["text"] for m in again] == ["hello, bob", "by a wrong clock"]
        assert again[1]["key"] != shown[1]["key"]
        assert abs(again[1]["timeMs"] - now_ms()) < 60_000
        assert await bob.texts("alice", 2) == ["hello, bob", "by a wrong clock"]

    talk(browser, tmp_path, story)


def test_what_waits_from_a_time_of_a_wrong_clock_is_of_now_when_it_is_sent(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        known, removed = await alice.sent("bob", "hello bob"), await alice.sent("bob", "to be removed")
        await alice.look("chat._link.stop()")
        await alice.page.evaluate(WRONG % 40)
        for text in ("one", "two"):
            await alice.send("bob", text)
        await alice.call("edit", known, "hello, bob")
        await alice.call("remove", removed)
        await alice.page.evaluate(RIGHT)
        await alice.look("chat._link.start()")
        await empty(alice)
        shown = await alice.until("messages.every((m) => m.state === 'delivered')", "bob")
        assert [m["text"] for m in shown] == ["hello, bob", None, "one", "two"]
        assert all(abs(m["timeMs"] - now_ms()) < 60_000 for m in shown)
        await bob.until("messages[0]?.edited && messages[1]?.deleted", "alice")
        assert await bob.texts("alice", 4) == ["hello, bob", None, "one", "two"]

    talk(browser, tmp_path, story)


# What a person is told


def test_a_server_that_has_no_space_is_told_of_until_it_has(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        await alice.page.evaluate(
            """() => {
              window.honest = chat._link.request;
              chat._link.request = async function (op, payload, ms) {
                if (op !== "SendMessagePair") return honest.call(this, op, payload, ms);
                throw Object.assign(new Error("full"), { code: "STORAGE_FULL", answered: true, retryable: true });
              };
            }"""
        )
        message = await second.send("bob", "when there is space")
        for tab in (alice, second):  # the other one is the tab that sends
            await tab.until("chat.state.problem?.code === 'STORAGE_FULL'")
        assert (await second.call("messages", "bob"))[0]["state"] == "waiting"
        await alice.look("chat._link.request = honest")
        for tab in (alice, second):
            await tab.until("chat.state.problem === null")
        shown = await second.until("messages[0].state === 'delivered'", "bob")
        assert shown[0]["key"] == message["key"]
        assert second.defects == []

    talk(browser, tmp_path, story)


def test_what_is_sent_again_with_the_same_text_is_not_called_edited(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        once = {"scheduleSeconds": [0], "workerIntervalMs": 50}
        async with chat_nodes(tmp_path, "server1", "server2", delivery=once) as (one, two):
            alice, _ = await Tab.register(browser, "alice", one)
            bob, _ = await Tab.register(browser, "bob", two)
            await alice.sent("bob", "they know each other")
            await two.stop()
            failed = await alice.sent("bob", "into the void", "failed")
            await alice.call("resend", failed)
            await alice.until("messages[1].state === 'failed' && messages[1].revisionMs > 0", "bob")
            await alice.reload(one)
            await alice.online()
            shown = await alice.until("messages[1]?.state === 'failed'", "bob")
            assert seen(shown[1], "key", "text", "edited") == [failed["key"], "into the void", False]
            await alice.call("edit", shown[1], "another text")
            shown = await alice.until("messages[1].state === 'failed'", "bob")
            assert seen(shown[1], "text", "edited") == ["another text", True]
            assert alice.defects == bob.defects == []
            await alice.page.context.close()
            await bob.page.context.close()

    browser.run(story())


# A server that has it although it refuses it

# The tab's messages arrive, and each time the connection ends before the answer.
LOST = """() => {
  window.honest = chat._link.request;
  chat._link.request = async function (op, payload, ms) {
    const answer = await honest.call(this, op, payload, ms);
    if (op !== "SendMessagePair") return answer;
    chat._link.stop();
    throw Object.assign(new Error("its answer is lost"), { code: "OFFLINE", retryable: true });
  };
}"""
FOUND = "() => { chat._link.request = honest; chat._link.start(); }"


def test_a_message_that_another_device_has_edited_meanwhile_can_be_edited_and_removed(
    browser: Web, tmp_path: Path
) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            alice, key = await Tab.register(browser, "alice", server)
            await alice.sent("alice", "first")
            other = await Tab.open(browser, await browser.profile(), server)
            await other.call("recover", key)
            for number, act in enumerate(("edit", "remove"), 2):
                await alice.page.evaluate(LOST)
                message = await alice.send("alice", "hello wrold")
                await other.until(f"messages.length === {number}", "alice")
                await other.call("edit", message, "hello world")
                await other.until("messages.at(-1).state === 'delivered' && messages.at(-1).edited", "alice")
                await alice.page.evaluate(FOUND)
                await alice.online()
                await empty(alice)
                [*_, shown] = await alice.until("messages.at(-1)?.text === 'hello world'", "alice")
                assert seen(shown, "key", "state", "problem") == [message["key"], "delivered", None]
                assert await alice.call("unsent") == {"messages": 0, "drafts": 0}
                await alice.call(act, shown, *(["hello, world"] if act == "edit" else []))
                await empty(alice)
                for tab in (alice, other):
                    wanted = "text === 'hello, world'" if act == "edit" else "deleted"
                    shown_there = await tab.until(f"messages.at(-1).{wanted}", "alice")
                    assert len(shown_there) == number
                    assert shown_there[-1]["key"] == message["key"]
            assert alice.defects == other.defects == []
            for tab in (alice, other):
                await tab.page.context.close()

    browser.run(story())


def test_what_was_refused_although_the_server_has_it_is_changed_there(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        for act in ("edit", "remove", "drop"):
            message = await alice.sent("bob", "what the server has")
            # As it would be after a store that was put back: the outbox has what was refused for its key.
            await alice.page.evaluate(
                """async ([baseKey, timeMs]) => {
                  const nonce = Number(baseKey.split("|").at(-1)), bytes = new Uint8Array([1]);
                  const signed = { incoming: bytes, outgoing: bytes, code: "KEY_CONFLICT" };
                  const text = "what the server has";
                  const item = { kind: "message", peer: "bob", to: "bob", baseKey, timeMs, nonce, revisionMs: 0, text };
                  await chat._db.put("outbox", { ...item, ...signed });
                  await chat._messages._outbox.reload();
                }""",
                [message["key"], message["timeMs"]],
            )
            if act != "drop":
                await alice.call(act, message, *(["edited"] if act == "edit" else []))
            else:
                await alice.look("chat._messages._chatChanged(chat._messages._chat('bob'))")
            await empty(alice)
            wanted = {"edit": "text === 'edited'", "remove": "deleted", "drop": "text === 'what the server has'"}[act]
            there = await bob.until(f"messages.at(-1)?.{wanted}", "alice")
            assert there[-1]["key"] == message["key"]
        assert len(await bob.texts("alice", 3)) == 3

    talk(browser, tmp_path, story)


# What an earlier page has kept: signed as it was written, with its text sealed only.
EARLIER = """async () => {
  const outbox = chat._messages._outbox;
  const old = async (item, code) => {
    const { edited, ...signed } = await outbox._signed(item);
    return { ...signed, text: null, code, madeMs: Date.now() };
  };
  const [refused, waiting, unreadable, unsigned] = outbox.items;
  const garbled = await old(unreadable, "TOO_LARGE");
  garbled.outgoing[garbled.outgoing.length - 65] ^= 1;
  await chat._db.change("outbox", [
    await old(refused, "TOO_LARGE"), await old(waiting, null), garbled, { ...unsigned, madeMs: Date.now() },
  ]);
}"""


def test_what_an_earlier_page_has_kept_keeps_its_text(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "first")
        await alice.look("chat._link.stop()")
        texts = ["was refused", "waits", "cannot be opened", "was not signed"]
        for text in texts:
            await alice.send("bob", text)
        await alice.page.evaluate(EARLIER)
        await alice.reload(one)
        await alice.online()
        await alice.until("chat._messages._outbox.items.every(({ code }) => code)")
        shown = await alice.until("messages.length === 5", "bob")
        assert [seen(m, "text", "state") for m in shown[1:]] == [
            ["was refused", "refused"],
            ["waits", "delivered"],
            [None, "refused"],
            ["was not signed", "delivered"],
        ]
        assert await alice.refused("resend", shown[3]) == "NO_TEXT"  # there is nothing to send
        await alice.call("discard", shown[3])
        await alice.call("resend", shown[1])
        await empty(alice)
        expected = ["first", "waits", "was not signed", "was refused"]
        assert await bob.texts("alice", 4) == expected
        assert await alice.texts("bob", 4) == expected
        for nothing in (None, 5):
            assert await alice.refused("send", "bob", nothing) == "NO_TEXT"
            assert await alice.refused("edit", shown[2], nothing) == "NO_TEXT"

    talk(browser, tmp_path, story)


def test_a_draft_is_gone_in_all_tabs_also_where_the_tab_that_sent_it_has_ended(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "hello bob")
        for heard in ("outbox", "nothing"):
            second = await Tab.open(browser, alice.page.context, one)
            await second.online()
            await second.look("chat._messages._outbox.stop()")
            await second.call("setDraft", "bob", f"a word, {heard}")
            await alice.until(f"chat.draft('bob') === 'a word, {heard}'")
            await second.page.evaluate(
                """(heard) => {
                  const { _tell } = chat._messages;
                  chat._messages._tell = (message) => message.kind === heard && _tell(message);
                }""",
                heard,
            )
            await second.send("bob", f"a word, {heard}")
            await second.page.close()
            if heard == "nothing":  # it finds what waits when it is next online
                await alice.look("chat._link.again()")
            await alice.until(f"messages.at(-1).text === 'a word, {heard}'", "bob")
            await alice.until("messages.at(-1).state === 'delivered' && chat.draft('bob') === ''", "bob")
            assert second.defects == []

    talk(browser, tmp_path, story)


def test_a_draft_that_could_not_be_kept_stays_where_another_tab_sends(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "hello bob")
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        await second.page.evaluate(FULL.replace('"outbox"', '"drafts"'))
        await second.look("void ([window.tell, chat._messages._tell] = [chat._messages._tell, () => {}])")
        await second.call("setDraft", "bob", "being written")
        await second.until("chat.state.problem?.code === 'NO_STORE'")
        await alice.sent("bob", "meanwhile")
        await second.until("messages.length === 2 && messages[1].state === 'delivered'", "bob")
        assert await second.call("draft", "bob") == "being written"
        await second.look("void (letIn(), (chat._messages._tell = tell))")
        await second.call("setDraft", "bob", "being written, kept")
        await alice.until("chat.draft('bob') === 'being written, kept'")
        assert second.defects == []

    talk(browser, tmp_path, story)


def test_a_frame_that_was_too_large_is_known_only_where_nothing_else_waited(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", limits=SMALL) as (server,):
            alice, _ = await Tab.register(browser, "alice", server)
            none: list[str] = []
            for others, alone in ((none, True), (["Ping", "GetServerInfo"], False)):
                await alice.online()
                lost = await alice.page.evaluate(
                    """async (others) => {
                      const { request } = Object.getPrototypeOf(chat._link);
                      const ask = (one) => request.apply(chat._link, one);
                      const { promise: asked, resolve: letGo } = Promise.withResolvers();
                      chat._link.request = (...one) => asked.then(() => ask(one)); // what the page asks for itself
                      while (chat._link._pending.size) await new Promise((resolve) => setTimeout(resolve, 10));
                      const requests = [["GetUser", { login: "x".repeat(80000) }], ...others.map((op) => [op, {}])];
                      const done = await Promise.allSettled(requests.map(ask));
                      delete chat._link.request;
                      letGo();
                      return done.map(({ reason }) => [reason?.closeCode, reason?.alone]);
                    }""",
                    others,
                )
                assert lost == [[1009, alone]] * len(lost)
                await alice.look("chat._link.wake()")
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_a_receipt_that_waits_is_not_replaced_by_one_for_an_earlier_message(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        for text in ("one", "two", "three"):
            await bob.sent("alice", text)
        first, second, third = await alice.until("messages.length === 3", "bob")
        await alice.look("chat._link.stop()")
        for message, expected in ((second, second), (first, second), (third, third)):
            # Each as another tab does it, which does not know yet what this one has read.
            await alice.look("void (chat._messages._chat('bob').inReadMs = -1)")
            await alice.call("read", "bob", message)
            waiting = await alice.look("chat._messages._outbox.items.map(({ kind, baseKey }) => [kind, baseKey])")
            assert waiting == [["receipt", expected["key"]]]
        await alice.look("chat._link.start()")
        await bob.until("messages.every((m) => m.read)", "alice")

    talk(browser, tmp_path, story)


def test_nothing_is_written_for_an_account_that_has_left(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        mine = await alice.sent("bob", "hello bob")
        await bob.sent("alice", "hello alice")
        [_, theirs] = await alice.until("messages.length === 2", "bob")
        await alice.look("chat._messages.close()")  # as while another tab leaves
        calls = {
            "send": ("bob", "too late"),
            "edit": (mine, "too late"),
            "remove": (mine,),
            "resend": (mine,),
            "discard": (mine,),
            "read": ("bob", theirs),
            "setDraft": ("bob", "too late"),
        }
        for name, arguments in calls.items():
            assert await alice.refused(name, *arguments) == "NOT_AUTHENTICATED", name
        assert await alice.page.evaluate(ON_DISK) == [[], []]

    talk(browser, tmp_path, story)
