"""What the files of the chat page are, all of them together: small, harmless, of one piece, in two languages."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from shine_node.api.pages import TYPES
from shine_node.api.pages import WEB_FOLDER as WEB
from tests.support.web import Web
from tests.web.stamp import WORKER, list_files, stamp

MOST_BYTES = 150_000
"""Of all files, as they are served: packed with gzip."""
MOST_LINES = 400

FILES = sorted(path for path in WEB.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]

HARMFUL = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|document\.write|srcdoc|\beval\("
    r"|new Function|javascript:|setAttribute\(\s*[\"'](?:style|on)|cssText"
    r"|\son\w+=|style=|<style|localStorage\.setItem\(\s*[\"'](?!shine-theme)"
)
ADDRESS = re.compile(r"\b(?:https?|wss?)://[^\s\"'`<>)]+")
OWN_ADDRESSES = re.compile(
    r"http://www\.w3\.org/2000/svg|http://localhost|(?:https|wss?)://\$\{|https:$|https://?$|wss?://?$"
)
IMPORT = re.compile(r"^(?:import\b|export\b[^;\"'=(]*\bfrom\b)[^;\"']*[\"']([^\"']+)[\"'];", re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(WEB).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_all_files_are_of_a_kind_that_is_served() -> None:
    assert {path.suffix for path in FILES} <= set(TYPES)
    assert len(SCRIPTS) > 20


def test_the_page_is_small() -> None:
    sizes = {name_of(path): len(gzip.compress(path.read_bytes(), 9, mtime=0)) for path in FILES}
    assert sum(sizes.values()) < MOST_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:10]


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_module_says_what_it_is_for_and_is_small(path: Path) -> None:
    lines = read(path).splitlines()
    assert re.match(r"// \S.{10}", lines[0]), "the first line says what the module is for"
    assert len(lines) < MOST_LINES, f"{len(lines)} lines: two jobs?"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_makes_markup_or_code_out_of_text(path: Path) -> None:
    text = read(path)
    if path.name == "dom.js":
        text = re.sub(r"^const REFUSED = .*$", "", text, flags=re.MULTILINE)
    assert [match[0] for match in HARMFUL.finditer(text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "a.innerHTML = b",
        'a.setAttribute("style", b)',
        '<p onclick="x">',
        '<p style="x">',
        "eval(a)",
        'localStorage.setItem("key", b)',
    ],
)
def test_what_makes_markup_or_code_would_be_found(line: str) -> None:
    assert HARMFUL.search(line)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_other_host_is_named(path: Path) -> None:
    found = [address for address in ADDRESS.findall(read(path)) if not OWN_ADDRESSES.match(address)]
    assert found == []


def imports_of(path: Path) -> list[str]:
    found = []
    for target in IMPORT.findall(read(path)):
        assert target.startswith("."), f"{name_of(path)} imports {target}: only files of the page can be imported"
        parts: list[str] = list(PurePosixPath(name_of(path)).parent.parts)
        for part in PurePosixPath(target).parts:
            if part == "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        found.append("/".join(parts))
    return found


def test_every_module_is_there_and_is_used() -> None:
    imported = {target for path in SCRIPTS for target in imports_of(path)}
    names = {name_of(path) for path in SCRIPTS}
    assert imported <= names
    assert names - imported == {"app.js", "early.js", WORKER}, "a module that nothing imports"


def test_the_interface_knows_the_core_by_one_door() -> None:
    for path in SCRIPTS:
        room = name_of(path).split("/")[0]
        rooms = {target.split("/")[0] for target in imports_of(path)}
        if room in ("ui", "i18n"):
            assert "core" not in rooms, name_of(path)
        if room in ("core", "i18n"):
            assert not rooms & {"ui", "app.js"}, name_of(path)
    app = next(path for path in SCRIPTS if name_of(path) == "app.js")
    assert [target for target in imports_of(app) if target.startswith("core/")] == ["core/chat.js"]


def test_the_first_page_names_files_that_are_there() -> None:
    text = read(WEB / "index.html")
    named = set(re.findall(r'(?:href|src)="([^"]+)"', text))
    assert {"app.js", "early.js", "style.css", "icon.svg", "manifest.webmanifest"} == named
    assert all((WEB / name).is_file() for name in named)
    assert re.findall(r"<script(?![^>]*src=)", text) == []


def test_the_manifest_names_files_that_are_there() -> None:
    manifest: dict[str, Any] = json.loads(read(WEB / "manifest.webmanifest"))
    assert manifest["start_url"] == manifest["scope"] == "./"
    assert [(WEB / icon["src"]).is_file() for icon in manifest["icons"]] == [True]


def test_the_worker_keeps_exactly_the_files_as_they_are() -> None:
    assert {"index.html", "app.js", "style.css", "core/chat.js"} <= set(list_files())
    assert read(WEB / WORKER) == stamp(), "the page has changed: run `python -m tests.web.stamp`"


def test_another_file_is_another_version(tmp_path: Path) -> None:
    for name in ("index.html", WORKER):
        (tmp_path / name).write_bytes((WEB / name).read_bytes())
    first = stamp(tmp_path)
    assert '"./",\n  "index.html",\n];' in first
    (tmp_path / "index.html").write_text("another")
    assert stamp(tmp_path) != first
    (tmp_path / WORKER).write_text("nothing")
    with pytest.raises(ValueError, match=r"sw\.js has no place"):
        stamp(tmp_path)


# Languages

CYRILLIC = re.compile(r"[\u0400-\u04ff]")
LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
NAMES = {
    *("SHiNE", "https", "http", "localhost", "tlsCert", "tlsKey", "Ed25519", "X25519"),
    *("Firefox", "Chromium", "Chrome", "Edge", "Safari"),
}
"""What has no other name in Russian."""

PREFIXES = ("error.", "problem.", "recover.", "message.", "tick.", "theme.")
"""Texts whose keys the page puts together: of codes, problems and states."""


@pytest.fixture(scope="module")
def dictionaries(browser: Web) -> dict[str, dict[str, str]]:
    """The texts of the page by language and key."""
    load = """async () => {
        const en = (await import("/i18n/en.js")).default, ru = (await import("/i18n/ru.js")).default;
        return { en, ru };
    }"""
    found: dict[str, dict[str, str]] = browser.evaluate(load)
    return found


def test_both_languages_have_the_same_texts(dictionaries: dict[str, dict[str, str]]) -> None:
    en, ru = dictionaries["en"], dictionaries["ru"]
    assert list(en) == list(ru) == sorted(en)
    assert len(en) > 100
    for key, text in en.items():
        fields = [set(re.findall(r"\{(\w+)\}", form)) for form in (*text.split("|"), *ru[key].split("|"))]
        assert all(one == fields[0] for one in fields), key
        if "|" in text or "|" in ru[key]:
            assert (len(text.split("|")), len(ru[key].split("|"))) == (2, 3), key


def test_no_text_of_one_language_stands_in_the_other(dictionaries: dict[str, dict[str, str]]) -> None:
    for key, text in dictionaries["en"].items():
        assert not CYRILLIC.search(text), key
    for key, text in dictionaries["ru"].items():
        words = set(LATIN_WORD.findall(re.sub(r"\{\w+\}", "", text)))
        assert words <= NAMES, key
        assert CYRILLIC.search(re.sub(r"\{\w+\}", "", text)), key


def test_each_text_is_used_and_each_used_one_is_there(dictionaries: dict[str, dict[str, str]]) -> None:
    code = "\n".join(read(path) for path in SCRIPTS if name_of(path).startswith("ui/"))
    used = set(re.findall(r"\b(?:t|plural)\(\s*\"([\w.-]+)\"", code))
    used |= set(re.findall(r"\"([a-z]+\.[\w-]+)\"", code)) & set(dictionaries["en"])
    assert used <= set(dictionaries["en"])
    assert {key for key in set(dictionaries["en"]) - used if not key.startswith(PREFIXES)} == set()


def test_the_delivery_states_are_called_as_the_protocol_says(dictionaries: dict[str, dict[str, str]]) -> None:
    assert dictionaries["en"]["tick.failed"] == "Message not delivered"
    assert dictionaries["ru"]["tick.failed"] == "Сообщение не доставлено"


# Nothing is left over

NAMED_IMPORT = re.compile(r"^import \{([^}]*)\} from [\"']([^\"']+)[\"'];", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:const|let|class|function)\*? ([\w$]+)", re.MULTILINE)
FOR_TESTS = {"ui/router.js": {"parseRoute"}}
"""What only its own module and the tests use."""


def named_imports(text: str) -> list[str]:
    return [
        part.split(" as ")[-1].strip()
        for names, _ in NAMED_IMPORT.findall(text)
        for part in names.split(",")
        if part.strip()
    ]


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_what_is_imported_is_used(path: Path) -> None:
    text = read(path)
    rest = NAMED_IMPORT.sub("", text)
    unused = [name for name in named_imports(text) if not re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", rest)]
    assert unused == []


def test_what_the_interface_exports_is_used_somewhere() -> None:
    texts = {name_of(path): read(path) for path in SCRIPTS if name_of(path).split("/")[0] in ("ui", "app.js")}
    used = {name for text in texts.values() for name in named_imports(text)}
    left = {
        name: set(EXPORT.findall(text)) - used - FOR_TESTS.get(name, set())
        for name, text in texts.items()
        if name.startswith("ui/")
    }
    # What a module exports for the tests alone is used in the module itself.
    for name, exported in left.items():
        for export in exported:
            assert len(re.findall(rf"\b{export}\b", texts[name])) > 1, f"{name} exports {export}, which nothing uses"
