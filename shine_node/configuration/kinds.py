"""The kinds of values that options have: each reads one TOML value, or says what is wrong with it."""

from __future__ import annotations

import abc
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shine_node.configuration.toml import is_list, toml_value
from shine_node.protocol.errors import ShineError

__all__ = [
    "BadValue",
    "Choice",
    "Credential",
    "DataDir",
    "File",
    "Flag",
    "Folder",
    "Kind",
    "MapSize",
    "Number",
    "Rising",
    "Secret",
    "Surroundings",
    "Text",
]

MAX_PATH_CHARACTERS = 4096
MAP_SIZE_MIB_32_BIT = 1024
MAX_MAP_SIZE_MIB_32_BIT = 2048
_SHOWN_CHARACTERS = 80
HIDDEN = "(not shown)"
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")  # all but the line feed


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the reading of a value depends on beside the value."""

    base_dir: Path
    """The absolute folder that relative paths begin at."""
    default_data_dir: Path
    is_32_bit: bool
    credentials: Mapping[str, Path] = field(default_factory=dict)
    """The files that the service manager has handed over, by name."""


class BadValue(ShineError):
    """A value that its option cannot have; the text goes on after ``key = value``: "is out of range"."""


class Kind(abc.ABC):
    """One kind of value."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """What to write, with the range, as a part of a sentence."""

    @abc.abstractmethod
    def parse(self, value: object, around: Surroundings) -> Any:
        """Return what a TOML value stands for.

        Raises:
            BadValue: a wrong type, or outside the range.
        """

    def parse_default(self, value: object, around: Surroundings) -> Any:
        """Return what the default of the table stands for here."""
        return self.parse(value, around)

    def show(self, value: object) -> str:
        """Return a value as a message may show it: short, and without secrets."""
        text = toml_value(value)
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A whole number from ``low`` to ``high``, both included."""

    low: int
    high: int

    @property
    def expected(self) -> str:
        """The range."""
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, value: object, around: Surroundings) -> int:
        """Return the number; ``true`` is none, and neither is ``1.0``."""
        number = _whole_number(value)
        if not self.low <= number <= self.high:
            raise BadValue("is out of range")
        return number


@dataclass(frozen=True, slots=True)
class MapSize(Number):
    """A size of the store's map, MiB, that the address space of a 32-bit system has to hold too."""

    @property
    def expected(self) -> str:
        """The ranges of both."""
        return (
            f"a whole number from {self.low} to {self.high}"
            f" (on 32-bit systems at most {MAX_MAP_SIZE_MIB_32_BIT}, and the default is {MAP_SIZE_MIB_32_BIT})"
        )

    def parse(self, value: object, around: Surroundings) -> int:
        """Return the number."""
        number = _whole_number(value)
        if not self.low <= number <= (MAX_MAP_SIZE_MIB_32_BIT if around.is_32_bit else self.high):
            raise BadValue("is out of range")
        return number

    def parse_default(self, value: object, around: Surroundings) -> int:
        """Return the default of this system."""
        return MAP_SIZE_MIB_32_BIT if around.is_32_bit else self.parse(value, around)


@dataclass(frozen=True, slots=True)
class Rising(Kind):
    """Between 1 and ``most`` whole numbers, the first 0, each greater than the one before, none over ``high``."""

    most: int
    high: int

    @property
    def expected(self) -> str:
        """The range."""
        return (
            f"a list of 1 to {self.most} whole numbers, the first 0, each greater than the last, none over {self.high}"
        )

    def parse(self, value: object, around: Surroundings) -> tuple[int, ...]:
        """Return the numbers."""
        if not is_list(value):
            raise BadValue("is no list")
        numbers = tuple(_whole_number(item, "has an entry that is no whole number") for item in value)
        if not 1 <= len(numbers) <= self.most:
            raise BadValue(f"has {len(numbers)} entries")
        if numbers[0] != 0:
            raise BadValue("does not begin with 0")
        if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
            raise BadValue("does not rise")
        if numbers[-1] > self.high:
            raise BadValue("is out of range")
        return numbers


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """``true`` or ``false``."""

    @property
    def expected(self) -> str:
        """Both words."""
        return "true or false"

    def parse(self, value: object, around: Surroundings) -> bool:
        """Return the flag; 0, 1 and texts are none."""
        if not isinstance(value, bool):
            raise BadValue("is neither true nor false")
        return value


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The words."""
        quoted = [f'"{word}"' for word in self.words]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    def parse(self, value: object, around: Surroundings) -> str:
        """Return the word."""
        if text_of(value) not in self.words:
            raise BadValue("is none of the choices")
        return text_of(value)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text of at most ``most`` characters, without control characters other than the line feed."""

    most: int

    @property
    def expected(self) -> str:
        """The range."""
        return f"a text of at most {self.most} characters"

    def parse(self, value: object, around: Surroundings) -> str:
        """Return the text."""
        text = text_of(value)
        if len(text) > self.most:
            raise BadValue(f"has {len(text)} characters")
        _refuse_control(text)
        return text


@dataclass(frozen=True, slots=True)
class Secret(Text):
    """A text that no message shows."""

    def show(self, value: object) -> str:
        """Return a placeholder."""
        return HIDDEN


@dataclass(frozen=True, slots=True)
class File(Kind):
    """The path of a file; an empty text is no file."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return 'the path of a file, or "" for none; a relative one begins at the folder of the configuration file'

    def parse(self, value: object, around: Surroundings) -> Path | None:
        """Return the absolute path."""
        return _path(value, around) if text_of(value) else None


@dataclass(frozen=True, slots=True)
class Credential(File):
    """The path of a file that the service manager may hand over under a name."""

    name: str

    def parse_default(self, value: object, around: Surroundings) -> Path | None:
        """Return the file that was handed over, or none."""
        return around.credentials.get(self.name)


@dataclass(frozen=True, slots=True)
class Folder(File):
    """The path of a folder; an empty text is none."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return 'the path of a folder, or "" for none; a relative one begins at the folder of the configuration file'


@dataclass(frozen=True, slots=True)
class DataDir(Kind):
    """The path of the folder where the data lies."""

    @property
    def expected(self) -> str:
        """The grammar."""
        return "the path of a folder; a relative one begins at the folder of the configuration file"

    def parse(self, value: object, around: Surroundings) -> Path:
        """Return the absolute path."""
        if not text_of(value):
            raise BadValue("is empty")
        return _path(value, around)

    def parse_default(self, value: object, around: Surroundings) -> Path:
        """Return the default of these surroundings."""
        return around.default_data_dir


def _whole_number(value: object, otherwise: str = "is no whole number") -> int:
    if not isinstance(value, int) or isinstance(value, bool):  # bool is a kind of int to Python
        raise BadValue(otherwise)
    return value


def text_of(value: object) -> str:
    """Return a value that must be a text, or raise ``BadValue``."""
    if not isinstance(value, str):
        raise BadValue("is no text in quotes")
    return value


def _refuse_control(text: str) -> None:
    if _CONTROL.search(text):
        raise BadValue("holds a control character")


def _path(value: object, around: Surroundings) -> Path:
    text = text_of(value)
    if len(text) > MAX_PATH_CHARACTERS:
        raise BadValue(f"has {len(text)} characters")
    if "\n" in text:
        raise BadValue("holds a control character")
    _refuse_control(text)
    if text.startswith("~"):
        raise BadValue("begins with ~, which only a shell understands")
    return around.base_dir / text
