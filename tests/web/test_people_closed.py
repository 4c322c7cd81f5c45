"""The first person at a node with the default configuration: the account is made in the page, its operator adds it."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.support.operator import operator_adds
from tests.support.web import Web
from tests.web.people import Place, live


def test_an_account_is_made_in_the_page_and_added_by_the_operator(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        server = place.servers[0]
        alice = await place.visit(server, "en")
        title = alice.page.get_by_role("heading", name=alice.says("join.title"))
        await expect(title).to_be_visible()
        await alice.shot("closed")
        login = alice.page.get_by_role("textbox", name=alice.says("welcome.login"), exact=True)
        await login.fill("a b")
        create = alice.page.get_by_role("button", name=alice.says("welcome.create"))
        await create.click()
        await expect(login).to_be_focused()
        await login.fill("Alice")
        await create.click()
        await expect(alice.page.get_by_role("heading", level=1)).to_have_text(alice.says("recovery.title"))
        key = await alice.page.get_by_role("status", name=alice.says("recovery.title")).inner_text()
        assert key.startswith("Alice:")
        await alice.page.get_by_role("button", name=alice.says("recovery.saved")).click()

        waits = alice.page.get_by_role("heading", name=alice.says("join.waiting", login="Alice"))
        await expect(waits).to_be_visible()
        await alice.shot("waiting-for-the-operator")
        enter = alice.page.get_by_role("button", name=alice.says("join.enter"))
        await enter.click()
        await expect(alice.page.get_by_text(alice.says("join.notYet"))).to_be_visible()
        question = alice.page.get_by_role("dialog", name=alice.says("join.otherTitle", login="Alice"))
        for answer, then in (("action.cancel", waits), ("join.other", title)):
            await alice.page.get_by_role("button", name=alice.says("join.other")).click()
            await question.get_by_role("button", name=alice.says(answer)).click()
            await expect(question).to_have_count(0)
            await expect(then).to_be_visible()
        await alice.page.reload()
        await expect(waits).to_be_visible()  # it is in the browser's store
        async with alice.page.expect_download() as started:
            await alice.page.get_by_role("button", name=alice.says("join.file")).click()
        record = (await (await started.value).path()).read_text(encoding="utf-8")
        shown = alice.page.get_by_role("status", name=alice.says("join.record"))
        assert record == await shown.inner_text() + "\n"

        assert (await operator_adds(server, record)).startswith("Alice: added\n")
        await enter.click()
        await alice.online()
        assert alice.complaints == []

    live(browser, tmp_path, story, registration={"mode": "closed"})


def test_a_login_that_somebody_else_has_got_is_waited_for_no_longer(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        server = place.servers[0]
        alice, other = await place.visit(server, "en"), await place.visit(server, "en")
        records = []
        for person in (alice, other):
            await person.page.get_by_role("textbox", name=person.says("welcome.login"), exact=True).fill("alice")
            await person.page.get_by_role("button", name=person.says("welcome.create")).click()
            await person.page.get_by_role("button", name=person.says("recovery.saved")).click()
            shown = person.page.get_by_role("status", name=person.says("join.record"))
            records.append(await shown.inner_text())
        assert records[0] != records[1]
        await operator_adds(server, records[1] + "\n")
        await alice.page.reload()  # it asks at once, and nobody has to press anything
        taken = alice.page.get_by_text(alice.says("error.USER_ALREADY_EXISTS"))
        await expect(taken).to_be_visible()
        await alice.page.get_by_role("button", name=alice.says("join.enter")).click()
        await expect(taken).to_be_visible()
        await alice.page.get_by_role("button", name=alice.says("join.other")).click()  # nothing is lost by that
        login = alice.page.get_by_role("textbox", name=alice.says("welcome.login"), exact=True)
        await expect(login).to_be_focused()
        await login.fill("alice")
        await alice.page.get_by_role("button", name=alice.says("welcome.create")).click()
        await expect(
            alice.page.get_by_role("alert").filter(has_text=alice.says("error.USER_ALREADY_EXISTS"))
        ).to_be_visible()
        await other.page.get_by_role("button", name=other.says("join.enter")).click()
        await other.online()

    live(browser, tmp_path, story, registration={"mode": "closed"})
