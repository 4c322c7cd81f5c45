import datetime
import math
from pathlib import Path

import pytest

from shine_node.configuration.kinds import (
    BadValue,
    Choice,
    Credential,
    DataDir,
    File,
    Flag,
    Folder,
    MapSize,
    Number,
    Rising,
    Secret,
    Surroundings,
    Text,
)

AROUND = Surroundings(Path("/etc/node"), Path("/var/state"), is_32_bit=False)
AROUND_32 = Surroundings(Path("/etc/node"), Path("/var/state"), is_32_bit=True)
NO_NUMBERS = [True, False, 1.0, math.nan, math.inf, "5", [5], {}, datetime.time(1), None]


def refusal(kind, value, around=AROUND):
    with pytest.raises(BadValue) as raised:
        kind.parse(value, around)
    return str(raised.value)


def test_numbers():
    kind = Number(2, 9)
    assert [kind.parse(value, AROUND) for value in (2, 9)] == [2, 9]
    assert {refusal(kind, value) for value in (1, 10, -5, 2**70)} == {"is out of range"}
    assert {refusal(kind, value) for value in NO_NUMBERS} == {"is no whole number"}
    assert kind.expected == "a whole number from 2 to 9"
    assert kind.parse_default(3, AROUND) == 3


def test_the_map_of_a_32_bit_system_is_small():
    kind = MapSize(8, 16777216)
    assert kind.parse(16777216, AROUND) == 16777216
    assert kind.parse(2048, AROUND_32) == 2048
    assert refusal(kind, 2049, AROUND_32) == refusal(kind, 7, AROUND_32) == refusal(kind, 7) == "is out of range"
    assert refusal(kind, True) == "is no whole number"
    assert (kind.parse_default(16384, AROUND), kind.parse_default(16384, AROUND_32)) == (16384, 1024)
    assert "32-bit systems at most 2048" in kind.expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "has 0 entries"),
        ([0, 1, 2, 3, 4], "has 5 entries"),
        ([1, 2], "does not begin with 0"),
        ([-1, 2], "does not begin with 0"),
        ([0, 2, 2], "does not rise"),
        ([0, 3, 2], "does not rise"),
        ([0, 101], "is out of range"),
        ([0, True], "has an entry that is no whole number"),
        ([0, 1.0], "has an entry that is no whole number"),
        ([False, 1], "has an entry that is no whole number"),
        (0, "is no list"),
        ("0", "is no list"),
        ({}, "is no list"),
    ],
)
def test_lists_that_do_not_rise(value, reason):
    assert refusal(Rising(4, 100), value) == reason


def test_lists_that_rise():
    kind = Rising(4, 100)
    assert [kind.parse(value, AROUND) for value in ([0], [0, 1, 99, 100], (0, 5))] == [(0,), (0, 1, 99, 100), (0, 5)]
    assert "1 to 4 whole numbers" in kind.expected and "none over 100" in kind.expected


def test_flags():
    assert Flag().parse(True, AROUND) is True
    assert Flag().parse(False, AROUND) is False
    assert {refusal(Flag(), value) for value in (0, 1, "true", None, [])} == {"is neither true nor false"}
    assert Flag().expected == "true or false"


def test_choices():
    kind = Choice(("open", "token", "closed"))
    assert kind.parse("token", AROUND) == "token"
    assert {refusal(kind, value) for value in ("Open", "", "closed ")} == {"is none of the choices"}
    assert refusal(kind, True) == "is no text in quotes"
    assert kind.expected == '"open", "token" or "closed"'
    assert Choice(("a", "b")).expected == '"a" or "b"'


def test_texts():
    kind = Text(5)
    assert [kind.parse(text, AROUND) for text in ("", "Привт", "a\nb")] == ["", "Привт", "a\nb"]
    assert refusal(kind, "abcdef") == "has 6 characters"
    assert {refusal(kind, text) for text in ("\x00", "a\tb", "\x7f", "\ud800")} == {"holds a control character"}
    assert refusal(kind, 5) == "is no text in quotes"
    assert kind.expected == "a text of at most 5 characters"


def test_values_are_shown_short():
    assert Text(5).show("a" * 200) == '"' + "a" * 79 + "…"
    assert Text(5).show("short") == '"short"'
    assert Number(1, 2).show([1, {}]) == "[1, {…}]"


def test_secrets_are_not_shown():
    assert "geheim" not in Secret(5).show("geheim")
    assert "123456" not in Secret(5).show(123456)
    assert "geheim" not in refusal(Secret(5), "geheim")
    assert Secret(9).parse("geheim", AROUND) == "geheim"


@pytest.mark.parametrize("kind", [File(), Folder(), Credential("x"), DataDir()])
def test_paths(kind):
    assert kind.parse("/abs/x", AROUND) == Path("/abs/x")
    assert kind.parse("rel/x", AROUND) == Path("/etc/node/rel/x")
    assert refusal(kind, "~/x") == "begins with ~, which only a shell understands"
    assert {refusal(kind, text) for text in ("a\x00", "a\nb", "\ud800")} == {"holds a control character"}
    assert refusal(kind, "a" * 4097) == "has 4097 characters"
    assert refusal(kind, 1) == "is no text in quotes"
    assert "path" in kind.expected


def test_an_empty_path():
    assert File().parse("", AROUND) is Folder().parse("", AROUND) is None
    assert refusal(DataDir(), "") == "is empty"


def test_the_default_folder_comes_from_the_surroundings():
    assert DataDir().parse_default("/var/lib/x", AROUND) == Path("/var/state")
    assert File().parse_default("", AROUND) is None


def test_a_credential_is_the_default_where_there_is_one():
    around = Surroundings(Path("/etc/node"), Path("/var/state"), is_32_bit=False, credentials={"x": Path("/run/x")})
    assert Credential("x").parse_default("", around) == Path("/run/x")
    assert Credential("y").parse_default("", around) is None
    assert Credential("x").parse_default("", AROUND) is None
    assert Credential("x").parse("", around) is None
