"""People who chat in a real browser: each in a profile of its own, through the page's core alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page

from shine_node.peers.snapshot import LinkState
from tests.support.nodes import PATIENCE, LocalServer, Server, eventually
from tests.support.web import Web

__all__ = ["Refused", "Tab", "chat_nodes", "linked"]

OPEN = """async (url) => {
  const { Chat } = await import("/core/chat.js");
  window.told = [];
  window.chat = new Chat({ url });
  for (const type of ["state", "dialogs", "messages", "drafts"]) {
    chat.addEventListener(type, ({ detail }) => told.push([type, detail?.peer ?? null]));
  }
  await chat.open();
  return chat.state;
}"""

# Of the page's function with the arguments at hand; a ChatError comes back as its code.
CALL = """async ([name, args]) => {
  try { return { value: await chat[name](...args) }; } catch (problem) {
    if (!problem.code) throw problem;
    return { code: problem.code, message: problem.message };
  }
}"""

# What it saw last comes with a failure. A refresh makes the wait independent of events.
UNTIL = """async ([condition, peer, patience]) => {
  const holds = new Function("chat", "messages", `return ${condition};`);
  const end = performance.now() + patience;
  if (peer) await chat.openChat(peer);
  for (;;) {
    const messages = peer ? chat.messages(peer) : [];
    if (holds(chat, messages)) return { messages };
    if (performance.now() > end) {
      return { failed: JSON.stringify({ messages, state: chat.state, dialogs: chat.dialogs() }) };
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
    if (peer) await chat.openChat(peer);
  }
}"""


class Refused(Exception):
    """The core has thrown a ``ChatError``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code


class Tab:
    """One tab with the chat's core in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.defects: list[str] = []
        """What the page threw and nobody caught."""
        page.on("pageerror", lambda problem: self.defects.append(str(problem)))

    @classmethod
    async def open(cls, web: Web, profile: BrowserContext, server: Server) -> Tab:
        """Open the chat in a new tab."""
        tab = cls(await web.blank(profile))
        await tab.start(server)
        return tab

    @classmethod
    async def register(cls, web: Web, login: str, server: Server) -> tuple[Tab, str]:
        """Register in a new profile; return the tab and the recovery key."""
        tab = await cls.open(web, await web.profile(), server)
        return tab, (await tab.call("register", {"login": login}))["recoveryKey"]

    async def start(self, server: Server) -> Any:
        """Load the core and return its state."""
        return await self.page.evaluate(OPEN, server.url)

    async def reload(self, server: Server) -> Any:
        """Load the page anew, as a person does."""
        await self.page.reload()
        return await self.start(server)

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the core.

        Raises:
            Refused: it has thrown a ``ChatError``.
        """
        found = await self.page.evaluate(CALL, [name, list(arguments)])
        if "code" in found:
            raise Refused(found["code"], found["message"])
        return found.get("value")

    async def refused(self, name: str, *arguments: Any) -> str:
        """Call a method that must throw, and return the code."""
        try:
            value = await self.call(name, *arguments)
        except Refused as refused:
            return refused.code
        raise AssertionError(f"{name} was not refused, it returned {value!r}")

    async def until(self, condition: str, peer: str | None = None) -> list[dict[str, Any]]:
        """Wait until a condition of JavaScript holds, and return the messages of a chat as they then are.

        Args:
            condition: over ``chat`` and, with ``peer``, ``messages``; the chat is refreshed between two looks.
        """
        found = await self.page.evaluate(UNTIL, [condition, peer, PATIENCE * 1000])
        assert "failed" not in found, f"{condition}: {found['failed']}"
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    async def online(self) -> None:
        """Wait until it is signed in."""
        await self.until("chat.state.link === 'online'")

    async def look(self, expression: str) -> Any:
        """Evaluate an expression over ``chat`` and ``told``."""
        return await self.page.evaluate(f"() => ({expression})")

    async def send(self, peer: str, text: str) -> dict[str, Any]:
        """Send a message and return it as it was shown at once."""
        message: dict[str, Any] = await self.call("send", peer, text)
        return message

    async def sent(self, peer: str, text: str, state: str = "delivered") -> dict[str, Any]:
        """Send a message and wait for its state."""
        key = (await self.send(peer, text))["key"]
        condition = f"messages.some((one) => one.key === {key!r} && one.state === {state!r})"
        return next(one for one in await self.until(condition, peer) if one["key"] == key)

    async def texts(self, peer: str, count: int) -> list[str | None]:
        """Wait for so many messages and return their texts."""
        return [one["text"] for one in await self.until(f"messages.length === {count}", peer)]


async def linked(*servers: LocalServer) -> None:
    """Wait until each server has its link to each other one, by which it delivers and finds the other's users."""

    async def connected() -> bool:
        states = [link.state for server in servers for link in server.node.pool.snapshot().peers]
        return all(state is LinkState.CONNECTED for state in states)

    await eventually(connected)


@asynccontextmanager
async def chat_nodes(folder: Path, *logins: str, **sections: Any) -> AsyncIterator[tuple[LocalServer, ...]]:
    """Run nodes that know each other while a story lasts."""
    started: list[LocalServer] = []
    settings = {"storage": {"mapSizeMiB": 16}, "delivery": {"workerIntervalMs": 50}, **sections}
    try:
        for login in logins:
            server = LocalServer(login, folder, **settings)
            started.append(server)
        for server in started:
            others = [{"login": other.login, "url": other.url} for other in started if other is not server]
            server.settings["sync_servers"] = others
            await server.start()
        await linked(*started)
        yield tuple(started)
    finally:
        for server in started:
            await server.discard()
