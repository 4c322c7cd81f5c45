"""A real browser, and a server of the page's files, for the tests of the chat page.

The browser runs on an event loop in a thread of its own, so that it lasts for many tests and leaves the thread of the
tests free for loops of theirs.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.api.talk import LoopThread
from tests.support.nodes import STORY_SECONDS
from tests.support.tree import PACKAGE, ROOT

__all__ = ["NO_BROWSER", "Web", "find_browser", "web"]

T = TypeVar("T")

WEB = ROOT / PACKAGE / "web"
BLANK = "/blank"
NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    "the tests of the chat page need Chromium: install it (Debian: apt install chromium), "
    "or set SHINE_CHROMIUM to the path of one"
)
# What Playwright switches off for steady tests (a second list replaces its own), and what the browser makes ready and
# no test uses: two pages for the address bar of each window, a process for a page to come. It is half of the work.
FEATURES_OFF = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,"
    "OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess"
)
POLICY = "default-src 'self'; connect-src 'self' ws://127.0.0.1:*; script-src 'self' 'unsafe-inline'"


def find_browser() -> str | None:
    """Return the path of Chromium, or None where there is none and ``SHINE_CHROMIUM`` does not ask for one.

    Raises:
        FileNotFoundError: ``SHINE_CHROMIUM`` names no program that can be run.
    """
    named = os.environ.get("SHINE_CHROMIUM")
    if named is None:
        return next(filter(None, map(shutil.which, NAMES)), None)
    if not Path(named).is_file() or not os.access(named, os.X_OK):
        raise FileNotFoundError(f"SHINE_CHROMIUM={named} is no program; {NO_BROWSER}")
    return named


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files of the page, and one empty page."""

    extensions_map = {".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml"}  # noqa: RUF012

    def do_GET(self) -> None:
        if self.path != BLANK:
            super().do_GET()
            return
        body = b'<!doctype html><meta charset="utf-8"><title>blank</title>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Web:
    """The browser and the files; made by ``web``."""

    def __init__(self, browser: Browser, loop: LoopThread, url: str) -> None:
        self._browser = browser
        self._loop = loop
        self.url = url
        """Where the page's files are, without a slash at the end."""

    def run(self, story: Coroutine[Any, Any, T], *, timeout: float = STORY_SECONDS) -> T:
        """Run a story on the browser's loop and return its result."""
        return self._loop.run(story, timeout=timeout)

    async def profile(self, **options: Any) -> BrowserContext:
        """Return a browser profile of its own, with nothing stored."""
        return await self._browser.new_context(**options)

    async def blank(self, profile: BrowserContext) -> Page:
        """Return a new tab, with an empty page from where the files are."""
        page = await profile.new_page()
        await page.goto(self.url + BLANK)
        return page

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """Run a function of JavaScript in a new profile and return what it returns."""

        async def story() -> Any:
            profile = await self.profile()
            try:
                return await (await self.blank(profile)).evaluate(script, argument)
            finally:
                await profile.close()

        return self.run(story())


@contextmanager
def web(path: str) -> Iterator[Web]:
    """Have a browser and the page's files for the length of a block.

    Args:
        path: the program, as from ``find_browser``.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(WEB)))
    thread = threading.Thread(target=server.serve_forever, name="files of the page")
    thread.start()
    loop = LoopThread()
    try:
        yield from _browse(path, loop, f"http://127.0.0.1:{server.server_port}")
    finally:
        loop.close()
        server.shutdown()
        thread.join()
        server.server_close()


def _browse(path: str, loop: LoopThread, url: str) -> Iterator[Web]:
    flags = [f"--disable-features={FEATURES_OFF}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox does not run as root
    playwright = loop.run(async_playwright().start())
    try:
        browser = loop.run(playwright.chromium.launch(executable_path=path, headless=True, args=flags))
        try:
            yield Web(browser, loop, url)
        finally:
            loop.run(browser.close())
    finally:
        loop.run(playwright.stop())
