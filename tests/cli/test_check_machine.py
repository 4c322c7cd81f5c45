import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from shine_node.cli.check_disk import find_disk
from shine_node.cli.check_machine import PRODUCERS, find_ca_file, find_data_dir, find_readable_token, judge_folder
from shine_node.cli.findings import Level, Situation
from shine_node.config import config_from_mapping
from tests.cli.certificates import write_certificate

NOBODY = 65534


def situation(folder, server=None, **sections):
    own = {"login": "home", "url": "wss://home.example/ws", "dataDir": "data", **(server or {})}
    return Situation(config_from_mapping({"server": own, **sections}, base_dir=folder), folder / "node.toml")


def only(findings):
    (finding,) = findings
    return finding


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def without_rights():
    """Not root for a while; whoever is not root already is left alone."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_data_folder_that_is_there(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    finding = only(find_data_dir(situation(tmp_path)))
    assert (finding.level, finding.text) == (Level.OK, f"{tmp_path / 'data'}")


def test_a_data_folder_that_will_be_made(tmp_path):
    finding = only(find_data_dir(situation(tmp_path, {"dataDir": "a/b/c"})))
    assert finding.level is Level.OK and "will be made" in finding.text
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_is_none(tmp_path):
    (tmp_path / "data").write_text("")
    assert "is no folder" in only(find_data_dir(situation(tmp_path))).text
    finding = only(find_data_dir(situation(tmp_path, {"dataDir": "data/inside"})))
    assert finding.level is Level.ERROR and "cannot be reached (Not a directory)" in finding.text


def test_a_data_folder_that_this_user_may_not_use(open_folder):
    closed = open_folder / "data"
    closed.mkdir()
    closed.chmod(0o555)
    with without_rights():
        finding = only(find_data_dir(situation(open_folder)))
        assert finding.level is Level.ERROR and "cannot be written by this user" in finding.text
        finding = only(find_data_dir(situation(open_folder, {"dataDir": "data/inside"})))
        assert finding.level is Level.ERROR and f"cannot make it in {closed}" in finding.text
    closed.chmod(0o000)
    with without_rights():
        inside = situation(open_folder, {"dataDir": "data/inside"})
        finding = only(find_data_dir(inside))
        assert finding.level is Level.ERROR and "cannot be reached (Permission denied)" in finding.text
        assert find_disk(inside)[0].level is not None
    closed.chmod(0o755)


def test_who_may_use_the_data_folder():
    folder = Path("/data")
    assert judge_folder(folder, mode=0o40700, owner=5, user=5) == []
    assert judge_folder(folder, mode=0o40700, owner=0, user=0) == []
    assert only(judge_folder(folder, mode=0o40750, owner=5, user=5)).text.endswith("chmod 700 /data")
    looked = only(judge_folder(folder, mode=0o40700, owner=5, user=0))
    assert looked.level is Level.OK, "whoever installs a package checks as root"
    assert "root, who looks, may do what the node may not" in looked.text
    found = judge_folder(folder, mode=0o40701, owner=5, user=0)
    assert [finding.level for finding in found] == [Level.WARNING, Level.OK]


def test_authorities(tmp_path):
    certificate, key = write_certificate(tmp_path)
    for path, level in ((certificate, Level.OK), (key, Level.ERROR), (tmp_path / "none", Level.ERROR)):
        finding = only(find_ca_file(situation(tmp_path, {"pool": {"caFile": str(path)}})))
        assert finding.level is level and str(path) in finding.text
    assert find_ca_file(situation(tmp_path)) == []


def test_a_token_that_everybody_can_read(tmp_path):
    main = tmp_path / "node.toml"
    (tmp_path / "conf.d").mkdir()
    drop_in = tmp_path / "conf.d" / "a.toml"
    for path in (main, drop_in):
        path.write_text("")
        path.chmod(0o640)
    token = {"registration": {"token": "geheim"}}
    assert find_readable_token(situation(tmp_path, **token)) == []
    drop_in.chmod(0o644)
    finding = only(find_readable_token(situation(tmp_path, **token)))
    assert f"chmod o-r {drop_in}" in finding.text and "geheim" not in finding.text
    assert find_readable_token(situation(tmp_path)) == []


def test_nothing_is_changed(tmp_path):
    for producer in PRODUCERS:
        producer(situation(tmp_path))
    assert list(tmp_path.iterdir()) == []
