"""One account in the page and on the command line: its recovery key, its messages, and those of the other side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cli.program import run_program
from tests.support.chat import Tab, chat_nodes
from tests.support.web import Web


async def command(keys: Path, *words: str, given: str = "") -> str:
    """Run a command with an account of the command line, while this process goes on, and return what it printed."""
    found = await asyncio.to_thread(run_program, *words, "--keys", keys, stdin=None, input=given)
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    return found.stdout


async def lines(keys: Path, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await command(keys, *words, "--json")).splitlines()]


def test_who_comes_from_the_page_goes_on_at_the_command_line(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", "server2") as (one, two):
            alice, key = await Tab.register(browser, "Alice", one)
            await alice.online()
            bob = tmp_path / "bob.json"
            await command(bob, "account", "new", "bob", "--server", two.url)
            assert await alice.call("search", "bob") == ["bob"]
            await alice.sent("bob", "from the page")
            [seen] = await lines(bob, "inbox", "--unread", "--mark-read")
            assert (seen["peer"], seen["text"], seen["problem"]) == ("alice", "from the page", None)
            await alice.until("messages[0].read", "bob")

            laptop = tmp_path / "alice.json"
            recovered = await command(laptop, "account", "recover", "--server", one.url, given=key.lower())
            assert recovered.startswith("Alice is recovered, at server1 (")
            assert await command(laptop, "account", "show", "--recovery-key") == f"{key}\n"
            assert await command(laptop, "send", "bob", "from the laptop") == "delivered\n"
            assert await command(bob, "send", "alice", "an answer") == "delivered\n"
            assert await alice.texts("bob", 3) == ["from the page", "from the laptop", "an answer"]
            listed = await lines(laptop, "inbox", "bob")
            assert [(one["text"], one["out"], one["problem"]) for one in listed] == [
                ("from the page", True, None),
                ("from the laptop", True, None),
                ("an answer", False, None),
            ]
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())


def test_who_comes_from_the_command_line_goes_on_in_the_page(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1", "server2") as (one, two):
            alice = tmp_path / "alice.json"
            both = ["--server", one.url, "--server", two.url]
            await command(alice, "account", "new", "Alice", *both)
            await command(alice, "send", "alice", "a note to myself")
            key = (await command(alice, "account", "show", "--recovery-key")).strip()
            tab = await Tab.open(browser, await browser.profile(), two)
            await tab.call("recover", key)
            await tab.online()
            assert await tab.look("chat.state.account.login") == "Alice"
            assert await tab.call("recoveryKey") == key
            assert await tab.texts("alice", 1) == ["a note to myself"]
            assert tab.defects == []
            await tab.page.context.close()

    browser.run(story())


def test_who_is_blocked_in_the_page_is_blocked_on_the_command_line_and_not_heard(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (one,):
            alice, key = await Tab.register(browser, "Alice", one)
            await alice.online()
            mallory, laptop = tmp_path / "mallory.json", tmp_path / "alice.json"
            await command(mallory, "account", "new", "Mallory", "--server", one.url)
            await command(laptop, "account", "recover", "--server", one.url, given=key)
            assert await alice.call("blocked") == []
            await alice.call("setBlocked", "Mallory", True)
            await alice.call("setBlocked", "mallory", True)
            await alice.call("setBlocked", "eve", True)
            assert await command(laptop, "blocked") == "mallory\neve\n"
            assert await command(mallory, "send", "alice", "one") == "accepted\n"
            await command(laptop, "unblock", "eve")
            assert await alice.call("blocked") == ["mallory"]
            await alice.call("setBlocked", "mallory", False)
            assert await command(laptop, "blocked") == ""
            assert await command(mallory, "send", "alice", "two") == "delivered\n"
            assert alice.defects == []
            await alice.page.context.close()

    browser.run(story())
