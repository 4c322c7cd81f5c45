"""The chat page in a real browser: what its first visit weighs, and how soon somebody who is back sees a chat."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from playwright.async_api import Page, expect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_sealed_message
from shine_node.client.people import parse_person
from tests.bench.measure import Figure, median, print_figures
from tests.bench.server import LOGIN, SETTINGS
from tests.support.nodes import ServerProcess, now_ms, register, servers
from tests.support.web import NO_BROWSER, Web, find_browser, web
from tests.web.people import Person
from tests.web.ui import eventually

__all__ = ["main", "measure_page"]

VISITS = 9
MESSAGES = 120
MOST_KB = 150
MOST_SECONDS = 1.0
LAST = "the last one of them"

KEPT = "navigator.serviceWorker.controller?.state === 'activated'"

# The moment when the last message has been drawn, in milliseconds since the navigation began.
_STOPWATCH = f"""const watch = new MutationObserver(() => {{
    const texts = document.querySelectorAll(".message .text");
    if (!texts.length || texts[texts.length - 1].textContent !== "{LAST}") return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => {{ globalThis.shownMs = performance.now(); }}));
}});
watch.observe(document, {{ childList: true, subtree: true, characterData: true }});"""


class Relay:
    """Stands between the browser and the node, and counts what the node sends: the bytes over the wire."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.connections = 0
        self.received = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen while a block lasts; give the address as ``HOST:PORT``."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield "{}:{}".format(*server.sockets[0].getsockname())
        finally:
            server.close()
            for writer in self._open.values():
                writer.transport.abort()
            await asyncio.gather(*self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.connections += 1
        self._open[task] = node_writer
        try:
            await asyncio.gather(_copy(reader, node_writer), self._count(node_reader, writer))
        finally:
            del self._open[task]
            writer.close()
            node_writer.close()

    async def _count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = await _copy(reader, writer)
        self.received += count


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Copy until one of both ends, end the other one, and return how many bytes there were."""
    count = 0
    with suppress(OSError):
        while data := await reader.read(65536):
            count += len(data)
            writer.write(data)
            await writer.drain()
    writer.close()
    return count


async def _weigh(browser: Web, server: ServerProcess) -> Figure:
    """Visit for the first time, until the page is shown, connected, and kept by the browser for the next time."""
    relay = Relay(int(server.url.rpartition(":")[2].partition("/")[0]))
    async with relay.listening() as address:
        profile = await browser.profile()
        try:
            page = await profile.new_page()
            await page.goto(f"http://{address}/")
            await expect(page.get_by_text(server.login, exact=True)).to_be_visible()
            await eventually(page, KEPT)
        finally:
            await profile.close()
    weight = relay.received / 1000
    return Figure(
        "all of the page, first visit, over the wire",
        f"{weight:.1f} KB",
        f"{relay.connections} connections",
        f"under {MOST_KB} KB",
        weight < MOST_KB,
    )


async def _fill(person: Person, server: ServerProcess, count: int) -> None:
    """Have somebody write to Alice, sealed."""
    author = Identity.generate("author")
    await register(author, [server])
    async with await server.connect() as client:
        alice = parse_person(await client.request("GetUserAccess", {"login": "alice"}), "alice")
        reader = alice.device_key_at(now_ms())
        begin = now_ms() - count * 1000
        for number in range(count):
            text = LAST if number == count - 1 else f"message {number} of a chat that has some lines in it"
            pair = make_sealed_message(author, "alice", text, reader=reader, time_ms=begin + number * 1000)
            await client.request("SendMessagePair", pair.payload)
    await expect(person.dialog("author")).to_be_visible()
    await person.enter("author")
    await expect(person.message("author", LAST)).to_be_visible()


async def _visit(person: Person) -> float:
    """Come back to a chat in a new tab, and return the seconds until it is on the screen."""
    page: Page = await person.profile.new_page()
    await page.add_init_script(_STOPWATCH)
    await page.goto(f"{person.url}#/chat/author")
    await eventually(page, "globalThis.shownMs > 0")
    shown = await page.evaluate("globalThis.shownMs")
    await page.close()
    return float(shown) / 1000


async def _measure(browser: Web, folder: Path, visits: int, count: int) -> list[Figure]:
    async with servers(ServerProcess, folder, LOGIN, **SETTINGS) as (server,):
        figures = [await _weigh(browser, server)]
        for workers, where in (("allow", "kept by the browser"), ("block", "asked for at the node")):
            person = await Person.visit(browser, server, "en", folder, service_workers=workers)
            try:
                if workers == "allow":
                    key = await person.register("Alice")
                    await _fill(person, server, count)
                    await person.kept()
                else:
                    await person.recover(key)
                    await person.enter("author")
                await person.page.close()
                await _visit(person)  # the first one compiles the page
                times = sorted([await _visit(person) for _ in range(visits)])
            finally:
                await person.profile.close()
            middle = median(times)
            figures.append(
                Figure(
                    f"a chat on the screen, page {where}",
                    f"{middle * 1e3:,.0f} ms",
                    f"{times[0] * 1e3:,.0f} to {times[-1] * 1e3:,.0f} ms",
                    f"within {MOST_SECONDS:g} s",
                    middle <= MOST_SECONDS,
                )
            )
        return figures


def measure_page(folder: Path, visits: int = VISITS, messages: int = MESSAGES) -> list[Figure]:
    """Measure the page; without a browser, say so.

    Args:
        visits: how often the chat is come back to, after one that does not count.
        messages: how many are in the chat.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = find_browser()
    if path is None:
        return [Figure(f"not measured: {NO_BROWSER}")]
    with web(path) as browser:
        return browser.run(_measure(browser, folder, visits, messages))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where the store lies for the time of the run")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shine-bench-", dir=options.dir) as name:
        print_figures("The chat page in headless Chromium", measure_page(Path(name)))


if __name__ == "__main__":
    main()
