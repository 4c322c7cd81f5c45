// Finds people: among one's chats at once, on the server a moment later.
import { h, moveFocus, setAttribute, setText } from "./dom.js";
import { errorText, plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { avatar } from "./parts.js";
import { routeTo } from "./router.js";
import { LOGIN } from "./text.js";

const PAUSE_MS = 220;
const MOST_CHATS = 20;

export class Search {
  constructor({ chat, signal, onActive }) {
    Object.assign(this, { chat, onActive });
    this.asked = 0;
    this.input = h("input", {
      type: "search", class: "search-field", placeholder: t("search.placeholder"), "aria-label": t("search.label"),
      autocomplete: "off", autocapitalize: "none", spellcheck: "false", enterkeyhint: "search", maxlength: "30",
    });
    this.form = h("form", { class: "search", role: "search", on: { submit: (event) => this.onSubmit(event) } }, icon("search"), this.input);
    this.found = h("p", { class: "hint", role: "status" });
    this.list = h("ul", { class: "dialogs", role: "list", "aria-label": t("search.results") });
    this.results = h("div", { class: "pane-scroll", hidden: true }, this.list, this.found);
    this.input.addEventListener("input", () => this.onInput());
    this.form.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("keydown", (event) => this.onListKey(event));
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  focus() {
    this.input.focus();
  }

  clear() {
    if (!this.input.value) return;
    this.input.value = "";
    this.onInput();
  }

  onInput() {
    const text = this.input.value.trim();
    clearTimeout(this.timer);
    this.asked += 1;
    this.results.hidden = text === "";
    this.onActive(text !== "");
    if (text === "") return;
    this.logins = [];
    this.answered = false;
    this.answer = null;
    this.show(text, t("search.searching"));
    this.timer = setTimeout(() => {
      this.answer = this.ask(text);
    }, PAUSE_MS);
  }

  async ask(text) {
    const number = this.asked;
    let said = null;
    let logins = [];
    try {
      logins = await this.chat.search(text);
    } catch (error) {
      said = error?.code === "OFFLINE" ? t("search.offline") : errorText(error);
    }
    if (number !== this.asked) return; // something else has been typed since
    this.logins = logins;
    this.answered = true;
    const count = this.show(text, "");
    setText(this.found, said ?? (count ? plural("search.found", count) : t("search.none", { text })));
  }

  // Chats first, then people of the server, then the login itself: its server may be known to none of ours.
  show(text, said) {
    const wanted = text.toLowerCase();
    const peers = this.chat.dialogs().map((dialog) => dialog.peer).filter((peer) => peer.toLowerCase().includes(wanted)).slice(0, MOST_CHATS);
    const seen = new Set();
    const rows = [];
    for (const login of [...peers, ...this.logins]) {
      const lower = login.toLowerCase();
      if (seen.has(lower)) continue;
      seen.add(lower);
      rows.push(this.row(login, null));
    }
    const count = rows.length;
    if (LOGIN.test(text) && !seen.has(wanted)) rows.push(this.row(text, t("search.write")));
    this.list.replaceChildren(...rows);
    setAttribute(this.list, "hidden", rows.length ? null : true);
    setText(this.found, said);
    return count;
  }

  row(login, hint) {
    const href = LOGIN.test(login) ? routeTo({ name: "chat", peer: login }) : null;
    const text = hint ? h("span", { class: "dialog-foot" }, h("span", { class: "preview" }, hint)) : null;
    const go = { click: () => queueMicrotask(() => this.left(href)) };
    return h(
      "li", {},
      h("a", { class: "dialog", href, on: go }, avatar(login), h("span", { class: "dialog-head" }, h("bdi", { class: "name" }, login)), text),
    );
  }

  // A person was chosen. Where that chat is open already nothing else takes the focus, which must not be lost.
  left(href) {
    this.clear();
    if (href === location.hash) this.focus();
  }

  links() {
    return [...this.list.querySelectorAll("a")];
  }

  // Enter opens the first one found; typed faster than the server answers, it waits for what that knows.
  async onSubmit(event) {
    event.preventDefault();
    const text = this.input.value.trim();
    if (text === "") return;
    const number = this.asked;
    if (!this.answered) {
      clearTimeout(this.timer);
      this.answer ??= this.ask(text);
      await this.answer;
    }
    if (number === this.asked) this.links()[0]?.click();
  }

  onKey(event) {
    if (event.key === "Escape" && this.input.value) {
      event.preventDefault();
      event.stopPropagation();
      this.clear();
    } else if (event.key === "ArrowDown" && !this.results.hidden && this.links().length) {
      event.preventDefault();
      this.links()[0].focus();
    }
  }

  onListKey(event) {
    if (event.key === "Escape" || (event.key === "ArrowUp" && this.links()[0] === document.activeElement)) {
      event.preventDefault();
      this.focus();
    } else moveFocus(event, this.links());
  }
}
