"""Where log lines go: standard error, as text for people or as JSON lines (PROTOCOL.md §10, ``[log]``)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import orjson

from shine_node.clock import SystemClock
from shine_node.config import LogConfig
from shine_node.log_repeats import Repeats, Summary

__all__ = ["JsonFormatter", "LogHandler", "TextFormatter", "announce", "complain", "goes_to_journal", "set_up_logging"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}
"""What would begin a new line, or be obeyed by a terminal: parts of a message may be a stranger's words."""

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""The numbers of syslog for levels, from this one on; below them it is 7 (sd-daemon(3))."""


class TextFormatter(logging.Formatter):
    """One line a message, whatever it holds; a traceback follows on lines of its own, each set in.

    Args:
        journal: whether the lines go to systemd's journal: then each begins with the number of its level, which the
            journal takes off, and has no time, which the journal adds.
    """

    def __init__(self, *, journal: bool = False) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, with the local time where there is no journal."""
        lines = [f"{record.levelname} {record.name}: {record.getMessage()}"]
        if record.exc_info:
            # Set in, so that no words of an exception look like a line of the log.
            lines += [f"  {line}" for line in self.formatException(record.exc_info).splitlines()]
        shown = [_utf_8(line.translate(_CONTROLS)) for line in lines]
        if self._journal:
            return "\n".join(_priority(record.levelno) + line for line in shown)
        return f"{self.formatTime(record)} " + "\n".join(shown)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (Unix seconds), ``level``, ``logger``, ``message``, ``error`` (a traceback).

    Args:
        journal: whether the lines go to systemd's journal: then each begins with the number of its level, which the
            journal takes off.
    """

    def __init__(self, *, journal: bool = False) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _utf_8(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = _utf_8(self.formatException(record.exc_info))
        return (_priority(record.levelno) if self._journal else "") + orjson.dumps(line).decode()


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes lines, none of them more often than once a minute; one that came again is counted, and that is told.

    A record with a true attribute ``always`` is one that is written at every level: so is what is told of it.

    Args:
        monotonic: seconds that never go back.
    """

    def __init__(self, stream: TextIO, *, monotonic: Callable[[], float]) -> None:
        super().__init__(stream)
        self.least = logging.NOTSET
        """Of lines below this level nothing is told that was counted: they are not to be in the log any more."""
        self._monotonic = monotonic
        self._repeats: Repeats[logging.LogRecord] = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it; and tell of those counted before whose time is over."""
        try:
            line = _plain(record)
            now = self._monotonic()
            for summary in self._repeats.over(now):
                self._tell(summary)
            failure = record.exc_info[1] if record.exc_info else None
            if self._repeats.admit((record.name, record.levelno, line.msg, repr(failure)), line, now):
                super().emit(record)
            for summary in self._repeats.excess(now):
                self._tell(summary)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Tell of all that was counted."""
        self.acquire()
        try:
            for summary in self._repeats.end(self._monotonic()):
                self._tell(summary)
        finally:
            self.release()
        super().close()

    def _tell(self, summary: Summary[logging.LogRecord]) -> None:
        if summary.line.levelno >= self.least or _is_always(summary.line):
            super().emit(_told(summary))


def goes_to_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Say whether a stream is the connection to systemd's journal that it names in ``JOURNAL_STREAM``."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # it is closed, or no file at all
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def set_up_logging(config: LogConfig) -> None:
    """Send the log of this process to standard error at the configured level, replacing what was set up before.

    Which lines were written within the last minute is remembered: a reload is no reason to write them again.
    """
    journal = goes_to_journal(sys.stderr, os.environ)
    kept = [one for one in logging.getLogger().handlers if isinstance(one, LogHandler) and one.stream is sys.stderr]
    handler = kept[0] if kept else LogHandler(sys.stderr, monotonic=SystemClock().monotonic)
    for one in kept:
        logging.getLogger().removeHandler(one)  # else it would be closed with the others, and forget
    handler.least = logging.getLevelNamesMapping()[config.level.upper()]
    handler.setFormatter(JsonFormatter(journal=journal) if config.format == "json" else TextFormatter(journal=journal))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # A stranger who speaks no WebSocket is no event of this node; the library would log a traceback for each.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)


def announce(text: str, config: LogConfig) -> None:
    """Print a line on standard output, for whoever started this process; a JSON line where the log is made of such."""
    line = text
    if config.format == "json":
        record = logging.LogRecord(__name__, logging.INFO, "", 0, text, None, None)
        line = JsonFormatter(journal=goes_to_journal(sys.stdout, os.environ)).format(record)
    print(line, flush=True)


def complain(texts: Iterable[str]) -> None:
    """Write what keeps the node from starting on standard error as JSON lines, before there is a log."""
    formatter = JsonFormatter(journal=goes_to_journal(sys.stderr, os.environ))
    for text in texts:
        record = logging.LogRecord(__name__, logging.CRITICAL, "", 0, text, None, None)
        print(formatter.format(record), file=sys.stderr)


def _plain(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record without what it refers to: it may be kept for a while."""
    line = logging.LogRecord(record.name, record.levelno, "", 0, record.getMessage(), None, None)
    line.created = record.created
    line.__dict__["always"] = _is_always(record)
    return line


def _is_always(record: logging.LogRecord) -> bool:
    return bool(getattr(record, "always", False))


def _told(summary: Summary[logging.LogRecord]) -> logging.LogRecord:
    line = summary.line
    times = "once more" if summary.times == 1 else f"{summary.times} times more"
    text = f"repeated {times} in {summary.seconds:.0f} s: {line.msg}"
    return logging.LogRecord(line.name, line.levelno, "", 0, text, None, None)


def _priority(level: int) -> str:
    """Return the prefix that tells the journal of a level."""
    return f"<{next((number for least, number in _PRIORITIES if level >= least), 7)}>"


def _utf_8(text: str) -> str:
    """Return a text that can be encoded: names of files need not be."""
    return text.encode("utf-8", "backslashreplace").decode()
