"""Texts that want to be more than text: they are shown as they are, and break nothing."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.web.ui import Ui, eventually, received

TEXTS = {
    "markup": '<img src=x onerror="globalThis.hit=1"><script>globalThis.hit=1</script><b>bold</b>&amp;',
    "svg": "<svg/onload=globalThis.hit=1><style>*{display:none}</style><!-- ",
    "template": "${globalThis.hit=1} {{constructor.constructor('hit=1')()}} {peer} {n}",
    "link": "javascript:globalThis.hit=1 https://one.example/?q=<script>",
    "override": "\u202egnp.exe\u202e\u202e",
    "isolates": "\u2066\u2067\u2068never closed \u202a\u202b",
    "nothing wide": "\u200b\u200c\u200d\u2060\ufeff",
    "marks": "Z" + "\u0310\u0489\u0334" * 300,
    "one long word": "x" * 3000,
    "controls": "a\x01\x02\x1b[31mred\x7f",
    "lines": "\n" * 5000,
    "lone": "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 40 + "\ufffd",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_stays_a_text(ui: Ui, name: str) -> None:
    text = TEXTS[name]

    async def story(page: Page) -> None:
        box = page.locator(".message.in .text").first
        await expect(box).to_be_visible()
        shown = await box.evaluate("node => node.textContent")
        if name == "nothing wide" or not text.strip():
            assert shown == "Message without visible characters"
        else:
            fold = page.get_by_role("button", name="Show all")
            if await fold.count():
                await fold.click()
                shown = await box.evaluate("node => node.textContent")
            assert shown == text
            assert await box.evaluate("node => node.children.length") == 0
        # The page around it is as it was.
        assert await page.evaluate("globalThis.hit") is None
        assert (
            await page.evaluate(
                "document.querySelectorAll('#app script, #app img:not([src=\"icon.svg\"]), #app style').length"
            )
            == 0
        )
        width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        inside = """node => {
            const box = node.getBoundingClientRect(), outer = node.closest(".bubble").getBoundingClientRect();
            return box.left >= outer.left && box.right <= outer.right + 1;
        }"""
        assert await box.evaluate(inside)
        style = await box.evaluate(
            "node => { const style = getComputedStyle(node); return [style.unicodeBidi, style.overflowWrap]; }"
        )
        assert style == ["isolate", "anywhere"]
        # The order of what stands beside it is not turned round: the time is right of the text or below it.
        assert await page.locator(".message.in .foot").first.is_visible()
        await expect(page.locator(".dialog .time")).to_be_visible()
        row = await page.locator(".dialog").evaluate(
            "node => [node.scrollWidth <= node.clientWidth + 1, node.clientHeight < 90]"
        )
        assert row == [True, True]
        await page.locator(".message.in").first.click(button="right", position={"x": 5, "y": 5})
        await page.keyboard.press("Escape")

    ui.show(
        story,
        {"chats": {"bob": [received(text), received("after")]}},
        "#/chat/bob",
        viewport={"width": 900, "height": 700},
    )


def test_a_text_of_64_kib_is_folded_and_can_be_unfolded(ui: Ui) -> None:
    text = ("слово и ещё одно " * 4000)[:36000]

    async def story(page: Page) -> None:
        box = page.locator(".message .text")
        assert await box.evaluate("node => node.textContent.length") < 1600
        await page.get_by_role("button", name="Show all").click()
        assert await box.evaluate("node => node.textContent") == text
        await expect(page.locator(".message")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.get_by_role("menuitem", name="Show less").click()
        assert await box.evaluate("node => node.textContent.length") < 1600
        assert await page.locator(".dialog .preview").evaluate("node => node.textContent.length") < 200

    ui.show(story, {"chats": {"bob": [received(text)]}}, "#/chat/bob")


def test_many_long_texts_do_not_stop_the_page(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.locator(".message").last.wait_for()
        assert await page.evaluate("document.querySelector('.timeline').textContent.length") < 400_000

    heavy = "heavy text " * 3000
    ui.show(
        story,
        {"chats": {"bob": [received(f"{at} {heavy}", at * 1000) for at in range(150)]}, "page": 150},
        "#/chat/bob",
    )


def test_a_hostile_name_stays_a_name(ui: Ui) -> None:
    names = ["<b>bob</b>", "\u202eevil", "../settings", "a" * 300]

    async def story(page: Page) -> None:
        await expect(page.locator("nav .dialog")).to_have_count(len(names))
        shown = await page.locator("nav .dialog .name").all_text_contents()
        assert sorted(shown) == sorted(names)
        assert await page.locator("nav .dialog b").count() == 0
        for link in await page.locator("nav .dialog").all():
            assert (await link.get_attribute("href") or "").startswith("#/chat/")
        # A name that cannot be a login opens nothing.
        await page.locator("nav .dialog", has_text="evil").click()
        await expect(page.get_by_text("Choose a chat")).to_be_visible()
        await page.get_by_label("Find people").fill("a")
        await expect(page.locator(".pane-scroll .dialog", has_text="<script>")).to_be_visible()
        assert await page.evaluate("globalThis.hit") is None
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    users = ["a<script>globalThis.hit=1</script>", "a\u202e", "alice2"]
    ui.show(story, {"chats": {name: [received("hi")] for name in names}, "users": users})


def test_a_server_and_a_session_say_what_they_like(ui: Ui) -> None:
    sessions = [
        {"id": "1", "current": True, "client": "<b>x</b>", "lastMs": 0},
        {"id": "2", "current": False, "client": "\u202e" * 20 + "y" * 2000, "lastMs": 9e18},
        {"id": "3", "current": False, "client": None, "lastMs": 5},
    ]

    async def story(page: Page) -> None:
        await expect(page.locator(".session")).to_have_count(3)
        assert await page.locator(".session b").count() == 0
        await expect(page.locator(".session", has_text="Unknown device")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    scenario = {"sessions": sessions, "description": "<i>server</i>" + "z" * 500}
    ui.show(story, scenario, "#/settings")


@pytest.mark.parametrize("time_ms", [0, 8.64e15 + 1, 1.8e19, -1])
def test_times_of_no_calendar_break_nothing(ui: Ui, time_ms: float) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message .text")).to_have_text("when?")
        await eventually(page, "document.querySelectorAll('.day').length === 1")

    ui.show(story, {"chats": {"bob": [{"out": False, "text": "when?", "timeMs": time_ms}]}}, "#/chat/bob")


@pytest.mark.parametrize("path", ["#/chat/%E0%A4%A", "#/chat/<script>", "#/chat/", "#//", "#/chat/a/b", "#/nothing"])
def test_a_broken_address_is_the_list(ui: Ui, path: str) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_text("Choose a chat")).to_be_visible()

    ui.show(story, {}, path)
