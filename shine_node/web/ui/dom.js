// Builds elements. Whatever comes from outside enters the page as text or as a checked attribute, never as markup.

const REFUSED = /^(?:on|style$|srcdoc$|innerhtml$|outerhtml$)/i;

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** One element: attributes as they are written in HTML, `on` for listeners, strings among the children become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    } else if (REFUSED.test(name)) {
      throw new TypeError(`the attribute ${name} is not for this page`);
    } else {
      setAttribute(element, name, value);
    }
  }
  append(element, children);
  return element;
}

/** Sets an attribute; `false`, `null` and `undefined` take it away, `true` makes it empty. */
export function setAttribute(element, name, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
    element.setAttribute(name, value === true ? "" : value);
  }
}

/** Sets the text of an element, only where it changes: a screen reader would hear it again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text that only screen readers get. */
export function spoken(text) {
  return h("span", { class: "spoken" }, text);
}

/** A button with a text; `kind` is a class of style.css. */
export function button(text, kind, onClick, attributes = {}) {
  return h("button", { type: "button", class: `button ${kind}`, on: { click: onClick }, ...attributes }, text);
}

/**
 * Makes the children of `parent` the nodes of `items`, in their order, and reuses those that are there. `nodes` is the
 * map from key to node of the last call. What has the focus keeps it, also where it moves.
 */
export function reconcile(parent, nodes, items, { key, create, update, remove }) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const gone = new Map(nodes);
  for (const item of items) gone.delete(key(item));
  for (const [id, node] of gone) {
    if (remove) remove(node);
    node.remove();
    nodes.delete(id);
  }
  let next = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    let node = nodes.get(id);
    if (!node) {
      node = create(item);
      nodes.set(id, node);
    }
    update(node, item);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** Moves the focus along `elements` by the arrow keys, Home and End; says whether the key was one of them. */
export function moveFocus(event, elements) {
  const at = elements.findIndex((element) => element.contains(document.activeElement));
  const to = { ArrowDown: at + 1, ArrowUp: at < 0 ? elements.length - 1 : at - 1, Home: 0, End: elements.length - 1 };
  const target = elements[to[event.key]];
  if (!(event.key in to) || event.altKey || event.ctrlKey || event.metaKey) return false;
  event.preventDefault();
  target?.focus();
  return true;
}
