from shine_node.cli.check import find
from shine_node.cli.commands import run_command
from shine_node.cli.findings import Level
from tests.cli.program import run_program, write_config


def check(path, capsys):
    status = run_command(["check", "--config", str(path)])
    shown, said = capsys.readouterr()
    assert said == ""
    return status, shown


def test_all_is_well(tmp_path, capsys):
    path = write_config(tmp_path)
    status, shown = check(path, capsys)
    assert status == 0
    assert shown.startswith(f"ok       configuration  {path} has no mistakes\n")
    assert shown.endswith("\nall is well\n")
    assert {"listen", "url", "registration", "dataDir", "disk"} < {finding.subject for finding in find(path)}
    assert not (tmp_path / "data").exists()


def test_warnings(tmp_path, capsys):
    status, shown = check(write_config(tmp_path, "[registration]\ntoken = 'geheim'"), capsys)
    assert status == 1
    assert "\nwarning  registration" in shown and "geheim" not in shown


def test_what_will_not_work(tmp_path, capsys):
    status, shown = check(write_config(tmp_path, "server.tlsCert = 'none'\nserver.tlsKey = 'none'"), capsys)
    assert status == 2 and "\nerror    certificate" in shown


def test_mistakes_of_the_configuration(tmp_path, capsys):
    path = write_config(tmp_path, "[log]\nlevel = 1\nformat = 2")
    status, shown = check(path, capsys)
    assert status == 2
    assert shown.startswith(f"error    configuration  {path}:6: log.level = 1 is no text in quotes")
    assert shown.endswith("\n2 errors\n")
    assert {finding.level for finding in find(path)} == {Level.ERROR}


def test_exit_statuses(tmp_path):
    path = write_config(tmp_path)
    assert run_program("check", "--config", path).returncode == 0
    path.chmod(0o644)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "token.toml").write_text('[registration]\nmode = "token"\ntoken = "geheim"')
    assert run_program("check", "--config", path).returncode == 1
    assert run_program("check", "--config", tmp_path / "none.toml").returncode == 2
