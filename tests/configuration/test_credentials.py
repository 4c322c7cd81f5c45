from pathlib import Path

import pytest

from shine_node.configuration.credentials import find_credentials, is_credential, lacks_credentials
from shine_node.configuration.problems import ConfigError


def found(folder):
    return find_credentials({"CREDENTIALS_DIRECTORY": str(folder)})


def problem_of(folder):
    with pytest.raises(ConfigError) as caught:
        found(folder)
    [problem] = caught.value.problems
    return str(problem)


def test_without_a_folder_there_are_none(tmp_path):
    assert find_credentials({}) == {}
    assert find_credentials({"CREDENTIALS_DIRECTORY": ""}) == {}
    assert found(tmp_path) == found(tmp_path / "missing") == {}


def test_both_files_are_found(tmp_path):
    (tmp_path / "tls.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "tls.key").write_text("")  # whatever it holds: the reading of the key says what is wrong with it
    (tmp_path / "other").touch()
    assert found(tmp_path) == {name: tmp_path / name for name in ("tls.crt", "tls.key")}


def test_placeholders_are_none(tmp_path):
    (tmp_path / "tls.crt").write_text("none")
    (tmp_path / "tls.key").write_text("none\n")
    assert found(tmp_path) == {}


@pytest.mark.parametrize(("there", "missing"), [("tls.crt", "tls.key"), ("tls.key", "tls.crt")])
@pytest.mark.parametrize("other", [None, "none"])
def test_one_without_the_other_is_a_mistake(tmp_path, there, missing, other):
    (tmp_path / there).write_text("nonetheless")
    if other is not None:
        (tmp_path / missing).write_text(other)
    assert problem_of(tmp_path) == (
        f"{tmp_path}: holds the credential {there} without {missing}: name both in the unit, or neither"
    )


def test_one_that_cannot_be_read(tmp_path):
    (tmp_path / "tls.crt").mkdir()
    assert problem_of(tmp_path).startswith(f"{tmp_path / 'tls.crt'}: cannot be read (Is a directory): correct Load")


def test_a_certificate_that_is_missing(tmp_path):
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert not lacks_credentials({}) and not lacks_credentials(environ)
    (tmp_path / "tls.crt").write_text("none\n")
    assert lacks_credentials(environ)
    (tmp_path / "tls.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    assert not lacks_credentials(environ)


def test_what_is_a_credential(tmp_path):
    assert is_credential(Path("/run/credentials/shine-node.service/tls.crt"), {})
    assert not is_credential(tmp_path / "tls.crt", {})
    assert is_credential(tmp_path / "tls.crt", {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert not is_credential(Path("/etc/tls.crt"), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
