"""Which server's a store is: its login stands in the store, so that a backup says whose it is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from shine_node.protocol.errors import Refusal
from shine_node.protocol.logins import is_login
from shine_node.store.environment import Store, Transaction
from shine_node.store.files import StoreError
from shine_node.store.layout import Table
from shine_node.store.schema import StoreOutdated
from shine_node.store.view import open_view

__all__ = ["OWNER_KEY", "OtherServer", "check_owner", "get_owner", "note_owner", "put_owner", "read_owner"]

log = logging.getLogger(__name__)

OWNER_KEY: Final = b"server_login"


class OtherServer(StoreError):
    """This is another server's store; the text says whose."""


def get_owner(txn: Transaction) -> str:
    """Return the login of the server whose store it is, in lower case; empty where the store does not say."""
    value = (txn.get(Table.META, OWNER_KEY) or b"").decode("ascii", "replace")
    return value if is_login(value) else ""


def put_owner(txn: Transaction, own_login: str) -> str:
    """Keep the login of the server (in lower case) whose store it is, and return the one of before."""
    before = get_owner(txn)
    if before != own_login:
        txn.put(Table.META, OWNER_KEY, own_login.encode())
    return before


async def note_owner(store: Store, own_login: str) -> None:
    """Keep the login (in lower case) of the server that serves a store; where it is another one, it was renamed."""
    with store.read() as txn:
        before = get_owner(txn)
    if before == own_login:
        return
    if before:
        text = "%s was the store of the server %s until now, and is that of %s: it was renamed in the configuration"
        log.warning(text, store.path, before, own_login)
    try:
        await store.write(lambda txn: put_owner(txn, own_login))
    except Refusal as refusal:  # a full disk is no obstacle to reading
        log.warning("whose store it is cannot be written: %s", refusal)


def read_owner(path: Path) -> str:
    """Return whose a store is that nobody has open, such as a backup; empty where one of an older schema is looked at.

    Raises:
        StoreError: it cannot be looked into.
    """
    try:
        with open_view(path, lock=False) as view, view.read() as txn:
            return get_owner(txn)
    except StoreOutdated:
        return ""


def check_owner(path: Path, owner: str, own_login: str) -> None:
    """Refuse the backup of another server; one that does not say whose it is may be of any.

    Args:
        owner: as the backup says.
        own_login: of this server, in lower case.

    Raises:
        OtherServer: it is another's.
    """
    if owner and owner != own_login:
        raise OtherServer(
            f"{path} is a backup of the server {owner}, and this one is {own_login}: name one of this server, or add"
            " --force if it was renamed"
        )
