// The recovery key: shown, copied, saved as a file.
import { button, h } from "./dom.js";
import { t } from "./i18n.js";
import { note } from "./notices.js";

/** The name of the setting that says that the person has the key. */
export const SAVED = "recoverySaved";

/** Gives the person a file. */
export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = h("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

function saveKey(login, key) {
  const text = `${t("recovery.fileHead", { login, host: location.host })}\n\n${key}\n\n${t("recovery.fileFoot")}\n`;
  download(`shine-${login}-recovery-key.txt`, text);
}

/** The key with its buttons; it stands in the page only while this part does. */
export function recoveryPanel({ login, recoveryKey }) {
  const text = h("output", { class: "recovery-key", tabindex: "0", "aria-label": t("recovery.title") }, recoveryKey);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(recoveryKey);
      note(t("recovery.copied"));
    } catch {
      getSelection().selectAllChildren(text);
      note(t("error.copy"));
    }
  };
  return h(
    "div", { class: "recovery" }, text,
    h("div", { class: "actions" }, button(t("recovery.copy"), "plain", copy), button(t("recovery.file"), "plain", () => saveKey(login, recoveryKey))),
  );
}

/** The page that comes after an account has been made: `done(saved)`. */
export function recoveryPage({ login, recoveryKey, done }) {
  return h(
    "main", { class: "page", "aria-labelledby": "recovery-title" },
    h("h1", { id: "recovery-title", tabindex: "-1" }, t("recovery.title")),
    h(
      "div", { class: "card" }, h("p", {}, t("recovery.why")), recoveryPanel({ login, recoveryKey }),
      h("p", { class: "hint" }, t("recovery.secret")),
      h(
        "div", { class: "actions wide" }, button(t("recovery.saved"), "primary", () => done(true)),
        button(t("recovery.later"), "link", () => done(false)),
      ),
    ),
  );
}
