"""The process of a node: its signals, its settings of the interpreter and the system, and its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvloop

from shine_node import __version__
from shine_node.api.sockets import FILES_KEPT_FREE, most_sockets
from shine_node.clock import Clock, SystemClock
from shine_node.config import Config, is_placeholder
from shine_node.control.place import own_path
from shine_node.control.recovery import store_file, store_rules
from shine_node.control.status import read_store
from shine_node.logs import announce, set_up_logging
from shine_node.node import Node, StartMistake
from shine_node.notify import Notifier
from shine_node.protocol.errors import ShineError
from shine_node.store.files import (
    StoreDamaged,
    StoreError,
    StoreOutOfReach,
    StoreSuspect,
    StoreUnsuitable,
    needs_owner,
)
from shine_node.store.recovery.start import end_run, end_start, prepare_store
from shine_node.store.recovery.state import boot_id
from shine_node.store.unreadable import UnreadableRow
from shine_node.tls import CertificateError
from shine_node.watchdog import Watchdog

__all__ = [
    "MISTAKE",
    "NEEDS_OWNER",
    "LastResort",
    "files_needed",
    "leave",
    "open_node",
    "raise_file_limit",
    "run_node",
    "status_line",
]

log = logging.getLogger(__name__)

MISTAKE = 2
"""The exit status for a mistake in the configuration or what it names: ``RestartPreventExitStatus=2`` in the unit."""
NEEDS_OWNER = 78
"""The exit status that ``sysexits.h`` has for a mistake of the owner: ``RestartPreventExitStatus=78`` in the unit."""
THREAD_SWITCH_SECONDS = 0.0005
COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""Requests make no reference cycles; looking for some after every 700 objects is time lost."""
STOP_SECONDS = 4.5
"""How long the process may take to stop before it is ended: whoever waits for it gives it 5 s."""
START_STOP_SECONDS = 3.0
"""How long a start may go on once it is to be broken off: the stop that follows has the rest of that time."""
IMPATIENT_SECONDS = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_THREADS = ("store-writer", "crypto-", "reading")
OTHER_FILES = 128
"""The store, sockets that listen, links that are being opened, and what the interpreter has open."""
STATUS_SECONDS = 60
_STANDARD_ERROR = 2
_FOR_THE_OWNER = (StoreDamaged, StoreUnsuitable, StoreSuspect, UnreadableRow)


def files_needed(config: Config) -> int:
    """Return how many files the node may have open at once with this configuration."""
    links = config.server.pool.max_connections + len(config.sync_servers)
    return most_sockets(config.limits.max_connections) + links + OTHER_FILES + FILES_KEPT_FREE


def raise_file_limit(needed: int) -> None:
    """Let this process have more files open, as far as the system allows; log a warning where that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # more than the kernel lets anybody have
            most = soft
    if most < needed:
        log.warning(
            "this process may have %d files open, and the configuration can need %d: raise the limit (LimitNOFILE= of "
            "the systemd unit, ulimit -n), or lower limits.maxConnections or server.pool.maxConnections",
            most,
            needed,
        )


def run_node(config: Config, *, config_path: Path | None = None) -> int:
    """Run a node until SIGTERM or SIGINT, and return the exit status.

    0 after a signal; 1 if it could not go on, and may be able to when it is started again; ``MISTAKE`` (2) if it cannot
    use what the configuration names, such as the certificate or the data folder; ``NEEDS_OWNER`` (78) if its owner has
    to do something about the store. After the last two a service manager should not start it again.

    SIGHUP lets it read its certificate and ``config_path`` again.

    It prints ``listening on …`` for each address on standard output once it listens, as a line of the log's form where
    that is JSON, and tells the service manager, if there is one, that it is ready, how it is, that it is alive, and
    that it stops.
    """
    set_up_logging(config.log)
    notifier = Notifier(os.environ, os.getpid())
    if notifier.active:
        faulthandler.enable(_STANDARD_ERROR)  # the watchdog ends a node with SIGABRT: the log then says where it hung
    resort = LastResort()
    # A thread that has checked a signature waits this long for the interpreter while the loop is busy. The default
    # of 5 ms would let the loop starve the checks that its own answers wait for.
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    raise_file_limit(files_needed(config))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(_run(config, config_path, resort, notifier))
    finally:
        resort.disarm()
    return leave(status)


def status_line(status: Mapping[str, Any]) -> str:
    """Return the state of a node in a few words; the answer to ``Status`` is what is read. Pure."""
    links = status["peers"]["links"]
    well = sum(1 for link in links if link["well"])
    counts = f"{status['store']['users']} users, {status['connections']} connections, {well} of {len(links)} links well"
    warnings = status["warnings"]
    return f"{counts}; {len(warnings)} warnings, see `shine-node status`" if warnings else counts


class LastResort:
    """Ends the process when its stop takes too long, whatever hangs: a thread, the event loop, a name server.

    All that was answered is on disk, so nothing is lost by it but the manners.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def arm(self, status: int, *, seconds: float | None = None, first: Callable[[], None] = lambda: None) -> None:
        """Let the process end with a status, unless it has ended before; the last call counts.

        Args:
            seconds: from now on; ``STOP_SECONDS`` where left out.
            first: called before it ends so.
        """
        self.disarm()
        seconds = STOP_SECONDS if seconds is None else seconds
        self._timer = threading.Timer(seconds, _give_up, (status, seconds, first))
        self._timer.daemon = True
        self._timer.start()

    def disarm(self) -> None:
        """Let it live."""
        if self._timer is not None:
            self._timer.cancel()


