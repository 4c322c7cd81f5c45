// The chats as this tab knows them: entries by baseKey, revisions, tombstones, read marks. No I/O.

import { equal } from "./bytes.js";
import { replaces } from "./container.js";
import { loginKey } from "./logins.js";

const MOST_EARLY = 100;

// The order of a chat, oldest first.
export function inOrder(a, b) {
  if (a.timeMs !== b.timeMs) return a.timeMs < b.timeMs ? -1 : 1;
  return a.baseKey < b.baseKey ? -1 : a.baseKey > b.baseKey ? 1 : 0;
}

// Whether its container was checked: what is not so is the server's word alone.
export function isProven(entry) {
  return entry.signature !== null;
}

export class ChatHistory {
  constructor(key, peer) {
    this.key = key;
    this.peer = peer; // spelled as registered
    this.entries = new Map(); // what is loaded
    this.last = null; // the newest entry, also where nothing is loaded
    this.unread = 0;
    this.outReadMs = -1; // the peer has read what was written up to then
    this.inReadMs = -1; // so has this person
    this.cursor = null; // of the page below what is loaded; null: from the newest on
    this.hasMore = true;
    this.loaded = false; // from the store at least
    this.listed = false; // from the server, without gaps
    this.turn = 0; // of the connection with which it was listed as a whole
    this._removed = new Set(); // tombstones may come before their messages
    this._edited = new Map(); // newest revisions that were proven, also of what is no longer loaded
    this._early = new Map(); // baseKey → delivery state that came before the answer that the server has the message
    this._sorted = null;
  }

  // All loaded entries, oldest first.
  get sorted() {
    return (this._sorted ??= [...this.entries.values()].sort(inOrder));
  }

  // What is known of a message, or null.
  known(baseKey) {
    if (this.last?.baseKey === baseKey) return this.entries.get(baseKey) ?? this.last;
    return this.entries.get(baseKey) ?? this._edited.get(baseKey) ?? null;
  }

  // Of an entry and what is known of its message the one that stands. Of two revisions it is the newer one, what is
  // removed is so for good, whoever has said it, and what is not proven takes the place of nothing that is. `listed`: the
  // server says that this is how it stands, so that it decides what signatures of own copies cannot.
  _standing(entry, listed) {
    const known = this.known(entry.baseKey);
    if (entry.deleted || known?.deleted) this._removed.add(entry.baseKey);
    if (this._removed.has(entry.baseKey)) {
      this._edited.delete(entry.baseKey); // its text is not kept either
      return removed({ ...(known ?? entry), deliveryState: entry.deliveryState ?? known?.deliveryState ?? null });
    }
    if (known && isProven(known)) {
      if (!isProven(entry) || known.revisionMs > entry.revisionMs) return known;
      const same = known.blob && entry.blob && equal(known.blob, entry.blob);
      if (same && entry.edited === undefined) entry = { ...entry, edited: known.edited };
      if (!same && !listed && known.revisionMs === entry.revisionMs && !replaces(entry, known)) return known;
    }
    if (isProven(entry) && entry.revisionMs) this._edited.set(entry.baseKey, entry);
    return entry;
  }

  // Takes an entry; returns whether anything changed. Of a chat that is not loaded only the newest entry is kept.
  put(entry, { listed = false } = {}) {
    const known = this.entries.get(entry.baseKey) ?? (this.last?.baseKey === entry.baseKey ? this.last : null);
    entry = this._standing(entry, listed);
    if (entry === known) return false;
    const early = this._early.get(entry.baseKey);
    if (early && !listed) entry = { ...entry, deliveryState: early };
    this._early.delete(entry.baseKey);
    if (this.loaded) this.entries.set(entry.baseKey, entry);
    this._sorted = null;
    if (!this.last || inOrder(this.last, entry) <= 0) this.last = entry;
    return true;
  }

  // Takes what the server lists as the newest message, for the list of chats.
  putLast(entry) {
    entry = this._standing(entry, true);
    // What nobody has proven must not stay the newest by a time of the server's choosing.
    if (!this.last || !(isProven(this.last) || this.last.deleted) || inOrder(this.last, entry) <= 0) this.last = entry;
  }

  // Removes a message's text for good, whether the message is known or not.
  remove(baseKey) {
    this._removed.add(baseKey);
    this._edited.delete(baseKey);
    const known = this.entries.get(baseKey);
    if (known && !known.deleted) this.put(removed(known));
    if (this.last?.baseKey === baseKey) this.last = removed(this.last);
  }

  setDelivery(baseKey, deliveryState) {
    const known = this.entries.get(baseKey);
    if (known) this.put({ ...known, deliveryState }, { listed: true });
    else if (this.loaded) this._expect(baseKey, deliveryState);
    if (this.last?.baseKey === baseKey) this.last = { ...this.last, deliveryState };
  }

  _expect(baseKey, deliveryState) {
    this._early.set(baseKey, deliveryState);
    if (this._early.size > MOST_EARLY) this._early.delete(this._early.keys().next().value);
  }

  // A receipt covers all messages of one direction up to the time of its reference. Returns whether it covers more.
  markRead(out, timeMs) {
    const mark = out ? "outReadMs" : "inReadMs";
    if (timeMs <= this[mark]) return false;
    this[mark] = timeMs;
    return true;
  }

  isRead({ out, timeMs }) {
    return timeMs <= (out ? this.outReadMs : this.inReadMs);
  }

  // Whether a message is one to be read: also where it has no text here, for its substitute can be seen. What nobody has
  // proven gets no receipt, so that it would stay unread for ever.
  isUnread(entry) {
    return !entry.out && isProven(entry) && !this.isRead(entry);
  }

  // How many loaded messages are not read; the server's number counts where not all of them are loaded.
  countUnread() {
    return this.sorted.filter((entry) => this.isUnread(entry)).length;
  }

  // The person has read up to then: a number for the list of chats, as exact as what is loaded allows.
  readUpTo(timeMs) {
    this.markRead(false, timeMs);
    if (this.loaded) this.unread = this.countUnread();
    else if (!this.last || this.last.timeMs <= timeMs) this.unread = 0;
  }

  // Takes the server's newest pages in place of what is loaded. What came by itself since `before` (the entries as they
  // were when the first page was asked for) is newer than the pages and stays, and so does the newer one of two revisions.
  replaceWith(entries, before, { cursor, hasMore }) {
    const since = [...this.entries.values()].filter((entry) => before.get(entry.baseKey) !== entry);
    const standing = entries.map((entry) => this._standing(entry, true));
    this.entries = new Map();
    this.last = null;
    this._sorted = null;
    this.loaded = this.listed = true;
    for (const entry of standing) this.put(entry, { listed: true });
    for (const entry of since) this.put(entry);
    this.cursor = cursor;
    this.hasMore = hasMore;
  }
}

function removed(entry) {
  return { ...entry, deleted: true, text: null, problem: null, blob: null, signature: null, plain: false };
}

// All chats.
export class History {
  constructor() {
    this.chats = new Map();
  }

  // The chat with a peer; made where there is none.
  chat(peer) {
    const key = loginKey(peer);
    let chat = this.chats.get(key);
    if (!chat) this.chats.set(key, (chat = new ChatHistory(key, peer)));
    return chat;
  }
}
