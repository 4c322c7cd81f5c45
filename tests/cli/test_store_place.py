import contextlib
import os
from pathlib import Path

import pytest

from shine_node.cli import owner
from shine_node.cli.store_place import find_store, open_given, protect_store, settle_store, store_folder
from shine_node.config import load_config
from shine_node.store.environment import Store, StoreError
from shine_node.store.files import StoreGone
from shine_node.store.recovery.state import State, read_state, write_state
from tests.cli.program import write_config


@pytest.fixture
def config(tmp_path):
    return load_config(write_config(tmp_path))


def test_a_store_that_is_there(config, tmp_path):
    with pytest.raises(StoreError, match="is not there yet: the first start"):
        find_store(config)
    folder = store_folder(config)
    assert folder == tmp_path / "data"
    assert folder.stat().st_mode & 0o777 == 0o700
    Store(folder / "shine.mdb", map_size=2**24).close()
    assert find_store(config) == folder / "shine.mdb"
    assert store_folder(config) == folder


def test_a_store_that_is_gone(config, tmp_path):
    store = store_folder(config) / "shine.mdb"
    settle_store(store)
    write_state(store, State(known=True, placing="shine.mdb.damaged-1"))
    for refuse in (settle_store, lambda store: find_store(config)):
        with pytest.raises(StoreGone, match="put it back"):
            refuse(store)
    assert read_state(store).placing == ""
    settle_store(store, may_begin_anew=True)


def test_a_folder_that_cannot_be_used(config, tmp_path, monkeypatch):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StoreError, match=r"data cannot be used \(File exists\): correct server.dataDir"):
        store_folder(config)
    with pytest.raises(StoreError, match=r"shine.mdb cannot be used \(Not a directory\): run this as its owner"):
        find_store(config)


def test_the_data_folder_takes_no_copy(tmp_path):
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(data)
    store = data / "shine.mdb"
    for place in (data / "x", store, tmp_path / "link" / "x", Path(os.path.relpath(data)) / "x"):
        with pytest.raises(StoreError, match="is in the data folder"):
            protect_store(store, place)
    protect_store(store, other / "x")
    protect_store(store, tmp_path / "nowhere" / "x")


def test_a_backup_that_was_named(config, tmp_path, monkeypatch):
    folder = store_folder(config)
    Store(folder / "shine.mdb", map_size=2**24).close()
    os.close(open_given(folder / "shine.mdb", folder))
    (folder / "link").symlink_to("shine.mdb")
    os.close(open_given(folder / "link", folder))
    with pytest.raises(StoreError, match="gone cannot be read: No such file"):
        open_given(folder / "gone", folder)
    (folder / "picture").write_text("of a cat")
    with pytest.raises(StoreError, match="picture is no store of SHiNE node: name a file that `backup` has written"):
        open_given(folder / "picture", folder)


@pytest.mark.parametrize("user", [0, 54321])
def test_a_backup_that_the_nodes_user_may_not_read(config, tmp_path, monkeypatch, user):
    folder = store_folder(config)
    Store(folder / "shine.mdb", map_size=2**24).close()
    (folder / "link").symlink_to("shine.mdb")

    @contextlib.contextmanager
    def refused(folder):
        raise PermissionError(13, "Permission denied")
        yield

    monkeypatch.setattr(owner, "as_owner", refused)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if user == 0:
        os.close(open_given(folder / "shine.mdb", folder))
        with pytest.raises(StoreError, match=r"link cannot be read: .*symbolic links"):
            open_given(folder / "link", folder)
    else:
        with pytest.raises(StoreError, match="cannot be read: Permission denied"):
            open_given(folder / "shine.mdb", folder)