class _Signals:
    """What SIGTERM and SIGINT say: the first one to stop in order, one that comes later than it to stop at once."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._clock = SystemClock()
        self._since = 0.0
        self._early = False

    @contextlib.contextmanager
    def while_starting(self, resort: LastResort, store: Path) -> Iterator[None]:
        """Hear signals for the length of a start, which may hold up the loop for long; the loop hears them later.

        What is under way then is given up in time: another store is put in the place of one at one stroke.
        """
        began = self._clock.monotonic()

        def early(number: int, frame: object) -> None:
            if not self.stopping.is_set():
                self._early = True
                self._since = self._clock.monotonic()
                self.stopping.set()
                resort.arm(0, seconds=START_STOP_SECONDS, first=lambda: end_start(store, seconds=self._since - began))

        before = {number: signal.signal(number, early) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is early:
                    signal.signal(number, handler)

    async def hear_in_loop(self) -> None:
        """Have the loop hear the signals from now on."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self)
        for _ in range(3):  # it tells now of what it was woken by while the start held it up
            await asyncio.sleep(0)
        self._early = False

    @property
    def seconds_left(self) -> float:
        """How long the stop may yet take."""
        spent = self._clock.monotonic() - self._since if self.stopping.is_set() else 0.0
        return max(IMPATIENT_SECONDS, STOP_SECONDS - spent)

    def __call__(self) -> None:
        if self._early:  # the loop tells of the signal that was heard already
            self._early = False
            return
        now = self._clock.monotonic()
        if not self.stopping.is_set():
            self._since = now
            self.stopping.set()
        elif now - self._since >= IMPATIENT_SECONDS:  # before that, it is the same wish, told to a group of processes
            log.warning("told to stop again: what was under way is given up")
            _end_now(0)


def open_node(config: Config, *, config_path: Path | None, control_path: Path) -> Node:
    """Make a node once its store can be opened, or another one has been put in the place of a damaged one.

    Raises:
        StoreDamaged: and nothing is to be put in its place; and all that ``Node`` raises.
    """
    for last in (False, True):
        _prepare(config)
        try:
            return Node(config, config_path=config_path, control_path=control_path)
        except StoreDamaged as damage:  # the opening has met what the look before it had not seen
            end_run(store_file(config), damage=damage.reason)
            if last:
                raise
        except ShineError:
            end_run(store_file(config))
            raise
    raise AssertionError("the last one is returned or raised")


def _prepare(config: Config) -> None:
    with contextlib.suppress(OSError):  # the node says what is wrong
        config.server.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not config.server.data_dir.is_dir():
        return
    store = store_file(config)
    try:
        prepare_store(store, store_rules(config), now_ms=SystemClock().now_ms(), boot=boot_id())
    except OSError as error:
        text = f"{store} cannot be looked at, or written beside: {error}"
        raise (StoreOutOfReach if needs_owner(error) else StoreError)(text) from None


