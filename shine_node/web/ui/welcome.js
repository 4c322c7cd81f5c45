// Before there is an account in this browser: make one, or come back with a recovery key.
import { button, h, setText } from "./dom.js";
import { currentLanguage, errorText, hasText, LANGUAGES, t } from "./i18n.js";
import { joiningCard } from "./joining.js";
import { LOGIN } from "./text.js";

function field(id, label, hint, attributes) {
  const input = h("input", { id, autocomplete: "off", autocapitalize: "none", spellcheck: "false", "aria-describedby": `${id}-hint`, ...attributes });
  return { input, element: h("div", { class: "form-field" }, h("label", { for: id }, label), input, h("p", { class: "hint", id: `${id}-hint` }, hint)) };
}

// A form that runs one thing at a time and says what went wrong beside the button.
function form({ title, parts, action, work, id, onBusy }) {
  const said = h("p", { class: "form-error", role: "alert" });
  const submit = h("button", { type: "submit", class: "button primary" }, action);
  const element = h("form", { class: "card", "aria-labelledby": id, novalidate: true }, h("h2", { id }, title), ...parts, said, submit);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    setText(said, "");
    submit.disabled = true;
    element.setAttribute("aria-busy", "true");
    onBusy(true);
    try {
      await work();
    } catch (error) {
      setText(said, error instanceof Error && !error.code ? error.message : errorText(error));
    } finally {
      submit.disabled = false;
      element.removeAttribute("aria-busy");
      onBusy(false);
    }
  });
  return element;
}

function refuse(input, text) {
  input.setAttribute("aria-invalid", "true");
  input.focus();
  throw new Error(text);
}

function newAccount({ chat, onRegistered, onBusy }) {
  const login = field("login", t("welcome.login"), t("welcome.loginHint"), { autocomplete: "username", maxlength: "30", required: true });
  const token = field("token", t("welcome.token"), t("welcome.tokenHint"), {});
  const element = form({
    id: "new-title",
    onBusy,
    title: t("welcome.new"),
    parts: [login.element, token.element],
    action: t("welcome.create"),
    async work() {
      for (const { input } of [login, token]) input.removeAttribute("aria-invalid");
      const name = login.input.value.trim();
      if (!LOGIN.test(name)) refuse(login.input, t("error.BAD_LOGIN"));
      const given = token.input.value.trim();
      if (element.registration === "token" && !given) refuse(token.input, t("welcome.tokenNeeded"));
      const { recoveryKey } = await chat.register({ login: name, ...(given ? { token: given } : {}) });
      onRegistered({ login: name, recoveryKey });
    },
  });
  // Nothing is known before the server has answered: a field that may be needed is there.
  element.show = (registration) => {
    element.registration = registration;
    token.element.hidden = registration === "open";
  };
  return element;
}

// At a closed server: the account is made here, and its operator adds it.
function joinForm({ chat, onPrepared, onBusy }) {
  const login = field("join-login", t("welcome.login"), t("welcome.loginHint"), { autocomplete: "username", maxlength: "30", required: true });
  return form({
    id: "join-new-title",
    onBusy,
    title: t("join.title"),
    parts: [h("p", {}, t("join.why")), login.element],
    action: t("welcome.create"),
    async work() {
      login.input.removeAttribute("aria-invalid");
      const name = login.input.value.trim();
      if (!LOGIN.test(name)) refuse(login.input, t("error.BAD_LOGIN"));
      const { recoveryKey } = await chat.prepare({ login: name });
      onPrepared({ login: name, recoveryKey });
    },
  });
}

