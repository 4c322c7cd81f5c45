// A closed server: the record for its operator, and waiting until the account was added.
import { ask as askFirst } from "./confirm.js";
import { button, h, setText } from "./dom.js";
import { errorText, t } from "./i18n.js";
import { note } from "./notices.js";
import { download } from "./recovery.js";

const ASK_MS = 15000;
const COMMAND = "shine-node user add --record -";

/** What waits for the operator; it asks by itself, until `signal`, and the page goes on when somebody has come. */
export function joiningCard({ chat, login, record, onOther, signal }) {
  const line = JSON.stringify(record);
  const text = h("output", { class: "recovery-key", tabindex: "0", "aria-label": t("join.record") }, line);
  const said = h("p", { class: "hint", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      note(t("join.copied"));
    } catch {
      getSelection().selectAllChildren(text);
      note(t("error.copy"));
    }
  };
  async function ask(aloud) {
    try {
      if (!(await chat.join()) && aloud) setText(said, t("join.notYet"));
    } catch (error) {
      isTaken = error?.code === "USER_ALREADY_EXISTS"; // by somebody else: there is nothing more to wait for
      if (isTaken) clearInterval(timer);
      if (aloud || isTaken) setText(said, errorText(error));
    }
  }
  // The keys of what waits are nowhere else, unless their recovery key was saved.
  async function other() {
    const question = { title: t("join.otherTitle", { login }), text: t("join.otherText"), action: t("join.other"), danger: true };
    if (isTaken || (await askFirst(question))) onOther();
  }
  let isTaken = false;
  const timer = setInterval(() => ask(false), ASK_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  ask(false);
  return h(
    "section", { class: "card", "aria-labelledby": "join-title" },
    h("h2", { id: "join-title" }, t("join.waiting", { login })), h("p", {}, t("join.give", { command: COMMAND })), text,
    h(
      "div", { class: "actions" }, button(t("join.copy"), "plain", copy),
      button(t("join.file"), "plain", () => download(`shine-${login}-record.json`, `${line}\n`)),
    ),
    said,
    h("div", { class: "actions wide" }, button(t("join.enter"), "primary", () => ask(true)), button(t("join.other"), "link", other)),
  );
}
