"""The process of a node: its signals, its settings of the interpreter and the system, and its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path

import uvloop

from shine_node.api.sockets import FILES_KEPT_FREE, most_sockets
from shine_node.clock import SystemClock
from shine_node.config import Config
from shine_node.control.place import own_path
from shine_node.control.recovery import store_file, store_rules
from shine_node.logs import set_up_logging
from shine_node.node import Node
from shine_node.protocol.errors import ShineError
from shine_node.store.files import StoreDamaged, StoreError, StoreUnsuitable
from shine_node.store.recovery.start import end_run, prepare_store
from shine_node.store.recovery.state import boot_id

__all__ = ["NEEDS_OWNER", "files_needed", "open_node", "raise_file_limit", "run_node"]

log = logging.getLogger(__name__)

NEEDS_OWNER = 78
"""The exit status that ``sysexits.h`` has for a mistake of the owner: ``RestartPreventExitStatus=78`` in the unit."""
THREAD_SWITCH_SECONDS = 0.0005
COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""Requests make no reference cycles; looking for some after every 700 objects is time lost."""
OTHER_FILES = 128
"""The store, sockets that listen, links that are being opened, and what the interpreter has open."""


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

    0 after a signal; 1 if it could not go on, and may be able to when it is started again; ``NEEDS_OWNER`` (78) if it
    cannot go on before its owner has done something about the store: a service manager should not start it again.

    SIGHUP lets it read its certificate and ``config_path`` again.

    It prints ``listening on …`` for each address on standard output once it listens.
    """
    set_up_logging(config.log)
    # A thread that has checked a signature waits this long for the interpreter while the loop is busy. The default
    # of 5 ms would let the loop starve the checks that its own answers wait for.
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    raise_file_limit(files_needed(config))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, config_path))


def open_node(config: Config, *, config_path: Path | None, control_path: Path) -> Node:
    """Make a node once its store can be opened, or another one has been put in the place of a damaged one.

    Raises:
        StoreDamaged: and nothing is to be put in its place; and all that ``Node`` raises.
    """
    _prepare(config)
    try:
        return Node(config, config_path=config_path, control_path=control_path)
    except StoreDamaged as damage:  # the opening has met what the look before it had not seen
        end_run(store_file(config), damage=damage.reason)
    _prepare(config)
    return Node(config, config_path=config_path, control_path=control_path)


def _prepare(config: Config) -> None:
    with contextlib.suppress(OSError):  # the node says what is wrong
        config.server.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not config.server.data_dir.is_dir():
        return
    store = store_file(config)
    try:
        prepare_store(store, store_rules(config), now_ms=SystemClock().now_ms(), boot=boot_id())
    except OSError as error:
        raise StoreError(f"{store} cannot be looked at, or written beside: {error}") from None


async def _run(config: Config, config_path: Path | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    hung_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)  # one that comes before the node has started is not lost
    try:
        control_path = own_path(config.server.data_dir, os.environ)
        node = open_node(config, config_path=config_path, control_path=control_path)
    except ShineError as error:
        log.critical("%s", error)
        return NEEDS_OWNER if isinstance(error, StoreDamaged | StoreUnsuitable) else 1
    try:
        await node.start()
        gc.collect()
        gc.freeze()  # what lives as long as the node need not be looked through again
    except ShineError as error:
        log.critical("%s", error)
        return _end(node) or 1
    for url in node.urls:
        print(f"listening on {url}", flush=True)
    reloading = asyncio.create_task(_reload_when_told(hung_up, node))
    waits = [asyncio.create_task(event.wait()) for event in (stopping, node.fatal)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in (reloading, *waits):
        task.cancel()
    log.info("stopping")
    with contextlib.suppress(asyncio.CancelledError):
        await node.stop()
    return _end(node)


def _end(node: Node) -> int:
    """Remember how a run has ended, and return the exit status."""
    end_run(node.store.path, damage=node.store.damage)
    if node.store.damage and node.config.storage.when_damaged == "stop":
        return NEEDS_OWNER
    return 1 if node.fatal.is_set() else 0


async def _reload_when_told(told: asyncio.Event, node: Node) -> None:
    while True:
        await told.wait()
        told.clear()
        await node.reloader.reload_logged()
        raise_file_limit(files_needed(node.config))
