"""``init``: writes a commented configuration file, and never over another one."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from shine_node.cli.common import OK, REFUSED, SubCommands, complain

__all__ = ["add_parser", "run"]

FILE_MODE = 0o640
"""The file may come to hold the registration token: the owner writes it, the service's group reads it."""


def add_parser(commands: SubCommands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "init",
        help="write a configuration file",
        description="Writes a configuration file with every option described. It never overwrites a file.",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="the file to write")
    parser.add_argument("--login", required=True, help="the name of this server among servers")
    parser.add_argument("--url", required=True, help="the address that others reach it at, wss://HOST/ws")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        help="where to listen (default: 127.0.0.1:7070); may be given several times",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="where the data lies; a relative path begins at the configuration file (default: /var/lib/shine-node)",
    )
    parser.add_argument(
        "--allow-insecure-peers", action="store_true", help="allow ws:// without encryption: for trials only"
    )
    parser.add_argument(
        "--allow-private-peers", action="store_true", help="allow peers at loopback and private addresses"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the file, and say what to do next.

    Raises:
        ConfigError: a value of the command line is wrong; nothing was written.
    """
    from shine_node.config import config_from_mapping, render_config

    path: Path = arguments.config
    settings = _settings(arguments)
    config_from_mapping(_nested(settings), base_dir=path.absolute().parent)
    try:
        _write_new(path, render_config(settings))
    except FileExistsError:
        complain(f"{path} is there already and was left as it is: edit it, or name another file")
        return REFUSED
    except OSError as error:
        complain(f"{path} cannot be written ({error.strerror}): make the folder, or choose another one")
        return REFUSED
    name = shlex.quote(str(path))
    print(f"wrote {path}")
    print("Next: read it and set what else you need, for example registration.mode. Then")
    print(f"  shine-node check --config {name}")
    print(f"  shine-node run --config {name}")
    return OK


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, by their dotted names."""
    settings: dict[str, Any] = {"server.login": arguments.login, "server.url": arguments.url}
    if arguments.listen:
        settings["server.listen"] = arguments.listen if len(arguments.listen) > 1 else arguments.listen[0]
    if arguments.data_dir is not None:
        settings["server.dataDir"] = arguments.data_dir
    if arguments.allow_insecure_peers:
        settings["server.pool.allowInsecurePeers"] = True
    if arguments.allow_private_peers:
        settings["server.pool.allowPrivatePeers"] = True
    return settings


def _nested(settings: dict[str, Any]) -> dict[str, object]:
    table: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, key = name.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return table


def _write_new(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor, not a path
            os.fchmod(descriptor, FILE_MODE)  # whatever the umask is
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink()  # a part of a file would only be in the way
        raise
