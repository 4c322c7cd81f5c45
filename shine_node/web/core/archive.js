// The chats last seen, kept in the browser's store to be read offline. A cache: what cannot be written is not missed.

import { chatRange } from "./db.js";

const KEPT = 200; // messages of a chat
const SLACK = 50;

const rowOf = (peer, { baseKey, out, timeMs, nonce, revisionMs, blob, deleted, deliveryState, edited }) =>
  ({ peer, baseKey, out, timeMs, nonce, revisionMs, blob, deleted, deliveryState, edited });

const keyOf = ({ peer, timeMs, baseKey }) => [peer, timeMs, baseKey];

// Whether a row takes the place of the stored one: a newer revision stays, and what is removed is so for good. Of a chat
// that is not loaded nobody has compared them before.
const counts = (row, stored) => row.deleted || (!stored.deleted && row.revisionMs >= stored.revisionMs);

export class Archive {
  constructor({ db, reader }) {
    this._db = db;
    this._reader = reader;
    this._closed = false;
  }

  // Nothing is kept from now on: the account goes.
  close() {
    this._closed = true;
  }

  // Fills a history with the heads of all chats.
  async load(history) {
    const load = async ({ peer, unread, outReadMs, inReadMs, last }) => {
      const chat = Object.assign(history.chat(peer), { unread, outReadMs, inReadMs });
      if (last) chat.last = await this._reader.entry(last, chat.key);
    };
    await Promise.all((await this._db.all("chats")).map(load));
  }

  // Fills a chat with its messages.
  async loadChat(chat) {
    if (chat.loaded) return;
    chat.loaded = true;
    const rows = await this._db.all("messages", chatRange(chat.key));
    const entries = await Promise.all(rows.map((row) => this._reader.entry(row, chat.key)));
    for (const entry of entries) {
      const known = chat.entries.get(entry.baseKey); // a page may have come first
      if (!known || entry.deleted || entry.revisionMs > known.revisionMs) chat.put(entry);
    }
  }

  // Keeps a chat's head and some of its entries.
  async save(chat, entries = []) {
    if (this._closed) return;
    const { key, peer, unread, outReadMs, inReadMs, last } = chat;
    const head = { key, peer, unread, outReadMs, inReadMs, last: last && rowOf(key, last) };
    try {
      await this._db.put("chats", head);
      if (!entries.length) return;
      await this._db.merge("messages", entries.map((entry) => rowOf(key, entry)), keyOf, counts);
      const keys = await this._db.keys("messages", chatRange(key));
      if (keys.length > KEPT + SLACK) await this._db.change("messages", [], keys.slice(0, -KEPT));
    } catch {
      // The server has it all.
    }
  }

  // Removes a message's text, whether it is kept here or not.
  async remove(chat, { timeMs, baseKey }) {
    if (this._closed) return;
    try {
      const row = await this._db.get("messages", [chat.key, timeMs, baseKey]);
      if (row) await this._db.put("messages", { ...row, deleted: true, blob: null });
      await this.save(chat);
    } catch {
      // As above; and what is removed is not listed by the server again.
    }
  }
}
