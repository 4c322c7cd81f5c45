"""Tables of settings become a ``Config``, or a list of everything that is wrong with them (PROTOCOL.md §10)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shine_node.configuration.kinds import BadValue, Surroundings
from shine_node.configuration.lines import KeyPath
from shine_node.configuration.model import (
    Config,
    CryptoConfig,
    DeliveryConfig,
    InfoConfig,
    LimitsConfig,
    LogConfig,
    PoolConfig,
    RegistrationConfig,
    ServerConfig,
    StorageConfig,
    SyncConfig,
    SyncServer,
)
from shine_node.configuration.options import OPTIONS, PEERS, REQUIRED, SECTIONS, Option, options_of
from shine_node.configuration.problems import ConfigError, Origin, Problem
from shine_node.configuration.rules import broken_rules
from shine_node.configuration.sources import Source
from shine_node.configuration.toml import is_list, toml_value

__all__ = ["build_config"]

_OPTIONS = {(*option.section.split("."), option.key): option for option in OPTIONS if option.section != PEERS}
_SECTIONS = {tuple(section.name.split(".")) for section in SECTIONS if section.name != PEERS}
_PEER_OPTIONS = {option.key: option for option in options_of(PEERS)}
_NAMES: dict[str, list[str]] = {}
"""The dotted names of options and sections by their last part in lower case."""
for _known in (*OPTIONS, *SECTIONS):
    _NAMES.setdefault(_known.name.rpartition(".")[2].lower(), []).append(_known.name)
_BARE_KEY = re.compile(r"[A-Za-z0-9_\-]{1,40}")


class _Peer(NamedTuple):
    server: SyncServer
    source: Source
    path: KeyPath


class _Reader:
    """Reads sources one after the other; what a later one says wins."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.peers: dict[str, _Peer] = {}
        self.problems: list[Problem] = []
        self.wrong: set[str] = set()
        """The names of options that were written, but wrongly."""

    def read(self, source: Source) -> None:
        """Read one source; mistakes are noted, and the reading goes on."""
        self._read_table(source, (), source.table)

    def complete(self, main: Source) -> None:
        """Add the defaults of all that was not written."""
        for option in _OPTIONS.values():
            if option.name in self.values or option.name in self.wrong:
                continue
            if option.default is REQUIRED:
                origin = Origin(main.name)
                self._complain(origin, f"{option.name} is missing: {_below(option, f'[{option.section}]')}")
            else:
                self.values[option.name] = option.kind.parse_default(option.default, self.around)

    def check_rules(self, main: Source) -> None:
        """Note the rules between options that are broken."""
        for broken in broken_rules(self.values, {key: peer.server for key, peer in self.peers.items()}):
            if broken.peer:
                peer = self.peers[broken.peer]
                origin = peer.source.origin((*peer.path, broken.name.rpartition(".")[2]))
            else:
                origin = self.origins.get(broken.name) or self.origins.get(broken.other) or Origin(main.name)
            self._complain(origin, broken.text)

    def _read_table(self, source: Source, path: tuple[str, ...], table: Mapping[str, object]) -> None:
        for key, value in table.items():
            here = (*path, key)
            if here in _OPTIONS:
                self._read_option(source, here, _OPTIONS[here], value)
            elif here == (PEERS,):
                self._read_peers(source, value)
            elif here not in _SECTIONS:
                self._complain(source.origin(here), _unknown(here))
            elif isinstance(value, Mapping):
                self._read_table(source, here, value)
            else:
                self._complain(source.origin(here), f"{'.'.join(here)} is a section: write [{'.'.join(here)}]")

    def _read_option(self, source: Source, path: KeyPath, option: Option, value: object) -> None:
        try:
            self.values[option.name] = option.kind.parse(value, self.around)
        except BadValue as problem:
            self.wrong.add(option.name)
            self.values.pop(option.name, None)  # no rule is to judge what an earlier source said
            self._complain(source.origin(path), _wrong(option, value, problem))
        else:
            self.origins[option.name] = source.origin(path)

    def _read_peers(self, source: Source, value: object) -> None:
        entries = value if is_list(value) else ()
        if not is_list(value) or not all(isinstance(entry, Mapping) for entry in entries):
            self._complain(source.origin((PEERS,)), f"{PEERS} is a list of sections: write [[{PEERS}]]")
            return
        seen: set[str] = set()
        for number, entry in enumerate(entries):
            path: KeyPath = (PEERS, number)
            server = self._read_peer(source, path, entry)
            if server is None:
                continue
            key = server.login.lower()
            if key in seen:
                text = f'{PEERS}.login = "{server.login}" stands twice: remove one of the two entries'
                self._complain(source.origin((*path, "login")), text)
            seen.add(key)
            self.peers[key] = _Peer(server, source, path)

    def _read_peer(self, source: Source, path: KeyPath, entry: Any) -> SyncServer | None:
        count = len(self.problems)
        values: dict[str, str] = {}
        for key, value in entry.items():
            if key not in _PEER_OPTIONS:
                self._complain(source.origin((*path, key)), _unknown((PEERS, key)))
                continue
            option = _PEER_OPTIONS[key]
            try:
                values[key] = option.kind.parse(value, self.around)
            except BadValue as problem:
                self._complain(source.origin((*path, key)), _wrong(option, value, problem))
        for option in _PEER_OPTIONS.values():
            if option.key not in entry:
                self._complain(source.origin(path), f"{option.name} is missing: {_below(option, f'[[{PEERS}]]')}")
        return SyncServer(**values) if len(self.problems) == count else None

    def _complain(self, origin: Origin, text: str) -> None:
        self.problems.append(Problem(origin, text))


