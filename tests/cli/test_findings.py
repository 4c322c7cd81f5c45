from shine_node.cli.findings import Finding, Level, Situation, as_json, exit_status, report
from shine_node.cli.node_user import NodeUser, own_user
from shine_node.config import config_from_mapping

OK = Finding(Level.OK, "disk", "fine")
WARNING = Finding(Level.WARNING, "configuration", "hm")
ERROR = Finding(Level.ERROR, "url", "no")


def test_the_worst_finding_decides():
    assert exit_status([]) == exit_status([OK]) == 0
    assert exit_status([OK, WARNING, OK]) == 1
    assert exit_status([WARNING, ERROR, OK]) == 2


def test_the_report():
    assert report([OK]) == "ok       disk  fine\nall is well"
    assert report([OK, WARNING]) == "ok       disk           fine\nwarning  configuration  hm\n1 warning"
    assert report([ERROR, WARNING, WARNING]).endswith("\n1 error, 2 warnings")
    assert report([ERROR, ERROR]).endswith("\n2 errors")
    assert report([]) == "all is well"


def test_the_findings_for_programs():
    assert as_json([OK, WARNING]) == {
        "status": 1,
        "findings": [
            {"level": "ok", "subject": "disk", "text": "fine"},
            {"level": "warning", "subject": "configuration", "text": "hm"},
        ],
    }


def test_whom_the_node_runs_as(tmp_path):
    server = {"login": "home", "url": "wss://home.example/ws"}
    situation = Situation(config_from_mapping({"server": server}), tmp_path / "node.toml")
    assert situation.node == own_user()
    assert situation._replace(user=NodeUser(5, 6)).node == NodeUser(5, 6)
