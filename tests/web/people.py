"""People at the chat page of their own nodes, in a real browser: what they see by name, and what they do.

Whatever a page complains of fails the story: an error that nobody caught, an error in the console, a breach of the
page's policy, a request to any other place than its own node.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request, WebSocket, expect

from tests.support.chat import chat_nodes
from tests.support.nodes import LocalServer, Server
from tests.support.tree import PACKAGE, ROOT
from tests.support.web import Web
from tests.web.ui import SOON, eventually

__all__ = ["SOON", "Person", "Place", "live"]

# A breach of the policy of trusted types is an event, and not always a line in the console.
_WATCH = """addEventListener("securitypolicyviolation", (event) => {
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
});"""

_TEXT = re.compile(r'^  "([\w.-]+)": "(.*)",$', re.MULTILINE)


@functools.cache
def texts(language: str) -> dict[str, str]:
    """Return the texts of the page in a language, by their names; of a plural all forms."""
    found = (ROOT / PACKAGE / "web" / "i18n" / f"{language}.js").read_text(encoding="utf-8")
    return dict(_TEXT.findall(found))


class Person:
    """Somebody in a browser profile of their own, at one node; ``page`` is the tab that they look at."""

    def __init__(self, profile: BrowserContext, server: Server, language: str, shots: Path) -> None:
        self.profile = profile
        self.server = server
        self.language = language
        self.complaints: list[str] = []
        self.lost = False
        """Whether the node has been switched off: the browser then says that it could not connect."""
        self._shots = shots
        self._root = server.url.removeprefix("ws").removesuffix("ws")
        self.url = f"http{self._root}"
        profile.on("request", self._on_request)
        profile.on("weberror", lambda error: self.complaints.append(f"uncaught: {error.error}"))
        profile.on("console", self._on_console)
        self.page: Page

    @classmethod
    async def visit(cls, browser: Web, server: Server, language: str, shots: Path, **options: Any) -> Person:
        """Open the page of a node in a new profile."""
        locale = {"en": "en-GB", "ru": "ru-RU"}[language]
        look = {"viewport": {"width": 1000, "height": 700}, "color_scheme": "light", **options}
        person = cls(await browser.profile(locale=locale, **look), server, language, shots)
        await person.profile.add_init_script(_WATCH)
        await person.tab()
        return person

    def says(self, name: str, **values: Any) -> str:
        """Return a text of the page in this person's language."""
        text = texts(self.language)[name]
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text

    async def tab(self) -> Page:
        """Open the page in a new tab, and look at that one."""
        self.page = await self.profile.new_page()
        self.page.set_default_timeout(SOON)
        self.page.on("websocket", self._on_socket)
        await self.page.goto(self.url)
        await self.page.locator("#app > :not(.splash)").wait_for()
        return self.page

    async def shot(self, name: str) -> None:
        """Keep what is on the screen."""
        await self.page.screenshot(path=self._shots / f"{name}.png", animations="disabled")

    # What they do

    async def register(self, login: str) -> str:
        """Make an account and return its recovery key, which is said to be saved."""
        await self.page.get_by_role("textbox", name=self.says("welcome.login"), exact=True).fill(login)
        await self.page.get_by_role("button", name=self.says("welcome.create")).click()
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(self.says("recovery.title"))
        key = await self.page.get_by_role("status", name=self.says("recovery.title")).inner_text()
        await self.shot(f"recovery-key-{self.language}")
        await self.page.get_by_role("button", name=self.says("recovery.saved")).click()
        await self.online()
        return key

    async def recover(self, key: str) -> None:
        """Come back with a recovery key."""
        await self.page.get_by_role("textbox", name=self.says("recovery.title")).fill(key)
        await self.page.get_by_role("button", name=self.says("welcome.recover"), exact=True).click()
        await self.online()

    async def find(self, login: str) -> None:
        """Search for somebody and open the chat."""
        await self.page.get_by_role("searchbox", name=self.says("search.label")).fill(login)
        results = self.page.get_by_role("list", name=self.says("search.results"))
        await expect(results.get_by_role("link", name=login)).not_to_contain_text(self.says("search.write"))
        await results.get_by_role("link", name=login).click()
        await expect(self.field(login)).to_be_focused()

    async def enter(self, peer: str) -> None:
        """Open a chat from the list."""
        await self.dialog(peer).click()
        await expect(self.field(peer)).to_be_visible()

    async def write(self, peer: str, text: str) -> Locator:
        """Send a message in the chat that is open, and return it as it stands on the screen."""
        await self.field(peer).fill(text)
        await self.field(peer).press("Enter")
        await expect(self.field(peer)).to_have_value("")
        message = self.message(peer, text)
        await expect(message).to_be_visible()
        return message

    async def choose(self, message: Locator, action: str) -> None:
        """Open the menu of a message and choose an entry by the name of its text."""
        await message.hover()
        await message.get_by_role("button", name=self.says("message.actions")).click()
        await self.page.get_by_role("menuitem", name=self.says(action), exact=True).click()

    async def kept(self) -> None:
        """Wait until the browser has the page itself, for a time without the node."""
        await eventually(self.page, "navigator.serviceWorker.controller?.state === 'activated'")

    async def reload(self) -> None:
        """Load the page anew."""
        await self.page.reload()
        await self.page.locator("#app > :not(.splash)").wait_for()

    async def leave(self) -> None:
        """Go from a chat back to the list."""
        await self.page.keyboard.press("Escape")
        await expect(self.page.get_by_text(self.says("main.choose"))).to_be_visible()

    # What they see

    def field(self, peer: str) -> Locator:
        """Where a message is written."""
        return self.page.get_by_role("textbox", name=self.says("composer.label", peer=peer))

    def dialog(self, peer: str) -> Locator:
        """A chat in the list of them."""
        chats = self.page.get_by_role("list", name=self.says("dialog.list"))
        return chats.get_by_role("link").filter(has=self.page.get_by_text(peer, exact=True))

    def messages(self, peer: str) -> Locator:
        """All messages of the open chat."""
        return self.page.get_by_role("list", name=self.says("chat.messages", peer=peer)).locator(".message")

    def message(self, peer: str, text: str) -> Locator:
        """The message that says this."""
        return self.messages(peer).filter(has_text=text)

    def tick(self, message: Locator, kind: str) -> Locator:
        """The tick of a message, if it is of this kind."""
        return message.get_by_title(self.says(f"tick.{kind}"), exact=True)

    async def ticked(self, message: Locator, kind: str) -> None:
        """Wait until a message has this tick, and no other."""
        await expect(self.tick(message, kind)).to_be_visible()
        await expect(message.locator(".tick")).to_have_count(1)

    async def online(self) -> None:
        """Wait until the page says that it is connected."""
        chats = self.page.get_by_role("navigation", name=self.says("dialog.title"))
        await expect(chats.get_by_text(self.says("link.online"), exact=True)).to_be_visible()

    async def offline(self) -> None:
        """Wait until the page says since when there is no connection."""
        chats = self.page.get_by_role("navigation", name=self.says("dialog.title"))
        await expect(chats.get_by_text(self.says("link.offlineSince", time=""))).to_be_visible()

    async def switch_off(self) -> None:
        """Stop their node, and see that the page knows."""
        self.lost = True
        await self.server.stop()
        await self.offline()

    # What must not happen

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "blob:" + self.url)):
            self.complaints.append(f"asked for {request.url}")

    def _on_socket(self, socket: WebSocket) -> None:
        if socket.url != self.server.url:
            self.complaints.append(f"connected to {socket.url}")

    def _on_console(self, line: ConsoleMessage) -> None:
        is_loss = self.lost and re.search(r"ERR_CONNECTION_REFUSED|unknown error.+fetching the script", line.text)
        if line.type in {"error", "warning"} and not is_loss:
            self.complaints.append(f"{line.type} in the console: {line.text}")


