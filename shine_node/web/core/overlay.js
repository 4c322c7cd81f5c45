// What a person sees of a chat: what the server has, and over it what still waits to be sent, or was refused. Pure.

import { inOrder } from "./history.js";

// `refused`: the kind of what the server did not take, whose code is `problem` then.
function ofEntry(chat, entry) {
  const { baseKey: key, out, text, timeMs, revisionMs, deleted, deliveryState, problem, plain = false } = entry;
  const state = out ? deliveryState : null;
  const edited = entry.edited ?? revisionMs > 0; // this device may know that a newer revision says the same
  return { key, peer: chat.peer, out, text, timeMs, revisionMs, edited, deleted, read: chat.isRead(entry), state, problem, plain, refused: null };
}

function waiting({ kind, code }) {
  return { state: code ? "refused" : "waiting", problem: code, refused: code ? kind : null };
}

function ofItem(chat, item) {
  const { baseKey: key, timeMs, revisionMs, text } = item;
  const fixed = { key, peer: chat.peer, out: true, deleted: false, read: false, edited: false, plain: false };
  return { ...fixed, timeMs, revisionMs, text, ...waiting(item) };
}

function apply(message, item) {
  if (message.deleted) return message;
  if (item.kind === "tombstone") {
    if (item.code) return { ...message, ...waiting(item) };
    return { ...message, deleted: true, text: null, problem: null, plain: false, refused: null };
  }
  // Another device may have edited it since. A refusal can be of an edit that another one has made in the same moment.
  if (item.revisionMs < message.revisionMs + (item.code ? 0 : 1)) return message;
  const { text, revisionMs, edited } = item;
  return { ...message, text, revisionMs, edited, plain: false, ...waiting(item) };
}

function withItems(message, items) {
  return items.reduce((shown, item) => (item.baseKey === shown.key && item.kind !== "message" ? apply(shown, item) : shown), message);
}

// All messages of a chat, oldest first. `items`: those of the outbox for this chat, in order.
export function messagesOf(chat, items) {
  const visible = items.filter(({ kind }) => kind !== "receipt");
  const unsent = visible.filter(({ kind, baseKey }) => kind === "message" && !chat.entries.has(baseKey));
  if (!visible.length) return chat.sorted.map((entry) => ofEntry(chat, entry));
  return [...chat.sorted, ...unsent].sort(inOrder).map((one) => withItems(one.kind ? ofItem(chat, one) : ofEntry(chat, one), visible));
}

// The newest message of a chat, or null.
export function lastOf(chat, items) {
  const visible = items.filter(({ kind }) => kind !== "receipt");
  const newest = visible.filter(({ kind }) => kind === "message").sort(inOrder).at(-1);
  if (newest && (!chat.last || inOrder(chat.last, newest) < 0)) return withItems(ofItem(chat, newest), visible);
  return chat.last && withItems(ofEntry(chat, chat.last), visible);
}
