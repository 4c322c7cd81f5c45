"""Messages that want to be more than messages, from a stranger over real nodes: they are text, and break nothing."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from shine_node.client.identity import Identity
from shine_node.client.messages import make_message
from tests.support.nodes import eventually, now_ms, register
from tests.support.web import Web
from tests.web.people import Person, Place, live

MOST = 65536
"""Bytes of the longest body that a server takes."""

TEXTS = {
    "html": '<h1>Alice</h1><img src=x onerror="document.title=1"><form action="//evil.example"><input></form>&lt;b&gt;',
    "script": "</script><script>document.title = 'hit'</script><svg/onload=document.title=1> javascript:alert(1)",
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//evil.example/x><meta http-equiv=refresh>",
    "bidi": "\u202eexe.txt\u202e \u2066\u2067\u2068 never closed \u202a\u202b end",
    "marks": "Zalgo " + "Z\u0310\u0489\u0334" * 200,
    "controls": "bell \x07 escape \x1b[31m null \x00 delete \x7f end",
    "zero width": "in\u200bvis\u200cib\u200dle\u2060 \ufeffends",
    "empty": "\u200b\u200c\u200d\u2060\ufeff\u00ad",
    "lines": "first" + "\n" * 3000 + "last",
    "word": "x" * MOST,
    "whole": ("64 КБ текста " * MOST).encode()[:MOST].decode(errors="ignore"),
    "names": "{peer} ${location} {{1}} __proto__ constructor %s",
}

# What stands of a message in the page, and whether it keeps to its place.
LOOK = """node => {
    const text = node.querySelector(".text"), bubble = node.querySelector(".bubble").getBoundingClientRect();
    const box = text.getBoundingClientRect(), scroller = node.closest(".scroller").getBoundingClientRect();
    return {
        shown: text.textContent,
        elements: text.children.length,
        inside: box.left >= bubble.left && box.right <= bubble.right + 1 && bubble.right <= scroller.right + 1,
        apart: getComputedStyle(text).unicodeBidi === "isolate",
    };
}"""


async def look(alice: Person, name: str) -> None:
    """See that a message is on the screen as the text that it is; the newest one is looked at."""
    text = TEXTS[name]
    message = alice.messages("mallory").last
    is_long = len(text) > 1500 or text.count("\n") >= 24
    if is_long:
        await message.get_by_role("button", name="Show all").click()
    expected = "Message without visible characters" if name == "empty" else text
    found = await message.evaluate(LOOK)
    assert found.pop("shown") == expected
    assert found == {"elements": 0, "inside": True, "apart": True}
    if is_long:
        await message.get_by_role("button", name="Show less").click()
    await expect(message.locator(".foot")).to_be_visible()


def test_a_hostile_message_is_a_text_and_breaks_nothing(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        one, two = place.servers
        alice = await place.visit(one, "en")
        await alice.register("Alice")
        mallory = Identity.generate("mallory")
        await register(mallory, [two])
        await two.send(make_message(mallory, "alice", "good day", time_ms=now_ms()))
        await alice.enter("mallory")
        await expect(alice.message("mallory", "good day")).to_be_visible()
        own = "script, style, link, meta, form, h1, img, svg:not([class])"
        elements = await alice.page.locator(own).count()
        for number, (name, text) in enumerate(TEXTS.items(), 2):
            await two.send(make_message(mallory, "alice", text, time_ms=now_ms()))
            await expect(alice.messages("mallory")).to_have_count(number)
            await look(alice, name)
            await alice.shot(f"hostile-{name.replace(' ', '-')}")

        # Everything else is as it was, and goes on.
        await expect(alice.page).to_have_title("SHiNE")
        assert await alice.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        row = await alice.dialog("mallory").bounding_box()
        assert row is not None
        assert row["height"] < 90
        assert await alice.page.locator(own).count() == elements, "as many as the page has itself"
        await alice.find("alice")
        for text in (TEXTS["script"], TEXTS["bidi"]):  # sealed this time, from the page itself, to oneself
            await alice.ticked(await alice.write("alice", text), "delivered")
        await alice.reload()
        await expect(alice.messages("alice")).to_have_count(2)
        await alice.enter("mallory")
        await expect(alice.messages("mallory")).to_have_count(len(TEXTS) + 1)
        await alice.choose(alice.messages("mallory").last, "message.copy")
        await alice.ticked(await alice.write("mallory", "no, thank you"), "delivered")

    live(browser, tmp_path, story)


WRONG = {
    "uncaught": "setTimeout(() => { throw new Error('a defect'); })",
    "error in the console: policy: img-src": "new Image().src = '//evil.example/'",
    "error in the console: policy: require-trusted-types-for": "document.body.innerHTML = '<b>hello</b>'",
    "asked for https://evil.example/": "location = 'https://evil.example/'",
}


def test_a_page_that_does_wrong_is_found_out(browser: Web, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        alice = await place.visit(place.servers[0], "en")
        await alice.kept()
        await alice.reload()  # the policy holds for a page out of the browser's store too
        for complaint, script in WRONG.items():
            await alice.page.evaluate(f"() => {{ try {{ {script} }} catch {{ }} }}")

            async def is_found(complaint: str = complaint) -> bool:
                return any(complaint in found for found in alice.complaints)

            await eventually(is_found)
        alice.complaints.clear()

    live(browser, tmp_path, story)
