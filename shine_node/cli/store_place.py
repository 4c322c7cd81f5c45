"""Where the store of a configuration lies, for the commands that read it whole or put another in its place."""

from __future__ import annotations

import os
from pathlib import Path

from shine_node.config import Config
from shine_node.node import STORE_FILE
from shine_node.store.environment import StoreError

__all__ = ["find_store", "protect_store", "store_folder"]


def find_store(config: Config) -> Path:
    """Return the file of the store.

    Raises:
        StoreError: there is none.
    """
    path = config.server.data_dir / STORE_FILE
    try:
        path.stat()
    except FileNotFoundError:
        raise StoreError(f"{path} is not there yet: the first start of the node makes it, or `user add`") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be used ({error.strerror}): run this as its owner, or as root") from None
    return path


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


def protect_store(store: Path, place: Path) -> None:
    """Refuse to write a copy into the data folder itself, where a wrong name would cost the store.

    Raises:
        StoreError: the place is in it.
    """
    if place.parent.exists() and place.parent.samefile(store.parent):
        raise StoreError(f"{place} is in the data folder: choose another folder, at best on another disk")
