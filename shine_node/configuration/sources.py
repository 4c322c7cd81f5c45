"""The files of a configuration: found, read and parsed as TOML, nothing more (PROTOCOL.md §10)."""

from __future__ import annotations

import contextlib
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shine_node.configuration.lines import KeyPath, find_lines, line_of
from shine_node.configuration.problems import ConfigError, Origin, Problem

__all__ = ["MAX_FILE_BYTES", "Source", "find_early", "read_sources", "source_files"]

MAX_FILE_BYTES = 256 * 1024
_SUDO = "use sudo, or an account of the file's group"
_PARSER_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True)
class Source:
    """One table of settings: that of a file, or one from elsewhere, which has no name and no lines."""

    table: Mapping[str, object]
    name: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Return where a key was written."""
        return Origin(self.name, line_of(self.lines, path))


def read_sources(path: Path) -> list[Source]:
    """Read the file and then the files of ``conf.d/*.toml`` beside it, in the order of their names.

    Names that begin with a dot are passed over. Each file is at most 256 KiB.

    Raises:
        ConfigError: for every file that cannot be read or is not TOML.
    """
    problems: list[Problem] = []
    sources: list[Source] = []
    for file in _files(path, problems):
        try:
            sources.append(_read_source(file))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return sources


def source_files(path: Path) -> list[Path]:
    """Return the file and then those of ``conf.d`` beside it that are read with it, as ``read_sources`` takes them.

    Raises:
        ConfigError: the folder cannot be read.
    """
    problems: list[Problem] = []
    files = _files(path, problems)
    if problems:
        raise ConfigError(problems)
    return files


def find_early(path: Path, section: str, key: str) -> object:
    """Return what the files say of an option of a section, whatever else is wrong in them; ``None`` where nothing.

    The value is not checked. Files that cannot be read, or are no TOML, are passed over.
    """
    found: object = None
    for file in _files(path, []):
        with contextlib.suppress(ConfigError):
            table = _read_source(file).table.get(section)
            if isinstance(table, Mapping) and key in table:
                found = table[key]
    return found


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    return [path, *_drop_ins(path.parent / "conf.d", problems)]


def _drop_ins(folder: Path, problems: list[Problem]) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".toml" and not file.name.startswith("."))
    except FileNotFoundError:
        return []
    except PermissionError:
        problems.append(Problem(Origin(str(folder)), f"cannot be read by this user: {_SUDO}"))
        return []
    except OSError as error:
        what = "make it a folder that this user can read, or remove it"
        problems.append(Problem(Origin(str(folder)), f"cannot be read ({error.strerror}): {what}"))
        return []


def _read_source(file: Path) -> Source:
    name = str(file)
    text = _decode(_read_bytes(file), name)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise _error(name, "is nested too deeply: no setting needs that") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of thousands of digits
        message = str(error)
        place = _PARSER_LINE.search(message)
        if place is None:
            raise _error(name, f"is not valid TOML: {message}") from None
        reason = f"is not valid TOML at column {place[2]}: {message[: place.start()]}"
        raise _error(name, reason, int(place[1])) from None
    return Source(table, name, find_lines(text))


def _read_bytes(file: Path) -> bytes:
    name = str(file)
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # opening a pipe would wait
            raise _error(name, "is no file: name the configuration file itself")
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _error(name, "there is no such file: `shine-node init` writes one") from None
    except PermissionError:
        raise _error(name, f"cannot be read by this user: {_SUDO}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise _error(name, f"cannot be read ({reason}): let this user read it") from None
    if len(data) > MAX_FILE_BYTES:
        raise _error(name, f"is larger than {MAX_FILE_BYTES} bytes: no configuration needs that")
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _error(name, "is not UTF-8: save it in that encoding", line) from None


def _error(name: str, text: str, line: int = 0) -> ConfigError:
    return ConfigError([Problem(Origin(name, line), text)])
