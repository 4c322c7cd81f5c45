import os
from pathlib import Path

import pytest

from shine_node.cli.check_certificate import find_certificate, judge_certificate
from shine_node.cli.findings import Level, Situation
from shine_node.cli.node_user import NodeUser
from shine_node.config import config_from_mapping
from shine_node.tls import Shown
from tests.cli.certificates import KEY_WITH_A_PASS_PHRASE, write_certificate

DAY = 86_400_000
NOW = 1_774_700_000_000
PATH = Path("/etc/tls/fullchain.pem")
GOOD = Shown(("home.example",), NOW - DAY, NOW + 60 * DAY, True, False, 2, "")


def only(findings):
    (finding,) = findings
    return finding


def judge(*, handed_over=False, **changes):
    shown = GOOD._replace(**changes)
    finding = only(judge_certificate(shown, path=PATH, host="home.example", now_ms=NOW, handed_over=handed_over))
    assert finding.subject == "certificate" and str(PATH) in finding.text
    return finding.level, finding.text


def test_a_good_certificate():
    level, text = judge()
    assert level is Level.OK and text.endswith("is for home.example, 60 days left")


def test_its_time():
    assert judge(not_after_ms=NOW + 21 * DAY)[0] is Level.OK
    level, text = judge(not_after_ms=NOW + 21 * DAY - 1)
    assert level is Level.WARNING and "expires in 20 days: renew it now" in text
    level, text = judge(not_after_ms=NOW - 3 * DAY)
    assert level is Level.ERROR and "expired 3 days ago: renew it; the node reads it by itself then" in text
    for span, words in ((DAY, "1 day"), (DAY - 1, "23 hours"), (5 * 3_600_000, "5 hours"), (60_000, "1 minute")):
        assert f"expired {words} ago" in judge(not_after_ms=NOW - span)[1]
    assert "expired less than a minute ago" in judge(not_after_ms=NOW)[1]
    for left in (DAY, -DAY):
        text = judge(not_after_ms=NOW + left, handed_over=True)[1]
        assert "systemctl restart shine-node" in text and "by itself then" not in text
    level, text = judge(not_before_ms=NOW + DAY)
    assert level is Level.ERROR and "not valid yet" in text


def test_its_names():
    level, text = judge(names_host=False, names=("a.example", "b.example"))
    assert level is Level.ERROR and "is for a.example, b.example and not for home.example" in text
    assert ", …" in judge(names_host=False, names=("a",) * 6)[1]
    assert "for no name at all" in judge(names_host=False, names=())[1]
    level, text = judge(names=())
    assert level is Level.WARNING and "in its subject alone (CN)" in text and "subjectAltName" in text


def test_who_vouches_for_it():
    level, text = judge(self_signed=True, untrusted="self-signed certificate", certificates=1)
    assert level is Level.WARNING and "signed by nobody but itself" in text
    level, text = judge(untrusted="unable to get local issuer certificate", certificates=1)
    assert level is Level.WARNING and "fullchain.pem" in text and "add those between" in text
    level, text = judge(untrusted="unable to get local issuer certificate")
    assert level is Level.WARNING and "server.pool.caFile" in text


def with_tls(folder, certificate, key):
    server = {"login": "home", "url": "wss://localhost/ws", "dataDir": "data"}
    config = config_from_mapping({"server": {**server, "tlsCert": str(certificate), "tlsKey": str(key)}})
    return Situation(config, folder / "node.toml")


def test_a_certificate_with_a_common_name_alone(tmp_path):
    certificate, key = write_certificate(tmp_path, alternative_names=False)
    found = find_certificate(with_tls(tmp_path, certificate, key))
    assert "in its subject alone (CN)" in found[0].text and found[0].level is Level.WARNING


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")
def test_what_the_nodes_user_cannot_read(open_folder):
    certificate, key = write_certificate(open_folder)
    certificate.chmod(0o644)
    of_node = with_tls(open_folder, certificate, key)._replace(user=NodeUser(54321, 54321))
    found = find_certificate(of_node)
    assert found[0].level is Level.ERROR
    assert found[0].text.startswith(f"{key} cannot be read by 54321") and "LoadCredential=" in found[0].text
    os.chown(key, 0, 54321)
    key.chmod(0o640)
    assert {finding.level for finding in find_certificate(of_node)} == {Level.WARNING}
    os.chown(key, 0, 54322)
    key.chmod(0o644)
    os.chown(open_folder, 0, 54322)
    key.chmod(0o660)
    open_folder.chmod(0o755)
    assert find_certificate(of_node)[-1].text.startswith(f"{key} can be read by the group 54322: chgrp 54321 {key}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for somebody else")
def test_credentials_are_roots_to_read(open_folder, monkeypatch):
    certificate, key = write_certificate(open_folder)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(open_folder))
    of_node = with_tls(open_folder, certificate, key)._replace(user=NodeUser(54321, 54321))
    assert "signed by nobody but itself" in only(find_certificate(of_node)).text


def test_credentials_that_are_not_there(tmp_path, monkeypatch):
    config = config_from_mapping({"server": {"login": "home", "url": "wss://localhost/ws"}})
    (tmp_path / "tls.crt").write_text("none")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    finding = only(find_certificate(Situation(config, tmp_path / "node.toml")))
    assert finding.level is Level.WARNING and "LoadCredential=" in finding.text


def test_a_certificate_and_its_key(open_folder):
    tmp_path = open_folder
    certificate, key = write_certificate(tmp_path)
    finding = only(find_certificate(with_tls(tmp_path, certificate, key)))
    assert finding.level is Level.WARNING and "signed by nobody but itself" in finding.text
    key.chmod(0o604)
    finding = find_certificate(with_tls(tmp_path, certificate, key))[-1]
    assert finding.level is Level.WARNING and f"chmod go-rwx {key}" in finding.text
    elsewhere, key = write_certificate(tmp_path, host="other.example", days=3)
    found = find_certificate(with_tls(tmp_path, elsewhere, key))
    assert [finding.level for finding in found] == [Level.WARNING, Level.ERROR, Level.WARNING]
    assert "is for other.example and not for localhost" in found[1].text


def test_without_a_certificate(tmp_path):
    config = config_from_mapping({"server": {"login": "home", "url": "wss://localhost/ws"}})
    assert find_certificate(Situation(config, tmp_path / "node.toml")) == []


def test_certificates_that_cannot_be_used(tmp_path):
    certificate, key = write_certificate(tmp_path)
    other, _ = write_certificate(tmp_path, name="other", seed=b"\1" * 32)
    no_pem = tmp_path / "none.pem"
    no_pem.write_text("nothing")
    locked = tmp_path / "locked.key"
    locked.write_text(KEY_WITH_A_PASS_PHRASE)
    missing = tmp_path / "missing"
    for paths, text in (
        ((other, key), "they do not belong together"),
        ((no_pem, key), "cannot be used"),
        ((certificate, no_pem), "cannot be used"),
        ((certificate, locked), "without a pass phrase"),
        ((missing, key), f"server.tlsCert = {missing} cannot be read (No such file or directory)"),
        ((certificate, missing), f"server.tlsKey = {missing} cannot be read"),
        ((certificate, tmp_path), "cannot be read (Is a directory)"),
    ):
        finding = only(find_certificate(with_tls(tmp_path, *paths)))
        assert finding.level is Level.ERROR and text in finding.text
