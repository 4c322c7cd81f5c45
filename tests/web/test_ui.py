"""What a person sees and does on the chat page; the core behind it is a stand-in."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.ui import DAY, MINUTE, Ui, calls, eventually, hear, now_ms, received, sent

STATES = ["waiting", "accepted", "delivered", "failed", "refused"]

# Accounts


def test_a_new_account_is_shown_its_recovery_key_first(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("heading", level=1)).to_have_text("Welcome to SHiNE")
        await expect(page.get_by_text("node.example — A server for tests")).to_be_visible()
        await expect(page.get_by_label("Invitation")).to_be_hidden()
        await page.get_by_label("Login").fill("alice")
        await page.get_by_label("Login").press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Recovery key")
        assert await calls(page, "register") == [["alice", None]]
        key = await page.evaluate("standIn.recoveryKey()")
        await expect(page.locator(".recovery-key")).to_have_text(key)
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save as a file").click()
        download = await saving.value
        assert download.suggested_filename == "shine-alice-recovery-key.txt"
        assert key in (await download.path()).read_text(encoding="utf-8")
        await page.get_by_role("button", name="Copy").click()
        await expect(page.locator(".note")).to_have_text("The recovery key is copied")
        assert await page.evaluate("navigator.clipboard.readText()") == key
        await page.get_by_role("button", name="I have saved it").click()
        await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        await expect(page.locator(".nudge")).to_be_hidden()
        assert await page.evaluate("standIn.setting('recoverySaved')") is True

    ui.show(story, {"login": None}, permissions=["clipboard-read", "clipboard-write"])


def test_who_puts_the_key_off_is_reminded_until_it_is_saved(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Login").fill("alice")
        await page.get_by_role("button", name="Create account").click()
        await page.get_by_role("button", name="Later").click()
        await page.get_by_role("link", name="Save your recovery key").click()
        await page.get_by_role("button", name="Show the key").click()
        await expect(page.locator(".recovery-key")).to_be_focused()
        await page.get_by_role("button", name="Hide").click()
        await expect(page.locator(".recovery-key")).to_have_count(0)
        await expect(page.locator(".nudge")).to_be_visible()
        await page.get_by_role("button", name="Show the key").click()
        await page.get_by_role("button", name="I have saved it").click()
        await expect(page.locator(".nudge")).to_be_hidden()
        await page.get_by_role("button", name="Show the key").click()
        await expect(page.get_by_role("button", name="I have saved it")).to_have_count(0)

    ui.show(story, {"login": None})


def test_a_login_that_is_none_never_leaves_the_page(ui: Ui) -> None:
    async def story(page: Page) -> None:
        for login in ("", "a b", "имя", "-a"):
            await page.get_by_label("Login").fill(login)
            await page.get_by_label("Login").press("Enter")
            await expect(page.get_by_role("alert").filter(has_text="A login has 1 to 30")).to_be_visible()
            await expect(page.get_by_label("Login")).to_be_focused()
        assert await calls(page, "register") == []

    ui.show(story, {"login": None})


def test_a_server_with_invitations_asks_for_one(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Login").fill("alice")
        await expect(page.get_by_label("Invitation")).to_be_visible()
        await page.get_by_role("button", name="Create account").click()
        await expect(page.get_by_text("This server asks for an invitation")).to_be_visible()
        await expect(page.get_by_label("Invitation")).to_be_focused()
        await page.get_by_label("Invitation").fill("wrong")
        await page.get_by_label("Invitation").press("Enter")
        await expect(page.get_by_text("The server takes no new account this way")).to_be_visible()
        await page.get_by_label("Invitation").fill("welcome")
        await page.get_by_label("Invitation").press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Recovery key")
        assert await calls(page, "register") == [["alice", "wrong"], ["alice", "welcome"]]

    ui.show(story, {"login": None, "registration": "token"})


def test_a_closed_server_offers_what_its_operator_adds_and_the_way_back(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("heading", name="Make an account for this server's operator")).to_be_visible()
        await expect(page.locator("#login")).to_be_hidden()
        await page.get_by_label("Recovery key").fill("nonsense")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_text("This is not a whole recovery key")).to_be_visible()
        await page.get_by_label("Recovery key").fill("alice A7QK 2MZP\n")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        await expect(page.locator(".nudge")).to_be_hidden()

    ui.show(story, {"login": None, "registration": "closed"})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("USER_ALREADY_EXISTS", "This login is taken"),
        ("OFFLINE", "No connection to the server"),
        ("SOMETHING_NEW", "Something went wrong (SOMETHING_NEW)"),
    ],
)
def test_what_goes_wrong_is_said_beside_the_button(ui: Ui, code: str, text: str) -> None:
    async def story(page: Page) -> None:
        await page.get_by_label("Login").fill("alice")
        await page.get_by_label("Login").press("Enter")
        await expect(page.get_by_role("alert").filter(has_text=text)).to_be_visible()
        await expect(page.get_by_role("button", name="Create account")).to_be_enabled()

    ui.show(story, {"login": None, "failing": {"register": code}})


def test_without_https_the_page_says_what_to_do(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("heading", level=1)).to_have_text("This page needs https")
        address = await page.evaluate("`https://${location.host}/`")
        await expect(page.get_by_role("link")).to_have_attribute("href", address)
        await expect(page.get_by_text("tlsCert and tlsKey")).to_be_visible()
        await page.get_by_role("button", name="Русский").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Этой странице нужен https")

    ui.show(story, {"secure": False})


def test_a_browser_that_keeps_nothing_is_told_so(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.get_by_role("heading", level=1)).to_have_text("The page cannot start")
        await expect(page.get_by_role("button", name="Load again")).to_be_visible()

    ui.show(story, {"openFails": "NO_STORE"})


# The ticks of PROTOCOL.md §8.3

TICKS = {
    ("waiting", "en-GB"): "Waiting to be sent",
    ("accepted", "en-GB"): "Accepted by your server",
    ("delivered", "en-GB"): "Delivered",
    ("read", "en-GB"): "Read",
    ("waiting", "ru-RU"): "Ждёт отправки",
    ("accepted", "ru-RU"): "Принято вашим сервером",
    ("delivered", "ru-RU"): "Доставлено",
    ("read", "ru-RU"): "Прочитано",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "ru-RU"])
def test_the_ticks(ui: Ui, locale: str, theme: str) -> None:
    async def story(page: Page) -> None:
        look = """(node) => ({ lines: node.querySelector("path").getAttribute("d").split("M").length - 1,
                               colour: getComputedStyle(node).color, text: node.textContent, title: node.title })"""
        seen = {}
        for state in ("waiting", "accepted", "delivered", "read"):
            tick = page.locator(".message", has_text=f"message {state}").locator(".tick")
            await expect(tick).to_be_visible()
            seen[state] = await tick.evaluate(look)
            assert seen[state]["text"] == seen[state]["title"] == TICKS[state, locale]
        light, grey = "rgb(255, 255, 255)", "rgb(158, 167, 183)"
        assert (seen["accepted"]["lines"], seen["accepted"]["colour"]) == (1, grey)
        assert (seen["delivered"]["lines"], seen["delivered"]["colour"]) == (1, light)
        assert (seen["read"]["lines"], seen["read"]["colour"]) == (2, light)
        failed = page.locator(".message", has_text="message failed")
        await expect(failed.locator(".tick")).to_have_count(0)
        await expect(failed.locator(".failed-sign")).to_have_text("!")
        red = await failed.locator(".failed-sign").evaluate("node => getComputedStyle(node).backgroundColor")
        assert red == "rgb(179, 32, 26)"
        text = {"en-GB": "Message not delivered", "ru-RU": "Сообщение не доставлено"}[locale]
        await expect(failed.locator(".trouble-text")).to_have_text(text)
        await expect(page.locator(".message.in .tick")).to_have_count(0)

    states = ["waiting", "accepted", "delivered", "failed"]
    messages = [sent(f"message {state}", state=state) for state in states]
    messages += [sent("message read", state="accepted", read=True), received("hello")]
    ui.show(story, {"chats": {"bob": messages}}, "#/chat/bob", locale=locale, color_scheme=theme)


@pytest.mark.parametrize(
    ("read", "expected"), [(False, STATES), (True, ["waiting", "read", "read", "read", "refused"])]
)
def test_a_read_receipt_beats_the_delivery_state(ui: Ui, read: bool, expected: list[str]) -> None:
    async def story(page: Page) -> list[str]:
        found: list[str] = await page.evaluate(
            """async ([states, read]) => {
                const { tickOf } = await import("./ui/ticks.js");
                return states.map((state) => tickOf({ out: true, deleted: false, read, state }));
            }""",
            [STATES, read],
        )
        return found

    assert ui.show(story) == expected


def test_a_message_that_was_not_encrypted_says_so(ui: Ui) -> None:
    async def story(page: Page) -> None:
        feet = page.locator(".message .foot")
        await expect(feet.nth(0)).to_contain_text("not encrypted")
        await expect(feet.nth(1)).not_to_contain_text("not encrypted")

    ui.show(story, {"chats": {"bob": [received("postcard", plain=True), received("letter")]}}, "#/chat/bob")


def test_a_state_that_changes_is_seen(ui: Ui) -> None:
    async def story(page: Page) -> None:
        key = await page.evaluate("standIn.messages('bob')[0].key")
        for change, tick in (
            ({"state": "delivered"}, ".tick-delivered"),
            ({"read": True}, ".tick-read"),
            ({"read": False, "state": "failed"}, ".failed-sign"),
        ):
            await page.evaluate("([key, change]) => standIn.set('bob', key, change)", [key, change])
            await expect(page.locator(f".message {tick}")).to_be_visible()
            await expect(page.locator(f".dialog {tick}")).to_be_visible()
        await page.locator(".message").get_by_role("button", name="Send again").click()
        await expect(page.locator(".message .tick-delivered")).to_be_visible()
        assert await calls(page, "resend") == [[key]]

    ui.show(story, {"chats": {"bob": [sent("hello", state="accepted")]}}, "#/chat/bob")


def test_what_the_server_refuses_says_why(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".trouble-text")).to_have_text("Not sent. Nobody with this login was found.")

    refused = sent("hello", state="refused", problem="USER_NOT_FOUND")
    ui.show(story, {"chats": {"bob": [refused]}}, "#/chat/bob")


@pytest.mark.parametrize(
    ("refused", "text", "asks"),
    [
        ("message", "Not sent. The message is too long.", True),
        ("edit", "The edit was not sent. The message is too long.", True),
        ("tombstone", "Not deleted. The message is too long.", False),
    ],
)
def test_what_was_refused_is_sent_again_or_discarded(ui: Ui, refused: str, text: str, asks: bool) -> None:
    async def story(page: Page) -> None:
        key = await page.evaluate("standIn.messages('bob')[0].key")
        message = page.locator(".message")
        await expect(message.locator(".trouble-text")).to_have_text(text)
        await message.get_by_role("button", name="Send again").click()
        await expect(message.locator(".trouble")).to_have_count(0)
        assert await calls(page, "resend") == [[key]]
        await eventually(page, "standIn.messages('bob')[0].state === 'delivered'")
        await page.evaluate("key => standIn.set('bob', key, { state: 'refused' })", key)
        await message.click(button="right")
        await expect(page.get_by_role("menuitem", name="Send again")).to_be_visible()
        await page.get_by_role("menuitem", name="Discard").click()
        if asks:
            await page.get_by_role("button", name="Cancel").click()
            assert await calls(page, "discard") == []
            await message.get_by_role("button", name="Discard").click()
            await page.get_by_role("dialog").get_by_role("button", name="Discard").click()
        await expect(message.locator(".trouble")).to_have_count(0)
        assert await calls(page, "discard") == [[key]]

    one = sent("hello", read=True, state="refused", problem="TOO_LARGE", refused=refused)
    ui.show(story, {"chats": {"bob": [one]}}, "#/chat/bob")


# Writing


def test_the_draft_stays_until_the_message_is_kept(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Message to bob")
        await page.keyboard.type("hello")
        await eventually(page, "standIn.draft('bob') === 'hello'")
        await page.evaluate(
            """() => {
                standIn.send = (peer, text) => new Promise((resolve, reject) => {
                    globalThis.keep = () => { standIn.setDraft(peer, ""); resolve(); };
                    globalThis.fail = () => reject(Object.assign(new Error("full"), { code: "NO_STORE" }));
                });
            }"""
        )
        await page.keyboard.press("Enter")
        await expect(field).to_have_value("")
        await page.keyboard.type("more")
        await page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
        await page.wait_for_timeout(600)  # more than after which a draft is kept
        assert await page.evaluate("standIn.draft('bob')") == "hello"
        await page.evaluate("keep()")
        await eventually(page, "standIn.draft('bob') === 'more'")
        await expect(field).to_have_value("more")
        await page.keyboard.press("Enter")
        await page.keyboard.type("and more")
        await page.evaluate("fail()")
        await expect(page.locator(".note")).to_contain_text("storage for this page does not work")
        await expect(field).to_have_value("more\nand more")
        await eventually(page, "standIn.draft('bob') === 'more\\nand more'")

    ui.show(story, {"chats": {"bob": []}}, "#/chat/bob")


def test_an_edit_stays_in_the_field_until_it_is_kept(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Message to bob")
        await page.keyboard.press("ArrowUp")
        await page.evaluate(
            """() => {
                standIn.edit = (message, text) => {
                    standIn.calls.push(["edit", message.key, text]);
                    return new Promise((resolve, reject) => {
                        globalThis.keep = resolve;
                        globalThis.fail = () => reject(Object.assign(new Error("full"), { code: "NO_STORE" }));
                    });
                };
            }"""
        )
        await field.fill("hello, bob")
        await field.press("Enter")
        await field.press("Enter")  # it is on its way already
        await expect(field).to_have_value("hello, bob")
        await page.evaluate("fail()")
        await expect(page.locator(".note")).to_contain_text("storage for this page does not work")
        await expect(page.locator(".edit-bar")).to_be_visible()
        await expect(field).to_have_value("hello, bob")
        await field.press("Enter")
        await page.evaluate("keep()")
        await expect(page.locator(".edit-bar")).to_be_hidden()
        await expect(field).to_have_value("")
        assert [text for _, text in await calls(page, "edit")] == ["hello, bob", "hello, bob"]

    ui.show(story, {"chats": {"bob": [sent("hello")]}}, "#/chat/bob")


def test_a_message_is_sent_edited_and_deleted_for_both(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Message to bob")
        await expect(field).to_be_focused()
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two ")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message .text")).to_have_text(["one\ntwo"])
        assert await calls(page, "send") == [["bob", "one\ntwo"]]
        await expect(field).to_have_value("")
        await field.press("Enter")
        await page.keyboard.type("a draft")
        await page.locator(".message").hover()
        await page.get_by_role("button", name="Actions").click()
        await page.get_by_role("menuitem", name="Edit").click()
        await expect(field).to_have_value("one\ntwo")
        await field.fill("three")
        await field.press("Enter")
        await expect(page.locator(".message .text")).to_have_text(["three"])
        await expect(page.locator(".message .edited")).to_have_text("edited")
        await expect(field).to_have_value("a draft")
        await page.locator(".message").click(button="right")
        await page.get_by_role("menuitem", name="Delete for both").click()
        await expect(page.get_by_role("dialog")).to_contain_text("disappear for you and for bob")
        await page.get_by_role("button", name="Cancel").click()
        assert await calls(page, "remove") == []
        await page.locator(".message").click(button="right")
        await page.get_by_role("menuitem", name="Delete for both").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.locator(".message .text")).to_have_text(["Message deleted"])
        assert len(await calls(page, "remove")) == 1
        assert len(await calls(page, "send")) == 1

    ui.show(story, {"chats": {"bob": []}}, "#/chat/bob")


def test_what_is_not_ones_own_can_be_copied_and_nothing_else(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.locator(".message.in").nth(0).click(button="right")
        await expect(page.get_by_role("menuitem")).to_have_text(["Copy text"])
        await page.get_by_role("menuitem").click()
        assert await page.evaluate("navigator.clipboard.readText()") == "<i>from bob</i>"
        await expect(page.locator(".message.in").nth(1).locator(".more")).to_have_count(0)

    messages = [received("<i>from bob</i>"), received(None, problem="bad-signature")]
    ui.show(story, {"chats": {"bob": messages}}, "#/chat/bob", permissions=["clipboard-read", "clipboard-write"])


def test_what_is_written_without_a_connection_waits_in_sight(ui: Ui) -> None:
    async def story(page: Page) -> None:
        status = page.locator(".sidebar .status")
        await expect(status).to_have_text("Online")
        await page.evaluate("standIn.setLink('offline')")
        await expect(status).to_contain_text("No connection since")
        await expect(page.locator(".chat .status")).to_contain_text("No connection since")
        await page.evaluate("standIn.setLink('connecting')")
        await expect(status).to_contain_text("No connection since")
        await page.keyboard.type("later")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message .tick-waiting")).to_be_visible()
        await expect(page.locator(".dialog .tick-waiting")).to_be_visible()
        await page.evaluate("standIn.setLink('online')")
        await expect(status).to_have_text("Online")
        await expect(page.locator(".chat .status")).to_have_text("End-to-end encrypted")

    ui.show(story, {"chats": {"bob": []}}, "#/chat/bob")


def test_a_text_that_cannot_be_sent_is_not_lost(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.keyboard.type("hello")
        await page.keyboard.press("Enter")
        await expect(page.locator(".note")).to_have_text("The message is too long.")
        await expect(page.get_by_label("Message to bob")).to_have_value("hello")

    ui.show(story, {"chats": {"bob": []}, "failing": {"send": "TOO_LARGE"}}, "#/chat/bob")


def test_a_draft_is_kept_and_follows_the_other_tab(ui: Ui) -> None:
    async def story(page: Page) -> None:
        field = page.get_by_label("Message to bob")
        await page.keyboard.type("half a thought")
        await page.get_by_role("link", name="carol").click()
        await expect(page.get_by_label("Message to carol")).to_be_focused()
        await expect(page.locator(".dialog", has_text="bob")).to_contain_text("Draft: half a thought")
        await page.get_by_role("link", name="bob").click()
        await expect(field).to_have_value("half a thought")
        await page.evaluate("standIn.setDraft('bob', 'from another tab')")
        await expect(field).to_have_value("from another tab")
        await field.fill("mine")
        await page.evaluate("standIn.setDraft('bob', 'theirs')")
        await page.wait_for_timeout(100)
        await expect(field).to_have_value("mine")

    chats: dict[str, Any] = {"bob": [received("hi")], "carol": [received("hi")]}
    ui.show(story, {"chats": chats}, "#/chat/bob")


# Reading


def test_a_message_is_read_when_it_is_really_seen(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.evaluate("document.hasFocus = () => false")
        await page.get_by_role("link", name="bob").click()
        await expect(page.locator(".message").first).to_be_visible()
        await page.wait_for_timeout(300)
        assert await page.evaluate("standIn.reads") == []
        await page.evaluate("""() => {
            document.hasFocus = () => true;
            Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
            dispatchEvent(new Event("focus"));
        }""")
        await page.wait_for_timeout(200)
        assert await page.evaluate("standIn.reads") == []
        await page.evaluate("delete document.visibilityState; document.dispatchEvent(new Event('visibilitychange'))")
        await eventually(page, "standIn.reads.length > 0")
        # What is below the edge of the screen has not been seen.
        texts = await page.evaluate(
            "standIn.histories.get('bob').filter((one) => !one.read && !one.out).map((one) => one.text.slice(0, 2))"
        )
        assert len(texts) > 5
        assert texts[-1] == "39"
        before = await page.evaluate("standIn.reads.at(-1)[2]")
        await page.locator(".scroller").evaluate("node => { node.scrollTop = node.scrollHeight; }")
        await eventually(page, "standIn.dialogs()[0].unread === 0")
        assert await page.evaluate("standIn.reads.at(-1)[2]") > before
        times = await page.evaluate("standIn.reads.map(([, , ms]) => ms)")
        assert times == sorted(set(times)), "each receipt is for a newer message than the last one"

    messages = [received(f"{at} " + "word " * 40, (100 - at) * MINUTE, read=False) for at in range(40)]
    messages = [received("before", DAY), *messages]
    ui.show(story, {"chats": {"bob": messages}})


def test_what_is_not_proven_is_not_read(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await page.get_by_role("link", name="bob").click()
        await expect(page.locator(".message")).to_have_count(5)
        await eventually(page, "standIn.reads.length > 0")
        await page.wait_for_timeout(300)
        keys = await page.evaluate(
            "standIn.reads.map(([, key]) => standIn.histories.get('bob').findIndex((m) => m.key === key))"
        )
        assert keys == [2], "the newest that is proven, though its text cannot be shown, and no other"

    problems = ("sealed-for-another-key", "not-text", "bad-signature", "OFFLINE")
    wrong = [
        received(None, at * MINUTE, read=False, problem=problem)
        for at, problem in zip((4, 3, 2, 1), problems, strict=True)
    ]
    ui.show(story, {"chats": {"bob": [received("shown", DAY, read=False), *wrong]}})


@pytest.mark.parametrize("delay", [0, 200])
def test_the_first_unread_message_is_marked_and_in_sight(ui: Ui, delay: int) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".unread")).to_have_text("New messages")
        await expect(page.locator(".unread")).to_be_in_viewport()
        await expect(page.get_by_text("message 80", exact=True)).to_be_visible()
        await expect(page.get_by_role("button", name="To the newest message")).to_be_visible()
        assert await page.evaluate("standIn.dialogs()[0].unread") > 50, "what was not seen is not read"
        await page.get_by_role("button", name="To the newest message").click()
        await eventually(page, "document.querySelector('.scroller').scrollTop > 0")
        await expect(page.locator(".message").last).to_be_in_viewport()
        await expect(page.locator(".message").last).to_be_focused()

    ui.show(story, {"long": {"bob": {"count": 180, "unread": 100}}, "page": 50, "delay": delay}, "#/chat/bob")


def test_news_are_counted_said_and_do_not_move_what_is_being_read(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message").last).to_be_in_viewport()
        scroller = page.locator(".scroller")
        await scroller.evaluate("node => { node.scrollTop = node.scrollHeight / 2; }")
        await page.wait_for_timeout(200)
        before = await scroller.evaluate("node => node.scrollTop")
        await hear(page)
        await page.evaluate("standIn.add('bob', { text: 'news from bob' })")
        await page.evaluate("standIn.add('carol', { text: 'news from carol' })")
        await expect(page.get_by_role("button", name="To 1 new message")).to_be_visible()
        assert abs(await scroller.evaluate("node => node.scrollTop") - before) < 2
        said = page.locator("[aria-live=polite]")
        await eventually(page, "heard.includes('carol: news from carol')")
        await expect(said).to_have_text("", timeout=30_000)
        await expect(page.locator(".dialog", has_text="carol").locator(".badge")).to_contain_text("1 unread message")
        assert await page.title() == "(2) SHiNE"
        await page.get_by_role("button", name="To 1 new message").click()
        await eventually(page, "document.title === '(1) SHiNE'")
        await page.evaluate("standIn.add('bob', { text: 'and more' })")
        await expect(page.locator(".message", has_text="and more")).to_be_in_viewport()

    chats: dict[str, Any] = {"carol": [received("hi", DAY)]}
    ui.show(story, {"long": {"bob": {"count": 60}}, "chats": chats, "page": 100}, "#/chat/bob")


def test_what_comes_while_nobody_looks_is_marked(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".message")).to_have_count(1)
        await page.evaluate("standIn.add('bob', { text: 'seen' })")
        await expect(page.locator(".message")).to_have_count(2)
        await expect(page.locator(".unread")).to_have_count(0)
        await eventually(page, "standIn.dialogs()[0].unread === 0")
        await page.evaluate("document.hasFocus = () => false")
        for text in ("one", "two"):
            await page.evaluate("text => standIn.add('bob', { text })", text)
        await expect(page.locator(".unread + .message .text")).to_have_text("one")
        await page.evaluate("document.hasFocus = () => true; dispatchEvent(new Event('focus'))")
        await eventually(page, "standIn.dialogs()[0].unread === 0")
        await expect(page.locator(".unread + .message .text")).to_have_text("one")
        await page.evaluate("document.hasFocus = () => false")
        await page.evaluate("standIn.add('bob', { text: 'three' })")
        await expect(page.locator(".unread + .message .text")).to_have_text("three")

    ui.show(story, {"chats": {"bob": [received("hi")]}}, "#/chat/bob")


def test_days_are_separated(ui: Ui) -> None:
    async def story(page: Page) -> None:
        await expect(page.locator(".day")).to_have_count(4)
        labels = await page.locator(".day").all_text_contents()
        assert labels[-2:] == ["Yesterday", "Today"]
        assert labels[0] == "1 January 1970"

    messages = [
        received("first", now_ms() - 3 * 3600_000),
        received("old", 3 * DAY),
        received("then", DAY),
        received("now", 0),
    ]
    ui.show(story, {"chats": {"bob": messages}}, "#/chat/bob", timezone_id="UTC")
