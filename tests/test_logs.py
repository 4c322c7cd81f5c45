"""Log lines, as text for people and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from shine_node.config import LogConfig
from shine_node.logs import set_up_logging


@pytest.fixture(autouse=True)
def logging_of_before() -> Iterator[None]:
    """Put the logging of the process back as it was."""
    root, wire = logging.getLogger(), logging.getLogger("websockets")
    before = root.level, list(root.handlers), wire.level
    root.handlers.clear()  # so that pytest's own are not closed by what is tested
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    wire.setLevel(before[2])


Capture = pytest.CaptureFixture[str]


def lines(capsys: Capture) -> list[str]:
    """What went to standard error; nothing goes to standard output."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "" or said.err.endswith("\n")
    return said.err.split("\n")[:-1]


def test_text_is_one_line_with_level_and_logger(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="info", format="text"))
    logging.getLogger("shine_node.room").warning("%d of %s", 3, "five")
    assert lines(capsys) == ["WARNING shine_node.room: 3 of five"]


def test_json_is_one_object_a_line(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="info", format="json"))
    log = logging.getLogger("shine_node.room")
    log.info("first\nsecond «third»")
    log.error("%s failed", "it")
    first, second = (json.loads(line) for line in lines(capsys))
    assert first == {
        "time": first["time"],
        "level": "info",
        "logger": "shine_node.room",
        "message": "first\nsecond «third»",
    }
    assert abs(first["time"] - logging.LogRecord("", 0, "", 0, "", None, None).created) < 60
    assert (second["level"], second["message"]) == ("error", "it failed")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_kept(capsys: Capture, form: str) -> None:
    set_up_logging(LogConfig(level="error", format=form))
    try:
        raise ValueError("the cause")
    except ValueError:
        logging.getLogger("room").exception("a defect")
    if form == "json":
        [line] = lines(capsys)
        found = json.loads(line)
        assert found["message"] == "a defect"
        assert "Traceback" in found["error"]
        assert "ValueError: the cause" in found["error"]
    else:
        first, second, *_, last = lines(capsys)
        assert first == "ERROR room: a defect"
        assert second.startswith("Traceback")
        assert last == "ValueError: the cause"


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_can_write_lines_of_the_log(capsys: Capture, form: str) -> None:
    set_up_logging(LogConfig(level="info", format=form))
    logging.getLogger("room").warning("refused: %s", "x\nERROR room: forged\r\x1b[2J\x85\u2028 \x00\ttab")
    [line] = lines(capsys)
    assert "\x1b" not in line
    assert "forged" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_no_text_is_written_all_the_same(capsys: Capture, form: str) -> None:
    set_up_logging(LogConfig(level="info", format=form))
    logging.getLogger("room").warning("cannot read %s", "fil\udce9")  # a name that is no UTF-8
    [line] = lines(capsys)
    assert "cannot read fil" in line
    assert "\udce9" not in line
    line.encode()


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ("info", ["INFO", "WARNING", "ERROR"]),
        ("warning", ["WARNING", "ERROR"]),
        ("error", ["ERROR"]),
    ],
)
def test_the_level_is_that_of_the_configuration(capsys: Capture, level: str, seen: list[str]) -> None:
    set_up_logging(LogConfig(level=level, format="text"))
    log = logging.getLogger("room")
    for say in (log.debug, log.info, log.warning, log.error):
        say("so")
    assert [line.split()[0] for line in lines(capsys)] == seen


def test_setting_up_again_replaces_what_was_before(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="debug", format="json"))
    set_up_logging(LogConfig(level="info", format="text"))
    logging.getLogger("room").info("once")
    assert lines(capsys) == ["INFO room: once"]


def test_the_library_of_the_sockets_says_nothing(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="debug", format="text"))
    for name in ("websockets", "websockets.server", "websockets.client"):
        logging.getLogger(name).error("opening handshake failed")
    assert lines(capsys) == []
