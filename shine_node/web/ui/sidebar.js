// The list of chats, the search of people, and the state of the connection.
import { button, h, moveFocus, reconcile, setAttribute, setText, spoken } from "./dom.js";
import { duration, listTime } from "./dates.js";
import { errorText, hasText, plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { substitute } from "./bubble.js";
import { avatar, statusText } from "./parts.js";
import { routeTo } from "./router.js";
import { Search } from "./search.js";
import { excerpt } from "./text.js";
import { tickElement, tickOf } from "./ticks.js";

// Problems that end with leaving this browser and coming back.
const AWAY = new Set(["DEVICE_KEY_NOT_ACTUAL", "ROOT_KEY_MISMATCH", "UNKNOWN_USER", "NOT_ACCESS_SERVER"]);
const PAGE = 80; // chats that come into the list at a time

function lastLine(dialog, drafted) {
  if (drafted) return [h("span", { class: "draft" }, t("dialog.draft")), " ", h("bdi", {}, excerpt(drafted))];
  const { last } = dialog;
  if (!last) return [];
  const instead = substitute(last);
  const kind = tickOf(last);
  const sign = kind === "failed" || kind === "refused"
    ? h("span", { class: "failed-sign small" }, h("span", { "aria-hidden": "true" }, "!"), spoken(t("tick.failed")))
    : tickElement(kind);
  return [sign, last.out ? spoken(t("message.you") + ": ") : null, h("bdi", { class: instead ? "instead" : null }, instead ?? excerpt(last.text))];
}

function row() {
  const element = h("li", {});
  element.link = h("a", { class: "dialog", tabindex: "-1" });
  element.append(element.link);
  return element;
}

function drawRow(element, { dialog, open }) {
  const { peer, last, unread } = dialog;
  const drafted = open ? "" : dialog.draft?.trim() ?? "";
  const { link } = element;
  setAttribute(link, "aria-current", open ? "page" : null);
  const time = last ? listTime(last.timeMs) : "";
  const look = [peer, time, unread, drafted, last?.key, last?.text, last?.state, last?.read, last?.deleted, last?.problem];
  if (element.look?.every((value, at) => value === look[at])) return;
  element.look = look;
  link.setAttribute("href", routeTo({ name: "chat", peer }));
  link.replaceChildren(
    avatar(peer),
    h("span", { class: "dialog-head" }, h("bdi", { class: "name" }, peer), h("span", { class: "time" }, time)),
    h(
      "span", { class: "dialog-foot" }, h("span", { class: "preview" }, ...lastLine(dialog, drafted)),
      unread > 0 ? h("span", { class: "badge" }, h("span", { "aria-hidden": "true" }, unread > 999 ? "999+" : String(unread)), spoken(plural("dialog.unread", unread))) : null,
    ),
  );
}

/** The left side of the page: {element, show(route), focusList(), onNewDay()}. */
export function sidebar({ chat, nudge, signal }) {
  const nodes = new Map();
  let most = PAGE;
  let openPeer = null;
  const status = h("p", { class: "status", role: "status" });
  const name = h("h1", {}, h("bdi", {}, chat.state.account?.login ?? ""));
  const list = h("ul", { class: "dialogs", role: "list", "aria-label": t("dialog.list") });
  const empty = h("p", { class: "hint" }, t("dialog.empty"));
  const pane = h("div", { class: "pane-scroll" }, list, empty);
  const search = new Search({ chat, signal, onActive: (active) => { pane.hidden = active; } });
  const settings = h(
    "a", { class: "round", href: routeTo({ name: "settings" }) }, icon("settings"), spoken(t("settings.title")),
  );
  const said = h("span", {});
  const toSettings = h("a", { href: routeTo({ name: "settings" }) }, t("settings.title"));
  const again = button(t("problem.reconnect"), "link", () => chat.reconnect());
  const problem = h("div", { class: "problem", role: "alert", hidden: true }, said, toSettings, again);
  const element = h(
    "nav", { class: "sidebar", "aria-label": t("dialog.title") },
    h("header", { class: "bar" }, avatar(chat.state.account?.login ?? "?"), h("div", { class: "bar-text" }, name, status), settings),
    problem, nudge, search.form, search.results, pane,
  );

  function render() {
    const all = chat.dialogs();
    const shown = all.slice(0, most).map((dialog) => ({ dialog, open: dialog.peer.toLowerCase() === openPeer }));
    reconcile(list, nodes, shown, { key: (item) => item.dialog.peer, create: row, update: drawRow });
    empty.hidden = all.length > 0;
    list.hidden = all.length === 0;
    const unread = all.reduce((sum, dialog) => sum + dialog.unread, 0);
    document.title = unread ? `(${unread}) SHiNE` : "SHiNE";
    keepOneInTabOrder();
  }

  function links() {
    return [...list.querySelectorAll("a")];
  }

  function keepOneInTabOrder(chosen = null) {
    const all = links();
    const one = chosen ?? all.find((link) => link.tabIndex === 0) ?? all.find((link) => link.ariaCurrent) ?? all[0];
    for (const link of all) link.tabIndex = link === one ? 0 : -1;
  }

  function showState() {
    const { state } = chat;
    const { text, kind } = statusText(state);
    setText(status, text);
    setAttribute(status, "class", `status ${kind}`);
    problem.hidden = !state.problem;
    setText(said, state.problem ? problemText(state.problem) : "");
    again.hidden = state.problem?.code !== "SESSION_CLOSED";
    toSettings.hidden = !AWAY.has(state.problem?.code);
  }

  let waiting = false;
  function schedule() {
    if (waiting) return;
    waiting = true;
    // Not a frame: the title counts what is unread in a page that is not looked at, and that draws no frames.
    setTimeout(() => {
      waiting = false;
      if (!signal.aborted) render();
    }, 30);
  }

  chat.addEventListener("dialogs", schedule, { signal });
  chat.addEventListener("drafts", schedule, { signal });
  chat.addEventListener("state", showState, { signal });
  list.addEventListener("focusin", (event) => keepOneInTabOrder(event.target.closest("a")));
  list.addEventListener("keydown", (event) => {
    if (event.key === "ArrowUp" && links()[0] === document.activeElement) {
      event.preventDefault();
      search.focus();
    } else moveFocus(event, links());
  });
  pane.addEventListener("scroll", () => {
    if (pane.scrollHeight - pane.scrollTop - pane.clientHeight < 800 && most < chat.dialogs().length) {
      most += PAGE;
      render();
    }
  }, { signal, passive: true });
  search.form.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && pane.hidden === false && links().length) {
      event.preventDefault();
      links()[0].focus();
    }
  });
  showState();
  render();
  return {
    element,
    show(route) {
      openPeer = route.name === "chat" ? route.peer.toLowerCase() : null;
      setAttribute(settings, "aria-current", route.name === "settings" ? "page" : null);
      if (route.name === "chat") search.clear();
      render();
    },
    focusList() {
      const all = links();
      (all.find((link) => link.tabIndex === 0) ?? search.input).focus();
    },
    onNewDay: render,
  };
}

function problemText({ code, byMs }) {
  if (code === "CLOCKS_DIFFER") return t("problem.CLOCKS_DIFFER", { duration: duration(byMs) });
  return hasText(`problem.${code}`) ? t(`problem.${code}`) : errorText(code);
}
