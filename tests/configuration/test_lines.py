import tomllib

from hypothesis import given
from hypothesis import strategies as st

from shine_node.configuration.lines import find_lines, line_of
from shine_node.configuration.render import render_config

TEXT = '''\
# a comment = 1
top = 1

[server]  # [not.a.header]
login = "a # [no] = 2"
"quo\\u0074ed" = 'literal # "'
  url   =   "x"
a.b . "c d" = { x = 1, y = [
  { z = 2 } ] }
text = """
login = "inside"
[sync_servers]
four quotes: """"
literal = \'\'\'
key = 1\'\'\'
after = [ # ] not closed
  1,   # key = 2

  2 ] # ]
[[sync_servers]]
login = "one"
[[sync_servers]]
login = "two"
[sync_servers.inner]
key = 1
[[sync_servers.inner.list]]
[ server . info ]
origin = true
last = 1'''


def test_every_key_has_its_line():
    tomllib.loads(TEXT)
    assert find_lines(TEXT) == {
        ("top",): 2,
        ("server",): 4,
        ("server", "login"): 5,
        ("server", "quoted"): 6,
        ("server", "url"): 7,
        ("server", "a"): 8,
        ("server", "a", "b"): 8,
        ("server", "a", "b", "c d"): 8,
        ("server", "text"): 10,
        ("server", "literal"): 14,
        ("server", "after"): 16,
        ("sync_servers", 0): 20,
        ("sync_servers", 0, "login"): 21,
        ("sync_servers", 1): 22,
        ("sync_servers", 1, "login"): 23,
        ("sync_servers", 1, "inner"): 24,
        ("sync_servers", 1, "inner", "key"): 25,
        ("sync_servers", 1, "inner", "list", 0): 26,
        ("server", "info"): 27,
        ("server", "info", "origin"): 28,
        ("server", "info", "last"): 29,
    }


def test_a_key_without_a_line_has_that_of_what_is_around_it():
    lines = find_lines(TEXT)
    assert line_of(lines, ("server", "a", "b", "c d", "y", 0, "z")) == 8
    assert line_of(lines, ("sync_servers", 1, "url")) == 22
    assert line_of(lines, ("sync_servers",)) == 20
    assert line_of(lines, ("elsewhere", "key")) == 0
    assert line_of(lines, ()) == 0


def test_what_follows_a_mistake_has_no_lines():
    assert find_lines("a = 1\n= 2\nb = 3") == {("a",): 1}
    assert find_lines('a = 1\nb = "open\nc = 3') == {("a",): 1, ("b",): 2}
    assert find_lines("a = ]\nb = 1") == {("a",): 1, ("b",): 2}
    assert find_lines('a = 1\n"\\=" = 2') == {("a",): 1}
    assert find_lines("") == {}


@given(st.text("ab.[]{}=\"'\\\n #,"))
def test_no_text_breaks_it(text):
    lines = find_lines(text)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@given(st.recursive(st.integers() | st.text("a\"'\\#[]{}=\n"), lambda inner: st.lists(inner, max_size=3)))
def test_the_key_after_any_value_is_found(value):
    def written(value):
        if isinstance(value, list):
            return f"[ # ]}}\n{','.join(map(written, value))}\n]"
        if isinstance(value, str) and "\n" in value and not value.endswith(("\\", '"', "'")):
            return f"'''\n{value}'''" if "'''" not in value else quoted(value)
        return quoted(value) if isinstance(value, str) else str(value)

    def quoted(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    text = f"first = {written(value)}\nnext = 1"
    assert tomllib.loads(text)["next"] == 1
    assert find_lines(text) == {("first",): 1, ("next",): text.count("\n") + 1}


def test_lines_of_the_whole_file():
    text = "\n".join(line.removeprefix("#") if line[1:2] != " " else line for line in render_config().split("\n"))
    table = tomllib.loads(text)
    lines = find_lines(text)
    assert lines["server", "pool", "caFile"] == text.split("\n").index('caFile = ""') + 1
    assert {path[0] for path in lines} == set(table)
