"""The commented configuration file, made from the table: ``conf/shine-node.toml``, and what ``init`` writes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from shine_node.configuration.options import PEERS, REQUIRED, SECTIONS, Option, options_of
from shine_node.configuration.toml import toml_value

__all__ = ["render_config"]

_WIDTH = 100
_HEAD = """\
The configuration of a SHiNE node.

Lines that begin with "# " explain. Lines that begin with "#" and a key show an option at its
default: remove the "#" to change it. Options without a default have to be set.

Settings may also lie in files conf.d/*.toml beside this file. They are read after it, in the
order of their names; what a later file says wins: options and lists replace those of an earlier
one.

Options that are "Reloaded" take effect when the running node gets the signal SIGHUP (systemctl
reload), all others at its next start. Where the new configuration has mistakes, the node goes on
with the old one. `shine-node check --config FILE` finds mistakes before they matter."""


def render_config(settings: Mapping[str, str | int | bool | list[str]] | None = None) -> str:
    """Return a configuration file with every option, described, at its default and commented out.

    Args:
        settings: options to set instead, TOML values by their dotted names.
    """
    chosen = dict(settings or {})
    blocks = [_comment(_HEAD)]
    for section in SECTIONS:
        header = f"#[[{PEERS}]]" if section.name == PEERS else f"[{section.name}]"
        blocks.append(f"\n{_comment(_fill(section.text))}\n{header}")
        blocks.extend(_option(option, chosen) for option in options_of(section.name))
    return "\n\n".join(blocks) + "\n"


def _option(option: Option, chosen: Mapping[str, object]) -> str:
    default = "Required" if option.default is REQUIRED else f"Default: {option.default_text}"
    facts = f"Allowed: {option.kind.expected}. {default}. {'Reloaded' if option.reloads else 'Needs a restart'}."
    return f"{_comment(_fill(option.text))}\n{_comment(_fill(facts))}\n{_line(option, chosen)}"


def _line(option: Option, chosen: Mapping[str, object]) -> str:
    if option.name in chosen:
        return f"{option.key} = {toml_value(chosen[option.name])}"
    return f"#{option.key} = {option.default_text}"


def _fill(text: str) -> str:
    return textwrap.fill(text, _WIDTH - 2, break_long_words=False, break_on_hyphens=False)


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))
