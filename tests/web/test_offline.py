"""The service worker: the page opens without its server, and a new version takes the place of the old one whole."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.support.web import Web
from tests.web.serving import CORE, serve
from tests.web.stamp import WORKER, list_files
from tests.web.ui import eventually

CACHES = """async () => {
    const found = {};
    for (const name of await caches.keys()) {
        found[name] = (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname);
    }
    return found;
}"""
READY = "navigator.serviceWorker.controller?.state === 'activated'"


def test_the_page_opens_without_its_server_and_a_new_version_replaces_it(browser: Web) -> None:
    async def story(page: Page) -> None:
        await page.goto(url)
        await eventually(page, READY)
        kept = await page.evaluate(CACHES)
        assert len(kept) == 1
        (first,) = kept
        assert sorted(kept[first]) == sorted(["/", *(f"/{name}" for name in list_files())])

        files.down = True
        await page.reload()
        await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        await page.goto(f"{url}#/settings")
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        assert await page.evaluate("fetch('nothing').then((answer) => answer.status)") == 404, (
            "other paths go to the server"
        )
        files.down = False

        # A new version whose files are not all there changes nothing.
        old_worker = files.content[WORKER]
        version = re.compile(rb'(const VERSION = )"[^"]*"')
        files.content[WORKER] = version.sub(rb'\1"broken"', old_worker)
        style = files.content.pop("style.css")
        states = """async () => {
            const registration = await navigator.serviceWorker.ready;
            await registration.update();
            const worker = registration.installing ?? registration.waiting;
            if (worker) await new Promise((resolve) => {
                worker.onstatechange = () => ["activated", "redundant"].includes(worker.state) && resolve();
                if (["activated", "redundant"].includes(worker.state)) resolve();
            });
            return worker?.state ?? "none";
        }"""
        assert await page.evaluate(states) in ("redundant", "none")
        assert first in await page.evaluate(CACHES)
        await expect(page.locator(".note")).to_have_count(0)

        # A whole one takes over, says so, and the old files are gone.
        files.content["style.css"] = style + b"\n/* second version */\n"
        files.content[WORKER] = version.sub(rb'\1"second"', old_worker)
        await page.evaluate(states)
        await expect(page.locator(".note")).to_contain_text("new version")
        await eventually(page, "caches.keys().then((names) => names.join() === 'shine-page-second')")
        await page.get_by_role("button", name="Load again").click()
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        text = await page.evaluate("fetch('style.css').then((answer) => answer.text())")
        assert text.endswith("/* second version */\n")

    with serve() as (url, files):

        async def whole() -> None:
            profile = await browser.profile(locale="en-GB")
            try:
                await story(await profile.new_page())
            finally:
                await profile.close()

        assert CORE in files.content
        browser.run(whole())


def test_a_first_visit_says_nothing_of_versions(browser: Web) -> None:
    async def whole() -> None:
        profile = await browser.profile(locale="en-GB")
        try:
            page = await profile.new_page()
            await page.goto(url)
            await eventually(page, READY)
            await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
            await expect(page.locator(".note")).to_have_count(0)
        finally:
            await profile.close()

    with serve() as (url, _):
        browser.run(whole())
