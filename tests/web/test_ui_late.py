"""What comes late into the page, what is no text, and what goes on where the page is built anew."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, expect

from tests.support.web import Web
from tests.web.ui import DAY, MINUTE, Ui, eventually, hear, now_ms, received, sent


def test_what_came_in_and_what_was_loaded(browser: Web) -> None:
    found = browser.evaluate(
        """async () => {
          const { cameIn, isUnread } = await import("/ui/news.js");
          const message = (key, more) => ({ key, out: false, read: false, deleted: false, problem: null, ...more });
          const before = [message("b"), message("e", { out: true })];
          const all = [
            message("a"), message("b"), message("c"), message("d", { read: true }), message("e", { out: true }),
            message("f", { problem: "bad-signature" }), message("g", { out: true }), message("h"),
          ];
          const keys = (...given) => cameIn(...given).map(({ key }) => key).join("");
          const problems = [null, "not-text", "sealed-for-another-key", "bad-signature", "OFFLINE"];
          return [
            keys(all, before), keys(all, all), keys(before, all), keys(all, []),
            problems.map((problem) => isUnread(message("x", { problem }))),
            [{ read: true }, { out: true }, { deleted: true }].map((more) => isUnread(message("x", more))),
          ];
        }"""
    )
    assert found == ["cfh", "", "", "abcdfh", [True, True, True, False, False], [False] * 3]


def test_what_comes_late_is_said_marked_and_counted(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await hear(page)
        add = "([peer, text, timeMs]) => standIn.add(peer, { text, timeMs })"
        await page.evaluate("document.hasFocus = () => false")
        await page.evaluate(add, ["bob", "two hours ago", now_ms() - 120 * MINUTE])
        await eventually(page, "heard.includes('bob: two hours ago')")
        await expect(page.locator(".unread + .message .text")).to_have_text("two hours ago")
        await expect(page.locator(".message .text")).to_have_text(["hi", "two hours ago", "are you there?"])
        await page.evaluate("document.hasFocus = () => true; dispatchEvent(new Event('focus'))")
        await eventually(page, "standIn.dialogs().find(({ peer }) => peer === 'bob').unread === 0")
        # What somebody looks at is marked where it is far from where news are looked for.
        await page.evaluate(add, ["bob", "an hour ago", now_ms() - 60 * MINUTE])
        await expect(page.locator(".unread + .message .text")).to_have_text("an hour ago")
        await page.evaluate(add, ["bob", "just before", now_ms() - MINUTE - 5000])
        await eventually(page, "heard.includes('bob: just before')")
        await expect(page.locator(".message")).to_have_count(5)
        await expect(page.locator(".unread + .message .text")).to_have_text("an hour ago")
        # Of a chat that is not loaded its text is not at hand.
        await page.evaluate("standIn.loaded.set('carol', -9)")
        await page.evaluate(add, ["carol", "yesterday", now_ms() - DAY])
        await eventually(page, "heard.includes('carol: 1 unread message')")
        await expect(page.locator(".dialog", has_text="carol").locator(".badge")).to_contain_text("1 unread message")

    old = received("hi", 3 * DAY)
    chats: dict[str, Any] = {"bob": [old, sent("are you there?")], "carol": [old, sent("and you?")]}
    ui.show(story, {"chats": chats}, "#/chat/bob")


def test_what_has_no_text_is_read_by_what_stands_instead(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await eventually(page, "standIn.reads.length > 0")
        await page.wait_for_timeout(300)
        keys = await page.evaluate("standIn.histories.get('bob').map(({ key, problem }) => [key, problem])")
        read = {key for _, key, _ in await page.evaluate("standIn.reads")}
        assert {problem for key, problem in keys if key in read} == {"not-text"}

    problems = ["not-text", "bad-signature"]
    chats = {"bob": [received(None, read=False, problem=problem) for problem in problems]}
    ui.show(story, {"chats": chats}, "#/chat/bob")


async def told(page: Page, name: str, value: str) -> None:
    """Have another tab change a setting."""
    await page.evaluate("([name, value]) => standIn.settings.set(name, value)", [name, value])
    await page.evaluate("name => { const tabs = new BroadcastChannel('shine-ui'); tabs.postMessage(name); }", name)


def test_an_edit_goes_on_whatever_another_tab_sets(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.locator("textarea.field")
        await field.fill("a draft")
        await page.locator(".message.out").last.hover()
        await page.get_by_role("button", name="Actions").last.click()
        await page.get_by_role("menuitem", name="Edit").click()
        await field.fill("a long and\ncareful correction")
        await field.evaluate("node => { node.before = true; }")
        await told(page, "theme", "dark")
        await eventually(page, "document.documentElement.dataset.theme === 'dark'")
        assert await field.evaluate("node => node.before"), "a theme needs no other page"
        for language, title in (("ru", "Правка"), ("en", "Editing")):
            await told(page, "language", language)
            await eventually(page, "code => document.documentElement.lang === code", language)
            await expect(page.locator(".edit-bar")).to_be_visible()
            await expect(page.locator(".edit-bar")).to_contain_text(title)
            await expect(field).to_have_value("a long and\ncareful correction")
            assert await field.evaluate("node => node.rows") == 2
        # So it does for who looks into another chat meanwhile.
        await page.locator(".dialog", has_text="carol").click()
        await expect(field).to_have_value("")
        await page.locator(".dialog", has_text="bob").click()
        await expect(field).to_have_value("a long and\ncareful correction")
        await field.press("Enter")
        await eventually(page, "standIn.calls.some(([name, , text]) => name === 'edit' && text.endsWith('correction'))")
        await expect(field).to_have_value("a draft")

        # Nobody else finds it.
        await page.locator(".message.out").last.hover()
        await page.get_by_role("button", name="Actions").last.click()
        await page.get_by_role("menuitem", name="Edit").click()
        await page.evaluate("standIn.account = null; standIn.emit('state')")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Welcome to SHiNE")
        await page.evaluate("standIn.drafts.clear(); standIn.logIn('alice')")
        await page.locator(".dialog", has_text="bob").click()
        await expect(field).to_have_value("")
        await expect(page.locator(".edit-bar")).to_be_hidden()

    ui.show(story, {"chats": {"bob": [sent("helo")], "carol": [received("hi")]}}, "#/chat/bob")


def test_the_place_in_a_chat_is_kept_in_another_language(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message").last).to_be_in_viewport()
        await page.evaluate("document.querySelector('.scroller').scrollTop = 1000")
        await page.wait_for_timeout(300)
        place = """() => {
            const { top } = document.querySelector(".scroller").getBoundingClientRect();
            const all = [...document.querySelectorAll(".message")];
            const first = all.find((one) => one.getBoundingClientRect().bottom > top);
            return [first.querySelector(".text").textContent, first.getBoundingClientRect().top - top];
        }"""
        text, top = await page.evaluate(place)
        await told(page, "language", "ru")
        await eventually(
            page, "document.documentElement.lang === 'ru' && document.querySelectorAll('.message').length > 9"
        )
        await page.wait_for_timeout(300)
        found, now = await page.evaluate(place)
        assert found == text and abs(now - top) < 3
        await expect(page.locator(".down")).to_be_visible()

    ui.show(story, {"long": {"bob": {"count": 100}}, "page": 100}, "#/chat/bob")


def test_the_chosen_theme_is_shown_where_it_is_chosen(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_label("Dark")).not_to_be_checked()
        await told(page, "theme", "dark")
        await expect(page.get_by_label("Dark")).to_be_checked()

    ui.show(story, {"sessions": []}, "#/settings")
