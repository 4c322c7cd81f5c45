// The settings: language, theme, recovery key, sessions, leaving.
import { ask } from "./confirm.js";
import { button, h, setText, spoken } from "./dom.js";
import { fullTime } from "./dates.js";
import { currentLanguage, errorText, LANGUAGES, plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { attempt } from "./notices.js";
import { recoveryPanel } from "./recovery.js";
import { routeTo } from "./router.js";
import { excerpt } from "./text.js";
import { THEMES } from "./theme.js";

function section(id, title, ...children) {
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

// Puts the focus where a row of a list has gone: to the button that has come in its place, or to the heading.
function refocus(list, at) {
  if (document.activeElement && document.activeElement !== document.body) return;
  const buttons = list.querySelectorAll("button");
  const heading = list.closest("section").querySelector("h2");
  heading.tabIndex = -1;
  (buttons[Math.min(at, buttons.length - 1)] ?? heading).focus();
}

const placeOf = (list, pressed) => [...list.querySelectorAll("button")].indexOf(pressed);

function choices(name, label, options, chosen, onChoice) {
  return h(
    "fieldset", { class: "choices" }, h("legend", {}, label),
    ...options.map(({ value, text, lang }) => {
      const input = h("input", { type: "radio", name, value, on: { change: () => onChoice(value) } });
      input.checked = value === chosen;
      return h("label", { lang }, input, h("span", {}, text));
    }),
  );
}

function keySection({ chat, saved, onSaved }) {
  const place = h("div", {});
  const hide = () => place.replaceChildren(button(t("recovery.show"), "plain", show));
  function show() {
    const parts = [recoveryPanel({ login: chat.state.account.login, recoveryKey: chat.recoveryKey() })];
    const actions = [button(t("recovery.hide"), "link", () => { hide(); place.firstChild.focus(); })];
    if (!saved) {
      actions.unshift(button(t("recovery.saved"), "primary", () => { saved = true; onSaved(); hide(); place.firstChild.focus(); }));
    }
    place.replaceChildren(...parts, h("div", { class: "actions" }, ...actions));
    place.querySelector(".recovery-key").focus();
  }
  hide();
  return section("key-title", t("recovery.title"), h("p", { class: "hint" }, t("recovery.why")), place);
}

function sessionRow(session, onClose) {
  const client = excerpt(session.client ?? "", 120) || t("sessions.unknown");
  const when = session.current ? t("sessions.current") : t("sessions.last", { time: fullTime(session.lastMs) });
  return h(
    "li", { class: "session" }, h("div", { class: "bar-text" }, h("bdi", { class: "name" }, client), h("p", { class: "hint" }, when)),
    session.current ? null : button(t("sessions.close"), "plain", (event) => onClose(session, event.currentTarget)),
  );
}

function sessionsSection({ chat, signal }) {
  const list = h("ul", { class: "sessions", role: "list" });
  const said = h("p", { class: "hint", role: "status" }, t("sessions.loading"));
  async function load() {
    try {
      const sessions = await chat.sessions();
      if (signal.aborted) return;
      const sorted = [...sessions].sort((one, other) => Number(other.current) - Number(one.current) || other.lastMs - one.lastMs);
      list.replaceChildren(...sorted.map((session) => sessionRow(session, close)));
      setText(said, "");
    } catch (error) {
      if (!signal.aborted) setText(said, error?.code === "OFFLINE" ? t("sessions.offline") : errorText(error));
    }
  }
  async function close(session, pressed) {
    const sure = await ask({ title: t("sessions.closeTitle"), text: t("sessions.closeText"), action: t("sessions.close"), danger: true });
    if (!sure) return;
    const at = placeOf(list, pressed);
    pressed.disabled = true;
    await attempt(() => chat.closeSession(session.id));
    pressed.disabled = false;
    await load();
    if (!signal.aborted) refocus(list, at);
  }
  let link = chat.state.link;
  chat.addEventListener("state", () => {
    if (chat.state.link === "online" && link !== "online") load();
    link = chat.state.link;
  }, { signal });
  load();
  return section("sessions-title", t("sessions.title"), said, list);
}

function blockedSection({ chat, signal }) {
  const list = h("ul", { class: "sessions", role: "list" });
  const said = h("p", { class: "hint", role: "status" }, t("sessions.loading"));
  async function load() {
    try {
      const logins = await chat.blocked();
      if (signal.aborted) return;
      list.replaceChildren(...logins.map((login) => h(
        "li", { class: "session" }, h("div", { class: "bar-text" }, h("bdi", { class: "name" }, login)),
        button(t("block.undo"), "plain", (event) => undo(login, event.currentTarget)),
      )));
      setText(said, logins.length ? "" : t("block.nobody"));
    } catch (error) {
      if (!signal.aborted) setText(said, errorText(error));
    }
  }
  async function undo(login, pressed) {
    const at = placeOf(list, pressed);
    pressed.disabled = true;
    await attempt(() => chat.setBlocked(login, false));
    pressed.disabled = false;
    await load();
    if (!signal.aborted) refocus(list, at);
  }
  let link = chat.state.link;
  chat.addEventListener("state", () => {
    if (chat.state.link === "online" && link !== "online") load();
    link = chat.state.link;
  }, { signal });
  load();
  return section("blocked-title", t("block.list"), said, list);
}

function serverSection({ chat, signal }) {
  const text = h("p", {}, location.host);
  chat.serverInfo().then((info) => {
    if (!signal.aborted) setText(text, [info.serverLogin, info.description, location.host].filter(Boolean).join(" — "));
  }, () => {});
  return section("server-title", t("settings.server"), text);
}

// What leaving costs, for the question: what is in this browser alone, and that nobody tells the server.
function costs(chat) {
  const { messages, drafts } = chat.unsent();
  return [
    messages && plural("logout.messages", messages),
    drafts && plural("logout.drafts", drafts),
    chat.state.link !== "online" && t("logout.offline"),
  ].filter(Boolean);
}

function logoutSection({ chat, isSaved, signal }) {
  const hint = h("p", { class: "hint" });
  const show = () => setText(hint, t(chat.state.link === "online" ? "logout.hint" : "logout.hintOffline"));
  async function logOut() {
    const text = [...costs(chat), isSaved() ? t("logout.text") : t("logout.unsaved")].join(" ");
    const sure = await ask({ title: t("logout.title"), text, action: t("logout.action"), danger: true });
    if (sure) await attempt(() => chat.logOut());
  }
  chat.addEventListener("state", show, { signal });
  show();
  return section("logout-title", t("logout.head"), hint, button(t("logout.action"), "dangerous", logOut));
}

/** The page of settings: {element, focus}. `onLanguage`, `onTheme` and `onSaved` keep what was chosen. */
export function settingsView({ chat, leave, theme, saved, onLanguage, onTheme, onSaved, signal }) {
  const isSaved = () => saved();
  const title = h("h2", { tabindex: "-1" }, t("settings.title"));
  const element = h(
    "section", { class: "settings", "aria-label": t("settings.title") },
    h("header", { class: "bar" }, h("a", { class: "round back", href: routeTo({ name: "chats" }) }, icon("back"), spoken(t("action.back"))), h("div", { class: "bar-text" }, title)),
    h(
      "div", { class: "page-scroll" },
      h(
        "div", { class: "page" },
        section(
          "look-title", t("settings.look"),
          choices("language", t("settings.language"), Object.entries(LANGUAGES).map(([value, text]) => ({ value, text, lang: value })), currentLanguage(), onLanguage),
          choices("theme", t("settings.theme"), THEMES.map((value) => ({ value, text: t(`theme.${value}`) })), theme, onTheme),
        ),
        keySection({ chat, saved: isSaved(), onSaved }),
        sessionsSection({ chat, signal }),
        blockedSection({ chat, signal }),
        serverSection({ chat, signal }),
        logoutSection({ chat, isSaved, signal }),
      ),
    ),
  );
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) leave();
  });
  return { element, focus: () => title.focus(), onNewDay() {} };
}
