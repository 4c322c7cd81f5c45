// Asks before something that cannot be taken back.
import { button, h } from "./dom.js";
import { t } from "./i18n.js";

/** Shows a question and resolves to whether the person said yes; Escape is a no. */
export function ask({ title, text, action, danger = false }) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask-title", "aria-describedby": "ask-text" });
    const finish = (answer) => {
      dialog.close();
      dialog.remove();
      before?.focus?.({ preventScroll: true });
      resolve(answer);
    };
    const no = button(t("action.cancel"), "plain", () => finish(false));
    const yes = button(action, danger ? "dangerous" : "primary", () => finish(true));
    dialog.append(
      h("h2", { id: "ask-title" }, title), h("p", { id: "ask-text" }, text), h("div", { class: "ask-actions" }, no, yes),
    );
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      finish(false);
    });
    dialog.addEventListener("keydown", (event) => event.stopPropagation());
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
