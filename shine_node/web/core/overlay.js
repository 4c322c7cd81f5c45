// What a person sees of a chat: what the server has, and over it what still waits to be sent. Pure.

import { inOrder } from "./history.js";

function ofEntry(chat, entry) {
  const { baseKey: key, out, text, timeMs, revisionMs, deleted, deliveryState, problem, plain = false } = entry;
  const state = out ? deliveryState : null;
  const shape = { timeMs, revisionMs, edited: revisionMs > 0, deleted, read: chat.isRead(entry), state, problem, plain };
  return { key, peer: chat.peer, out, text, ...shape };
}

function ofItem(chat, { baseKey: key, timeMs, revisionMs, shown, text, code }) {
  const fixed = { key, peer: chat.peer, out: true, deleted: false, read: false, plain: false };
  const shape = { timeMs, revisionMs, edited: revisionMs > 0, state: code ? "refused" : "waiting", problem: code };
  return { ...fixed, ...shape, text: shown ?? text };
}

function apply(message, item) {
  if (item.kind === "tombstone") return { ...message, deleted: true, text: null, problem: null, plain: false };
  if (message.deleted || item.revisionMs <= message.revisionMs) return message;
  return { ...message, text: item.shown ?? item.text, revisionMs: item.revisionMs, edited: true, state: "waiting", problem: null, plain: false };
}

function withItems(message, items) {
  return items.reduce((shown, item) => (item.baseKey === shown.key && item.kind !== "message" ? apply(shown, item) : shown), message);
}

// All messages of a chat, oldest first. `items`: those of the outbox for this chat, in order.
export function messagesOf(chat, items) {
  const visible = items.filter(({ kind }) => kind !== "receipt");
  const waiting = visible.filter(({ kind, baseKey }) => kind === "message" && !chat.entries.has(baseKey));
  if (!visible.length) return chat.sorted.map((entry) => ofEntry(chat, entry));
  return [...chat.sorted, ...waiting].sort(inOrder).map((one) => withItems(one.kind ? ofItem(chat, one) : ofEntry(chat, one), visible));
}

// The newest message of a chat, or null.
export function lastOf(chat, items) {
  const visible = items.filter(({ kind }) => kind !== "receipt");
  const newest = visible.filter(({ kind }) => kind === "message").sort(inOrder).at(-1);
  if (newest && (!chat.last || inOrder(chat.last, newest) < 0)) return withItems(ofItem(chat, newest), visible);
  return chat.last && withItems(ofEntry(chat, chat.last), visible);
}
