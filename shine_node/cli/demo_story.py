"""What the demo tells: each step does something to real servers, shows what came of it, and checks that it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import NamedTuple, TypeVar

from shine_node.cli.demo_servers import DemoServer
from shine_node.client.identity import Identity
from shine_node.client.messages import SignedPair, make_message, make_receipt
from shine_node.clock import SystemClock
from shine_node.protocol.errors import ShineError

__all__ = ["Story", "UntrueClaim"]

T = TypeVar("T")

STEP_SECONDS = 12.0
"""How long something to be shown may take to become true."""

TICKS = {
    "accepted": "one grey tick    ✓   on the disk of alice's server, not known to be at bob's",
    "delivered": "one light tick   ✓   on the disk of a server of bob's",
    "read": "two light ticks  ✓✓  bob has read it",
    "failed": "a red mark       !   not delivered, and never tried again",
}

_CLOCK = SystemClock()
_POLL_SECONDS = 0.05
_TEXT_WIDTH, _CELL_WIDTH = 38, 13


class UntrueClaim(ShineError):
    """Something that the demo was about to show was not true."""


class Sent(NamedTuple):
    """A message of the story."""

    text: str
    pair: SignedPair


class Story:
    """The story of alice and bob.

    Args:
        servers: four that are configured and not running; the first two are alice's, the others bob's.
        schedule: their ``delivery.scheduleSeconds``.
    """

    def __init__(self, servers: Sequence[DemoServer], schedule: Sequence[int]) -> None:
        self._servers = servers
        self._homes_of_alice, self._homes_of_bob = servers[:2], servers[2:]
        self._schedule = schedule
        self._alice, self._bob = Identity.generate("alice"), Identity.generate("bob")

    async def play(self) -> None:
        """Tell it from beginning to end.

        Raises:
            UntrueClaim: something to be shown was not true.
            ShineError: a server did not start, stop or answer.
        """
        await self._begin()
        await self._all_run()
        await self._one_is_off()
        await self._both_are_off_for_a_while()
        await self._both_are_off_for_too_long()

    # -- the steps ----------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        alices, bobs = (
            " and ".join(home.login for home in homes) for homes in (self._homes_of_alice, self._homes_of_bob)
        )
        shortened = ", ".join(str(seconds) for seconds in self._schedule[1:])
        _say(
            "SHiNE node: four servers and two users on this machine, with real sockets and real stores",
            "",
            f"  alice has her mail on {alices}, bob has his on {bobs}.",
            "  A message that does not get through is tried again 30 s, 5 min, 25 min and 1 h after it was sent.",
            f"  The schedule is SHORTENED here, so that you need not wait: {shortened} s after it was sent.",
            "",
        )
        await _start(self._servers)
        now_ms = _CLOCK.now_ms()
        for server in self._servers:
            await server.add_user(self._alice, self._homes_of_alice, time_ms=now_ms)
            await server.add_user(self._bob, self._homes_of_bob, time_ms=now_ms)
            _say(f"  {server.login} listens on {server.access.url}")

    async def _all_run(self) -> None:
        _heading("1. All servers run")
        sent = await self._alice_writes("Hello Bob!", "delivered")
        for home in self._homes_of_bob:
            await _becomes_true(home.has_copy, sent.pair, f"{home.login} has stored bob's copy")
        await self._show_disks(sent)
        receipt = make_receipt(self._bob, sent.pair.message, time_ms=_CLOCK.now_ms())
        state = await self._homes_of_bob[0].send(receipt)
        _check(state in ("accepted", "delivered"), f"bob's server takes his read receipt, and does not say {state}")
        for home in self._homes_of_alice:
            await _becomes_true(home.shows_read, sent.pair.message, f"{home.login} has stored bob's read receipt")
        _say("", "  bob reads it", f"    now:             {TICKS['read']}")

    async def _one_is_off(self) -> None:
        off = self._homes_of_bob[1]
        _heading(f"2. {off.login} is switched off; one server is enough")
        await off.stop()
        sent = await self._alice_writes("Are you still there?", "delivered")
        _check(not off.has_copy(sent.pair), f"{off.login} is off and has stored nothing")
        await self._show_disks(sent)

    async def _both_are_off_for_a_while(self) -> None:
        on, off = self._homes_of_bob
        _heading(f"3. {on.login} is switched off too, and then both come back")
        await on.stop()
        sent = await self._alice_writes("Read this when you are back.", "accepted")
        _check(not any(home.has_copy(sent.pair) for home in self._homes_of_bob), "bob's servers have stored nothing")
        await self._show_disks(sent)
        await _start(self._homes_of_bob)
        _say("", f"  {on.login} and {off.login} are back")
        await self._tick_becomes(sent, "delivered")
        await self._show_disks(sent)

    async def _both_are_off_for_too_long(self) -> None:
        on, off = self._homes_of_bob
        _heading(f"4. Both are off beyond the last attempt, {self._schedule[-1]} s here and one hour in earnest")
        await _all(home.stop() for home in self._homes_of_bob)
        lost = await self._alice_writes("This one will be too late.", "accepted")
        await self._tick_becomes(lost, "failed")
        await _start(self._homes_of_bob)
        _say("", f"  {on.login} and {off.login} are back")
        later = await self._alice_writes("Do you hear me now?", "delivered")
        state = await self._state(lost)
        _check(state == "failed", f"what has failed stays failed, and does not become {state}")
        _check(not any(home.has_copy(lost.pair) for home in self._homes_of_bob), "what has failed is not sent again")
        await self._show_disks(lost, later)

    # -- their parts --------------------------------------------------------------------------------------------

    async def _alice_writes(self, text: str, expected: str) -> Sent:
        """Send a message to bob by alice's first server; it must come to the expected state and to her other server."""
        home, second = self._homes_of_alice
        sent = Sent(text, make_message(self._alice, self._bob.login, text, time_ms=_CLOCK.now_ms()))
        _say(f'  alice writes "{text}"')
        begin = _CLOCK.monotonic()
        state = await home.send(sent.pair)
        took_ms = (_CLOCK.monotonic() - begin) * 1000
        _check(home.has_pair(sent.pair), f"{home.login} had the message on its disk when it answered")
        _check(state in (expected, "accepted"), f"the message is {expected}, and not {state}")
        self._show_tick(f"{took_ms:4.0f} ms later:", sent, state)
        if state != expected:  # an answer may be given before the first success is known (§5.2)
            await self._tick_becomes(sent, expected)
        await _becomes_true(second.has_pair, sent.pair, f"{home.login} has handed the message to {second.login}")
        return sent

    async def _tick_becomes(self, sent: Sent, expected: str) -> None:
        begin = _CLOCK.monotonic()
        while (state := await self._state(sent)) != expected:
            _check(state == "accepted", f"the message becomes {expected}, and not {state}")
            _check(
                _CLOCK.monotonic() - begin < STEP_SECONDS, f"the message becomes {expected}, and does not stay {state}"
            )
            await asyncio.sleep(_POLL_SECONDS)
        self._show_tick(f"{_CLOCK.monotonic() - begin:4.1f} s later:", sent, expected)

    def _show_tick(self, when: str, sent: Sent, state: str) -> None:
        stored = any(home.has_copy(sent.pair) for home in self._homes_of_bob)
        _check(stored or state != "delivered", "a server of bob's has stored his copy")
        _say(f"    {when:<17}{TICKS[state]}")

    async def _state(self, sent: Sent) -> str:
        """Ask alice's first server for the state: the same bytes again only ask (§5.2)."""
        home = self._homes_of_alice[0]
        _check(await home.knows(sent.pair), f"{home.login} knows the message")
        return await home.send(sent.pair)

    async def _show_disks(self, *messages: Sent) -> None:
        """Read all four stores, also of those that are off, and show what is in them."""
        names = (server.login if server.running else f"{server.login} off" for server in self._servers)
        _say("", _row("    found on the disk of", names))
        for text, pair in messages:
            pairs = ("her pair" if home.has_pair(pair) else "–" for home in self._homes_of_alice)
            copies = ("his copy" if home.has_copy(pair) else "–" for home in self._homes_of_bob)
            _say(_row(f'    "{text}"', (*pairs, *copies)))


async def _start(servers: Sequence[DemoServer]) -> None:
    await _all(server.start() for server in servers)


async def _all(works: Iterable[Coroutine[object, object, None]]) -> None:
    """Run them side by side and wait for every one, also where one fails: none may go on behind the clean-up's back."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _becomes_true(check: Callable[[T], bool], subject: T, claim: str) -> None:
    begin = _CLOCK.monotonic()
    while not check(subject):
        _check(_CLOCK.monotonic() - begin < STEP_SECONDS, claim)
        await asyncio.sleep(_POLL_SECONDS)


def _check(true: bool, claim: str) -> None:
    if not true:
        raise UntrueClaim(f"this is not true: {claim}")


def _row(first: str, cells: Iterable[str]) -> str:
    return f"{first:<{_TEXT_WIDTH}}" + "".join(f"{cell:<{_CELL_WIDTH}}" for cell in cells).rstrip()


def _heading(text: str) -> None:
    _say("", text, "")


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)
