"""Before a node opens its store: whether the file can be trusted, and what to go on with where it cannot."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shine_node.protocol.errors import ShineError
from shine_node.store.files import StoreDamaged, StoreSuspect, examine_file, take_lock
from shine_node.store.recovery.decide import QUIET_MS, Way, decide
from shine_node.store.recovery.presence import find_gone, has_bytes
from shine_node.store.recovery.state import (
    UNKNOWN,
    State,
    is_marked,
    mark_damage,
    read_state,
    write_state,
)
from shine_node.store.recovery.unfinished import finish_placing
from shine_node.store.unreadable import REPAIR

__all__ = [
    "LONG_START_SECONDS",
    "MOST_STARTS",
    "Rules",
    "end_run",
    "end_start",
    "find_damage",
    "prepare_store",
    "recovery_notice",
]

log = logging.getLogger(__name__)

MOST_STARTS = 3
"""Starts in a row that may end before the node listens, without a word of it, in one run of the machine."""
LONG_START_SECONDS = 600.0
"""After which nobody may have wanted that a start is broken off: a service manager's time for it may be over."""


class Rules(NamedTuple):
    """What the configuration says of a damaged store."""

    policy: str
    """``storage.whenDamaged``."""
    own_login: str
    """In lower case."""
    map_size: int
    """In bytes."""
    backups: Path
    """The folder."""
    refill_from: tuple[str, ...]
    """Logins of ``[[sync_servers]]``."""


def prepare_store(store: Path, rules: Rules, *, now_ms: int, boot: str) -> None:
    """Look at the store before it is opened, and where it is damaged, put another in its place if the rules say so.

    Every page is looked at only where the node has not ended in order since the machine was started: it may be that
    damage has ended it. After a loss of power the pages that the opening touches are looked at; should others be
    damaged and end the node, the next start finds them.

    The start is counted before that: to look, and to mend a backup, takes memory and time, and may be ended too.

    Args:
        boot: what tells this start of the machine from others, empty where that is not known.

    Raises:
        StoreDamaged: and nothing is to be put in its place; StoreUnsuitable: it is of another machine or program.
        StoreSuspect: ``MOST_STARTS`` starts have ended in the middle.
        StoreError: it is in use; OSError: the file cannot be read.
    """
    lock = take_lock(store)
    try:
        finish_placing(store)
        before = read_state(store)
        looked = _may_be(before.looking, boot)  # and was ended meanwhile
        in_row = looked or _is_unclean(before, boot)
        if looked and before.starts >= MOST_STARTS:
            _stop_starting(store, before)
        running = boot or UNKNOWN
        with contextlib.suppress(OSError):  # it is told below
            write_state(store, before._replace(looking=running, starts=before.starts + 1 if in_row else 1))
        try:
            state = _look(store, before._replace(looking=""), rules, now_ms, boot)
        except (ShineError, OSError):
            _take_back(store, before)
            raise
        try:
            # A new one is known once it is there: until then a start may fail for other reasons.
            known = state.known or has_bytes(store)
            starts = state.starts + 1 if in_row else 1  # of another store that was put there, it is the first one
            write_state(store, state._replace(known=known, running=running, starts=starts))
        except OSError as error:  # a full disk is no obstacle to reading
            log.warning("that the node runs cannot be written down (%s)", error)
    finally:
        os.close(lock)


def end_run(store: Path, *, damage: str = "") -> None:
    """Take note that the node has closed its store in order, and what was found to be wrong with it meanwhile."""
    try:
        if damage:
            mark_damage(store, damage)
        else:
            state = read_state(store)
            write_state(store, state._replace(known=state.known or has_bytes(store), running="", starts=0, looking=""))
    except OSError as error:
        log.warning("how this run has ended cannot be written down (%s): the next start looks longer", error)


def end_start(store: Path, *, seconds: float = 0.0) -> None:
    """Take note that a start has come as far as listening, or was broken off because somebody wanted that.

    Args:
        seconds: how long it took until it was broken off; after ``LONG_START_SECONDS`` its count stays.
    """
    if seconds >= LONG_START_SECONDS:
        return
    try:
        state = read_state(store)
        write_state(store, state._replace(known=state.known or has_bytes(store), starts=0, looking=""))
    except OSError as error:
        log.warning("that the node has started cannot be written down (%s)", error)


def find_damage(store: Path, state: State, *, boot: str, now_ms: int, thorough: bool = False) -> StoreDamaged | None:
    """Return what is wrong with the file of a store whose lock is held.

    What LMDB has met counts where a page does not fit, or where it is met a second time within a day: memory, or the
    way to the disk, may have failed once, and nobody's store is to be replaced for that.

    Raises:
        StoreUnsuitable: it is of another machine or program; OSError: it cannot be read.
    """
    if (gone := find_gone(store, state)) is not None:
        return gone
    marked = is_marked(store, state)
    try:
        examine_file(store, thorough=thorough or marked or _is_unclean(state, boot))
    except StoreDamaged as damage:
        return damage
    again = marked and state.doubted_at_ms and abs(now_ms - state.doubted_at_ms) < QUIET_MS
    return StoreDamaged(store, state.damage) if again else None


