"""Where log lines go: standard error, as text for people or as JSON lines (PROTOCOL.md §10, ``[log]``)."""

from __future__ import annotations

import logging
import sys

import orjson

from shine_node.config import LogConfig

__all__ = ["JsonFormatter", "set_up_logging"]


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (Unix seconds), ``level``, ``logger``, ``message``, ``error`` (a traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up_logging(config: LogConfig) -> None:
    """Send the log of this process to standard error at the configured level, replacing what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    if config.format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # A stranger who speaks no WebSocket is no event of this node; the library would log a traceback for each.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
