// What is said in passing: a note at the lower edge, and what only a screen reader says.
import { button, h } from "./dom.js";
import { errorText } from "./i18n.js";

const SHOWN_MS = 6000;
const SAID_MS = 2000; // a screen reader has its text by then
let polite = null;
let notes = null;
let said = "";
let forgetting = null;

/** Puts the two regions into the page, once; a region that comes with its text would not be read out. */
export function mountNotices() {
  if (polite) return;
  polite = h("div", { class: "spoken", "aria-live": "polite" });
  notes = h("div", { class: "notes", role: "status" });
  document.body.append(polite, notes);
}

/** Says a text to screen readers; the same text twice in a row is said twice. */
export function announce(text) {
  if (!polite) return;
  said = said === text ? `${text}\u00a0` : text;
  polite.textContent = said;
  // What was said is not kept: it may be deleted meanwhile, or its reader gone.
  clearTimeout(forgetting);
  forgetting = setTimeout(() => polite.replaceChildren(), SAID_MS);
}

/** Shows a note for some seconds, or with an action until it is closed. */
export function note(text, action = null) {
  if (!notes) return;
  const element = h("div", { class: "note" }, h("span", {}, text));
  const close = () => element.remove();
  if (action) {
    element.append(button(action.text, "link", () => { close(); action.act(); }));
  } else setTimeout(close, SHOWN_MS);
  while (notes.children.length > 2) notes.firstChild.remove();
  notes.append(element);
}

/** Runs something that can fail and says so if it does; resolves to whether it did not. */
export async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    note(errorText(error));
    return false;
  }
}
