// A small menu beside a button. The browser's popover closes it by Escape and by a click elsewhere.
import { h } from "./dom.js";
import { moveFocus } from "./dom.js";
import { icon } from "./icons.js";

const GAP = 4;

function place(menu, anchor) {
  const at = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = menu;
  const below = at.bottom + GAP + height <= innerHeight;
  const left = Math.max(8, Math.min(at.right - width, innerWidth - width - 8));
  const beside = below ? at.bottom + GAP : at.top - GAP - height;
  const top = Math.max(8, Math.min(beside, innerHeight - height - 8)); // a message can be taller than the screen
  menu.style.setProperty("--left", `${left}px`);
  menu.style.setProperty("--top", `${top}px`);
}

/**
 * Opens a menu at `anchor`. `items` are {text, icon, danger, act}; `label` names it for screen readers. When it closes
 * the focus goes to `back`, unless an action has put it elsewhere.
 */
export function openMenu({ anchor, back, items, label }) {
  const menu = h("div", { class: "menu", role: "menu", popover: "auto", "aria-label": label });
  const close = () => menu.isConnected && menu.hidePopover();
  for (const item of items) {
    const act = () => {
      close();
      item.act();
    };
    const kind = `menu-item${item.danger ? " danger" : ""}`;
    menu.append(
      h("button", { type: "button", role: "menuitem", class: kind, tabindex: "-1", on: { click: act } }, icon(item.icon), item.text),
    );
  }
  menu.addEventListener("keydown", (event) => {
    if (moveFocus(event, [...menu.children])) event.stopPropagation();
    else if (event.key === "Tab") close();
    else if (event.key === "Escape") event.stopPropagation(); // it is the menu that closes, and not the chat as well
  });
  menu.addEventListener("toggle", (event) => {
    if (event.newState !== "closed") return;
    const focused = menu.contains(document.activeElement) || document.activeElement === document.body;
    menu.remove();
    if (focused && back.isConnected) back.focus({ preventScroll: true });
  });
  document.body.append(menu);
  menu.showPopover();
  place(menu, anchor);
  menu.firstChild.focus();
}
