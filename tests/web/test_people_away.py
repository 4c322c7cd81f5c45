"""People who come and go, with real nodes and a real browser: without their server, in two tabs, in another browser."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.support.web import Web
from tests.web.people import Person, Place, live
from tests.web.ui import PHONE

OFTEN = {"scheduleSeconds": [0, *range(1, 28, 2), 600], "workerIntervalMs": 50}


def test_without_its_server_the_page_goes_on_and_later_sends_what_was_written(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice, bob = await place.friends()
        await alice.find("bob")
        await alice.ticked(await alice.write("bob", "before"), "delivered")
        await alice.kept()
        await alice.switch_off()
        waiting = await alice.write("bob", "written without a connection")
        await alice.ticked(waiting, "waiting")
        await alice.shot("waiting")
        await alice.reload()
        await alice.ticked(alice.message("bob", "written without a connection"), "waiting")
        await alice.ticked(alice.message("bob", "before"), "delivered")
        await alice.field("bob").fill("half a sen")

        await bob.enter("Alice")
        answer = await bob.write("Alice", "where are you?")
        await bob.ticked(answer, "accepted")
        await alice.server.start()
        await alice.online()
        await alice.ticked(alice.message("bob", "written without a connection"), "read")
        await expect(alice.message("bob", "where are you?")).to_be_visible()
        await expect(alice.field("bob")).to_have_value("half a sen")
        await expect(bob.messages("Alice")).to_have_count(3)
        await bob.ticked(answer, "read")
        await alice.shot("back")

    live(browser, tmp_path, story, delivery=OFTEN)


def test_two_tabs_are_one_person(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice, bob = await place.friends()
        await alice.find("bob")
        await alice.ticked(await alice.write("bob", "from the first tab"), "delivered")
        first, second = alice.page, await alice.tab()
        await alice.online()
        await alice.enter("bob")
        await expect(alice.message("bob", "from the first tab")).to_be_visible()
        await alice.write("bob", "from the second tab")
        await alice.field("bob").fill("a draft of both")
        await alice.shot("second-tab")
        alice.page = first
        await expect(alice.message("bob", "from the second tab")).to_be_visible()
        await alice.leave()
        await expect(alice.dialog("bob")).to_contain_text("a draft of both")
        await alice.shot("draft-in-first-tab")

        alice.page = second
        await alice.leave()
        await bob.enter("Alice")
        await bob.write("Alice", "seen in either tab")
        for alice.page in (first, second):
            await expect(alice.dialog("bob")).to_contain_text("1 unread message")
        await alice.enter("bob")  # in the second one
        alice.page = first
        await expect(alice.dialog("bob")).not_to_contain_text("unread")
        await first.close()  # the one that has sent for both
        alice.page = second
        await alice.ticked(await alice.write("bob", "and now there is one"), "read")
        await expect(bob.messages("Alice")).to_have_count(4)

    live(browser, tmp_path, story)


def test_the_recovery_key_brings_everything_into_another_browser(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        one, two = place.servers
        alice = await place.visit(one, "en")
        key = await alice.register("Alice")
        bob = await place.visit(two, "ru")
        await bob.register("bob")
        await alice.find("bob")
        await alice.ticked(await alice.write("bob", "from the first browser"), "delivered")

        phone = await place.visit(one, "ru", **PHONE)
        await phone.page.get_by_role("textbox", name="Ключ восстановления").fill(key[:-3])
        await phone.page.get_by_role("button", name="Войти").click()
        await expect(phone.page.get_by_text("Это не весь ключ восстановления")).to_be_visible()
        await phone.shot("wrong-key-ru")
        await phone.recover(key.lower().replace("-", " "))
        await phone.shot("phone-chats-ru")
        await phone.enter("bob")
        await phone.ticked(phone.message("bob", "from the first browser"), "delivered")
        await phone.field("bob").fill("с телефона")
        await phone.page.get_by_role("button", name="Отправить").click()
        await phone.ticked(phone.message("bob", "с телефона"), "delivered")
        await phone.shot("phone-chat-ru")
        await alice.ticked(alice.message("bob", "с телефона"), "delivered")
        await bob.enter("Alice")
        await phone.ticked(phone.message("bob", "с телефона"), "read")

        await alice.page.get_by_role("link", name="Settings").click()
        sessions = alice.page.get_by_role("region", name="Sessions")
        await expect(sessions.get_by_role("listitem")).to_have_count(2)
        await alice.shot("sessions")
        await sessions.get_by_role("button", name="Close").click()
        await alice.page.get_by_role("dialog").get_by_role("button", name="Close").click()
        await expect(sessions.get_by_role("listitem")).to_have_count(1)
        await phone.page.get_by_role("link", name="Назад к чатам").click()
        await expect(phone.page.get_by_text("Этот сеанс закрыт с другого устройства.")).to_be_visible()
        await phone.shot("session-closed-ru")

    live(browser, tmp_path, story)


def test_language_and_theme_are_chosen_and_kept(browser: Web, tmp_path: Path) -> None:
    async def look(alice: Person, language: str) -> None:
        alice.language = language
        await expect(alice.page.locator("html")).to_have_attribute("lang", language)
        await expect(alice.page.get_by_role("heading", name=alice.says("settings.title"))).to_be_visible()
        await alice.online()

    async def story(place: Place) -> None:
        alice = await place.visit(place.servers[0], "en")
        await alice.page.get_by_role("button", name="Русский").click()
        await expect(alice.page.get_by_role("heading", level=1)).to_have_text("Добро пожаловать в SHiNE")
        alice.language = "ru"
        await alice.register("Alice")
        await alice.find("alice")  # notes of one's own
        await alice.ticked(await alice.write("alice", "запомнить"), "delivered")
        await alice.page.get_by_role("link", name="Настройки").click()
        await look(alice, "ru")
        await alice.shot("settings-ru")
        await alice.page.get_by_role("radio", name="English").check()
        await look(alice, "en")
        await alice.page.get_by_role("radio", name="Dark").check()
        await alice.shot("settings-dark-en")
        await alice.reload()
        await look(alice, "en")
        await expect(alice.page.get_by_role("radio", name="Dark")).to_be_checked()
        await alice.enter("Alice")
        await alice.shot("dark-en")

    live(browser, tmp_path, story)
