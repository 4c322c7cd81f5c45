// The ticks of PROTOCOL.md §8.3: which one a message has, and how it looks and sounds.
import { h, spoken } from "./dom.js";
import { t } from "./i18n.js";
import { tickDrawing } from "./icons.js";

const DRAWINGS = { waiting: "waiting", accepted: "one", delivered: "one", read: "two" };

/**
 * What is shown for a message: "waiting", "accepted", "delivered", "read", "failed", "refused", or null for none.
 * A read receipt beats the delivery state. What this browser still has to send, or the server did not take, is no
 * delivery state: it is said first, for it can be an edit of a message that was read before.
 */
export function tickOf({ out, deleted, read, state }) {
  if (!out || deleted) return null;
  if (state === "waiting" || state === "refused") return state;
  return read ? "read" : state;
}

/** The tick as an element with a text for screen readers, or null where there is none to draw. */
export function tickElement(kind) {
  if (!Object.hasOwn(DRAWINGS, kind ?? "")) return null;
  const text = t(`tick.${kind}`);
  return h("span", { class: `tick tick-${kind}`, title: text }, tickDrawing(DRAWINGS[kind]), spoken(text));
}

/** The red sign of a message that did not arrive. */
export function failedSign() {
  return h("span", { class: "failed-sign", "aria-hidden": "true" }, "!");
}
