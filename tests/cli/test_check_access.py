import os

import pytest

from shine_node.cli import check_access
from shine_node.cli.check_access import find_closed, find_readable_token, find_unreadable, let_in, readers, shut
from shine_node.cli.findings import Level, Situation
from shine_node.cli.node_user import NodeUser
from shine_node.config import load_config

NODE = NodeUser(54321, 54321)
STRANGERS = 54322
ME = NodeUser(os.geteuid(), os.getegid())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")


@pytest.fixture
def etc(open_folder):
    """The folder of a configuration as the package lays it out: the token stands in a drop-in of its own."""
    folder = open_folder / "etc"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "node.toml").write_text('server.login = "home"\nserver.url = "wss://home.example/ws"\n')
    (folder / "conf.d" / "10-this.toml").write_text("")
    (folder / "conf.d" / "20-token.toml").write_text('[registration]\nmode = "token"\ntoken = "geheim"\n')
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def situation(etc, user=ME):
    return Situation(load_config(etc / "node.toml"), etc / "node.toml", user=user)


def only(findings):
    (finding,) = findings
    return finding


def test_a_token_that_everybody_can_read(etc):
    token = etc / "conf.d" / "20-token.toml"
    finding = only(find_readable_token(situation(etc)))
    assert (finding.level, finding.subject) == (Level.WARNING, "registration")
    assert finding.text.startswith(f"{token}, in which the token stands") and "geheim" not in finding.text
    assert finding.text.endswith(f": chmod go-rwx {token}")
    token.chmod(0o640)
    assert find_readable_token(situation(etc)) == []


def test_a_token_in_a_closed_folder_is_read_by_nobody(etc):
    etc.chmod(0o750)
    assert find_readable_token(situation(etc)) == []


def test_a_lock_of_an_editor_is_no_file_of_the_configuration(etc):
    (etc / "conf.d" / ".#2.toml").symlink_to("somebody@here.1234:1")
    assert len(find_readable_token(situation(etc))) == 1
    assert find_unreadable(situation(etc)) == []


@needs_root
def test_what_is_advised_keeps_the_node_in(etc):
    """Files of root's, as sudo makes them, and a node of another user."""
    token = etc / "conf.d" / "20-token.toml"
    finding = only(find_readable_token(situation(etc, NODE)))
    assert finding.text.endswith(f": chgrp 54321 {token} && chmod 640 {token}")
    os.chown(token, 0, NODE.gid)
    assert shut(token, NODE) == f"chmod o-rwx {token}"
    token.chmod(0o640)
    assert find_readable_token(situation(etc, NODE)) == []
    assert find_unreadable(situation(etc, NODE)) == []


@needs_root
def test_what_root_reads_and_the_node_cannot(etc):
    assert find_unreadable(situation(etc, NODE)) == []
    token = etc / "conf.d" / "20-token.toml"
    token.chmod(0o640)
    finding = only(find_unreadable(situation(etc, NODE)))
    assert (finding.level, finding.subject) == (Level.ERROR, "configuration")
    assert finding.text.endswith(f"whom the node runs as: chgrp 54321 {token} && chmod 640 {token}")
    (etc / "conf.d").chmod(0o700)
    finding = only(find_unreadable(situation(etc, NODE)))
    assert finding.text.startswith(f"{etc / 'conf.d'} cannot be read by 54321")
    assert finding.text.endswith(f"chmod 750 {etc / 'conf.d'}")
    etc.chmod(0o700)
    assert only(find_unreadable(situation(etc, NODE))).text.startswith(f"{etc} cannot be read by")
    etc.chmod(0o750)
    os.chown(etc, 0, NODE.gid)
    (etc / "conf.d").chmod(0o755)
    token.chmod(0o644)
    assert find_unreadable(situation(etc, NODE)) == [], "as the package makes it"


@needs_root
def test_what_shuts_a_user_out(etc):
    main = etc / "node.toml"
    assert find_closed(main, NODE) is None
    assert find_closed(etc / "none", NODE) is None
    main.chmod(0o600)
    assert find_closed(main, NODE) == main
    assert find_closed(main, ME) is None
    assert let_in(main, NODE) == f"chgrp 54321 {main} && chmod 640 {main}"


@needs_root
def test_who_else_can_read_a_file(etc, monkeypatch):
    main = etc / "node.toml"
    assert readers(main, NODE) == "every user of this machine"
    main.chmod(0o660)
    assert readers(main, NODE) == "", "root's own group"
    os.chown(main, 0, NODE.gid)
    assert readers(main, NODE) == ""
    os.chown(main, 0, STRANGERS)
    assert readers(main, NODE) == "the group 54322"
    monkeypatch.setattr(check_access, "groups_of", lambda uid, gid: [gid, STRANGERS])
    assert readers(main, NODE) == "", "such as ssl-cert"
    monkeypatch.undo()
    etc.chmod(0o750)
    assert readers(main, NODE) == ""
    os.chown(etc, 0, STRANGERS)
    assert readers(main, NODE) == "the group 54322"
    link = etc.parent / "link"
    link.symlink_to(main)
    assert readers(link, NODE) == "the group 54322"


def test_nothing_else_is_a_token():
    for table in ({}, {"registration": 1}, {"registration": {"token": ""}}, {"registration": {"mode": "token"}}):
        assert not check_access._has_token(table)
