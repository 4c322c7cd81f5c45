"""Opens the chat page with the stand-in for its core, for the tests of what a person sees and does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from playwright.async_api import ConsoleMessage, Page, expect

from tests.support.nodes import PATIENCE
from tests.support.web import Web
from tests.web.serving import Files

T = TypeVar("T")

SOON = PATIENCE * 1000
"""Milliseconds in which a page must show what it is to show; generous, for slow and busy machines."""

expect.set_options(timeout=SOON)

MINUTE = 60_000
DAY = 86_400_000
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
Story = Callable[[Page], Awaitable[T]]


def now_ms() -> int:
    """Return the time of the browser's clock, which is the machine's."""
    return int(time.time() * 1000)


def received(text: str | None, age_ms: int = MINUTE, **more: Any) -> dict[str, Any]:
    """Return a message from the peer, as the stand-in takes it; read unless it says otherwise."""
    return {"out": False, "text": text, "timeMs": now_ms() - age_ms, **more}


def sent(text: str | None, age_ms: int = MINUTE, **more: Any) -> dict[str, Any]:
    """Return a message to the peer, as the stand-in takes it; delivered unless it says otherwise."""
    return {"out": True, "text": text, "timeMs": now_ms() - age_ms, "read": False, **more}


class Ui:
    """The page, opened anew for each story, in a browser profile of its own."""

    def __init__(self, browser: Web, url: str, files: Files) -> None:
        self._browser = browser
        self.url = url
        self.files = files

    def show(self, story: Story[T], scenario: dict[str, Any] | None = None, path: str = "", **options: Any) -> T:
        """Run a story on the page; what the browser complains of (errors, the page's policy) fails it.

        Args:
            story: gets the page when it has been built and has what it asked the stand-in for.
            scenario: how the stand-in begins.
            path: what follows the address, such as ``#/chat/bob``.
            options: of the profile, such as ``locale``; without one it is British English and light.
        """

        async def whole() -> T:
            settings = {"service_workers": "block", "locale": "en-GB", "color_scheme": "light", **options}
            profile = await self._browser.profile(**settings)
            try:
                page = await profile.new_page()
                complaints: list[str] = []
                page.on("pageerror", lambda error: complaints.append(str(error)))
                page.on("console", lambda message: complaints.extend(_errors(message)))
                await page.add_init_script(f"globalThis.scenario = {json.dumps(scenario or {})}")
                await page.goto(self.url + path)
                await page.locator("#app > :not(.splash)").wait_for()
                await eventually(page, "standIn.busy === 0")
                result = await story(page)
                assert complaints == []
                return result
            finally:
                await profile.close()

        return self._browser.run(whole())


def _errors(message: ConsoleMessage) -> list[str]:
    return [message.text] if message.type == "error" else []


async def hear(page: Page) -> None:
    """Begin to note in ``heard`` what a screen reader is told: it does not stay in the page for long."""
    await page.evaluate("""() => {
        globalThis.heard = [];
        const live = document.querySelector("[aria-live=polite]");
        const note = () => live.textContent && heard.push(live.textContent);
        new MutationObserver(note).observe(live, { childList: true, characterData: true, subtree: true });
    }""")


async def calls(page: Page, name: str) -> list[list[Any]]:
    """Return what the page has asked of the core under a name, each call's arguments."""
    found: list[list[Any]] = await page.evaluate(
        "name => standIn.calls.filter(([one]) => one === name).map(([, ...given]) => given)", name
    )
    return found


async def eventually(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until an expression of JavaScript, or what it promises, is true.

    Asked from here: the page's policy keeps a waiting page from evaluating anything.
    """
    for _ in range(1200):
        if await page.evaluate(condition, argument):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"this did not become true: {condition}")
