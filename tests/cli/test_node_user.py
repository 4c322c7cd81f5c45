import grp
import os
import pwd
from pathlib import Path

import pytest

from shine_node.cli.node_user import NodeUser, as_node, find_node_user, group_name, own_user
from shine_node.cli.owner import NotAllowed
from shine_node.cli.unit import Unit

UNIT = Unit("nobody", "", False, "strict", "yes", (), ())
SOMEBODY = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")


def test_names():
    me = own_user()
    assert me.name == pwd.getpwuid(os.geteuid()).pw_name
    assert me.group == group_name(os.getegid()) == grp.getgrgid(os.getegid()).gr_name
    assert NodeUser(SOMEBODY, SOMEBODY).name == NodeUser(SOMEBODY, SOMEBODY).group == "54321"


def test_whoever_is_not_root_speaks_of_their_own_node(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 5)
    assert find_node_user(tmp_path, UNIT).uid == 5
    with as_node(NodeUser(6, 6)):
        assert os.geteuid() == 5


def test_root_finds_the_user_of_the_unit_or_of_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = pwd.getpwnam("nobody")
    assert find_node_user(tmp_path, UNIT) == NodeUser(nobody.pw_uid, nobody.pw_gid)
    assert find_node_user(tmp_path, UNIT._replace(group="root")).gid == 0
    status = tmp_path.stat()
    for unit in (None, UNIT._replace(user=""), UNIT._replace(user="no-such-user")):
        assert find_node_user(tmp_path, unit) == NodeUser(status.st_uid, status.st_gid)
    assert find_node_user(Path("/nowhere/at/all"), None) == own_user()


@needs_root
def test_root_has_the_rights_of_the_node():
    with as_node(NodeUser(SOMEBODY, SOMEBODY + 1)):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (SOMEBODY, SOMEBODY + 1, [SOMEBODY + 1])
    assert os.geteuid() == 0
    with as_node(NodeUser(0, 0)):
        assert os.geteuid() == 0


def test_root_of_a_container_that_may_not(monkeypatch):
    def refuse(groups):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "setgroups", refuse)
    with pytest.raises(NotAllowed, match="run the check as that user"), as_node(NodeUser(SOMEBODY, SOMEBODY)):
        pass
