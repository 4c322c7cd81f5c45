"""The small parts of the core: bytes, recovery keys, curve, link, store, and a browser that lacks something."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from shine_node.protocol.access import is_server_url
from shine_node.protocol.logins import is_login
from tests.support.chat import Tab, chat_nodes
from tests.support.web import BLANK, WEB, Web, find_browser

BASE64 = [
    "",
    "AA==",
    "AB==",
    "AAA=",
    "AAAA",
    "AA",
    "AA=",
    "A A=",
    "AAAA\n",
    "====",
    "_-8=",
    "//8=",
    "Привет",
    "AAAAA===",
]
LOGINS = ["a", "0", "Alice", "a" * 30, "a" * 31, "", ".a", "-a", "_a", "a.b-c_d", "a b", "a\n", "ä", "a|b", "K"]


def test_base64_is_strict(browser: Web) -> None:
    found = browser.evaluate(
        """async (texts) => {
          const { fromBase64, toHex } = await import("/core/bytes.js");
          return texts.map((text) => { const bytes = fromBase64(text); return bytes && toHex(bytes); });
        }""",
        BASE64,
    )

    def expected(text: str) -> str | None:
        try:
            decoded = base64.b64decode(text, validate=True)
        except ValueError:
            return None
        return decoded.hex() if base64.b64encode(decoded).decode() == text else None

    assert found == [expected(text) for text in BASE64]
    assert browser.evaluate(
        """async () => {
          const { fromBase64, toBase64, equal, fromBase64Url, toHex } = await import("/core/bytes.js");
          const bytes = crypto.getRandomValues(new Uint8Array(50000));
          return [equal(fromBase64(toBase64(bytes)), bytes), fromBase64(null), toHex(fromBase64Url("_-8"))];
        }"""
    ) == [True, None, "ffef"]


def test_base32_can_be_read_back_however_it_is_written(browser: Web) -> None:
    found = browser.evaluate(
        """async () => {
          const { fromBase32, toBase32, toHex, equal } = await import("/core/bytes.js");
          const lengths = [...Array(40).keys()].map((n) => crypto.getRandomValues(new Uint8Array(n)));
          const read = (text) => { const bytes = fromBase32(text); return bytes && toHex(bytes); };
          return [
            lengths.every((bytes) => equal(fromBase32(toBase32(bytes)), bytes)),
            toBase32(Uint8Array.of(0xff, 0, 0x10)), read("74A-BA"), read(" 74a – b a "), read("74ABB"),
            read("74ABAA"), read("7"), read("0"), read("é"), read(""),
          ];
        }"""
    )
    assert found == [True, "74ABA", "ff0010", "ff0010", None, None, None, None, None, ""]


def test_addresses_of_servers_are_those_of_the_node(browser: Web) -> None:
    urls = ["wss://a", "ws://a:7/ws", "wss://", "https://a", "wss://a b", "wss://a\n", "wss://é", "", "WSS://a"]
    urls += ["wss://" + "a" * length for length in (250, 251)]
    found = browser.evaluate(
        """async (urls) => {
          const { isServerUrl } = await import("/core/logins.js");
          return [...urls, 7, null, undefined].map(isServerUrl);
        }""",
        urls,
    )
    assert found == [*(is_server_url(url, allow_insecure=True) for url in urls), False, False, False]


def test_recovery_keys_hold_login_and_secret_and_notice_slips(browser: Web) -> None:
    found = browser.evaluate(
        """async () => {
          const { recoveryText, readRecoveryText, identityOf } = await import("/core/keys.js");
          const { toHex } = await import("/core/bytes.js");
          const secret = new Uint8Array(32).map((_, i) => i);
          const text = await recoveryText("Alice", secret);
          const { login, secret: read } = await readRecoveryText(text);
          let noticed = 0, slips = 0;
          for (let i = 0; i < text.length; i++) {
            if (text[i] === "-" || text[i] === ":") continue;
            slips++;
            const slip = text.slice(0, i) + (text[i] === "7" ? "6" : "7") + text.slice(i + 1);
            await readRecoveryText(slip).catch((problem) => noticed += problem.code === "BAD_RECOVERY_KEY");
          }
          const { root, device, blockchain } = await identityOf("Alice", secret);
          return { text, login, read: toHex(read), unnoticed: slips - noticed,
                   seeds: [root, device, blockchain].map(({ seed }) => toHex(seed)) };
        }"""
    )
    assert (found["login"], found["read"], found["unnoticed"]) == ("Alice", bytes(range(32)).hex(), 0)
    assert found["text"].startswith("Alice:")
    assert {len(group) for group in found["text"].partition(":")[2].split("-")[:-1]} == {4}
    assert found["seeds"] == [_hkdf(bytes(range(32)), f"SHiNE/Recovery:1/{name}").hex() for name in SEEDS]


def test_recovery_keys_are_those_of_the_command_line(browser: Web) -> None:
    vectors = json.loads((Path(__file__).parent / "recovery.json").read_text(encoding="ascii"))
    found = browser.evaluate(
        """async ({ cases, reads, refused }) => {
          const { recoveryText, readRecoveryText, identityOf } = await import("/core/keys.js");
          const { toHex } = await import("/core/bytes.js");
          const bytes = (hex) => Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16));
          const read = (text) => readRecoveryText(text).then(
            ({ login, secret }) => [login, toHex(secret)], (problem) => problem.code);
          return {
            texts: await Promise.all(cases.map(({ login, secretHex }) => recoveryText(login, bytes(secretHex)))),
            seeds: await Promise.all(cases.map(async ({ login, secretHex }) => {
              const { root, device, blockchain } = await identityOf(login, bytes(secretHex));
              return [root, device, blockchain].map(({ seed }) => toHex(seed));
            })),
            own: await Promise.all(cases.map(({ recoveryKey }) => read(recoveryKey))),
            reads: await Promise.all(reads.map(({ text }) => read(text))),
            refused: await Promise.all(refused.map(({ text }) => read(text))),
          };
        }""",
        vectors,
    )
    cases = vectors["cases"]
    assert found["texts"] == [case["recoveryKey"] for case in cases]
    assert found["seeds"] == [[case[f"{name}SeedHex"] for name in SEEDS] for case in cases]
    assert found["own"] == [[case["login"], case["secretHex"]] for case in cases]
    assert found["reads"] == [[case["login"], case["secretHex"]] for case in vectors["reads"]]
    assert found["refused"] == ["BAD_RECOVERY_KEY"] * len(vectors["refused"])


SEEDS = ("root", "device", "blockchain")


def _hkdf(secret: bytes, info: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=None, info=info.encode()).derive(secret)


def test_logins_obey_the_grammar(browser: Web) -> None:
    found = browser.evaluate(
        """async (texts) => texts.map((await import("/core/logins.js")).isLogin)""", [*LOGINS, None, 5]
    )
    assert found == [*map(is_login, LOGINS), False, False]


def test_pauses_between_tries_grow_and_are_not_all_alike(browser: Web) -> None:
    found = browser.evaluate(
        """async () => {
          const { pauseMs } = await import("/core/link.js");
          return [0, 1, 2, 3, 4, 5, 6, 7, 100].map((n) => [pauseMs(n, 0), pauseMs(n, 1)]);
        }"""
    )
    longest = [1000, 2000, 5000, 10000, 20000, 40000, 60000, 60000, 60000]
    assert found == [[most / 2, most] for most in longest]


def test_the_link_comes_back_at_once_when_the_network_does(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            tab = await Tab.open(browser, await browser.profile(), server)
            await tab.online()
            await server.stop()
            await tab.until("chat.state.link === 'offline'")
            since = await tab.look("chat.state.since")
            await tab.look("chat._link._tries = 6")  # the next pause is half a minute or more
            await tab.until("chat._link._tries > 6 && chat.state.link === 'offline'")
            await server.start()
            await tab.look("window.dispatchEvent(new Event('online'))")
            await tab.online()
            assert await tab.look("chat.state.since") >= since
            assert ["state", None] in await tab.look("told")

            # One that only seems to be there is found out: nobody answers the Ping.
            await tab.page.evaluate(
                """() => {
                  const { exchange } = chat._link;
                  chat._link.exchange = function (op, payload) {
                    chat._link.exchange = exchange;
                    return exchange.call(this, op, payload, 0);
                  };
                  window.dispatchEvent(new Event("offline"));
                }"""
            )
            await tab.page.wait_for_function("() => told.filter(([type]) => type === 'state').length >= 4")
            await tab.online()
            await tab.call("close")
            assert await tab.look("chat.state.link") == "none"
            assert tab.defects == []
            await tab.page.context.close()

    browser.run(story())


@pytest.mark.parametrize(
    ("before", "secure", "code"),
    [
        ("Object.defineProperty(crypto, 'subtle', { value: undefined })", False, "NOT_SECURE"),
        ("crypto.subtle.importKey = () => Promise.reject(new Error('NotSupportedError'))", True, "NOT_SECURE"),
        ("Object.defineProperty(window, 'indexedDB', { value: undefined })", True, "NO_STORE"),
        ("indexedDB.open = () => { throw new Error('denied'); }", True, "NO_STORE"),
    ],
)
def test_a_browser_that_lacks_something_is_told_what(browser: Web, before: str, secure: bool, code: str) -> None:
    found = browser.evaluate(
        """async (before) => {
          new Function(before)();
          const { Chat } = await import("/core/chat.js");
          const chat = new Chat({ url: "ws://127.0.0.1:9/ws" });
          await chat.open();
          const refused = await chat.register({ login: "alice" }).catch((problem) => problem.code);
          return { secure: chat.secure, state: chat.state, refused };
        }""",
        before,
    )
    assert (found["secure"], found["state"]["problem"]["code"], found["refused"]) == (secure, code, code)
    assert found["state"]["account"] is None
    assert found["state"]["problem"]["message"]


def test_over_plain_http_from_elsewhere_the_page_says_why_it_cannot(browser: Web) -> None:
    async def story() -> Any:
        profile = await browser.profile()

        async def give(route: Any) -> None:
            path = route.request.url.partition("plain.example")[2]
            if path == BLANK:
                await route.fulfill(body="<!doctype html>", content_type="text/html")
            else:
                text = (WEB / path.lstrip("/")).read_text(encoding="utf-8")
                await route.fulfill(body=text, content_type="text/javascript")

        await profile.route("http://plain.example/**", give)
        page = await profile.new_page()
        await page.goto(f"http://plain.example{BLANK}")
        found = await page.evaluate(
            """async () => {
              const { Chat } = await import("/core/chat.js");
              const chat = new Chat({});
              await chat.open();
              return [isSecureContext, chat.secure, chat.state.problem.code, chat.dialogs(), chat.messages("a")];
            }"""
        )
        await profile.close()
        return found

    assert browser.run(story()) == [False, False, "NOT_SECURE", [], []]


def test_without_locks_a_tab_sends_all_the_same(browser: Web, tmp_path: Path) -> None:
    async def story() -> None:
        async with chat_nodes(tmp_path, "server1") as (server,):
            tab = Tab(await browser.blank(await browser.profile()))
            await tab.page.evaluate("() => Object.defineProperty(navigator, 'locks', { value: undefined })")
            await tab.start(server)
            await tab.call("register", {"login": "alice"})
            await tab.sent("alice", "by itself")
            assert tab.defects == []
            await tab.page.context.close()

    browser.run(story())


def test_without_chromium_nothing_is_found_unless_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SHINE_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_browser() is None
    monkeypatch.setenv("SHINE_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="SHINE_CHROMIUM"):
        find_browser()
