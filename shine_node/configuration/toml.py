"""Values as TOML writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

__all__ = ["is_list", "toml_value"]

_SHOWN_ITEMS = 17


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Say whether a value is a TOML array, or a tuple of a mapping that stands for one."""
    return isinstance(value, list | tuple)


def toml_value(value: object) -> str:
    """Return a value as TOML writes it; what no option holds (tables, long lists, huge numbers) is only hinted at."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL and for halves of surrogate pairs, which TOML cannot hold.
        return re.sub(
            "[\x7f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False)
        )
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else "(a huge number)"
    if isinstance(value, Mapping):
        return "{…}"
    if is_list(value):
        shown = ["[…]" if is_list(item) else toml_value(item) for item in value[:_SHOWN_ITEMS]]
        return f"[{', '.join(shown)}{', …' if len(value) > _SHOWN_ITEMS else ''}]"
    return str(value)