def recovery_notice(store: Path, state: State | None = None) -> str:
    """Return what the owner has to know of a store that was put in the place of a damaged one; empty if nothing.

    It is told as long as the damaged file is there.
    """
    state = read_state(store) if state is None else state
    kept = store.with_name(state.kept) if state.kept else None
    if kept is None or not kept.exists():
        return ""
    return (
        f"the store was damaged, and the node goes on with {state.recovered_from}: look after the disk. The damaged"
        f" file is {kept}; remove it when nothing is missing"
    )


def _look(store: Path, state: State, rules: Rules, now_ms: int, boot: str) -> State:
    """Find damage, go on with another store where there is some, and return what is to be remembered then.

    Raises:
        StoreDamaged, StoreUnsuitable, StoreSuspect, OSError: see ``prepare_store``.
    """
    damage = find_damage(store, state, boot=boot, now_ms=now_ms)
    if damage is not None:
        state = _go_on(store, damage, state, rules, now_ms)
    elif is_marked(store, state):
        text = "%s: damage was met (%s), and every page fits; if it happens again within a day, it counts as damaged"
        log.warning(text, store, state.damage)
        state = state._replace(doubted_at_ms=now_ms)
    elif _is_unclean(state, boot) and state.starts >= MOST_STARTS:
        _stop_starting(store, state)
    return state._replace(damage="", damaged_inode=0, damaged_position=0)


def _take_back(store: Path, before: State) -> None:
    """Count a start no more that has failed with a word: what was remembered before it is so again."""
    now = read_state(store)
    if now.looking:  # else it was written meanwhile how it has ended
        with contextlib.suppress(OSError):
            write_state(store, before._replace(placing=now.placing, starts=0, looking=""))


def _is_unclean(state: State, boot: str) -> bool:
    """Say whether the node has not ended in order since the machine was started, or may not have."""
    return _may_be(state.running, boot)


def _may_be(remembered: str, boot: str) -> bool:
    """Say whether what is remembered of a start of the machine, if anything, may be of this one. Pure."""
    return bool(remembered) and remembered in (boot, UNKNOWN)


def _stop_starting(store: Path, state: State) -> None:
    """End a loop of starts that end in the middle; the next one, which somebody wants then, is made again.

    Raises:
        StoreSuspect: always.
    """
    with contextlib.suppress(OSError):
        write_state(store, state._replace(starts=0, looking=""))
    found = (
        f"the last one while {store} was looked at, or mended" if state.looking else f"and every page of {store} fits"
    )
    raise StoreSuspect(
        f"{state.starts} starts in a row have been ended from outside, or by a defect, before the node listened,"
        f" {found}: look into the log, {REPAIR}, see to the memory and the disk of this machine, and start the node"
        " again, or go on from a backup with `shine-node recover --force`"
    )


def _go_on(store: Path, damage: StoreDamaged, state: State, rules: Rules, now_ms: int) -> State:
    """Put another store in the place of the damaged one.

    Raises:
        StoreDamaged: there is none to put there.
    """
    from shine_node.store.recovery import succeed  # only now: it loads what verifies, which a sound store needs not

    looked: list[succeed.Backup | None] = []

    def backup() -> succeed.Backup | None:
        if not looked:
            looked.append(
                succeed.first_sound(succeed.find_backups(rules.backups, rules.own_login), rules.own_login, threads=0)
            )
        return looked[0]

    decision = decide(
        rules.policy,
        has_backup=rules.policy != "stop" and backup() is not None,
        can_refill=bool(rules.refill_from),
        recovered_at_ms=state.recovered_at_ms,
        now_ms=now_ms,
    )
    if decision.way is Way.STOP:
        with contextlib.suppress(OSError):  # the next start looks at every page again
            write_state(store, state._replace(known=True, running=UNKNOWN, damage=damage.reason, starts=0))
        raise damage.because(decision.why) from None
    if decision.way is Way.BACKUP and (source := backup()) is not None:
        name = f"the backup {source}"
        kept = _put(store, damage, lambda: succeed.put_backup(store, source, now_ms=now_ms))
    else:
        name = "a new store that other servers fill: " + ", ".join(rules.refill_from)
        kept = _put(
            store,
            damage,
            lambda: succeed.put_empty(
                store,
                map_size=rules.map_size,
                refill_from=rules.refill_from,
                now_ms=now_ms,
                own_login=rules.own_login,
            ),
        )
    told = f"{store} was damaged ({damage.reason}); the node goes on with {name}."
    log.critical("%s%s", told, f" The damaged file is kept as {kept}" if kept is not None else "")
    return State(known=True, recovered_at_ms=now_ms, recovered_from=name, kept=kept.name if kept is not None else "")


def _put(store: Path, damage: StoreDamaged, put: Callable[[], Path | None]) -> Path | None:
    try:
        return put()
    except (OSError, ShineError) as error:
        store.with_name(store.name + ".new").unlink(missing_ok=True)
        raise damage.because(f"nothing could be put in its place: {error}") from None
