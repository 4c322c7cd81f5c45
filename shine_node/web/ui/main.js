// The page of somebody who is logged in: the list on the left, a chat or the settings on the right, one of both on a phone.
import { chatView } from "./chat.js";
import { h } from "./dom.js";
import { dayOf } from "./dates.js";
import { plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { substitute } from "./bubble.js";
import { isUnread } from "./news.js";
import { announce } from "./notices.js";
import { currentRoute, Trail } from "./router.js";
import { settingsView } from "./settings.js";
import { sidebar } from "./sidebar.js";
import { excerpt } from "./text.js";
import { tickOf } from "./ticks.js";

const MOST_NEWS = 3; // said at once: after a time without a connection there can be many

function placeholder() {
  return h("div", { class: "placeholder" }, h("img", { src: "icon.svg", width: "56", height: "56", alt: "" }), h("p", {}, t("main.choose")));
}

// Says what comes in, and what did not arrive, to a screen reader; what was there from the beginning is no news.
function announceNews(chat, signal) {
  const failed = (last) => last?.out && tickOf(last) === "failed";
  const unreadOf = (peer) => chat.messages(peer).filter(isUnread);
  const noted = ({ peer, last, unread }) => ({ key: last?.key, timeMs: last?.timeMs ?? 0, unread, keys: new Set(unreadOf(peer).map(({ key }) => key)) });
  const known = new Map(chat.dialogs().map((dialog) => [dialog.peer, noted(dialog)]));
  const spokenOf = (message) => substitute(message) ?? excerpt(message.text, 300);
  const lost = new Set(chat.dialogs().filter(({ last }) => failed(last)).map(({ last }) => last.key));
  chat.addEventListener("dialogs", () => {
    const news = [];
    for (const dialog of chat.dialogs()) {
      const { peer, last, unread } = dialog;
      if (failed(last) && !lost.has(last.key)) {
        lost.add(last.key);
        news.push(`${peer}: ${t("tick.failed")}`);
      }
      const before = known.get(peer) ?? { timeMs: 0, unread: 0, keys: new Set() };
      known.set(peer, noted(dialog));
      const isNewest = last && last.key !== before.key && last.timeMs >= before.timeMs;
      if (isNewest && !last.out && (unread > 0 || currentRoute().peer?.toLowerCase() === peer.toLowerCase())) {
        news.push(`${peer}: ${spokenOf(last)}`);
      } else if (unread > before.unread) {
        // It came late, behind newer ones: its text is at hand where the chat is.
        const late = unreadOf(peer).findLast(({ key }) => !before.keys.has(key));
        news.push(`${peer}: ${late ? spokenOf(late) : plural("dialog.unread", unread)}`);
      }
    }
    if (news.length) announce(news.slice(0, MOST_NEWS).join("\n"));
  }, { signal });
}

/**
 * Puts the page together; `signal` takes it apart. `prefs` are {theme(), saved(), onLanguage, onTheme, onSaved}; `kept` is
 * what goes on in the next one: {edits, place}.
 */
export function mainPage({ chat, prefs, kept, signal }) {
  let view = null;
  let ending = null;
  const nudge = h("a", { class: "nudge", href: "#/settings", hidden: prefs.saved() }, icon("key"), h("span", {}, t("recovery.nudge")));
  const side = sidebar({ chat, nudge, signal });
  const content = h("main", { class: "content" });
  const element = h("div", { class: "app" }, side.element, content);

  const trail = new Trail();
  const leave = () => trail.toList();

  function show({ focus = true } = {}) {
    ending?.abort();
    ending = new AbortController();
    const route = currentRoute();
    const old = view;
    if (route.name === "chat") {
      view = chatView({ chat, peer: route.peer, leave, edits: kept.edits, place: kept.place, signal: ending.signal });
    } else if (route.name === "settings") {
      view = settingsView({
        chat, leave, theme: prefs.theme(), saved: prefs.saved, onLanguage: prefs.onLanguage, onTheme: prefs.onTheme, signal: ending.signal,
        onSaved: () => { prefs.onSaved(); nudge.hidden = true; },
      });
    } else view = null;
    kept.place = null;
    content.replaceChildren(view ? view.element : placeholder());
    element.dataset.pane = view ? "content" : "list";
    side.show(route);
    if (!focus) return;
    // A phone's keyboard should not come up by itself.
    if (view && !(route.name === "chat" && matchMedia("(pointer: coarse)").matches)) view.focus();
    else if (!view && old) side.focusList();
  }

  addEventListener("hashchange", () => {
    trail.note();
    show();
  }, { signal });
  content.addEventListener("click", (event) => {
    if (!event.target.closest(".back")) return;
    event.preventDefault();
    leave();
  });
  let day = dayOf(Date.now());
  const timer = setInterval(() => {
    if (dayOf(Date.now()) === day) return;
    day = dayOf(Date.now());
    side.onNewDay();
    view?.onNewDay?.();
  }, 30000);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    kept.place = view?.place?.() ?? null;
    ending?.abort();
    document.title = "SHiNE";
  });
  announceNews(chat, signal);
  return { element, show };
}
