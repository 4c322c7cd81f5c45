// What becomes of what waits when a person edits or removes a message of their own: decisions over the outbox's items. Pure.

import { anew, isHandedOver } from "./outbox.js";

// Whether a server has it, or may have it yet.
export const mayArrive = (item) => isHandedOver(item) && !item.code;

// All that there is in the outbox of a message, with what may arrive of it, and with the message itself where that waits too.
// `stored`: a server is known to have the message, whatever was answered to the last attempt to send it.
function partsOf(all, key, stored = false) {
  const items = all.filter((item) => item.baseKey === key && item.kind !== "receipt");
  const original = items.find(({ kind, code }) => kind === "message" && !(stored && code));
  return { items, original, arriving: items.filter(mayArrive) };
}

// Another text. What no server has is changed in place; where one has refused the message, `fresh()` gives it the time and
// the key of a new one. Else `edit(arriving)` is the edit that is sent after it, in place of one that was not handed over.
export function edited(all, key, text, { stored, fresh, edit }) {
  const { items, original, arriving } = partsOf(all, key, stored);
  if (original && !arriving.length) {
    const put = { ...anew(original), text, ...(isHandedOver(original) && fresh()) };
    return { put: [put], remove: items.filter((item) => item !== original) };
  }
  const place = items.find((item) => item.kind === "edit" && !mayArrive(item));
  const put = anew({ ...edit(arriving), text, ...(place && { id: place.id }) });
  return { put: [put], remove: items.filter((item) => !mayArrive(item) && item !== place && item !== original) };
}

// Removed for both: what no server has is dropped, and a tombstone follows what one may have.
export function removed(all, key, tombstone, stored) {
  const { items, original, arriving } = partsOf(all, key, stored);
  if (original && !arriving.length) return { remove: items };
  return { put: [anew(tombstone)], remove: items.filter((item) => !mayArrive(item)) };
}

// Without what was refused.
export function discarded(all, key) {
  return { remove: partsOf(all, key).items.filter(({ code }) => code) };
}
