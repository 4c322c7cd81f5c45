// The field where a message is written or edited, and its draft.
import { h, setText, spoken } from "./dom.js";
import { plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { byteLength, excerpt, MOST_BYTES } from "./text.js";

const SAVE_MS = 400;
const MOST_ROWS = 8;
const WARN_BYTES = MOST_BYTES - 4000;

// On a phone Enter is a new line: there is no Shift+Enter, and the button is under the thumb.
const byFinger = matchMedia("(hover: none) and (pointer: coarse)");

/** `actions`: {send(text), edit(message, text), editLast(), leave()}; the first two resolve to whether it went well. */
export class Composer {
  constructor({ chat, peer, actions, signal }) {
    Object.assign(this, { chat, peer, actions });
    this.editing = null;
    this.sending = 0; // how many messages are on their way into the store
    this.storing = false; // an edit is
    this.field = h("textarea", {
      class: "field", rows: "1", autocomplete: "off", enterkeyhint: byFinger.matches ? "enter" : "send", dir: "auto",
      "aria-label": t("composer.label", { peer }), placeholder: t("composer.placeholder"),
    });
    this.button = h("button", { type: "submit", class: "send" }, icon("send"), spoken(t("composer.send")));
    this.editText = h("bdi", {});
    this.editBar = h(
      "div", { class: "edit-bar", hidden: true }, icon("edit"),
      h("p", {}, h("strong", {}, t("composer.editing")), this.editText),
      h("button", { type: "button", class: "round", on: { click: () => this.cancelEdit() } }, icon("close"), spoken(t("composer.cancelEdit"))),
    );
    this.counter = h("p", { class: "counter", role: "status" });
    this.element = h(
      "form", { class: "composer", on: { submit: (event) => this.onSubmit(event) } },
      this.editBar, this.counter, h("div", { class: "composer-row" }, this.field, this.button),
    );
    this.field.addEventListener("input", () => this.onInput());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    this.field.addEventListener("blur", () => this.save());
    addEventListener("pagehide", () => this.save(), { signal });
    chat.addEventListener("drafts", (event) => {
      if (event.detail.peer.toLowerCase() === peer.toLowerCase()) this.onDraft();
    }, { signal });
    signal.addEventListener("abort", () => this.save());
    this.saved = chat.draft(peer) ?? "";
    this.setText(this.saved);
  }

  setText(text) {
    this.field.value = text;
    this.fit();
  }

  focus() {
    this.field.focus({ preventScroll: true });
  }

  // A draft from another tab; what is being written here is not overwritten.
  onDraft() {
    const draft = this.chat.draft(this.peer) ?? "";
    if (draft === this.saved) return;
    const untouched = this.field.value === this.saved;
    this.saved = draft;
    if (this.editing) this.kept = draft;
    else if (untouched || document.activeElement !== this.field) this.setText(draft);
  }

  save() {
    clearTimeout(this.timer);
    if (this.sending) return; // the draft goes as the message comes; it is looked at again then
    const text = this.editing ? this.kept : this.field.value;
    if (text === this.saved || !this.chat.state.account) return; // who has left keeps no draft
    this.saved = text;
    try {
      this.chat.setDraft(this.peer, text);
    } catch {
      // Nor does who is just leaving, in another tab.
    }
  }

  onInput() {
    this.fit();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(), SAVE_MS);
  }

  fit() {
    const { field } = this;
    field.rows = 1;
    const line = parseFloat(getComputedStyle(field).lineHeight) || 20;
    if (field.value) field.rows = Math.max(1, Math.min(MOST_ROWS, Math.round((field.scrollHeight - 16) / line)));
    const bytes = field.value.length * 3 < WARN_BYTES ? 0 : byteLength(field.value);
    const left = MOST_BYTES - bytes;
    const text = left < 0 ? plural("composer.tooLong", -left) : bytes > WARN_BYTES ? plural("composer.left", left) : "";
    setText(this.counter, text);
    this.counter.classList.toggle("over", left < 0);
    const empty = field.value.trim() === "";
    this.button.disabled = left < 0 || empty;
  }

  onKey(event) {
    if (event.key === "Enter" && !event.isComposing && event.keyCode !== 229) {
      if (event.shiftKey || event.altKey || (byFinger.matches && !event.ctrlKey && !event.metaKey)) return;
      this.onSubmit(event);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      event.preventDefault();
      if (this.editing) this.cancelEdit();
      else this.actions.leave();
    } else if (event.key === "ArrowUp" && this.field.value === "" && !this.editing) {
      if (this.actions.editLast()) event.preventDefault();
    }
  }

  async onSubmit(event) {
    event.preventDefault();
    if (this.button.disabled || this.storing) return;
    const text = this.field.value.trim();
    if (this.editing) await this.submitEdit(this.editing, text);
    else await this.submit(text);
    this.focus();
  }

  // The chat's draft ends in the same step in which the message is kept: whatever ends the page, there is one of the two.
  async submit(text) {
    clearTimeout(this.timer);
    this.sending += 1;
    this.setText("");
    const isKept = await this.actions.send(text);
    this.sending -= 1;
    if (isKept) this.saved = this.chat.draft(this.peer) ?? "";
    else this.giveBack(text);
    this.save();
  }

  // What could not be kept stands before what was written after it.
  giveBack(text) {
    const before = (rest) => (rest ? `${text}\n${rest}` : text);
    if (this.editing) this.kept = before(this.kept);
    else this.setText(before(this.field.value));
  }

  // The text stays in the field until it is kept.
  async submitEdit(message, text) {
    this.storing = true;
    const isKept = text === message.text || (await this.actions.edit(message, text));
    this.storing = false;
    if (isKept && this.editing === message && this.field.value.trim() === text) this.endEdit();
  }

  /** Puts a message into the field to be changed; what was being written waits. */
  startEdit(message, text = message.text) {
    if (!this.editing) this.kept = this.field.value;
    this.editing = message;
    setText(this.editText, excerpt(message.text));
    this.editBar.hidden = false;
    setText(this.button.lastChild, t("composer.save"));
    this.setText(text);
    this.focus();
    this.field.setSelectionRange(text.length, text.length);
  }

  endEdit() {
    this.editing = null;
    this.editBar.hidden = true;
    setText(this.button.lastChild, t("composer.send"));
    this.setText(this.kept ?? "");
  }

  cancelEdit() {
    this.endEdit();
    this.focus();
  }
}
