"""What SIGHUP brings into force: a pure comparison of the running configuration with the one just read (§10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from shine_node.configuration.model import Config
from shine_node.configuration.options import OPTIONS, PEERS, Option

__all__ = ["Reload", "plan_reload"]


class Reload(NamedTuple):
    """What a reload does.

    ``config`` is the running configuration with the new values of the options that are reloaded, ``changed`` the
    dotted names of those that differ, ``need_restart`` the names of the others that differ. Names only: no secrets.
    """

    config: Config
    changed: tuple[str, ...]
    need_restart: tuple[str, ...]


def plan_reload(running: Config, read: Config) -> Reload:
    """Say what changes when a configuration that was read without mistakes replaces the running one."""
    config = running
    changed: list[str] = []
    need_restart: list[str] = []
    for option in OPTIONS:
        if option.section == PEERS or _get(running, option) == _get(read, option):
            continue
        if option.reloads:
            changed.append(option.name)
            config = _with(config, (*option.section.split("."), option.attribute), _get(read, option))
        else:
            need_restart.append(option.name)
    if running.sync_servers != read.sync_servers:
        changed.append(PEERS)
        config = replace(config, sync_servers=read.sync_servers)
    return Reload(config, tuple(changed), tuple(need_restart))


def _get(config: Config, option: Option) -> object:
    return attrgetter(f"{option.section}.{option.attribute}")(config)


def _with(part: Any, path: Sequence[str], value: object) -> Any:
    """Return a copy of a part of the configuration in which the attribute at the end of a path has another value."""
    name, *rest = path
    return replace(part, **{name: _with(getattr(part, name), rest, value) if rest else value})
