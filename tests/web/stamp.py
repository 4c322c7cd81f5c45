"""Writes into the service worker which files it keeps, and the version that is made from them.

Run it after a change of any file of the page::

    python -m tests.web.stamp
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from shine_node.api.pages import TYPES
from shine_node.api.pages import WEB_FOLDER as WEB

WORKER = "sw.js"
_LIST = re.compile(r'const VERSION = "[^"]*";\n\nconst FILES = \[\n.*?\];\n', re.DOTALL)


def list_files(web: Path = WEB) -> list[str]:
    """Return the names of the files that the worker has to keep: all of the page, but not itself."""
    names = [path.relative_to(web).as_posix() for path in web.rglob("*") if path.suffix in TYPES]
    return sorted(name for name in names if name != WORKER)


def stamp(web: Path = WEB) -> str:
    """Return the text of the worker with the list and the version of the files as they are."""
    names = list_files(web)
    digest = hashlib.sha256()
    for name in names:
        content = (web / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    lines = "".join(f'  "{name}",\n' for name in ["./", *names])
    text = (web / WORKER).read_text(encoding="utf-8")
    stamped, count = _LIST.subn(f'const VERSION = "{digest.hexdigest()[:16]}";\n\nconst FILES = [\n{lines}];\n', text)
    if count != 1:
        raise ValueError(f"{WORKER} has no place for its version and its files")
    return stamped


if __name__ == "__main__":
    (WEB / WORKER).write_text(stamp(), encoding="utf-8")
