"""The list of those from whom nothing is taken, in the page: nothing that nobody has signed is signed on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.chat import Tab, chat_nodes
from tests.support.nodes import LocalServer, now_ms
from tests.support.web import Web
from tests.web.test_core import talk

# What the server says of the list from now on is what the test says, and what is sent is noted.
LIE = """(lies) => {
  window.honest ??= chat._link.request;
  window.sent = [];
  chat._link.request = async function (op, payload, ms) {
    if (op === "UpsertUserParam") sent.push(payload);
    const answer = await honest.call(this, op, payload, ms);
    return op === "GetUserParam" ? { ...answer, ...lies } : answer;
  };
}"""

# A list of a time that the test says, as this user signs it.
SIGNED = """async (time) => {
  const { toBase64, utf8 } = await import("/core/bytes.js");
  const { device } = chat._identity;
  const signature = toBase64(await device.sign(utf8(`SHiNe/UserParameter:Aliceblocked${time}eve`)));
  return { value: "eve", time_ms: time, signature, device_key: toBase64(device.public) };
}"""

# The next list that is written waits until `go()`; `reached` says that it does.
HOLD = """() => {
  const { request } = chat._link;
  const going = new Promise((resolve) => (window.go = resolve));
  chat._link.request = async function (op, payload, ms) {
    if (op === "UpsertUserParam") {
      window.reached = true;
      await going;
    }
    return request.call(this, op, payload, ms);
  };
}"""


def test_a_list_that_this_user_has_not_signed_is_not_signed_on(browser: Web, tmp_path: Path) -> None:
    async def story(alice: Tab, bob: Tab, one: LocalServer, two: LocalServer) -> None:
        await alice.call("setBlocked", "eve", True)
        theirs: dict[str, Any] = await bob.page.evaluate(SIGNED.replace("Aliceblocked", "bobblocked"), now_ms())
        lies: list[tuple[dict[str, Any], str]] = [
            ({"value": "victim\nfriend"}, "BAD_SIGNATURE"),
            ({"time_ms": 9_007_199_254_740_000}, "BAD_SIGNATURE"),
            ({"login": "bob"}, "BAD_SIGNATURE"),
            ({"login": "bob", **theirs}, "BAD_SIGNATURE"),
            ({"param": "other"}, "BAD_FIELDS"),
            ({"login": 7}, "BAD_FIELDS"),
            ({"signature": None}, "BAD_FIELDS"),
            ({"device_key": "?"}, "BAD_FIELDS"),
            ({"time_ms": "1"}, "BAD_FIELDS"),
        ]
        for lie, code in lies:
            await alice.page.evaluate(LIE, lie)
            assert await alice.refused("blocked") == code, lie
            assert await alice.refused("setBlocked", "mallory", True) == code, lie
            assert await alice.look("sent") == []
        await alice.page.evaluate(LIE, await alice.page.evaluate(SIGNED, now_ms() + 16 * 60_000))
        assert await alice.call("blocked") == ["eve"]
        assert await alice.refused("setBlocked", "mallory", True) == "TIME_SKEW"
        assert await alice.look("sent") == []
        await alice.look("void (chat._link.request = honest)")
        assert await alice.call("blocked") == ["eve"]

    talk(browser, tmp_path, story)


def test_two_tabs_and_two_devices_at_once_lose_nobody(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            alice, key = await Tab.register(browser, "alice", server)
            await alice.online()
            second = await Tab.open(browser, alice.page.context, server)
            await second.online()
            other = await Tab.open(browser, await browser.profile(), server)
            await other.call("recover", key)
            await other.online()
            await alice.page.evaluate(HOLD)
            first = asyncio.create_task(alice.call("setBlocked", "bob", True))
            await alice.page.wait_for_function("() => window.reached", timeout=30_000)
            behind = asyncio.create_task(second.call("setBlocked", "carol", True))
            await other.call("setBlocked", "dave", True)  # of a later time than what waits
            await alice.look("go()")
            await asyncio.gather(first, behind)
            for tab in (alice, second, other):
                assert sorted(await tab.call("blocked")) == ["bob", "carol", "dave"]

            # What never lasts is said.
            await other.page.evaluate(
                """() => {
                  const { request } = chat._link;
                  window.writes = 0;
                  chat._link.request = async function (op, payload, ms) {
                    if (op !== "UpsertUserParam") return request.call(this, op, payload, ms);
                    writes++;
                    return {};
                  };
                }"""
            )
            assert await other.refused("setBlocked", "eve", True) == "SERVER_BUSY"
            assert await other.look("writes") == 3
            for tab in (alice, second, other):
                assert tab.defects == []
            for tab in (alice, other):
                await tab.page.context.close()

    browser.run(story())
