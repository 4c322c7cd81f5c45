"""The configuration: one TOML file and its drop-ins become a checked, frozen ``Config`` (PROTOCOL.md §10).

The table of options, the reading and the writing are in ``shine_node/configuration``; this is their door.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from shine_node.configuration.addresses import is_placeholder
from shine_node.configuration.build import build_config
from shine_node.configuration.credentials import find_credentials, is_credential, lacks_credentials
from shine_node.configuration.kinds import Surroundings
from shine_node.configuration.model import (
    Config,
    CryptoConfig,
    DeliveryConfig,
    InfoConfig,
    LimitsConfig,
    ListenAddress,
    LogConfig,
    Network,
    PoolConfig,
    RegistrationConfig,
    ServerConfig,
    StorageConfig,
    SyncConfig,
    SyncServer,
)
from shine_node.configuration.options import DEFAULT_DATA_DIR
from shine_node.configuration.problems import ConfigError, Problem
from shine_node.configuration.reload import Reload, plan_reload
from shine_node.configuration.render import render_config
from shine_node.configuration.sources import Source, find_early, read_sources, source_files

__all__ = [
    "Config",
    "ConfigError",
    "CryptoConfig",
    "DeliveryConfig",
    "InfoConfig",
    "LimitsConfig",
    "ListenAddress",
    "LogConfig",
    "Network",
    "PoolConfig",
    "Problem",
    "RegistrationConfig",
    "Reload",
    "ServerConfig",
    "StorageConfig",
    "SyncConfig",
    "SyncServer",
    "config_from_mapping",
    "find_early",
    "is_credential",
    "is_placeholder",
    "lacks_credentials",
    "load_config",
    "plan_reload",
    "read_sources",
    "render_config",
    "source_files",
]

_IS_32_BIT = struct.calcsize("P") == 4


def load_config(path: Path, *, environ: Mapping[str, str] | None = None) -> Config:
    """Read a configuration file and then ``conf.d/*.toml`` beside it, in the order of their names.

    Options and lists in a later file replace those of an earlier one. Entries of ``[[sync_servers]]`` add up, so that
    a peer can be a file of its own; an entry with the login of one in an earlier file replaces that one. Every file
    must be right by itself. Relative paths begin at the folder of ``path``, also those in ``conf.d``.

    Args:
        environ: where ``STATE_DIRECTORY`` is looked up, which replaces the default of ``server.dataDir`` (the first of
            several, as systemd writes them), and ``CREDENTIALS_DIRECTORY``, whose ``tls.crt`` and ``tls.key`` replace
            the defaults of ``server.tlsCert`` and ``server.tlsKey``; the environment of the process where left out.

    Raises:
        ConfigError: with all mistakes of all files; nothing has been changed or made.
    """
    sources = read_sources(path)
    variables = os.environ if environ is None else environ
    state = variables.get("STATE_DIRECTORY", "").partition(":")[0]
    base_dir = path.absolute().parent
    data_dir = base_dir / (state or DEFAULT_DATA_DIR)
    return build_config(sources, Surroundings(base_dir, data_dir, _IS_32_BIT, find_credentials(variables)))


def config_from_mapping(
    mapping: Mapping[str, object],
    *,
    base_dir: Path = Path("/"),
    default_data_dir: Path = Path(DEFAULT_DATA_DIR),
    is_32_bit: bool = _IS_32_BIT,
) -> Config:
    """Make a configuration without a file: from tables as ``tomllib`` returns them, with the keys of the file.

    Pure: the same arguments give the same result, on every machine if ``is_32_bit`` is given.

    Args:
        mapping: such as ``{"server": {"login": "a", "url": "wss://a.example/ws"}}``; tuples may stand for lists.
        base_dir: the absolute folder that relative paths begin at.
        default_data_dir: the default of ``server.dataDir``.
        is_32_bit: whether the limits of a 32-bit system apply to ``storage.mapSizeMiB``.

    Raises:
        ConfigError: with all mistakes.
    """
    return build_config([Source(mapping)], Surroundings(base_dir, default_data_dir, is_32_bit))