class Place:
    """Where a story happens: two nodes that know each other, and the people who have come."""

    def __init__(self, browser: Web, servers: tuple[LocalServer, ...], shots: Path) -> None:
        self.servers = servers
        self._browser = browser
        self._shots = shots
        self.people: list[Person] = []

    async def visit(self, server: LocalServer, language: str = "en", **options: Any) -> Person:
        """Have somebody open the page of a node in a new profile."""
        person = await Person.visit(self._browser, server, language, self._shots, **options)
        self.people.append(person)
        return person

    async def friends(self) -> tuple[Person, Person]:
        """Have Alice, who speaks English, at one node, and bob, who speaks Russian, at the other one."""
        alice = await self.visit(self.servers[0], "en")
        bob = await self.visit(self.servers[1], "ru")
        await alice.register("Alice")
        await bob.register("bob")
        return alice, bob


@asynccontextmanager
async def _place(browser: Web, folder: Path, shots: Path, settings: dict[str, Any]) -> AsyncIterator[Place]:
    async with chat_nodes(folder, "server1", "server2", **settings) as servers:
        place = Place(browser, servers, shots)
        try:
            yield place
        except BaseException:
            for number, person in enumerate(place.people):
                await person.shot(f"failed-{number}")
            raise
        finally:
            for person in place.people:
                await person.profile.close()


def live(browser: Web, folder: Path, story: Callable[[Place], Awaitable[None]], **settings: Any) -> None:
    """Tell a story, and see that no page has complained.

    Args:
        settings: of both nodes, by section.
    """
    shots = Path(os.environ.get("SHINE_SCREENSHOTS") or folder / "screenshots")
    shots.mkdir(parents=True, exist_ok=True)

    async def told() -> None:
        async with _place(browser, folder, shots, settings) as place:
            await story(place)
            assert [person.complaints for person in place.people] == [[] for _ in place.people]

    browser.run(told())