async def _run(config: Config, config_path: Path | None, resort: LastResort, notifier: Notifier) -> int:
    loop = asyncio.get_running_loop()
    told = _Signals()
    hung_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)  # one that comes before the node has started is not lost
    with told.while_starting(resort, store_file(config)):
        started = await _start(config, config_path, notifier)
        if isinstance(started, int):
            return started
        node = started
        await told.hear_in_loop()
    end_start(node.store.path)
    _log_start(node)
    for url in node.urls:
        announce(f"listening on {url}", config.log)
    notifier.ready()
    _warn_of_placeholder(config)
    others = [asyncio.create_task(_reload_when_told(hung_up, node))]
    if notifier.active:
        others += [asyncio.create_task(work) for work in _for_the_manager(node, notifier, SystemClock())]
    waits = [asyncio.create_task(event.wait()) for event in (told.stopping, node.fatal)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in (*others, *waits):
        task.cancel()
    log.info("stopping")
    notifier.stopping()
    resort.arm(1 if node.fatal.is_set() else 0, seconds=told.seconds_left)
    with contextlib.suppress(asyncio.CancelledError):
        await node.stop()
    return _end(node)


async def _start(config: Config, config_path: Path | None, notifier: Notifier) -> Node | int:
    """Return a node that listens, or the status to end with; then the log says why."""
    node = None
    try:
        with notifier.starting():
            control_path = own_path(config.server.data_dir, os.environ)
            node = open_node(config, config_path=config_path, control_path=control_path)
            await node.start()
            gc.collect()
            gc.freeze()  # what lives as long as the node need not be looked through again
    except ShineError as error:
        log.critical("%s", error)
        notifier.status(str(error))
        if node is None:
            return _status_after(error)
        # Of damage that is met so late, the next start knows, and may go on with another store.
        return _end(node) or (1 if isinstance(error, StoreDamaged) else _status_after(error))
    return node


def _status_after(error: ShineError) -> int:
    """Return the exit status of a start that has failed. Pure."""
    if isinstance(error, _FOR_THE_OWNER):
        return NEEDS_OWNER
    return MISTAKE if isinstance(error, StartMistake | CertificateError | StoreOutOfReach) else 1


def _log_start(node: Node) -> None:
    """Say in the log which node has started, and where from: the first thing that is looked for in one."""
    store, server = read_store(node.store), node.config.server
    text = "SHiNE node %s has started as %s, data in %s: %d users known, %d copies of messages, %d open deliveries"
    log.info(text, __version__, server.login, server.data_dir, store.users, store.messages, store.open_deliveries)


def _end(node: Node) -> int:
    """Remember how a run has ended, and return the exit status."""
    end_run(node.store.path, damage=node.store.damage)
    if node.store.damage and node.config.storage.when_damaged == "stop":
        return NEEDS_OWNER
    return 1 if node.fatal.is_set() else 0


def leave(status: int) -> int:
    """Return the status to end with; end the process where threads of the node would keep it from ending."""
    if any(thread.name.startswith(_THREADS) for thread in threading.enumerate()):
        _end_now(status)
    return status


def _give_up(status: int, seconds: float, first: Callable[[], None]) -> None:
    first()
    log.warning("the stop has taken %g s: what was under way is given up", seconds)
    _end_now(status)


def _end_now(status: int) -> None:
    """End the process, whatever its threads do."""
    logging.shutdown()
    os._exit(status)


async def _reload_when_told(told: asyncio.Event, node: Node) -> None:
    while True:
        await told.wait()
        told.clear()
        await node.reloader.reload_logged()
        raise_file_limit(files_needed(node.config))


def _for_the_manager(node: Node, notifier: Notifier, clock: Clock) -> list[Coroutine[object, object, None]]:
    """Return what is to run beside a node until it stops, for the service manager's sake."""
    work = [_tell_status(node, notifier, clock)]
    if notifier.watchdog_seconds is not None:
        watchdog = Watchdog(
            work=lambda: node.store.write(lambda txn: None),
            position=lambda: node.store.position,
            beat=notifier.alive,
            clock=clock,
            seconds=notifier.watchdog_seconds,
        )
        work.append(watchdog.run())
    return work


async def _tell_status(node: Node, notifier: Notifier, clock: Clock) -> None:
    while True:
        try:
            notifier.status(status_line(await node.status()))
        except ShineError as error:  # such as a store that too many read at this moment
            log.debug("no status for the service manager: %s", error)
        await clock.sleep(STATUS_SECONDS)


def _warn_of_placeholder(config: Config) -> None:
    if is_placeholder(config.server.url):
        log.warning(
            "server.url = %s stands for an address that is still to be set: until then this node works for this machine"
            " alone. Write the address at which others reach it, and restart the node",
            config.server.url,
        )
