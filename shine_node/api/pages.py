"""The files of the chat page, and what an HTTP request that opens no WebSocket is answered (RFC 9110).

All files are read once, at the start: what is answered is looked up in a table, and no path of a request ever meets the
disk.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from shine_node.api.http_request import Refused, Request

__all__ = ["INDEX", "PATH", "TYPES", "WEB_FOLDER", "Answer", "Page", "PageSet", "load_pages", "safe_headers"]

PATH = "/ws"
"""The path of the WebSocket endpoint."""

WEB_FOLDER = Path(__file__).resolve().parents[1] / "web"
"""Where the files of the chat page lie."""
INDEX = "/index.html"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".webmanifest": "application/manifest+json; charset=utf-8",
    ".png": "image/png",
}
"""The files that are served, by the suffix of their names; no others are."""

_WORKER = "/sw.js"
"""The service worker's script: a worker lives by the policy that comes with its own script."""

_PARTS = {TYPES[suffix] for suffix in (".css", ".js", ".webmanifest", ".png")}
"""The kinds that a browser opens as a part of a document, whose policy then counts; with each of the page's many parts
the policy would be a tenth of the page's weight."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
"""Names that stand in a URL as they are, and are not hidden."""

_PACKED = {kind for suffix, kind in TYPES.items() if suffix != ".png"}

# 'self' also covers the WebSocket of the same host and port, in all browsers that have the page's cryptography.
# A policy of trusted types is free to be made: a worker's address has to be made by one.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_NOT_NEEDED = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb")

_SAFE_PART = (("Cross-Origin-Resource-Policy", "same-origin"), ("X-Content-Type-Options", "nosniff"))
_SAFE = (("Content-Security-Policy", _POLICY), *_SAFE_PART, ("Referrer-Policy", "no-referrer"))
_SAFE_DOCUMENT = (
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Permissions-Policy", ", ".join(f"{feature}=()" for feature in _NOT_NEEDED)),
)

_ETAG = re.compile(r'"[\x21\x23-\x7e]*"')
_QUALITY_NONE = re.compile(r"q=0(\.0{0,3})?")


def safe_headers(kind: str, path: str = "") -> tuple[tuple[str, str], ...]:
    """Return the headers that keep a page safe, for content of a kind as ``Content-Type`` names it at a path."""
    if kind in _PARTS and path != _WORKER:
        return _SAFE_PART
    return (*_SAFE, *_SAFE_DOCUMENT) if kind == TYPES[".html"] else _SAFE


class Answer(NamedTuple):
    """An answer of HTTP, after which the connection ends.

    One that says that nothing has changed has none of the headers that keep a page safe: the client goes on with those
    that it has stored (RFC 9111 §3.2, §4.3.4), and the tag changes with them.
    """

    status: HTTPStatus
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def encode(self, now_ms: int) -> bytes:
        """Return the bytes to send at a moment, Unix milliseconds."""
        date = formatdate(now_ms / 1000, usegmt=True)
        headers = (("Date", date), ("Connection", "close"), *self.headers)
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + self.body

    @classmethod
    def refusal(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Answer:
        """Answer with a sentence for a person."""
        body = f"{text}\n".encode()
        about = (
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        )
        return cls(status, (*about, *headers, *_SAFE), body)


class Page:
    """One file: its content as it is and, where that is smaller, packed.

    Args:
        path: where it is served.
        kind: the value of ``Content-Type``.
        content: the bytes of the file.
    """

    def __init__(self, path: str, kind: str, content: bytes) -> None:
        self._kind = kind
        self._safe = safe_headers(kind, path)
        self._content = content
        packed = gzip.compress(content, 9, mtime=0) if kind in _PACKED else content
        self._packed = packed if len(packed) < len(content) else None
        self._tag = hashlib.sha256(repr(self._safe).encode() + content).hexdigest()[:32]

    def answer(self, request: Request) -> Answer:
        """Answer a request for this file: with all of it, or that the client has it already."""
        packed = self._packed if _takes_gzip(request) else None
        tag = f'"{self._tag}-gzip"' if packed is not None else f'"{self._tag}"'  # other bytes, another strong tag
        headers = [("ETag", tag), ("Cache-Control", "no-cache")]
        if self._packed is not None:
            headers.append(("Vary", "Accept-Encoding"))
        if _has(request, tag):
            return Answer(HTTPStatus.NOT_MODIFIED, tuple(headers))
        body = self._content if packed is None else packed
        if packed is not None:
            headers.append(("Content-Encoding", "gzip"))
        headers += [("Content-Type", self._kind), ("Content-Length", str(len(body))), *self._safe]
        return Answer(HTTPStatus.OK, tuple(headers), body)


class PageSet:
    """All pages by their paths, and the answers to requests that are for none of them.

    Args:
        pages: path → page; none at all where the chat page is switched off.
    """

    def __init__(self, pages: Mapping[str, Page] | None = None) -> None:
        self._pages = dict(pages or {})

    @property
    def paths(self) -> set[str]:
        """The paths that are found."""
        return set(self._pages)

    def answer(self, request: Request) -> Answer:
        """Answer a request. What it names as ``Host`` is not looked at: people reach their node by many names."""
        try:
            answer = self._page(request).answer(request)
        except Refused as refusal:
            allowed = _allowed(request) if refusal.status is HTTPStatus.METHOD_NOT_ALLOWED else ()
            answer = Answer.refusal(refusal.status, refusal.text, *allowed)
        return answer._replace(body=b"") if request.line.method == "HEAD" else answer

    def _page(self, request: Request) -> Page:
        method, path = request.line.method, request.line.path
        if path == PATH:
            if method != "GET":
                raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} is for WebSockets, which are opened with GET.")
            raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "A WebSocket is opened with HTTP/1.1.")
        if not path.startswith("/"):
            raise Refused(HTTPStatus.BAD_REQUEST, "Ask for a path: this server is no proxy.")
        page = self._pages.get(path)
        # A client that looks for a WebSocket at a page's path is better told so than shown the page.
        if page is None or "websocket" in request.words("upgrade"):
            raise Refused(HTTPStatus.NOT_FOUND, f"The WebSocket endpoint is {PATH}.")
        if method not in {"GET", "HEAD"}:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "A page can only be read: use GET or HEAD.")
        if request.has_body:
            raise Refused(HTTPStatus.BAD_REQUEST, "A request for a page has no body.")
        return page


def load_pages(folder: Path) -> PageSet:
    """Read all files of a page, those of the folders below its own too.

    Raises:
        OSError: one of them cannot be read, or there is no ``index.html``.
    """
    pages = dict(_read(folder))
    if INDEX not in pages:
        raise FileNotFoundError(f"{folder} has no index.html")
    return PageSet(pages | {"/": pages[INDEX]})


def _read(folder: Path) -> Iterator[tuple[str, Page]]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        kind = TYPES.get(path.suffix)
        if kind is not None and path.is_file() and all(map(_NAME.fullmatch, parts)):
            served = "/" + "/".join(parts)
            yield served, Page(served, kind, path.read_bytes())


def _allowed(request: Request) -> tuple[tuple[str, str]]:
    return (("Allow", "GET" if request.line.path == PATH else "GET, HEAD"),)


def _has(request: Request, tag: str) -> bool:
    """Say whether the client has these bytes; a proxy may have made the tag a weak one."""
    known = request.headers.get("if-none-match", "")
    return known == "*" or tag in _ETAG.findall(known)


def _takes_gzip(request: Request) -> bool:
    found: dict[str, bool] = {}
    for word in request.words("accept-encoding"):
        coding, *parameters = (part.strip() for part in word.split(";"))
        found[coding] = not any(map(_QUALITY_NONE.fullmatch, parameters))
    return found.get("gzip", found.get("*", False))
