"""Before a node opens its store: whether the file can be trusted, and what to go on with where it cannot."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shine_node.protocol.errors import ShineError
from shine_node.store.files import StoreDamaged, examine_file, take_lock
from shine_node.store.recovery.decide import QUIET_MS, Way, decide
from shine_node.store.recovery.state import UNKNOWN, State, is_marked, mark_damage, read_state, write_state
from shine_node.store.recovery.unfinished import finish_placing

__all__ = ["Rules", "end_run", "find_damage", "prepare_store", "recovery_notice"]

log = logging.getLogger(__name__)


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

    Args:
        boot: what tells this start of the machine from others, empty where that is not known.

    Raises:
        StoreDamaged: and nothing is to be put in its place; StoreUnsuitable: it is of another machine or program.
        StoreError: it is in use; OSError: the file cannot be read.
    """
    lock = take_lock(store)
    try:
        finish_placing(store)
        state = read_state(store)
        damage = find_damage(store, state, boot=boot, now_ms=now_ms)
        if damage is not None:
            state = _go_on(store, damage, state, rules, now_ms)
        elif is_marked(store, state):
            text = (
                "%s: damage was met (%s), and every page fits; if it happens again within a day, it counts as damaged"
            )
            log.warning(text, store, state.damage)
            state = state._replace(doubted_at_ms=now_ms)
        state = state._replace(damage="", damaged_inode=0, damaged_position=0)
        try:
            write_state(store, state._replace(known=True, running=boot or UNKNOWN))
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
            write_state(store, read_state(store)._replace(running=""))
    except OSError as error:
        log.warning("how this run has ended cannot be written down (%s): the next start looks longer", error)


def find_damage(store: Path, state: State, *, boot: str, now_ms: int, thorough: bool = False) -> StoreDamaged | None:
    """Return what is wrong with the file of a store whose lock is held.

    What LMDB has met counts where a page does not fit, or where it is met a second time within a day: memory, or the
    way to the disk, may have failed once, and nobody's store is to be replaced for that.

    Raises:
        StoreUnsuitable: it is of another machine or program; OSError: it cannot be read.
    """
    if state.known and store.exists() and store.stat().st_size == 0:
        return StoreDamaged(store, "it is empty, and was not")
    marked = is_marked(store, state)
    unclean = bool(state.running) and state.running in (boot, UNKNOWN)
    try:
        examine_file(store, thorough=thorough or unclean or marked)
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


def _go_on(store: Path, damage: StoreDamaged, state: State, rules: Rules, now_ms: int) -> State:
    """Put another store in the place of the damaged one.

    Raises:
        StoreDamaged: there is none to put there.
    """
    from shine_node.store.recovery import succeed  # only now: it loads what verifies, which a sound store needs not

    looked: list[Path | None] = []

    def backup() -> Path | None:
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
            write_state(store, state._replace(known=True, running=UNKNOWN, damage=damage.reason))
        raise StoreDamaged(store, f"{damage.reason}; {decision.why}") from None
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
    text = "%s was damaged (%s); the node goes on with %s. The damaged file is kept as %s"
    log.critical(text, store, damage.reason, name, kept)
    return State(known=True, recovered_at_ms=now_ms, recovered_from=name, kept=kept.name if kept is not None else "")


def _put(store: Path, damage: StoreDamaged, put: Callable[[], Path | None]) -> Path | None:
    try:
        return put()
    except (OSError, ShineError) as error:
        store.with_name(store.name + ".new").unlink(missing_ok=True)
        raise StoreDamaged(store, f"{damage.reason}; nothing could be put in its place: {error}") from None
