// What stands in a chat, from top to bottom: days, the mark of unread messages, messages. Pure.
import { dayOf } from "./dates.js";

const GROUP_MS = 5 * 60 * 1000;

function together(one, other) {
  return (
    one !== undefined && other !== undefined && one.out === other.out &&
    Math.abs(other.timeMs - one.timeMs) < GROUP_MS && dayOf(one.timeMs) === dayOf(other.timeMs)
  );
}

/**
 * The entries for `messages[start … end)`: {id, kind: "day" | "unread" | "message", timeMs | message, first, last};
 * `first` and `last` say where in a run of messages of one side it stands. `unreadKey` is the first unread message.
 */
export function timeline(messages, { start, end }, unreadKey) {
  const entries = [];
  for (let at = start; at < end; at += 1) {
    const message = messages[at];
    const before = messages[at - 1];
    const day = dayOf(message.timeMs);
    if (at === start || dayOf(before.timeMs) !== day) {
      entries.push({ id: `day ${day} ${entries.length ? message.key : ""}`, kind: "day", timeMs: message.timeMs });
    }
    const marked = message.key === unreadKey;
    if (marked) entries.push({ id: "unread", kind: "unread" });
    entries.push({
      id: message.key,
      kind: "message",
      message,
      first: at === start || marked || !together(before, message),
      last: messages[at + 1]?.key === unreadKey || !together(message, messages[at + 1]),
    });
  }
  return entries;
}
