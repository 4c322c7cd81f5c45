// One message as it stands in a chat.
import { button, h, setAttribute, setText, spoken } from "./dom.js";
import { clockTime, fullTime } from "./dates.js";
import { errorText, t } from "./i18n.js";
import { icon } from "./icons.js";
import { folded, isInvisible } from "./text.js";
import { failedSign, tickElement, tickOf } from "./ticks.js";

const UNREADABLE = new Set(["sealed-for-another-key", "bad-signature", "not-text"]);

/** What stands instead of a text, or null where the message has one to show. */
export function substitute(message) {
  if (message.deleted) return t("message.deleted");
  if (message.text === null || message.text === undefined) {
    return t(UNREADABLE.has(message.problem) ? `message.${message.problem}` : "message.unreadable");
  }
  return isInvisible(message.text) ? t("message.invisible") : null;
}

const foldText = (unfolded) => t(unfolded ? "message.showLess" : "message.showAll");

// The buttons in a message are in no order of Tab: a chat is one stop, and the menu of a message has all of them.
function body(message, unfolded, onFold) {
  const instead = substitute(message);
  if (instead !== null) return [h("p", { class: "text instead" }, instead)];
  const part = folded(message.text);
  const shown = part === null || unfolded ? message.text : part;
  const text = h("p", { class: "text", dir: "auto" }, shown);
  if (part === null) return [text];
  if (!unfolded) text.append("…");
  const fold = button(foldText(unfolded), "link fold", onFold, { tabindex: "-1", "aria-expanded": String(unfolded) });
  return [text, fold];
}

function foot(message) {
  const time = h(
    "time", { datetime: isoTime(message.timeMs), title: fullTime(message.timeMs) }, clockTime(message.timeMs),
  );
  const edited = message.edited && !message.deleted
    ? h("span", { class: "edited", title: fullTime(message.revisionMs) }, t("message.edited"))
    : null;
  const plain = message.plain ? h("span", { class: "plain" }, t("message.plain")) : null;
  return h("p", { class: "foot" }, plain, plain ? " " : null, edited, edited ? " " : null, time, tickElement(tickOf(message)));
}

function isoTime(timeMs) {
  return Math.abs(timeMs) <= 8.64e15 ? new Date(timeMs).toISOString() : null;
}

// By what was refused of a message that the server has.
const REFUSED = { edit: "tick.refusedEdit", tombstone: "tick.refusedRemoval" };

function trouble(message, actions) {
  const kind = tickOf(message);
  if (kind !== "failed" && kind !== "refused") return null;
  const text = kind === "failed"
    ? t("tick.failed")
    : t(REFUSED[message.refused] ?? "tick.refused", { reason: errorText(message.problem ?? "") });
  const offer = (name, act) => button(t(name), "link", () => act(message), { tabindex: "-1" });
  return h(
    "p", { class: "trouble" }, failedSign(), h("span", { class: "trouble-text" }, text),
    message.text === null && message.refused !== "tombstone" ? null : offer("message.resend", actions.resend),
    kind === "refused" ? offer("message.discard", actions.discard) : null,
  );
}

// All that the look of a message depends on. A text is compared as it is: the same string costs nothing.
function sameLook(one, other) {
  return one !== undefined && ["text", "state", "read", "edited", "deleted", "revisionMs", "timeMs", "problem", "refused", "out", "plain"]
    .every((name) => one[name] === other[name]);
}

/**
 * A message as a list item that can have the focus. `update` draws it again where it changed; `actions` are those of
 * the chat: {any(message), menu(message, {anchor, back, fold}), resend(message), discard(message)}.
 */
export class Bubble {
  constructor(actions, peer) {
    this.actions = actions;
    this.peer = peer;
    this.unfolded = false;
    this.more = h(
      "button",
      { type: "button", class: "more", tabindex: "-1", on: { click: () => this.openMenu() } },
      icon("more"), spoken(t("message.actions")),
    );
    this.box = h("div", { class: "bubble" });
    this.element = h("li", { class: "message", tabindex: "-1" }, this.box);
    this.element.addEventListener("contextmenu", (event) => this.onContextMenu(event));
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.element.bubble = this;
  }

  update({ message, first, last }) {
    const looks = [message.out ? "out" : "in", first ? "first" : "", last ? "last" : ""].filter(Boolean).join(" ");
    setAttribute(this.element, "class", `message ${looks}`);
    const old = this.shown;
    this.message = message;
    if (sameLook(old, message)) return;
    this.shown = { ...message };
    if (old && old.text !== message.text) this.unfolded = false;
    this.draw();
  }

  draw() {
    const { message } = this;
    this.foot = foot(message);
    const had = this.box.contains(document.activeElement);
    this.box.replaceChildren(
      spoken(`${message.out ? t("message.you") : this.peer}: `), ...body(message, this.unfolded, () => this.fold()), this.foot,
    );
    this.element.querySelector(":scope > .trouble")?.remove();
    this.more.remove();
    if (this.actions.any(message)) this.box.after(this.more);
    const line = trouble(message, this.actions);
    if (line) this.element.append(line);
    setText(this.more.lastChild, t("message.actions"));
    if (had) this.element.focus({ preventScroll: true });
  }

  fold() {
    this.unfolded = !this.unfolded;
    this.draw();
    if (!this.unfolded) this.element.scrollIntoView({ block: "nearest" });
    this.element.focus({ preventScroll: true });
  }

  openMenu() {
    const seen = getComputedStyle(this.more).position !== "absolute"; // on a phone the message itself is the button
    if (!this.actions.any(this.message)) return;
    const fold = this.box.querySelector(".fold") && { text: foldText(this.unfolded), icon: "down", act: () => this.fold() };
    this.actions.menu(this.message, { anchor: seen ? this.more : this.box, back: this.element, fold });
  }

  onContextMenu(event) {
    if (!getSelection().isCollapsed || !this.actions.any(this.message)) return; // the browser's menu can copy a selection
    event.preventDefault();
    this.openMenu();
  }

  // A finger has no pointer to hover with: a tap on the message is its menu.
  onClick(event) {
    if (event.pointerType === "touch" && getSelection().isCollapsed && !event.target.closest("button, a")) this.openMenu();
  }
}
