"""Where log lines go: standard error, as text for people or as JSON lines (PROTOCOL.md §10, ``[log]``)."""

from __future__ import annotations

import logging
import sys

import orjson

from shine_node.config import LogConfig

__all__ = ["JsonFormatter", "TextFormatter", "set_up_logging"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}
"""What would begin a new line, or be obeyed by a terminal: parts of a message may be a stranger's words."""


class TextFormatter(logging.Formatter):
    """One line a message, whatever it holds; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """Return the line of a record."""
        return _utf_8(super().formatMessage(record).translate(_CONTROLS))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (Unix seconds), ``level``, ``logger``, ``message``, ``error`` (a traceback)."""

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
        return orjson.dumps(line).decode()


def _utf_8(text: str) -> str:
    """Return a text that can be encoded: names of files need not be."""
    return text.encode("utf-8", "backslashreplace").decode()


def set_up_logging(config: LogConfig) -> None:
    """Send the log of this process to standard error at the configured level, replacing what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # A stranger who speaks no WebSocket is no event of this node; the library would log a traceback for each.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
