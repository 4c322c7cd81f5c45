"""Where the store of a configuration lies, for the commands that read it whole or put another in its place."""

from __future__ import annotations

import os
from pathlib import Path

from shine_node.config import Config
from shine_node.node import STORE_FILE
from shine_node.store.environment import StoreError
from shine_node.store.recovery.presence import refuse_gone
from shine_node.store.recovery.unfinished import finish_unheld

__all__ = ["find_store", "open_given", "protect_store", "settle_store", "store_folder"]


def find_store(config: Config) -> Path:
    """Return the file of the store.

    Raises:
        StoreError: there is none; StoreGone: there was one.
    """
    path = config.server.data_dir / STORE_FILE
    try:
        refuse_gone(path)
        path.stat()
    except FileNotFoundError:
        raise StoreError(f"{path} is not there yet: the first start of the node makes it, or `user add`") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be used ({error.strerror}): run this as its owner, or as root") from None
    return path


def settle_store(store: Path, *, may_begin_anew: bool = False) -> None:
    """Make ready to open, and so perhaps to make, the store of a node that does not run.

    Args:
        may_begin_anew: a new one may be made where there was one that is gone.

    Raises:
        StoreGone: there was one; StoreError: it is in use; OSError: it cannot be looked at.
    """
    finish_unheld(store)
    if not may_begin_anew:
        refuse_gone(store)


def store_folder(config: Config) -> Path:
    """Return the data folder, which is made where there is none.

    Raises:
        StoreError: that cannot be done, or this user may not look into it.
    """
    folder = config.server.data_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.scandir(folder):
            return folder
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be used ({error.strerror}): correct server.dataDir, or run this as its owner or as root"
        ) from None


def open_given(path: Path, folder: Path) -> int:
    """Open a backup that somebody names, to put it in the place of the store; the descriptor is to be closed.

    Root opens it as the owner of the data folder, and only what that user cannot read as root: then it must be no link,
    which that user could have made to have root copy what is not for that user.

    Args:
        folder: the data folder.

    Raises:
        StoreError: it cannot be read, or begins like no store.
    """
    from shine_node.cli.owner import as_owner
    from shine_node.store.recovery.backups import open_backup
    from shine_node.store.structure import is_store

    try:
        try:
            with as_owner(folder):
                descriptor = open_backup(path)
        except PermissionError:
            if os.geteuid() != 0:
                raise
            descriptor = open_backup(path, link=False)
        if not is_store(descriptor):
            os.close(descriptor)
            raise StoreError(f"{path} is no store of SHiNE node: name a file that `backup` has written")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    return descriptor


def protect_store(store: Path, place: Path) -> None:
    """Refuse to write a copy into the data folder itself, where a wrong name would cost the store.

    Raises:
        StoreError: the place is in it.
    """
    if place.parent.exists() and place.parent.samefile(store.parent):
        raise StoreError(f"{place} is in the data folder: choose another folder, at best on another disk")
