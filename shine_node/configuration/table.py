"""What the table of options is made of: sections, and options with their kind, range and default (PROTOCOL.md §10)."""

from __future__ import annotations

import re
from typing import NamedTuple

from shine_node.configuration.kinds import Kind
from shine_node.configuration.toml import toml_value

__all__ = ["REQUIRED", "Option", "Section"]

REQUIRED = None
"""The default of an option that has none."""

Value = str | int | bool | list[int] | list[str] | None


class Section(NamedTuple):
    """A table of the file: its dotted name and a sentence about it."""

    name: str
    text: str
    reloads: bool = False
    """Whether the section as a whole is one thing that is reloaded: of ``[[sync_servers]]``."""


class Option(NamedTuple):
    """One option: where it stands, what it may be, and whether SIGHUP brings a new value into force."""

    section: str
    key: str
    kind: Kind
    default: Value
    text: str
    reloads: bool = False
    example: str = ""
    """What to write as an example where there is no default."""

    @property
    def name(self) -> str:
        """The dotted name, as messages write it."""
        return f"{self.section}.{self.key}"

    @property
    def attribute(self) -> str:
        """The name of the attribute in the configuration's classes: ``pingIdleSeconds`` is ``ping_idle_seconds``."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", self.key.replace("MiB", "Mib")).lower()

    @property
    def default_text(self) -> str:
        """The default, or the example, as TOML writes it."""
        return toml_value(self.example if self.default is REQUIRED else self.default)
