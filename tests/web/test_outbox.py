"""What waits to be sent, when the way is not free: rates, limits, failures, lost answers, and more than one tab."""

from __future__ import annotations

from pathlib import Path

from shine_node.client.identity import Identity
from tests.support.chat import Tab, chat_nodes, linked
from tests.support.nodes import LocalServer, register
from tests.support.web import Web
from tests.web.test_core import talk


def test_a_message_that_failed_is_sent_once_more(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        once = {"scheduleSeconds": [0], "workerIntervalMs": 50}
        async with chat_nodes(tmp_path, "server1", "server2", delivery=once) as (one, two):
            alice, _ = await Tab.register(browser, "alice", one)
            bob, _ = await Tab.register(browser, "bob", two)
            await alice.sent("bob", "they know each other")
            await two.stop()
            failed = await alice.sent("bob", "into the void", "failed")
            await two.start()
            await linked(one, two)  # else the one attempt that there is fails at once
            await alice.call("resend", failed)
            shown = await alice.until("messages.at(-1).state === 'delivered'", "bob")
            assert (shown[-1]["key"], shown[-1]["text"]) == (failed["key"], "into the void")
            assert await bob.texts("alice", 2) == ["they know each other", "into the void"]
            assert alice.defects == bob.defects == []
            await alice.page.context.close()
            await bob.page.context.close()

    browser.run(story())


def test_a_server_that_asks_to_wait_is_waited_for(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", limits={"requestsPerSecond": 12}) as (server,):
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            for number in range(30):
                await alice.send("alice", str(number))
            await alice.page.wait_for_function(
                "() => chat.messages('alice').length === 30 && !chat._messages._outbox.items.length", timeout=60_000
            )
            shown = await alice.call("messages", "alice")
            assert [m["text"] for m in shown] == [str(number) for number in range(30)]
            assert {m["state"] for m in shown} == {"delivered"}
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_what_is_too_large_for_the_server_is_refused_and_can_be_shortened(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        limits = {"maxBodyBytes": 1000, "maxFrameBytes": 70_000, "maxBlockBytes": 1000}
        async with chat_nodes(tmp_path, "server1", limits=limits) as (server,):
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            long = await alice.sent("alice", "x" * 2000, "refused")  # its answer says so
            longer = await alice.sent("alice", "y" * 60_000, "refused")  # the end of the connection does
            assert (long["problem"], longer["problem"]) == ("TOO_LARGE", "TOO_LARGE")
            assert (await alice.sent("alice", "short"))["problem"] is None  # the others do not wait behind them
            await alice.reload(server)
            shown = await alice.until("messages.length === 3 && messages[2].state === 'delivered'", "alice")
            assert [(m["state"], m["text"][:3]) for m in shown[:2]] == [("refused", "xxx"), ("refused", "yyy")]
            await alice.call("edit", shown[0], "x")
            await alice.call("remove", shown[1])
            shown = await alice.until("messages.every((one) => one.state === 'delivered')", "alice")
            assert [(m["text"], m["edited"]) for m in shown] == [("short", False), ("x", False)]  # it is of now
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.page.evaluate(
            """() => {
              window.sent = [];
              const { request } = chat._link;
              chat._link.request = async function (op, payload, ms) {
                const answer = await request.call(this, op, payload, ms);
                if (op !== "SendMessagePair") return answer;
                sent.push(payload.incomingBlobB64);
                if (sent.length > 1) return answer;
                throw Object.assign(new Error("lost"), { code: "TIMED_OUT", retryable: true, retryAfterMs: 1 });
              };
            }"""
        )
        await alice.sent("bob", "only once")
        await alice.until("chat._messages._outbox.items.length === 0")
        assert await alice.look("sent.length === 2 && sent[0] === sent[1]")
        assert await bob.texts("alice", 1) == ["only once"]

    talk(browser, tmp_path, story)


def test_a_tab_that_is_closed_in_the_middle_leaves_its_work_to_the_other(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        second = await Tab.open(browser, alice.page.context, one)
        await second.online()
        # The first tab hangs, and has the lock.
        await alice.page.evaluate("() => { chat._link.request = () => new Promise(() => {}); }")
        await second.send("bob", "from the second tab")
        await alice.send("bob", "from the first tab")
        await second.page.wait_for_function("() => chat.messages('bob').length === 2", timeout=30_000)
        waiting = await second.call("messages", "bob")
        assert [(m["text"], m["state"]) for m in waiting] == [
            ("from the second tab", "waiting"),
            ("from the first tab", "waiting"),
        ]
        await alice.page.close()
        assert await bob.texts("alice", 2) == ["from the second tab", "from the first tab"]
        await second.until("messages.every((one) => one.state === 'delivered')", "bob")

    talk(browser, tmp_path, story)


def test_a_newer_edit_of_another_device_stays(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        message = await alice.sent("bob", "first")
        other = await Tab.open(browser, await browser.profile(), one)
        await other.call("recover", await alice.call("recoveryKey"))
        await other.online()
        await other.texts("bob", 1)
        await alice.look("chat._link.stop()")
        await alice.call("edit", message, "older")
        await other.call("edit", message, "newer")
        await other.until("messages[0].state === 'delivered'", "bob")
        await alice.look("chat._link.start()")
        await alice.until("chat._messages._outbox.items.length === 0")
        shown = await alice.until("messages[0].text === 'newer'", "bob")
        assert (shown[0]["state"], shown[0]["problem"]) == ("delivered", None)
        assert await alice.look("chat.state.problem") is None
        await other.page.context.close()

    talk(browser, tmp_path, story)


def test_only_the_newest_receipt_is_sent(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.sent("bob", "one")
        await alice.sent("bob", "two")
        first, last = await bob.until("messages.length === 2", "alice")
        await bob.look("chat._link.stop()")
        await bob.call("read", "alice", first)
        await bob.call("read", "alice", last)
        await bob.call("read", "alice", first)
        waiting = await bob.look("chat._messages._outbox.items.map(({ kind, baseKey }) => [kind, baseKey])")
        assert waiting == [["receipt", last["key"]]]
        await bob.look("chat._link.start()")
        await alice.until("messages.every((one) => one.read)", "bob")
        assert (await bob.call("dialogs"))[0]["unread"] == 0

    talk(browser, tmp_path, story)


def test_many_chats_are_sent_to_a_few_at_a_time(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            logins = [f"friend{number}" for number in range(12)]
            for login in logins:
                await register(Identity.generate(login), [server])
            alice, _ = await Tab.register(browser, "alice", server)
            await alice.online()
            await alice.look("chat._link.stop()")
            for login in logins:
                await alice.send(login, f"to {login}")
            assert await alice.look("chat._messages._outbox.items.length") == 12
            await alice.look("chat._link.start()")
            await alice.until("chat._messages._outbox.items.length === 0")
            dialogs = await alice.call("dialogs")
            assert sorted((d["peer"], d["last"]["text"], d["last"]["state"]) for d in dialogs) == sorted(
                (login, f"to {login}", "delivered") for login in logins
            )
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_what_the_server_will_not_have_is_told_or_forgotten(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        message = await alice.sent("bob", "stays")
        [seen] = await bob.until("messages.length === 1", "alice")
        for tab in (alice, bob):
            await tab.page.evaluate(
                """() => {
                  const { request } = chat._link;
                  chat._link.request = async function (op, payload, ms) {
                    if (op !== "SendMessagePair") return request.call(this, op, payload, ms);
                    throw Object.assign(new Error("no"), { code: "FORBIDDEN", answered: true });
                  };
                }"""
            )
        await bob.call("read", "alice", seen)
        await bob.until("chat._messages._outbox.items.length === 0")
        assert await bob.look("chat.state.problem") is None  # nobody misses a receipt
        await alice.call("remove", message)
        shown = await alice.until("messages[0].state === 'refused'", "bob")
        assert [shown[0][name] for name in ("text", "deleted", "refused", "problem")] == [
            "stays",
            False,
            "tombstone",
            "FORBIDDEN",
        ]
        assert await alice.look("chat.state.problem") is None

    talk(browser, tmp_path, story)