function comeBack({ chat, onRecovered, onBusy }) {
  const input = h("textarea", {
    id: "recovery-key", rows: "4", autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true, "aria-describedby": "recovery-hint",
  });
  return form({
    id: "back-title",
    onBusy,
    title: t("welcome.back"),
    parts: [
      h("div", { class: "form-field" }, h("label", { for: "recovery-key" }, t("recovery.title")), input, h("p", { class: "hint", id: "recovery-hint" }, t("welcome.backHint"))),
    ],
    action: t("welcome.recover"),
    async work() {
      input.removeAttribute("aria-invalid");
      if (!input.value.trim()) refuse(input, t("error.BAD_RECOVERY_KEY"));
      try {
        await chat.recover(input.value);
      } catch (error) {
        if (hasText(`recover.${error?.code}`)) refuse(input, t(`recover.${error.code}`));
        throw error;
      }
      onRecovered();
    },
  });
}

function languages(onLanguage) {
  return h(
    "p", { class: "languages" },
    ...Object.entries(LANGUAGES).map(([code, name]) =>
      button(name, "link", () => onLanguage(code), { lang: code, "aria-pressed": String(code === currentLanguage()) })),
  );
}

/** The first page: `onRegistered({login, recoveryKey})`, `onPrepared` likewise, `onRecovered()`, `onBusy(bool)`, `onLanguage(code)`. */
export function welcomePage({ chat, onRegistered, onPrepared, onRecovered, onBusy, onLanguage, signal }) {
  const register = newAccount({ chat, onRegistered, onBusy });
  const joining = h("div", { hidden: true });
  // Only where the server is closed: elsewhere there is one form for a login.
  async function showJoining() {
    const waiting = await chat.waiting();
    if (signal.aborted) return;
    const newForm = () => joinForm({ chat, onPrepared, onBusy });
    const onOther = () => {
      joining.replaceChildren(newForm());
      joining.querySelector("input").focus();
    };
    joining.replaceChildren(waiting ? joiningCard({ chat, ...waiting, onOther, signal }) : newForm());
    joining.hidden = false;
  }
  const server = h("p", { class: "server" });
  const status = h("p", { class: "status", role: "status" });
  let asked = false;
  async function showServer() {
    setText(status, chat.state.link === "offline" ? t("welcome.offline") : "");
    if (asked) return;
    asked = true;
    try {
      const info = await chat.serverInfo();
      setText(server, [info.serverLogin, info.description].filter(Boolean).join(" — "));
      register.show(info.registration);
      register.hidden = info.registration === "closed";
      if (info.registration === "closed") await showJoining();
    } catch {
      asked = false; // again when the connection changes; until then the form says what goes wrong
    }
  }
  chat.addEventListener("state", showServer, { signal });
  showServer();
  return h(
    "main", { class: "page welcome", "aria-labelledby": "welcome-title" },
    h("img", { src: "icon.svg", width: "64", height: "64", alt: "" }),
    h("h1", { id: "welcome-title", tabindex: "-1" }, t("welcome.title")),
    h("p", {}, t("welcome.what")), server, status,
    h("div", { class: "cards" }, register, joining, comeBack({ chat, onRecovered, onBusy })),
    languages(onLanguage),
  );
}

/** What to do where the browser gives no keys to a page without https. */
export function insecurePage({ onLanguage }) {
  const local = `https://${location.host}${location.pathname}`;
  return h(
    "main", { class: "page welcome", "aria-labelledby": "insecure-title" },
    h("img", { src: "icon.svg", width: "64", height: "64", alt: "" }),
    h("h1", { id: "insecure-title", tabindex: "-1" }, t("insecure.title")),
    h("div", { class: "card" }, h("p", {}, t("insecure.why")), h("p", {}, t("insecure.user")), h("p", {}, h("a", { href: local }, local)), h("p", {}, t("insecure.operator"))),
    languages(onLanguage),
  );
}

/** The browser is too old, or its store could not be opened. */
export function brokenPage({ error }) {
  return h(
    "main", { class: "page welcome", "aria-labelledby": "broken-title" },
    h("h1", { id: "broken-title", tabindex: "-1" }, t("broken.title")),
    h("div", { class: "card" }, h("p", {}, t(error?.code === "NOT_SECURE" ? "broken.old" : "broken.text")), button(t("page.reload"), "primary", () => location.reload())),
  );
}
