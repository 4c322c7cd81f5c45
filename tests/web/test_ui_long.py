"""Long chats and long lists: a bounded part of them is in the page, and nothing jumps."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.ui import DAY, Ui, calls, eventually, received

MOST_NODES = 200
MANY = 100_000

# Scrolls up by wheel-like steps. A message in sight must move by exactly the step, whatever is loaded above it. The
# page may load after each step, and the same message is looked at before and after.
SCROLL_UP = """async ([steps, by]) => {
    const scroller = document.querySelector(".scroller"), list = document.querySelector(".timeline");
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const inSight = () => {
        const { top, bottom } = scroller.getBoundingClientRect();
        return [...list.querySelectorAll(".message")].find((node) => {
            const box = node.getBoundingClientRect();
            return box.top >= top && box.top < bottom;
        });
    };
    let worst = 0, most = 0;
    for (let step = 0; step < steps; step += 1) {
        const node = inSight();
        const before = node.getBoundingClientRect().top;
        const room = Math.min(by, scroller.scrollTop);
        scroller.scrollTop -= by;
        do await frame(); while (standIn.busy);
        await frame();
        if (node.isConnected) worst = Math.max(worst, Math.abs(node.getBoundingClientRect().top - before - room));
        most = Math.max(most, list.children.length);
    }
    return { worst, most, first: inSight().querySelector(".text").textContent };
}"""


def test_a_chat_of_a_hundred_thousand_messages_scrolls_without_being_loaded(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message", has_text=f"message {MANY - 1}")).to_be_in_viewport()
        assert await page.locator(".message").count() <= MOST_NODES
        assert await calls(page, "loadOlder") == []
        found: dict[str, Any] = await page.evaluate(SCROLL_UP, [150, 400])
        assert found["most"] <= MOST_NODES
        assert found["worst"] <= 2
        reached = int(found["first"].split()[1])
        assert reached < MANY - 500
        loaded = await page.evaluate("standIn.messages('bob').length")
        assert MANY - reached <= loaded < 4000
        await page.locator(".scroller").evaluate("node => { node.scrollTop = node.scrollHeight; }")
        await page.get_by_role("button", name="To the newest message").click()
        await expect(page.locator(".message", has_text=f"message {MANY - 1}")).to_be_in_viewport()
        assert await page.locator(".message").count() <= MOST_NODES

    ui.show(story, {"long": {"bob": {"count": MANY}}, "page": 50}, "#/chat/bob")


def test_one_can_scroll_back_down_through_what_was_left(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message", has_text="message 999")).to_be_in_viewport()
        await page.evaluate(SCROLL_UP, [80, 500])
        assert await page.locator(".message", has_text="message 999").count() == 0
        found = await page.evaluate(SCROLL_UP, [150, -500])
        assert found["worst"] <= 40_000  # at the end the step is cut short
        await expect(page.locator(".message", has_text="message 999")).to_be_in_viewport()
        await expect(page.locator(".down")).to_be_hidden()

    ui.show(story, {"long": {"bob": {"count": 1000}}, "page": 50}, "#/chat/bob")


def test_the_beginning_of_a_chat_is_reached_and_said(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.locator(".message").last.wait_for()
        await page.evaluate(SCROLL_UP, [60, 2000])
        await expect(page.get_by_text("The chat begins here")).to_be_visible()
        await expect(page.get_by_text("message 0", exact=True)).to_be_visible()
        asked = len(await calls(page, "loadOlder"))
        await page.evaluate(SCROLL_UP, [3, 100])
        assert len(await calls(page, "loadOlder")) == asked, "nothing is asked for beyond the beginning"

    ui.show(story, {"long": {"bob": {"count": 420}}, "page": 50}, "#/chat/bob")


def test_without_a_connection_older_messages_wait_for_it(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.locator(".message").last.wait_for()
        await page.evaluate("""() => {
            standIn.setLink("offline");
            standIn.reallyOlder = standIn.loadOlder;
            standIn.loadOlder = async (peer) => { standIn.calls.push(["loadOlder", peer]); return true; };
        }""")
        await page.locator(".scroller").evaluate("node => { node.scrollTop = 0; }")
        await expect(page.get_by_text("older messages come when it is back")).to_be_visible()
        await page.wait_for_timeout(500)
        assert len(await calls(page, "loadOlder")) <= 2, "a page without a connection does not ask again and again"
        await page.evaluate("standIn.loadOlder = standIn.reallyOlder; standIn.setLink('online')")
        await expect(page.get_by_text("The chat begins here")).to_have_count(0)
        await eventually(page, "standIn.messages('bob').length > 50")

    ui.show(story, {"long": {"bob": {"count": 300}}, "page": 50}, "#/chat/bob")


def test_a_list_of_thousands_of_chats_comes_in_as_one_scrolls(ui: Ui) -> None:
    async def story(page: Page) -> None:
        rows = page.locator("nav .dialog")
        await expect(rows).to_have_count(80)
        await page.locator("nav .pane-scroll:not([hidden])").evaluate("node => { node.scrollTop = node.scrollHeight; }")
        await expect(rows).to_have_count(160)

    chats = {f"user-{at}": [received("hi", at * 60_000)] for at in range(2000)}
    ui.show(story, {"chats": chats})


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("newest(10)", {"start": 0, "end": 10}),
        ("newest(1000)", {"start": 850, "end": 1000}),
        ("older({start: 850, end: 1000})", {"start": 800, "end": 950}),
        ("older({start: 20, end: 170})", {"start": 0, "end": 150}),
        ("newer({start: 0, end: 150}, 1000)", {"start": 50, "end": 200}),
        ("newer({start: 0, end: 150}, 160)", {"start": 10, "end": 160}),
        ("around(500, 1000)", {"start": 425, "end": 575}),
        ("around(0, 1000)", {"start": 0, "end": 150}),
        ("around(999, 1000)", {"start": 850, "end": 1000}),
        ("around(3, 5)", {"start": 0, "end": 5}),
        ("moved({start: 0, end: 150}, 50, {hadNewest: false, count: 300})", {"start": 50, "end": 200}),
        ("moved({start: 100, end: 150}, 100, {hadNewest: true, count: 151})", {"start": 100, "end": 151}),
        ("moved({start: 100, end: 250}, 100, {hadNewest: true, count: 260})", {"start": 100, "end": 250}),
        ("moved({start: 0, end: 20}, 0, {hadNewest: false, count: 100})", {"start": 0, "end": 50}),
    ],
)
def test_windows(ui: Ui, call: str, expected: dict[str, int]) -> None:
    async def story(page: Page) -> Any:
        return await page.evaluate(
            f"""async () => {{
                const {{ newest, older, newer, around, moved }} = await import("./ui/window.js");
                return {call};
            }}"""
        )

    assert ui.show(story) == expected


def test_a_day_old_list_keeps_its_times(ui: Ui) -> None:
    async def story(page: Page) -> list[str]:
        return await page.locator(".dialog .time").all_text_contents()

    times = ui.show(
        story, {"chats": {"a": [received("x", 0)], "b": [received("x", 2 * DAY)], "c": [received("x", 400 * DAY)]}}
    )
    assert len(times[0]) == 5
    assert len(times[1]) == 3
    assert len(times[2]) == 10 or len(times[2]) == 8
