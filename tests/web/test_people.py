"""Two people with two real nodes in a real browser: they register, talk both ways, and see what became of a message."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.support.web import Web
from tests.web.people import Place, live

SCHEDULE = [0, 8]
"""When a message is tried again, seconds: long enough to see that it waits, short enough to see that it has failed."""


def test_two_people_register_and_talk_both_ways(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        one, two = place.servers
        alice = await place.visit(one, "en")
        await expect(alice.page.get_by_role("heading", level=1)).to_have_text("Welcome to SHiNE")
        await expect(alice.page.get_by_text("server1", exact=True)).to_be_visible()
        await alice.shot("welcome-en")
        bob = await place.visit(two, "ru")
        await expect(bob.page.get_by_role("heading", level=1)).to_have_text("Добро пожаловать в SHiNE")
        await bob.shot("welcome-ru")

        key = await alice.register("Alice")
        assert key.startswith("Alice:")
        await bob.register("bob")
        await expect(alice.page.get_by_role("heading", level=1)).to_have_text("Alice")
        await expect(alice.page.get_by_text("Choose a chat")).to_be_visible()
        await alice.shot("no-chats-en")
        await bob.shot("no-chats-ru")

        await alice.find("bob")  # who is known at the other server only
        first = await alice.write("bob", "Hello Bob 👋")
        await alice.ticked(first, "delivered")
        await alice.shot("delivered")
        await expect(bob.dialog("Alice")).to_contain_text("Hello Bob 👋")
        await expect(bob.dialog("Alice")).to_contain_text("1 непрочитанное сообщение")
        await expect(bob.page).to_have_title("(1) SHiNE")
        await bob.shot("unread-ru")

        await bob.enter("Alice")
        await expect(bob.message("Alice", "Hello Bob 👋")).to_be_visible()
        await alice.ticked(first, "read")
        await expect(bob.page).to_have_title("SHiNE")
        answer = await bob.write("Alice", "Привет, Алиса! Как дела?")
        await expect(alice.message("bob", "Привет, Алиса! Как дела?")).to_be_visible()
        await bob.ticked(answer, "read")  # her chat is open
        await alice.shot("read-en")
        await bob.shot("read-ru")

    live(browser, tmp_path, story)


def test_a_message_is_edited_and_another_one_deleted(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice, bob = await place.friends()
        await alice.find("bob")
        kept = await alice.write("bob", "see you at sevn")
        gone = await alice.write("bob", "this is for somebody else")
        await alice.ticked(gone, "delivered")
        await bob.enter("Alice")
        await expect(bob.messages("Alice")).to_have_count(2)
        await alice.ticked(gone, "read")

        await alice.choose(kept, "message.edit")
        await expect(alice.page.get_by_text("Editing", exact=True)).to_be_visible()
        await expect(alice.field("bob")).to_have_value("see you at sevn")
        await alice.shot("editing")
        await alice.field("bob").fill("see you at seven")
        await alice.page.get_by_role("button", name="Save the edit").click()
        for person, peer in ((alice, "bob"), (bob, "Alice")):
            edited = person.message(peer, "see you at seven")
            await expect(edited.get_by_text(person.says("message.edited"), exact=True)).to_be_visible()
            await expect(person.message(peer, "sevn")).to_have_count(0)
        await bob.shot("edited")

        await alice.choose(gone, "message.delete")
        question = alice.page.get_by_role("dialog", name="Delete the message for both?")
        await expect(question).to_be_visible()
        await alice.shot("delete-question")
        await question.get_by_role("button", name="Delete").click()
        for person, peer in ((alice, "bob"), (bob, "Alice")):
            await expect(person.message(peer, person.says("message.deleted"))).to_be_visible()
            await expect(person.page.get_by_role("list").filter(has_text="somebody else")).to_have_count(0)
        await expect(bob.dialog("Alice")).to_contain_text("Сообщение удалено")
        await alice.shot("deleted-en")
        await bob.shot("deleted-ru")

    live(browser, tmp_path, story)


def test_a_message_that_cannot_be_delivered_fails_before_ones_eyes(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice, bob = await place.friends()
        await alice.find("bob")
        await alice.ticked(await alice.write("bob", "are you there?"), "delivered")
        await bob.switch_off()
        await bob.shot("no-connection-ru")

        message = await alice.write("bob", "and now?")
        await alice.ticked(message, "accepted")
        await alice.shot("accepted")
        await expect(message.get_by_text("Message not delivered")).to_be_visible()
        await expect(message.locator(".tick")).to_have_count(0)
        await expect(alice.dialog("bob")).to_contain_text("Message not delivered")
        await alice.shot("failed-en")

        await bob.server.start()
        await bob.online()
        await message.get_by_role("button", name="Send again").click()
        await alice.ticked(message, "delivered")
        await expect(message.get_by_text("Message not delivered")).to_have_count(0)
        await bob.enter("Alice")
        await alice.ticked(message, "read")
        await alice.shot("sent-again")

    live(browser, tmp_path, story, delivery={"scheduleSeconds": SCHEDULE, "workerIntervalMs": 50})
