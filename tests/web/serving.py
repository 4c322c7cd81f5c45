"""Serves the chat page for its tests: the real files, with a stand-in for the core where a test wants one."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shine_node.api.pages import TYPES, WEB_FOLDER, safe_headers

STAND_IN = Path(__file__).with_name("stand_in.js")
CORE = "core/chat.js"


class Files:
    """The files by their paths in a URL; a test may change them while they are served."""

    def __init__(self) -> None:
        self.content = {
            path.relative_to(WEB_FOLDER).as_posix(): path.read_bytes()
            for path in sorted(WEB_FOLDER.rglob("*"))
            if path.suffix in TYPES
        }
        self.content[CORE] = STAND_IN.read_bytes()
        self.down = False
        self.asked: list[str] = []

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Return name and content of what stands at the path of a request."""
        name = path.partition("?")[0].lstrip("/") or "index.html"
        self.asked.append(name)
        content = self.content.get(name)
        return None if content is None or self.down else (name, content)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, files: Files, *arguments: object) -> None:
        self._files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        found = self._files.find(self.path)
        name, content = found or ("", b"")
        self.send_response(200 if found else 404)
        kind = TYPES.get(Path(name).suffix, "text/plain")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        for header in safe_headers(kind, f"/{name}"):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Say nothing: the tests look at ``Files.asked``."""


@contextmanager
def serve() -> Iterator[tuple[str, Files]]:
    """Serve the page on a free port of this machine; give its address and its files."""
    files = Files()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, files))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