def build_config(sources: Sequence[Source], around: Surroundings) -> Config:
    """Make the configuration that some sources, the main one first, describe together.

    Options and lists in a later source replace those of an earlier one. Entries of ``sync_servers`` add up; one with a
    login that an earlier source has replaces that entry.

    Raises:
        ConfigError: with every mistake of all sources, in their order.
    """
    reader = _Reader(around)
    for source in sources:
        reader.read(source)
    reader.complete(sources[0])
    reader.check_rules(sources[0])
    if reader.problems:
        raise ConfigError(_in_order(reader.problems, [source.name for source in sources]))
    return _config(reader.values, tuple(peer.server for peer in reader.peers.values()))


def _in_order(problems: Iterable[Problem], names: list[str]) -> list[Problem]:
    def place(problem: Problem) -> tuple[int, bool, int]:
        file, line = problem.origin
        return (names.index(file) if file in names else len(names)), not line, line

    return sorted(problems, key=place)


def _config(values: Mapping[str, Any], peers: tuple[SyncServer, ...]) -> Config:
    def of(section: str) -> dict[str, Any]:
        return {option.attribute: values[option.name] for option in options_of(section)}

    return Config(
        server=ServerConfig(**of("server"), info=InfoConfig(**of("server.info")), pool=PoolConfig(**of("server.pool"))),
        sync_servers=peers,
        delivery=DeliveryConfig(**of("delivery")),
        sync=SyncConfig(**of("sync")),
        crypto=CryptoConfig(**of("crypto")),
        storage=StorageConfig(**of("storage")),
        registration=RegistrationConfig(**of("registration")),
        limits=LimitsConfig(**of("limits")),
        log=LogConfig(**of("log")),
    )


def _wrong(option: Option, value: object, problem: BadValue) -> str:
    text = f"{option.name} = {option.kind.show(value)} {problem}: write {option.kind.expected}"
    return text if option.default is REQUIRED else f"{text}, or remove it for the default, {option.default_text}"


def _unknown(path: tuple[str, ...]) -> str:
    import difflib  # not above: a node that runs needs none of it

    # The value is not shown: a token under a misspelt name is still a token.
    name = ".".join(part if _BARE_KEY.fullmatch(part) else toml_value(part[:40]) for part in path)
    keys = difflib.get_close_matches(path[-1].lower()[:100], _NAMES, n=1, cutoff=0.75)
    found = _NAMES[keys[0]] if keys else []
    found = [known for known in found if known.rpartition(".")[0] == ".".join(path[:-1])] or found
    hint = f"did you mean {' or '.join(found)}? Correct it or" if found else "it has no effect here, so"
    return f"{name} is no setting of this program: {hint} remove it"


def _below(option: Option, header: str) -> str:
    return f"write it below {header}, for example {option.key} = {option.default_text}"
