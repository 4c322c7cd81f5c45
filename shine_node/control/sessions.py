"""``SignOut`` of the operator: all sessions of a user end, and the connections that have them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shine_node.protocol.encoding import read_login
from shine_node.protocol.errors import UserNotFound
from shine_node.store.environment import Store, Transaction
from shine_node.store.sessions import sign_out
from shine_node.store.users import get_registration

__all__ = ["EndSessions", "end_sessions"]

log = logging.getLogger(__name__)


class EndSessions:
    """Answers ``SignOut``."""

    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def end_sessions(self, payload: Mapping[str, Any]) -> dict[str, object]:
        """End them for ``login``. Who has the device key can create a new session.

        Returns:
            How many ``sessions`` there were.

        Raises:
            BadLogin, BadFields, BadRequestFormat: no login.
            UserNotFound: nobody is known by it.
            ServerBusy, StorageFull: not now.
        """
        login = read_login(payload).lower()
        count = await self._store.write(lambda txn: end_sessions(txn, login))
        log.info("the operator has ended the sessions of %s: %d", login, count)
        return {"sessions": count}


def end_sessions(txn: Transaction, login: str) -> int:
    """End all sessions of a user in lower case, and return how many there were.

    Raises:
        UserNotFound: nobody is known by that login; nothing is changed.
    """
    if get_registration(txn, login) is None:
        raise UserNotFound(f"nobody is known here as {login}")
    return sign_out(txn, login)
