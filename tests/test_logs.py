"""Log lines, as text for people and as JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shine_node.config import LogConfig
from shine_node.log_repeats import MAX_LINES
from shine_node.logs import LogHandler, announce, complain, goes_to_journal, set_up_logging


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


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "


def test_text_is_one_line_with_time_level_and_logger(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="info", format="text"))
    logging.getLogger("shine_node.room").warning("%d of %s", 3, "five")
    [line] = lines(capsys)
    assert re.fullmatch(TIME + "WARNING shine_node.room: 3 of five", line)


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
        assert first.endswith(" ERROR room: a defect")
        assert second.startswith("  Traceback")
        assert last == "  ValueError: the cause"


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_can_write_lines_of_the_log(capsys: Capture, form: str) -> None:
    set_up_logging(LogConfig(level="info", format=form))
    logging.getLogger("room").warning("refused: %s", "x\nERROR room: forged\r\x1b[2J\x85\u2028 \x00\ttab")
    [line] = lines(capsys)
    assert "\x1b" not in line
    assert "forged" in line


def test_no_words_of_an_exception_look_like_a_line(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="info", format="text"))
    try:
        raise ValueError("x\nERROR room: forged\r\x1b[2J")
    except ValueError:
        logging.getLogger("room").exception("a defect")
    assert all(line.startswith("  ") for line in lines(capsys)[1:])


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_goes_to_the_journal_has_its_level_on_each_line_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    with (tmp_path / "journal").open("w+", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logging(LogConfig(level="debug", format=form))
        log = logging.getLogger("room")
        for say in (log.debug, log.info, log.warning, log.error):
            say("so")
        try:
            raise ValueError("the cause")
        except ValueError:
            log.critical("a defect", exc_info=True)
        stream.seek(0)
        said = stream.read().splitlines()
    assert [line[:3] for line in said[:4]] == ["<7>", "<6>", "<4>", "<3>"]
    assert {line[:3] for line in said[4:]} == {"<2>"}
    if form == "json":
        assert json.loads(said[0][3:])["message"] == "so"
    else:
        assert said[0] == "<7>DEBUG room: so"
        assert said[-1] == "<2>  ValueError: the cause"


def test_whether_a_stream_is_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        assert goes_to_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not goes_to_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
        assert not goes_to_journal(stream, {})
    assert not goes_to_journal(stream, {"JOURNAL_STREAM": "1:1"}), "it is closed"
    assert not goes_to_journal(io.StringIO(), {"JOURNAL_STREAM": "1:1"})


class Minutes:
    """A handler whose seconds a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = LogHandler(self.stream, monotonic=lambda: self.now)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def say(self, message: str, *args: object, failure: Exception | None = None) -> None:
        exc_info = (type(failure), failure, None) if failure is not None else None
        self.handler.handle(logging.LogRecord("room", logging.WARNING, "", 0, message, args, exc_info))

    @property
    def said(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_no_line_comes_more_than_once_a_minute() -> None:
    log = Minutes()
    for _ in range(1000):
        log.say("peer %s is down", "bob")
        log.say("peer %s is down", "carol")
        log.now += 0.05
    assert log.said == ["WARNING peer bob is down", "WARNING peer carol is down"]
    log.now = 61.0
    log.say("something else")
    assert log.said[2:] == [
        "WARNING repeated 999 times more in 61 s: peer bob is down",
        "WARNING repeated 999 times more in 61 s: peer carol is down",
        "WARNING something else",
    ]


def test_another_exception_makes_another_line() -> None:
    log = Minutes()
    for failure in (ValueError("a"), ValueError("a"), ValueError("b")):
        log.say("a defect", failure=failure)
    assert sum(line == "WARNING a defect" for line in log.said) == 2


def test_what_was_counted_is_told_at_the_end_and_where_there_is_no_room_to_remember_it() -> None:
    log = Minutes()
    for _ in range(2):
        log.say("early")
    for number in range(MAX_LINES):
        log.say("line %d", number)
    assert log.said[-1] == "WARNING repeated once more in 0 s: early"
    log.say("line %d", MAX_LINES - 1)
    log.handler.close()
    assert log.said[-1] == f"WARNING repeated once more in 0 s: line {MAX_LINES - 1}"


def test_a_line_that_cannot_be_made_harms_nothing(capsys: Capture) -> None:
    log = Minutes()
    log.say("%d", "no number")
    log.say("next")
    assert log.said == ["WARNING next"]
    assert "Logging error" in capsys.readouterr().err


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
    assert [line.split()[2] for line in lines(capsys)] == seen


def test_setting_up_again_replaces_what_was_before(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="debug", format="json"))
    set_up_logging(LogConfig(level="info", format="text"))
    logging.getLogger("room").info("once")
    [line] = lines(capsys)
    assert line.endswith(" INFO room: once")


def test_setting_up_again_remembers_which_lines_were_written(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="info", format="text"))
    log = logging.getLogger("room")
    log.warning("so")
    set_up_logging(LogConfig(level="warning", format="json"))
    log.warning("so")
    [line] = lines(capsys)
    assert line.endswith("WARNING room: so")
    logging.getLogger().handlers[0].close()
    [line] = lines(capsys)
    assert json.loads(line)["message"].startswith("repeated once more in ")


def test_another_standard_error_gets_a_log_of_its_own(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_logging(LogConfig(level="info", format="text"))
    other = io.StringIO()
    monkeypatch.setattr(sys, "stderr", other)
    set_up_logging(LogConfig(level="info", format="text"))
    logging.getLogger("room").info("so")
    assert other.getvalue().endswith("INFO room: so\n") and lines(capsys) == []


def test_of_lines_that_the_level_leaves_out_by_now_nothing_is_told(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="debug", format="text"))
    log = logging.getLogger("room")
    for _ in range(2):
        log.debug("much")
        log.warning("so")
        log.handle(log.makeRecord("room", logging.INFO, "", 0, "asked for", (), None, extra={"always": True}))
    assert len(lines(capsys)) == 3
    set_up_logging(LogConfig(level="error", format="text"))
    log.handle(log.makeRecord("room", logging.INFO, "", 0, "asked for too", (), None, extra={"always": True}))
    logging.getLogger().handlers[0].close()
    said = lines(capsys)
    assert [line.split(": ", 1)[1].partition(" in ")[0] for line in said] == ["asked for too", "repeated once more"]
    assert said[1].endswith("asked for")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_announced_has_the_form_of_the_log(capsys: Capture, form: str) -> None:
    announce("listening on ws://127.0.0.1:1/ws", LogConfig(level="error", format=form))
    said = capsys.readouterr()
    assert said.err == ""
    if form == "text":
        assert said.out == "listening on ws://127.0.0.1:1/ws\n"
    else:
        line = json.loads(said.out)
        assert (line["level"], line["message"]) == ("info", "listening on ws://127.0.0.1:1/ws")


def test_what_keeps_the_node_from_starting_is_told_line_by_line(capsys: Capture) -> None:
    complain(["one", "two"])
    said = [json.loads(line) for line in lines(capsys)]
    assert [(line["level"], line["message"]) for line in said] == [("critical", "one"), ("critical", "two")]


def test_the_library_of_the_sockets_says_nothing(capsys: Capture) -> None:
    set_up_logging(LogConfig(level="debug", format="text"))
    for name in ("websockets", "websockets.server", "websockets.client"):
        logging.getLogger(name).error("opening handshake failed")
    assert lines(capsys) == []
