// What is shown: the first page, the recovery key of a new account, or the chats; and in which language and theme.
import { browserLanguage, setLanguage } from "./i18n.js";
import { mainPage } from "./main.js";
import { mountNotices } from "./notices.js";
import { recoveryPage, SAVED } from "./recovery.js";
import { setTheme } from "./theme.js";
import { followKeyboard } from "./viewport.js";
import { brokenPage, insecurePage, welcomePage } from "./welcome.js";

// Tells the other tabs of a setting; they read it from the core's store.
const tabs = globalThis.BroadcastChannel ? new BroadcastChannel("shine-ui") : null;

class Page {
  constructor(chat, root) {
    Object.assign(this, { chat, root });
    this.settings = { language: null, theme: "auto", saved: true };
    this.newAccount = null; // {login, recoveryKey} until the person has seen the key
    this.broken = null;
    this.busy = false; // while somebody registers or comes back: the page that does it shows the end of it
    this.login = undefined; // of whom this page is
    this.kept = { login: null, edits: new Map(), place: null }; // what goes on where a screen is built anew, and for whom
  }

  async open() {
    setLanguage(browserLanguage());
    mountNotices();
    followKeyboard();
    if (this.chat.secure) {
      try {
        await this.chat.open();
        await this.readSettings();
      } catch (error) {
        this.broken = this.chat.state.problem ?? error;
      }
    }
    this.render();
    this.chat.addEventListener("state", () => this.check());
    tabs?.addEventListener("message", ({ data }) => this.readSettings().then(() => this.onSetting(data), () => {}));
  }

  async readSettings() {
    const { chat } = this;
    const [language, theme, saved] = await Promise.all(["language", "theme", SAVED].map((name) => chat.setting(name)));
    this.settings = { language: language ?? null, theme: theme ?? "auto", saved: saved !== false };
    setLanguage(this.settings.language);
    setTheme(this.settings.theme);
  }

  keep(name, value) {
    Promise.resolve(this.chat.setSetting(name, value)).then(() => tabs?.postMessage(name), () => {});
  }

  // Somebody has come or gone, in this tab or another one.
  check() {
    if (this.busy || this.login === this.chat.state.account?.login) return;
    this.login = this.chat.state.account?.login;
    if (!this.login) this.forget();
    else this.readSettings().catch(() => {}).then(() => this.render());
  }

  // Another tab has changed a setting. A theme is there already, but for the choice where that is on the screen.
  onSetting(name) {
    if (name !== "theme") this.render();
    else for (const choice of this.root.querySelectorAll("[name=theme]")) choice.checked = choice.value === this.settings.theme;
  }

  setBusy(busy) {
    this.busy = busy;
    this.check();
  }

  // After leaving, the next person finds nothing of the last one; the look of the page is that of the browser.
  forget() {
    this.newAccount = null;
    history.replaceState(null, "", "#/");
    this.readSettings().catch(() => {}).then(() => this.render());
  }

  setLanguage(code) {
    this.settings.language = code;
    setLanguage(code);
    if (this.chat.secure) this.keep("language", code);
    this.render({ focus: `[name="language"][value="${code}"], .languages [lang="${code}"]` });
  }

  setTheme(theme) {
    this.settings.theme = theme;
    setTheme(theme);
    this.keep("theme", theme);
  }

  setSaved(saved) {
    this.settings.saved = saved;
    this.keep(SAVED, saved);
  }

  screen(signal) {
    const { chat } = this;
    const onLanguage = (code) => this.setLanguage(code);
    if (!chat.secure) return { element: insecurePage({ onLanguage }) };
    if (this.broken) return { element: brokenPage({ error: this.broken }) };
    if (this.newAccount) {
      const done = (saved) => {
        this.newAccount = null;
        if (saved) this.setSaved(true);
        this.render();
      };
      return { element: recoveryPage({ ...this.newAccount, done }) };
    }
    if (!chat.state.account) {
      const onRegistered = (account) => {
        this.newAccount = account;
        this.setSaved(false);
      };
      const onPrepared = (account) => {
        onRegistered(account);
        this.render(); // nobody has come yet: the key is shown all the same
      };
      const onRecovered = () => this.setSaved(true);
      const onBusy = (busy) => this.setBusy(busy);
      return { element: welcomePage({ chat, signal, onLanguage, onRegistered, onPrepared, onRecovered, onBusy }) };
    }
    const prefs = {
      theme: () => this.settings.theme,
      saved: () => this.settings.saved,
      onLanguage,
      onTheme: (theme) => this.setTheme(theme),
      onSaved: () => this.setSaved(true),
    };
    return mainPage({ chat, prefs, kept: this.kept, signal });
  }

  // A new screen, or the same one in another language: built anew, for nothing in it is worth keeping but the drafts, an
  // edit that is being written, and the place in a chat.
  render({ focus = null } = {}) {
    const first = !this.ending;
    this.login = this.chat.state.account?.login;
    this.ending?.abort();
    if (this.kept.login !== this.login) this.kept = { login: this.login, edits: new Map(), place: null };
    this.ending = new AbortController();
    const { element, show } = this.screen(this.ending.signal);
    this.root.replaceChildren(element);
    show?.({ focus: !focus });
    const target = focus ? element.querySelector(focus) : null;
    if (target) target.focus();
    else if (!show && !first) element.querySelector("h1")?.focus();
  }
}

/** Starts the page in `root`. */
export function start(chat, root) {
  return new Page(chat, root).open();
}
