import os

import pytest

from shine_node.configuration.problems import ConfigError, Origin
from shine_node.configuration.sources import MAX_FILE_BYTES, Source, find_early, read_sources, source_files


def problems(path):
    with pytest.raises(ConfigError) as raised:
        read_sources(path)
    return [str(problem) for problem in raised.value.problems]


def test_the_file_and_its_drop_ins_in_the_order_of_their_names(tmp_path):
    main = tmp_path / "node.toml"
    main.write_text("a = 1")
    folder = tmp_path / "conf.d"
    folder.mkdir()
    for name in ("20-b.toml", "10-z.toml", ".hidden.toml", "30.toml.bak", "README"):
        (folder / name).write_text(f'name = "{name}"')
    sources = read_sources(main)
    assert [source.name for source in sources] == [
        str(main),
        str(folder / "10-z.toml"),
        str(folder / "20-b.toml"),
    ]
    assert sources[1].table == {"name": "10-z.toml"}
    (folder / ".#20-b.toml").symlink_to("somebody@here.1234:1")  # the lock of an editor
    assert [str(path) for path in source_files(main)] == [source.name for source in read_sources(main)]


def test_origins(tmp_path):
    main = tmp_path / "node.toml"
    main.write_bytes(b"\xef\xbb\xbf\r\n[server]\r\nlogin = 1\r\n")  # a byte order mark, and the line ends of Windows
    (source,) = read_sources(main)
    assert source.table == {"server": {"login": 1}}
    assert source.origin(("server", "login")) == Origin(str(main), 3)
    assert source.origin(("other",)) == Origin(str(main), 0)
    assert Source({}).origin(("server", "login")) == Origin("", 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a = 1\nb = = 2\n", ":2: is not valid TOML at column 5: Invalid value"),
        (b"a = 1\na = 2\n", ":2: is not valid TOML at column 6: Cannot overwrite a value"),
        (b"a = 1\nb = '\xff'\n", ":2: is not UTF-8: save it in that encoding"),
        (b"a = " + b"[" * 20_000, ": is nested too deeply: no setting needs that"),
        (b"#" * (MAX_FILE_BYTES + 1), f": is larger than {MAX_FILE_BYTES} bytes: no configuration needs that"),
    ],
)
def test_what_is_no_toml(tmp_path, text, problem):
    main = tmp_path / "node.toml"
    main.write_bytes(text)
    assert problems(main) == [f"{main}{problem}"]


def test_a_number_of_thousands_of_digits(tmp_path):
    main = tmp_path / "node.toml"
    main.write_text(f"a = {'1' * 5000}")
    (problem,) = problems(main)
    assert problem.startswith(f"{main}: is not valid TOML: ")


def test_every_file_that_cannot_be_read_is_named(tmp_path):
    main = tmp_path / "node.toml"
    folder = tmp_path / "conf.d"
    folder.mkdir()
    os.mkfifo(folder / "1.toml")
    (folder / "2.toml").mkdir()
    (folder / "3.toml").symlink_to(folder / "3.toml")
    (folder / "4.toml").write_text("=")
    (folder / "5.toml").write_text("a = 1")
    found = problems(main)
    assert len(found) == 5
    assert found[0] == f"{main}: there is no such file: `shine-node init` writes one"
    assert found[1] == f"{folder / '1.toml'}: is no file: name the configuration file itself"
    assert found[2] == f"{folder / '2.toml'}: is no file: name the configuration file itself"
    assert found[3].startswith(f"{folder / '3.toml'}: cannot be read (")
    assert found[4].startswith(f"{folder / '4.toml'}:1: is not valid TOML")


def test_a_file_that_this_user_may_not_read_says_what_to_do(tmp_path):
    tmp_path.chmod(0o700)  # pytest's own folders above are closed to others too
    main = tmp_path / "node.toml"
    main.write_text("")
    main.chmod(0o000)
    user = os.geteuid()
    if user == 0:  # who may read everything
        os.seteuid(65534)
    try:
        found = set(problems(main))
    finally:
        os.seteuid(user)
    hint = "cannot be read by this user: use sudo, or an account of the file's group"
    assert f"{main}: {hint}" in found and all(problem.endswith(hint) for problem in found)


def test_a_name_that_no_file_can_have(tmp_path):
    (problem,) = problems(tmp_path / "a\0b")
    assert "cannot be read" in problem or "no such file" in problem


def test_conf_d_that_is_no_folder(tmp_path):
    main = tmp_path / "node.toml"
    main.write_text("")
    (tmp_path / "conf.d").write_text("")
    (problem,) = problems(main)
    assert problem.startswith(f"{tmp_path / 'conf.d'}: cannot be read (Not a directory)")


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "conf.d").write_text("")
    with pytest.raises(ConfigError, match="make it a folder"):
        source_files(tmp_path / "node.toml")


def test_one_option_is_found_whatever_else_is_wrong(tmp_path):
    main = tmp_path / "node.toml"
    assert find_early(main, "log", "format") is None
    main.write_text('log.format = "text"\nserver = 7')
    assert find_early(main, "log", "format") == "text"
    assert find_early(main, "log", "level") is None
    assert find_early(main, "server", "login") is None
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "10.toml").write_text('[log]\nformat = "json"')
    (folder / "20.toml").write_text("= no TOML")
    (folder / "30.toml").write_text('[log]\nlevel = "info"')
    assert find_early(main, "log", "format") == "json"
