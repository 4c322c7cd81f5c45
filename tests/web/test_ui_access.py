"""The page for everybody: by keyboard alone, with a screen reader, with weak eyes, with a thumb on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.ui import DAY, PHONE, Ui, calls, eventually, hear, received, sent

CHATS: dict[str, Any] = {
    "bob": [
        received("hello", DAY),
        sent("hello to you", DAY, read=True),
        sent("edited", 50_000, edited=True, revisionMs=1),
        sent(None, 45_000, deleted=True),
        sent("accepted", 40_000, state="accepted"),
        sent("failed", 30_000, state="failed"),
        sent("waiting", 20_000, state="waiting"),
        received("long " * 500, 10_000),
    ],
    "carol": [received("unread", 60_000, read=False)],
    "dave": [sent("not there", DAY, state="failed")],
}

FOCUSED = """() => {
    const node = document.activeElement;
    return node.getAttribute("aria-label") || node.textContent.trim().slice(0, 40) || node.tagName;
}"""

# The lowest contrast of a text with what is behind it, by WCAG 2: 4.5, and 3 for large texts (24 px, or 18.66 px bold).
CONTRAST = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], under) => [r, g, b].map((c, at) => c * a + under[at] * (1 - a));
    const behind = (node) => {
        const layers = [];
        for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
    };
    const light = (colour) => {
        const [r, g, b] = colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, other) => {
        const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    };
    const bad = [], seen = new Set();
    let count = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || seen.has(node)) continue;
        seen.add(node);
        const style = getComputedStyle(node), box = node.getBoundingClientRect();
        if (node.closest(".spoken, :disabled, script, noscript") || !node.checkVisibility() || box.width < 2) continue;
        const back = behind(node), found = ratio(over(rgba(style.color), back), back);
        const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        count += 1;
        const name = node.className || node.tagName;
        if (found < (large ? 3 : 4.5)) bad.push(`${name}: ${node.textContent.slice(0, 30)}: ${found.toFixed(2)}`);
    }
    for (const tick of document.querySelectorAll(".tick, .icon")) {
        const hidden = getComputedStyle(tick.parentElement).opacity === "0";
        if (!tick.checkVisibility() || tick.closest(":disabled") || hidden) continue;
        const back = behind(tick), found = ratio(over(rgba(getComputedStyle(tick).color), back), back);
        count += 1;
        if (found < 3) bad.push(`${tick.getAttribute("class")}: ${found.toFixed(2)}`);
    }
    return { bad, count };
}"""


def test_a_person_without_a_mouse_reaches_everything(ui: Ui) -> None:
    async def story(page: Page) -> None:
        press = page.keyboard.press

        async def on(text: str) -> None:  # the focus comes a moment after the key: a page is built in between
            await eventually(page, f"text => ({FOCUSED})().includes(text)", text)

        await press("Tab")
        await on("Settings")
        await press("Tab")
        await on("Find people by login")
        await press("Tab")
        await on("bob")
        await press("ArrowDown")
        await on("carol")
        await press("End")
        await on("dave")
        await press("Home")
        await press("ArrowUp")
        await on("Find people by login")
        await press("ArrowDown")
        await press("Enter")
        await on("Message to bob")
        # From the field back into the messages: one stop, the newest; the arrow keys go on from there.
        await expect(page.locator(".message")).to_have_count(len(CHATS["bob"]))
        await press("Shift+Tab")
        await on("long long")
        outline = await page.evaluate("getComputedStyle(document.activeElement.querySelector('.bubble')).outlineStyle")
        assert outline == "solid"
        await press("ArrowUp")
        await on("waiting")
        await press("ArrowUp")
        await press("Enter")
        await on("Send again")
        await press("ArrowDown")
        await on("Copy text")
        await press("Escape")
        await expect(page.get_by_role("menu")).to_have_count(0)
        await on("failed")
        await press("Enter")
        await press("End")
        await on("Delete for both")
        await press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await on("Cancel")
        await press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await calls(page, "remove") == []
        await on("failed")
        await press("Escape")
        await on("Message to bob")
        # The arrow up in an empty field edits the last message of one's own.
        await press("ArrowUp")
        await expect(page.locator(".edit-bar")).to_contain_text("waiting")
        await press("Escape")
        await expect(page.locator(".edit-bar")).to_be_hidden()
        await expect(page.get_by_label("Message to bob")).to_have_value("")
        await press("Escape")
        await expect(page.get_by_text("Choose a chat")).to_be_visible()
        await on("bob")
        await expect(page.get_by_role("region", name="Chat with bob")).to_have_count(0)
        await press("Shift+Tab")
        await press("Shift+Tab")
        await press("Enter")
        await on("Settings")
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        await press("Escape")
        await expect(page.get_by_text("Choose a chat")).to_be_visible()

    ui.show(story, {"chats": CHATS})


