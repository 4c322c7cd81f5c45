"""Which owners a peer shares with this server: only their entries are for it (PROTOCOL.md §6)."""

from __future__ import annotations

from collections.abc import Callable

from shine_node.store.environment import Transaction
from shine_node.store.users import other_server

__all__ = ["sharing"]


def sharing(txn: Transaction, server: str, *, own_login: str, login: str | None) -> Callable[[str], bool]:
    """Return what says of an owner, in lower case, whether a page is to have the owner's entries.

    Args:
        server: the asking server's login.
        own_login: this server's login, in lower case.
        login: the one owner that is asked for, in lower case; ``None`` for all.
    """
    known: dict[str, bool] = {}

    def serves(owner: str) -> bool:
        if login is not None and owner != login:
            return False
        if owner not in known:
            other = other_server(txn, owner, own_login)
            known[owner] = other is not None and other.server_login.lower() == server.lower()
        return known[owner]

    return serves
