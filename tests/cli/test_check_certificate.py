from pathlib import Path

from shine_node.cli.check_certificate import find_certificate, judge_certificate
from shine_node.cli.findings import Level, Situation
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


def judge(**changes):
    finding = only(judge_certificate(GOOD._replace(**changes), path=PATH, host="home.example", now_ms=NOW))
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
    assert level is Level.ERROR and "expired 3 days ago" in text
    level, text = judge(not_before_ms=NOW + DAY)
    assert level is Level.ERROR and "not valid yet" in text


def test_its_names():
    level, text = judge(names_host=False, names=("a.example", "b.example"))
    assert level is Level.ERROR and "is for a.example, b.example and not for home.example" in text
    assert ", …" in judge(names_host=False, names=("a",) * 6)[1]
    assert "for no name at all" in judge(names_host=False, names=())[1]


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


def test_a_certificate_and_its_key(tmp_path):
    certificate, key = write_certificate(tmp_path)
    finding = only(find_certificate(with_tls(tmp_path, certificate, key)))
    assert finding.level is Level.WARNING and "signed by nobody but itself" in finding.text
    key.chmod(0o604)
    finding = find_certificate(with_tls(tmp_path, certificate, key))[-1]
    assert finding.level is Level.WARNING and f"chmod o-rwx {key}" in finding.text
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
