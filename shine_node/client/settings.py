"""Signed settings as a client makes them (PROTOCOL.md §8.4)."""

from __future__ import annotations

from shine_node.client.identity import Identity
from shine_node.protocol.settings import Setting, read_param, setting_text

__all__ = ["make_setting"]


def make_setting(user: Identity, param: str, value: str, *, time_ms: int) -> Setting:
    """Return a setting signed by the user's device key, for ``UpsertUserParam``.

    Args:
        param: its name, 1–64 of ``A-Z a-z 0-9 _ . : -``, no digit first or last.
        value: any text, also an empty one.
        time_ms: when it was set, Unix milliseconds; the newest one of a name counts.

    Raises:
        BadFields: no such name is allowed.
    """
    setting = Setting(user.login, read_param({"param": param}), time_ms, value, user.device.public, b"")
    return setting._replace(signature=user.device.sign(setting_text(setting)))
