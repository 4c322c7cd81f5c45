"""The settings, the search, and what several tabs of one browser tell each other."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.ui import MINUTE, Ui, calls, eventually, received, sent


@pytest.mark.parametrize(
    ("locale", "title"), [("ru-RU", "Настройки"), ("en-US", "Settings"), ("de-DE", "Settings"), ("ru", "Настройки")]
)
def test_the_language_is_that_of_the_browser(ui: Ui, locale: str, title: str) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("heading", name=title)).to_be_visible()

    ui.show(story, {}, "#/settings", locale=locale)


def test_another_language_is_taken_at_once_and_kept(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Русский").check()
        await expect(page.get_by_role("heading", name="Настройки")).to_be_visible()
        await expect(page.get_by_label("Русский")).to_be_focused()
        assert await page.evaluate("document.documentElement.lang") == "ru"
        assert await page.evaluate("standIn.setting('language')") == "ru"
        await expect(page.get_by_role("navigation", name="Чаты")).to_be_visible()

    ui.show(story, {}, "#/settings")


def test_a_kept_language_beats_that_of_the_browser(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_text("Выберите чат")).to_be_visible()

    ui.show(story, {"settings": {"language": "ru"}})


ANY_RUSSIAN = "document.body.innerText.match(/[\\u0400-\\u04ff]+/g)"
ANY_ENGLISH = "document.body.innerText.match(/[A-Za-z]{3,}/g)"


@pytest.mark.parametrize("path", ["#/", "#/chat/bob", "#/settings"])
def test_no_text_of_the_other_language_is_seen(ui: Ui, path: str) -> None:
    names = {"English", "SHiNE", "alice", "bob", "node", "example"}

    async def russian(page: Page) -> None:
        await page.locator(".dialog").first.wait_for()
        assert set(await page.evaluate(ANY_ENGLISH) or []) <= names

    async def english(page: Page) -> None:
        await page.locator(".dialog").first.wait_for()
        assert set(await page.evaluate(ANY_RUSSIAN) or []) <= {"Русский"}

    chats = {"bob": [received("123"), sent("456", state="failed"), sent(None, deleted=True), sent("7", edited=True)]}
    scenario = {"chats": chats, "sessions": [], "description": "", "settings": {"recoverySaved": False}}
    ui.show(russian, scenario, path, locale="ru-RU")
    ui.show(english, scenario, path)


def test_a_theme_is_taken_at_once_and_does_not_flash_the_next_time(ui: Ui) -> None:
    async def story(page: Page) -> None:
        back = "getComputedStyle(document.body).backgroundColor"
        light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 29)"
        assert await page.evaluate(back) == light
        await page.get_by_label("Dark").check()
        assert await page.evaluate(back) == dark
        assert await page.evaluate("standIn.setting('theme')") == "dark"
        colours = await page.evaluate(
            "[...document.querySelectorAll('meta[name=theme-color]')].map((one) => one.content)"
        )
        assert colours == ["#15181d", "#15181d"]
        # The next time it is there before the page's own scripts are.
        other = await page.context.new_page()
        await other.route("**/app.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
        await other.goto(ui.url)
        assert await other.evaluate(back) == dark
        await page.get_by_label("As the system").check()
        assert await page.evaluate(back) == light
        assert await page.evaluate("localStorage.getItem('shine-theme')") is None
        await page.emulate_media(color_scheme="dark")
        assert await page.evaluate(back) == dark

    ui.show(story, {}, "#/settings")


def test_a_session_is_closed_after_a_question(ui: Ui) -> None:
    async def story(page: Page) -> None:
        rows = page.locator(".session")
        await expect(rows).to_have_count(2)
        await expect(rows.nth(0)).to_contain_text("This browser")
        await expect(rows.nth(0).get_by_role("button")).to_have_count(0)
        await rows.nth(1).get_by_role("button", name="Close").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        await expect(rows).to_have_count(2)
        await rows.nth(1).get_by_role("button", name="Close").click()
        await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        await expect(rows).to_have_count(1)
        assert await calls(page, "closeSession") == [["2"]]

    ui.show(story, {}, "#/settings")


def test_sessions_come_with_the_connection(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_text("the sessions are shown when it is back")).to_be_visible()
        await page.evaluate("standIn.setLink('online')")
        await expect(page.locator(".session")).to_have_count(2)

    ui.show(story, {"link": "offline"}, "#/settings")


def test_somebody_is_blocked_after_a_question_and_let_in_again(ui: Ui) -> None:
    async def story(page: Page) -> None:
        actions = page.get_by_role("button", name="Menu of the chat")
        for answer, expected in (("Cancel", []), ("Block", [["Bob", True]])):
            await actions.click()
            await page.get_by_role("menuitem", name="Block").click()
            await expect(page.get_by_role("dialog")).to_contain_text("Block Bob?")
            await page.get_by_role("dialog").get_by_role("button", name=answer).click()
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert await calls(page, "setBlocked") == expected
        await expect(page.get_by_text("Bob is blocked")).to_be_visible()
        await actions.click()
        await page.get_by_role("menuitem", name="Unblock").click()
        await expect(page.get_by_text("Bob is not blocked any more")).to_be_visible()
        assert await calls(page, "setBlocked") == [["Bob", True], ["Bob", False]]
        await page.evaluate("standIn.setLink('offline')")
        await actions.click()
        await expect(page.get_by_text("No connection to the server. Try again")).to_be_visible()
        await expect(page.get_by_role("menu")).to_have_count(0)

    ui.show(story, {"chats": {"Bob": [received("hi")]}}, "#/chat/bob")


def test_nobody_blocks_themselves(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("region", name="Chat with alice")).to_be_visible()
        await expect(page.get_by_role("button", name="Menu of the chat")).to_have_count(0)

    ui.show(story, {}, "#/chat/alice")


def test_the_blocked_are_listed_and_let_in_again(ui: Ui) -> None:
    async def story(page: Page) -> None:
        card = page.get_by_role("region", name="Blocked people")
        await expect(card).to_contain_text("No connection")
        await page.evaluate("standIn.setLink('online')")
        await expect(card.locator(".name")).to_have_text(["eve", "mallory"])
        await card.get_by_role("listitem").filter(has_text="eve").get_by_role("button", name="Unblock").click()
        await expect(card.locator(".name")).to_have_text(["mallory"])
        await expect(card.get_by_role("button", name="Unblock")).to_be_focused()  # of the one who has come in its place
        await card.get_by_role("button", name="Unblock").press("Enter")
        await expect(card).to_contain_text("Nobody is blocked.")
        await expect(card.get_by_role("heading")).to_be_focused()
        assert await calls(page, "setBlocked") == [["eve", False], ["mallory", False]]

    ui.show(story, {"blocked": ["eve", "mallory"], "link": "offline"}, "#/settings")


@pytest.mark.parametrize(("saved", "warning"), [(True, "You come back with"), (False, "You have not saved")])
def test_logging_out_asks_and_forgets(ui: Ui, saved: bool, warning: str) -> None:
    async def story(page: Page) -> None:
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("dialog")).to_contain_text(warning)
        await page.get_by_role("dialog").get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Welcome to SHiNE")
        assert await calls(page, "logOut") == [[]]
        assert await page.evaluate("location.hash") == "#/"
        assert await page.get_by_text("secret").count() == 0

    chats = {"bob": [received("secret")]}
    ui.show(story, {"chats": chats, "settings": {"recoverySaved": saved}}, "#/settings")


@pytest.mark.parametrize(
    ("unsent", "link", "told", "untold"),
    [
        ((0, 0), "online", [], ["will be lost", "server is not told"]),
        (
            (1, 2),
            "online",
            ["1 message was not sent and will be lost", "2 drafts will be lost"],
            ["server is not told"],
        ),
        ((2, 0), "offline", ["2 messages were not sent and will be lost", "server is not told"], ["draft"]),
    ],
)
def test_logging_out_says_what_would_be_lost(
    ui: Ui, unsent: tuple[int, int], link: str, told: list[str], untold: list[str]
) -> None:
    async def story(page: Page) -> None:
        section = page.get_by_role("region", name="Leave this browser")
        await expect(section.get_by_text("Closes this session")).to_have_count(1 if link == "online" else 0)
        await page.get_by_role("button", name="Log out").click()
        dialog = page.get_by_role("dialog")
        for text in told:
            await expect(dialog).to_contain_text(text)
        for text in untold:
            await expect(dialog).not_to_contain_text(text)
        await dialog.get_by_role("button", name="Cancel").click()
        assert await calls(page, "logOut") == []
        await page.evaluate("standIn.setLink('online')")
        await expect(section.get_by_text("Closes this session")).to_be_visible()

    messages, drafts = unsent
    ui.show(story, {"link": link, "unsent": {"messages": messages, "drafts": drafts}}, "#/settings")


def test_a_closed_session_can_be_opened_again(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.evaluate(
            "void (standIn.reconnect = () => { standIn.calls.push(['reconnect']); standIn.setProblem(null); })"
        )
        problem = page.locator(".problem")
        await expect(problem).to_be_hidden()
        await page.evaluate("standIn.setProblem('SESSION_CLOSED')")
        await expect(problem).to_contain_text("closed on another device")
        await page.get_by_role("button", name="Log in again here").click()
        await expect(problem).to_be_hidden()
        assert await calls(page, "reconnect") == [[]]
        for code, text in (
            ("STORAGE_FULL", "no space left"),
            ("FORBIDDEN", "does not allow"),
            ("NEW", "went wrong (NEW)"),
        ):
            await page.evaluate("code => standIn.setProblem(code)", code)
            await expect(problem).to_contain_text(text)
            await expect(page.get_by_role("button", name="Log in again here")).to_be_hidden()

    ui.show(story)


@pytest.mark.parametrize(("minutes", "text"), [(16, "16 min"), (119, "119 min"), (120, "2 h"), (3 * 24 * 60, "3 days")])
def test_two_clocks_that_differ_are_told_of_and_by_how_much(ui: Ui, minutes: int, text: str) -> None:
    async def story(page: Page) -> None:
        await page.evaluate("byMs => standIn.setProblem('CLOCKS_DIFFER', { byMs })", minutes * MINUTE)
        await expect(page.locator(".problem")).to_contain_text(f"of the server differ by {text}")

    ui.show(story)


# Search


def test_people_are_found_among_chats_and_on_the_server(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Find people")
        await field.fill("bo")
        names = page.get_by_role("list", name="Found people").locator(".name")
        await expect(names).to_have_text(["Jabobo", "bob", "Boris", "bo"])
        await expect(page.get_by_text("3 found")).to_be_visible()
        assert await calls(page, "search") == [["bo"]]
        await field.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Chat with Boris")).to_be_visible()
        await expect(field).to_have_value("")
        await expect(page.get_by_role("list", name="Found people")).to_be_hidden()

    ui.show(story, {"chats": {"Jabobo": [received("hi")]}, "users": ["bob", "Boris", "carol"]})


def test_enter_opens_the_first_one_and_escape_ends_the_search(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Find people")
        await field.fill("zed")
        await expect(page.get_by_text("Nobody was found")).to_be_visible()
        await field.press("Escape")
        await expect(field).to_have_value("")
        await expect(page.locator("nav .dialog", has_text="bob")).to_be_visible()
        await field.fill("ze")
        await field.press("Enter")  # before the server has answered
        await expect(page.get_by_role("region", name="Chat with Zeno")).to_be_visible()
        await field.fill("zed")
        await field.press("Enter")
        await expect(page.get_by_role("region", name="Chat with zed")).to_be_visible()
        await expect(page.get_by_text("Write the first one to zed")).to_be_visible()

    ui.show(story, {"chats": {"bob": [received("hi")]}, "users": ["Zeno"], "delay": 300})


def test_who_is_being_talked_with_may_be_searched_too(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Find people")
        await field.fill("bob")
        await field.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(field).to_have_value("")
        await expect(field).to_be_focused()
        await expect(page.get_by_role("region", name="Chat with bob")).to_be_visible()

    ui.show(story, {"chats": {"bob": [received("hi")]}}, "#/chat/bob")


def test_a_late_answer_to_an_older_search_is_dropped(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.evaluate("""() => {
            standIn.late = {};
            standIn.search = (prefix) => new Promise((resolve) => {
                standIn.late[prefix] = () => resolve([prefix + "-found"]);
            });
        }""")
        field = page.get_by_label("Find people")
        await field.fill("a")
        await eventually(page, "Boolean(standIn.late?.a)")
        await field.fill("ab")
        await eventually(page, "Boolean(standIn.late?.ab)")
        await page.evaluate("standIn.late.ab()")
        await expect(page.locator(".name", has_text="ab-found")).to_be_visible()
        await page.evaluate("standIn.late.a()")
        await page.wait_for_timeout(100)
        await expect(page.locator(".name", has_text="a-found")).to_have_count(0)

    ui.show(story)


def test_without_a_connection_only_chats_are_searched(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Find people").fill("bo")
        await expect(page.get_by_text("only your chats were searched")).to_be_visible()
        await expect(page.get_by_role("list", name="Found people").get_by_text("bob")).to_be_visible()

    ui.show(story, {"chats": {"bob": [received("hi")]}, "users": ["boris"], "link": "offline"})


def test_a_chat_that_cannot_be_opened_says_why(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".edge")).to_have_text("Nobody with this login was found.")

    ui.show(story, {"failing": {"openChat": "USER_NOT_FOUND"}}, "#/chat/nobody")


# Tabs


def test_a_setting_reaches_the_other_tabs(ui: Ui) -> None:
    async def story(page: Page) -> None:
        other = await page.context.new_page()
        await other.add_init_script("globalThis.scenario = { settings: { language: 'ru' } }")
        await other.goto(ui.url)
        await other.get_by_role("link", name="Настройки").click()
        await page.evaluate("standIn.setSetting('theme', 'dark')")
        await other.get_by_label("Тёмная").check()
        await eventually(page, "document.documentElement.dataset.theme === 'dark'")

    ui.show(story)


def test_who_leaves_in_one_tab_has_left_in_the_others(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("region", name="Chat with bob")).to_be_visible()
        await page.evaluate("standIn.account = null; standIn.histories.clear(); standIn.emit('state')")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Welcome to SHiNE")
        await page.evaluate("standIn.logIn('carol')")
        await expect(page.get_by_role("heading", level=1)).to_have_text("carol")

    chats: dict[str, Any] = {"bob": [received("hi")]}
    ui.show(story, {"chats": chats}, "#/chat/bob")