def test_who_begins_to_type_means_the_field(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.locator(".message").first.focus()
        await page.keyboard.type("so it is")
        await expect(page.get_by_label("Message to bob")).to_have_value("so it is")
        await page.get_by_label("Find people").press("c")
        await expect(page.get_by_label("Find people")).to_have_value("c")

    ui.show(story, {"chats": CHATS}, "#/chat/bob")


def test_what_has_the_focus_can_be_seen(ui: Ui) -> None:
    async def story(page: Page) -> None:
        look = """() => {
            const node = document.activeElement, style = getComputedStyle(node);
            const inner = node.matches("input[type=radio]") ? getComputedStyle(node.nextSibling) : style;
            const bubble = getComputedStyle(node.querySelector(".bubble") ?? node);
            const seen = inner.outlineStyle !== "none" || style.boxShadow !== "none" || bubble.outlineStyle !== "none";
            return node === document.body || seen ? "" : node.outerHTML.slice(0, 100);
        }"""
        for path, stops in (("#/", 4), ("#/settings", 10), ("#/chat/bob", 6)):
            await page.evaluate("hash => { location.hash = hash; }", path)
            for _ in range(stops):
                await page.keyboard.press("Tab")
                assert await page.evaluate(look) == ""

    ui.show(story, {"chats": CHATS, "settings": {"recoverySaved": False}})


def test_the_landmarks_and_names_for_a_screen_reader(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        await expect(page.get_by_role("main")).to_be_visible()
        await expect(page.get_by_role("search")).to_be_visible()
        await expect(page.get_by_role("heading", level=1)).to_have_text("alice")
        await expect(page.get_by_role("list", name="Messages with bob")).to_be_visible()
        await expect(page.get_by_role("link", name="carol")).to_contain_text("1 unread message")
        await expect(page.get_by_role("link", name="bob")).to_have_attribute("aria-current", "page")
        spoken = page.locator(".message")
        await expect(spoken.nth(0)).to_contain_text("bob: hello")
        await expect(spoken.nth(1)).to_contain_text("You: hello to you")
        await expect(spoken.nth(1)).to_contain_text("Read")
        await expect(spoken.nth(5)).to_contain_text("Message not delivered")
        nameless = await page.evaluate("""() => [...document.querySelectorAll("button, a, input, textarea")]
            .filter((node) => node.checkVisibility()
                && !(node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length))
            .map((node) => node.outerHTML.slice(0, 120))""")
        assert nameless == []
        twice = await page.evaluate("""() => {
            const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
            return ids.filter((id, at) => ids.indexOf(id) !== at);
        }""")
        assert twice == []
        assert await page.evaluate("document.documentElement.lang") == "en"

    ui.show(story, {"chats": CHATS}, "#/chat/bob")


def test_a_message_that_comes_in_is_said_and_old_ones_are_not(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await hear(page)
        await page.evaluate("standIn.add('bob', { text: 'again' })")
        await eventually(page, "heard.join() === 'bob: again'")
        await page.evaluate("standIn.add('bob', { out: true, text: 'mine' })")
        await page.evaluate("standIn.add('bob', { text: null, problem: 'bad-signature' })")
        await eventually(page, "heard.length === 2 && heard[1].startsWith('bob: Not shown')")
        assert await page.locator("[role=log]").count() == 0
        lost = await page.evaluate("standIn.add('carol', { out: true, text: 'x', state: 'accepted' }).key")
        await page.evaluate("key => standIn.set('carol', key, { state: 'failed' })", lost)
        await eventually(page, "heard[2] === 'carol: Message not delivered'")

    ui.show(story, {"chats": CHATS}, "#/chat/bob")


# Colours change softly.
SETTLED = "!document.getAnimations().some((one) => one instanceof CSSTransition)"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ["#/", "#/chat/bob", "#/chat/carol", "#/settings"])
def test_the_contrast_is_enough(ui: Ui, theme: str, path: str) -> None:
    async def story(page: Page) -> None:
        await page.evaluate("document.hasFocus = () => false")
        if path == "#/settings":
            await page.get_by_role("button", name="Show the key").click()
        await page.evaluate("standIn.setProblem('SESSION_CLOSED'); standIn.setLink('offline')")
        await expect(page.locator(".sidebar .status")).to_contain_text("No connection")
        await eventually(page, SETTLED)
        found = await page.evaluate(CONTRAST)
        assert found["count"] > 15
        assert found["bad"] == []

    ui.show(story, {"chats": CHATS, "settings": {"recoverySaved": False}}, path, color_scheme=theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_contrast_of_the_first_page_is_enough(ui: Ui, theme: str) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Login").press("Enter")
        await eventually(page, SETTLED)
        found = await page.evaluate(CONTRAST)
        assert found["count"] > 10
        assert found["bad"] == []

    ui.show(story, {"login": None, "registration": "token"}, color_scheme=theme)


def test_a_lack_of_contrast_would_be_found(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.evaluate("document.querySelector('h1').style.color = '#999'")
        found = await page.evaluate(CONTRAST)
        assert [line.split(":")[0] for line in found["bad"]] == ["BDI"]

    ui.show(story, {"chats": CHATS})


# A phone


SMALL = """() => [...document.querySelectorAll("button, a, input, textarea, .choices label")]
    .filter((node) => node.checkVisibility() && !node.closest(".spoken, p:not(.languages)"))
    .filter((node) => !node.matches(".more, input[type=radio]"))
    .map((node) => [node, node.getBoundingClientRect()])
    .filter(([node, box]) => box.width > 1 && (box.height < 43.5 || (box.width < 43.5 && node.tagName !== "LABEL")))
    .map(([node, box]) => `${node.className} ${node.textContent.slice(0, 20)} ${box.width} x ${box.height}`)"""


@pytest.mark.parametrize(
    ("path", "scenario"),
    [("#/", {}), ("#/chat/bob", {}), ("#/settings", {}), ("", {"login": None, "registration": "token"})],
)
def test_a_finger_hits_what_it_aims_at(ui: Ui, path: str, scenario: dict[str, Any]) -> None:
    async def story(page: Page) -> None:
        await page.wait_for_timeout(100)
        assert await page.evaluate(SMALL) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        sizes = await page.evaluate(
            """() => [...document.querySelectorAll("input:not([type=radio]), textarea")]
                .map((node) => parseFloat(getComputedStyle(node).fontSize))"""
        )
        assert all(size >= 16 for size in sizes), "iOS zooms into fields with smaller letters"

    ui.show(story, {"chats": CHATS, "settings": {"recoverySaved": False}, **scenario}, path, **PHONE)


def test_a_phone_shows_one_pane_at_a_time(ui: Ui) -> None:
    async def story(page: Page) -> None:
        chats = page.get_by_role("navigation", name="Chats")
        chat = page.get_by_role("region", name="Chat with bob")
        await expect(chats).to_be_visible()
        await page.get_by_role("link", name="bob").tap()
        await expect(chat).to_be_visible()
        await expect(chats).to_be_hidden()
        length = await page.evaluate("history.length")
        # The keyboard does not come up by itself, and Enter is a new line on it.
        field = page.get_by_label("Message to bob")
        await expect(field).not_to_be_focused()
        await field.tap()
        await page.keyboard.type("one")
        await page.keyboard.press("Enter")
        await page.keyboard.type("two")
        await page.get_by_role("button", name="Send", exact=True).tap()
        assert await calls(page, "send") == [["bob", "one\ntwo"]]
        await expect(field).to_be_focused()
        await page.locator(".message", has_text="hello to you").locator(".text").tap()
        await expect(page.get_by_role("menuitem", name="Edit")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="Back to the chats").tap()
        await expect(chats).to_be_visible()
        await expect(chat).to_have_count(0)
        # The page's Back was that of the browser: nothing is left to go back to, and the chat is ahead.
        assert await page.evaluate("history.length") == length
        await page.go_forward()
        await expect(chat).to_be_visible()
        await page.go_back()
        await expect(chats).to_be_visible()
        # Opened by its address, a chat has no list behind it, and gets one.
        await page.evaluate("location.hash = '#/settings'")
        await page.evaluate("location.hash = '#/chat/carol'")
        await page.get_by_role("link", name="Back to the chats").tap()
        await expect(chats).to_be_visible()
        await page.go_back()
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()

    ui.show(story, {"chats": CHATS}, **PHONE)


def test_the_end_stays_in_sight_above_the_keyboard(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message").last).to_be_in_viewport()
        await page.set_viewport_size({"width": 390, "height": 420})  # as interactive-widget=resizes-content has it
        await expect(page.locator(".message").last.locator(".foot")).to_be_in_viewport()
        await expect(page.get_by_label("Message to bob")).to_be_in_viewport()

    ui.show(story, {"long": {"bob": {"count": 60}}}, "#/chat/bob", **PHONE)


def test_nothing_moves_by_itself_while_the_page_is_built(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.wait_for_timeout(500)
        shift = await page.evaluate("""() => new Promise((resolve) => {
            let sum = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
            }).observe({ type: "layout-shift", buffered: true });
            setTimeout(() => resolve(sum), 200);
        })""")
        assert shift < 0.05

    ui.show(story, {"chats": CHATS, "delay": 50}, "#/chat/bob")
