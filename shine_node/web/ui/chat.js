// One open chat: its head, its messages, the field to write in.
import { ask } from "./confirm.js";
import { Composer } from "./composer.js";
import { avatar, statusText } from "./parts.js";
import { h, setAttribute, setText, spoken } from "./dom.js";
import { errorText, t } from "./i18n.js";
import { icon } from "./icons.js";
import { openMenu } from "./menu.js";
import { Messages } from "./messages.js";
import { attempt, note } from "./notices.js";
import { routeTo } from "./router.js";

const canEdit = (message) => message.out && !message.deleted && typeof message.text === "string";
const isRefused = (message) => message.out && !message.deleted && message.state === "refused";
const canResend = (message) =>
  isRefused(message) ? canEdit(message) || message.refused === "tombstone" : canEdit(message) && !message.read && message.state === "failed";

// As the login is spelled where it was registered, if that is known; the address can have it in another case.
function spelled(chat, peer) {
  const same = (dialog) => dialog.peer.toLowerCase() === peer.toLowerCase();
  return chat.dialogs().find(same)?.peer ?? peer;
}

/**
 * Shows the chat with `peer`; `leave` goes back to the list. `{element, focus, onNewDay, place}`; `signal` ends it.
 * `edits` are those that were not finished, by peer: one that is here goes on. `place`: as an earlier view of this chat
 * told it, or null.
 */
export function chatView({ chat, peer: asked, leave, edits, place, signal }) {
  const peer = spelled(chat, asked);
  const actions = {
    any: (message) => canEdit(message) || (message.out && !message.deleted) || (!message.deleted && typeof message.text === "string"),
    resend: (message) => attempt(() => chat.resend(message)),
    discard,
    menu: showMenu,
  };
  const messages = new Messages({ chat, peer, actions, signal });
  const composer = new Composer({
    chat,
    peer,
    signal,
    actions: {
      leave,
      send: (text) => {
        messages.unreadKey = null;
        messages.pinned = true;
        return attempt(() => chat.send(peer, text));
      },
      edit: (message, text) => attempt(() => chat.edit(message, text)),
      editLast,
    },
  });
  const edit = edits.get(peer), edited = edit && chat.messages(peer).find(({ key }) => key === edit.key);
  if (edited && canEdit(edited)) composer.startEdit(edited, edit.text);
  edits.delete(peer);
  queueMicrotask(() => composer.fit()); // what is in the field has its height only in the page
  signal.addEventListener("abort", () => {
    const { editing, field } = composer;
    if (editing && chat.state.account) edits.set(peer, { key: editing.key, text: field.value });
  });
  const status = h("p", { class: "status" });
  const isSelf = chat.state.account?.login.toLowerCase() === peer.toLowerCase();
  const element = h(
    "section", { class: "chat", "aria-label": t("chat.with", { peer }) },
    h(
      "header", { class: "bar" },
      h("a", { class: "round back", href: routeTo({ name: "chats" }) }, icon("back"), spoken(t("action.back"))),
      avatar(peer),
      h("div", { class: "bar-text" }, h("h2", {}, h("bdi", {}, peer)), status),
      isSelf ? null : h("button", { type: "button", class: "round", "aria-haspopup": "menu", on: { click: showChatMenu } }, icon("more"), spoken(t("chat.actions"))),
    ),
    messages.element,
    composer.element,
  );

  function editLast() {
    const all = chat.messages(peer);
    const message = all.findLast((one) => one.out && !one.deleted);
    if (!message || !canEdit(message)) return false;
    composer.startEdit(message);
    return true;
  }

  async function remove(message) {
    const sure = await ask({
      title: t("delete.title"), text: t("delete.text", { peer }), action: t("delete.action"), danger: true,
    });
    if (sure) await attempt(() => chat.remove(message));
  }

  async function discard(message) {
    const losesText = message.refused !== "tombstone";
    const sure = !losesText || (await ask({
      title: t("discard.title"), text: t("discard.text"), action: t("message.discard"), danger: true,
    }));
    if (sure) await attempt(() => chat.discard(message));
  }

  async function copy(message) {
    try {
      await navigator.clipboard.writeText(message.text);
      note(t("message.copied"));
    } catch {
      note(t("error.copy"));
    }
  }

  function showMenu(message, { anchor, back, fold }) {
    const items = fold ? [fold] : [];
    if (canResend(message)) items.push({ text: t("message.resend"), icon: "again", act: () => actions.resend(message) });
    if (isRefused(message)) items.push({ text: t("message.discard"), icon: "close", act: () => discard(message) });
    if (typeof message.text === "string" && !message.deleted) {
      items.push({ text: t("message.copy"), icon: "copy", act: () => copy(message) });
    }
    if (canEdit(message)) items.push({ text: t("message.edit"), icon: "edit", act: () => composer.startEdit(message) });
    if (message.out && !message.deleted) {
      items.push({ text: t("message.delete"), icon: "trash", danger: true, act: () => remove(message) });
    }
    openMenu({ anchor, back, items, label: t("message.actions") });
  }

  function showChatMenu({ currentTarget: anchor }) {
    return attempt(async () => {
      const isBlocked = (await chat.blocked()).includes(peer.toLowerCase());
      if (signal.aborted) return;
      const item = isBlocked
        ? { text: t("block.undo"), icon: "check", act: () => block(false) }
        : { text: t("block.action"), icon: "close", danger: true, act: () => block(true) };
      openMenu({ anchor, back: anchor, items: [item], label: t("chat.actions") });
    });
  }

  async function block(blocked) {
    const question = { title: t("block.title", { peer }), text: t("block.text"), action: t("block.action"), danger: true };
    if (blocked && !(await ask(question))) return;
    if (await attempt(() => chat.setBlocked(peer, blocked))) note(t(blocked ? "block.done" : "block.undone", { peer }));
  }

  function showState() {
    const { text, kind } = statusText(chat.state);
    setText(status, kind === "online" ? t("chat.sealed") : text);
    setAttribute(status, "class", `status ${kind === "online" ? "sealed" : kind}`);
  }

  chat.addEventListener("state", showState, { signal });
  showState();
  element.addEventListener("keydown", (event) => {
    const isText = event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (isText && !event.target.closest("input, textarea")) composer.focus(); // who begins to type means the field
    else if (event.key === "Escape" && !event.defaultPrevented) {
      event.preventDefault();
      if (messages.list.contains(document.activeElement)) composer.focus();
      else leave();
    }
  });
  messages.open().then(() => {
    if (place?.peer === peer && !signal.aborted) messages.goTo(place);
  }).catch((error) => {
    if (signal.aborted) return;
    messages.render();
    const known = messages.all.length > 0;
    if (!known) setText(messages.edge, errorText(error));
    else if (error?.code !== "OFFLINE") note(errorText(error));
  });
  return {
    element,
    focus: () => composer.focus(),
    onNewDay: () => messages.onNewDay(),
    place: () => { const found = messages.place(); return found && { ...found, peer }; },
  };
}
