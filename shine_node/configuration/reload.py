"""What SIGHUP brings into force: a pure comparison of the running configuration with the one just read (§10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from shine_node.configuration.model import Config, SyncServer
from shine_node.configuration.options import OPTIONS, PEERS, Option

__all__ = ["Reload", "plan_reload"]


class Reload(NamedTuple):
    """What a reload does.

    ``config`` is the running configuration with the new values of the options that are reloaded, ``changed`` the
    dotted names of those that differ, ``need_restart`` the names of the others that differ. ``values`` says for each
    of these names what was and what is there now, as TOML writes it; of a secret only that it changed.
    """

    config: Config
    changed: tuple[str, ...]
    need_restart: tuple[str, ...]
    values: Mapping[str, str]

    def describe(self, names: Iterable[str]) -> str:
        """Return some of the names with their values as a part of a sentence."""
        return ", ".join(f"{name} ({self.values[name]})" for name in names) or "nothing"


def plan_reload(running: Config, read: Config) -> Reload:
    """Say what changes when a configuration that was read without mistakes replaces the running one."""
    config = running
    changed: list[str] = []
    need_restart: list[str] = []
    values: dict[str, str] = {}
    for option in OPTIONS:
        if option.section == PEERS or _get(running, option) == _get(read, option):
            continue
        before, after = (option.kind.show(_toml(_get(part, option))) for part in (running, read))
        values[option.name] = "changed" if before == after else f"{before} → {after}"
        if option.reloads:
            changed.append(option.name)
            config = _with(config, (*option.section.split("."), option.attribute), _get(read, option))
        else:
            need_restart.append(option.name)
    if running.sync_servers != read.sync_servers:
        changed.append(PEERS)
        config = replace(config, sync_servers=read.sync_servers)
        values[PEERS] = _peers(running.sync_servers, read.sync_servers)
    return Reload(config, tuple(changed), tuple(need_restart), values)


def _peers(before: Sequence[SyncServer], after: Sequence[SyncServer]) -> str:
    """Return which peers are new, gone, or elsewhere now."""
    old, new = ({peer.login: peer.url for peer in peers} for peers in (before, after))
    differ = [login for login in {**old, **new} if old.get(login) != new.get(login)]
    texts = [f"{login}: {old.get(login, 'none')} → {new.get(login, 'none')}" for login in differ]
    return ", ".join(texts) or "in another order"


def _toml(value: object) -> object:
    """Return a value of the configuration as its option is written."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return [_toml(item) for item in value]
    return value if isinstance(value, bool | int) else str(value)


def _get(config: Config, option: Option) -> object:
    return attrgetter(f"{option.section}.{option.attribute}")(config)


def _with(part: Any, path: Sequence[str], value: object) -> Any:
    """Return a copy of a part of the configuration in which the attribute at the end of a path has another value."""
    name, *rest = path
    return replace(part, **{name: _with(getattr(part, name), rest, value) if rest else value})
