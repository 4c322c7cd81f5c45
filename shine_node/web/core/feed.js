// What the server tells: pages of chats and messages, and events as they happen (PROTOCOL.md §8.2), into the history.

import { equal, fromBase64 } from "./bytes.js";
import { MESSAGE, RECEIPT, TOMBSTONE } from "./container.js";
import { inOrder, isProven } from "./history.js";
import { isLogin, loginKey } from "./logins.js";
import { deliveryOf, rowOf, rowOfCopy } from "./reading.js";

const PAGE = 50;
const REFRESH_PAGE = 200;
const MOST_REFRESHED = 1000; // entries of one chat; what is older is loaded again when it is scrolled to
const MOST_EMPTY = 5; // pages without an entry, yet with more behind them: a server passes over a bounded number of rows at a time
const MOST_EVENTS = 1000;
const DIALOG_PAGE = 100;
const MOST_DIALOGS = 2000;
const RETRY_MS = 5000;
const NUMBERS_MS = 300; // so long after what may have changed the server's numbers they are asked for

export class Feed {
  // changed(chat): its messages or its head are other ones. hasReceipt(chat): one is on its way to the server.
  // missed(): more was told at once than is worth taking one by one; all is to be found again.
  constructor({ link, reader, history, archive, own, changed, hasReceipt, missed }) {
    Object.assign(this, { _link: link, _reader: reader, _history: history, _archive: archive, _own: own });
    Object.assign(this, { _changed: changed, _hasReceipt: hasReceipt, _missed: missed });
    this._refreshing = new Map();
    this._events = Promise.resolve();
    this._waiting = 0;
    this._turn = 0;
    this._asking = null; // the timer until the numbers of the server are asked for
  }

  // A new connection: what happened before it was not told.
  begin() {
    this._turn++;
  }

  // All chats with their newest messages.
  dialogs() {
    return (this._listing ??= this._dialogs().finally(() => (this._listing = null)));
  }

  async _dialogs() {
    for (let cursor = null, count = 0, empty = 0, more = true; more && count < MOST_DIALOGS && empty < MOST_EMPTY; ) {
      const page = await this._link.request("ListDialogs", { limit: DIALOG_PAGE, ...(cursor && { cursor }) });
      await Promise.all(page.dialogs.map((dialog) => this._dialog(dialog)));
      count += page.dialogs.length;
      if (!page.dialogs.length) empty++;
      more = goesOn(page, cursor);
      ({ cursor } = page);
    }
  }

  // The server's numbers as they will be in a moment: of many that ask at once all get the same answer.
  _askNumbers(ms = NUMBERS_MS) {
    this._asking ??= setTimeout(async () => {
      await this._listing?.catch(() => {}); // one that is under way may be too old
      this._asking = null;
      await this.dialogs().catch((problem) => {
        if (problem.retryable && this._link.online) this._askNumbers(Math.max(problem.retryAfterMs, RETRY_MS));
      });
    }, ms);
  }

  async _dialog({ peerLogin, lastMessage, unread }) {
    if (!isLogin(peerLogin)) return; // what is written to this peer has the login in it, and is signed
    const chat = this._history.chat(peerLogin);
    chat.peer = peerLogin;
    const [entry] = await this._entries(chat, [lastMessage]);
    if (entry) chat.putLast(entry);
    // The server also counts what nobody has proven; where all that is unread is loaded, that does not count.
    if (!this._hasReceipt(chat)) chat.unread = Number.isSafeInteger(unread) ? unread : 0;
    if (chat.turn === this._turn && this._isExact(chat)) chat.unread = chat.countUnread();
    this._archive.save(chat);
    this._changed(chat);
  }

  // The newest page of a chat; on a new connection as many more as replace what is loaded.
  refresh(chat) {
    let running = this._refreshing.get(chat);
    if (!running) {
      running = this._refresh(chat).finally(() => this._refreshing.delete(chat));
      this._refreshing.set(chat, running);
    }
    return running;
  }

  async _refresh(chat) {
    const before = new Map(chat.entries), turn = this._turn;
    const oldest = chat.listed ? chat.sorted[0] : null;
    let page = await this._page(chat, null, PAGE);
    if (chat.listed && chat.turn === turn && page.entries.some(({ baseKey }) => before.has(baseKey))) {
      for (const entry of page.entries) chat.put(entry, { listed: true });
    } else {
      const entries = [...page.entries];
      const reaches = () => entries.length > 0 && entries.at(-1).timeMs <= oldest.timeMs;
      for (let empty = 0; page.more && oldest && entries.length < MOST_REFRESHED && empty < MOST_EMPTY && !reaches(); ) {
        page = await this._page(chat, page.cursor, REFRESH_PAGE);
        entries.push(...page.entries);
        if (!page.entries.length) empty++;
      }
      chat.replaceWith(entries, before, { cursor: page.cursor, hasMore: page.more });
      chat.turn = turn;
    }
    this._recount(chat);
    this._archive.save(chat, chat.sorted.slice(-REFRESH_PAGE));
    this._changed(chat);
  }

  // The page below what is loaded; returns whether there may be more.
  async older(chat) {
    if (!chat.hasMore) return false;
    let page = await this._page(chat, chat.cursor, PAGE);
    for (let empty = 1; !page.entries.length && page.more && empty < MOST_EMPTY; empty++) {
      page = await this._page(chat, page.cursor, PAGE);
    }
    for (const entry of page.entries) chat.put(entry, { listed: true });
    Object.assign(chat, { cursor: page.cursor, hasMore: page.more });
    this._archive.save(chat, page.entries.map(({ baseKey }) => chat.entries.get(baseKey)));
    this._changed(chat);
    return page.more;
  }

  async _page(chat, cursor, limit) {
    const payload = { peerLogin: chat.peer, limit, ...(cursor && { cursor }) };
    const answer = await this._link.request("GetDirectMessages", payload);
    return { entries: await this._entries(chat, answer.messages), cursor: answer.cursor, more: goesOn(answer, cursor) };
  }

  async _entries(chat, listed) {
    const entries = await Promise.all(
      listed.map(async (one) => {
        const row = rowOf(one, this._own, chat.key);
        if (!row) return null;
        const known = chat.entries.get(row.baseKey);
        const same = known?.blob && row.blob && !row.mismatch && !known.problem && equal(known.blob, row.blob);
        const entry = same
          ? { ...known, deliveryState: row.deliveryState ?? known.deliveryState }
          : await this._reader.entry(row, chat.key);
        // A mark covers all before it: its time must not be one of the server's choosing.
        if (one.read === true && isProven(entry)) chat.markRead(entry.out, entry.timeMs);
        return entry;
      }),
    );
    return entries.filter(Boolean);
  }

  // Takes an event; they are worked on one after the other, for their order counts.
  event(op, payload) {
    if (this._waiting >= MOST_EVENTS) {
      this._overflown = true;
      return;
    }
    this._waiting++;
    this._events = this._events
      .then(() => this._event(op, payload))
      .catch(() => {}) // the connection was lost meanwhile: all is found again with the next one
      .finally(() => {
        if (--this._waiting || !this._overflown) return;
        this._overflown = false;
        this._missed();
      });
  }

  async _event(op, payload) {
    if (op === "DmDeliveryStateChanged") {
      this._delivery(payload);
      return;
    }
    const peer = { IncomingDirectMessage: payload.fromLogin, OutgoingDirectMessage: payload.toLogin }[op];
    const blob = peer && fromBase64(payload.blobB64);
    if (!blob || !isLogin(peer)) return;
    await this.copy(peer, blob, payload.deliveryState);
  }

  // Of receipts and tombstones nobody wants to know whether they have arrived.
  _delivery({ outgoingKey, baseKey, deliveryState }) {
    const [, peer, , , type] = String(outgoingKey).split("|");
    const chat = this._history.chats.get(peer);
    const state = deliveryOf(deliveryState);
    if (!chat || !state || Number(type) !== MESSAGE + 1) return;
    chat.setDelivery(baseKey, state);
    const entry = chat.entries.get(baseKey);
    this._archive.save(chat, entry ? [entry] : []);
    this._changed(chat);
  }

  // A copy of the chat with a peer, incoming or outgoing: a message, a receipt or a tombstone.
  async copy(peer, blob, deliveryState = null) {
    const chat = this._history.chat(peer);
    const container = await this._reader.container(blob, chat.key).catch(() => null);
    if (!container) return this._unproven(chat, blob);
    const out = container.type % 2 === 0;
    const kind = out ? container.type - 1 : container.type;
    if (kind === RECEIPT) await this._receipt(chat, !out, container.reference);
    else if (kind === TOMBSTONE) await this._tombstone(chat, container.reference);
    // What one writes to oneself is listed once, as outgoing.
    else if (kind === MESSAGE && (out || chat.key !== loginKey(this._own))) await this._message(chat, container, blob, deliveryState);
    this._changed(chat);
  }

  // Whose keys cannot be had, or do not fit: the next page shows the message, with its problem.
  async _unproven(chat, blob) {
    if (chat.listed && blob) await this.refresh(chat);
    else this._askNumbers();
  }

  async _message(chat, container, blob, deliveryState) {
    const entry = await this._reader.entry(rowOfCopy(container, blob, deliveryState), chat.key);
    const isKnown = chat.known(entry.baseKey) !== null, isNewest = !chat.last || inOrder(chat.last, entry) < 0;
    if (!chat.put(entry)) return;
    if (chat.isUnread(entry)) this._count(chat, entry, { isKnown, isNewest });
    this._archive.save(chat, [chat.entries.get(entry.baseKey) ?? entry]);
  }

  // An unread message has come. Where not all of them are loaded, the server's number may have counted it: not the newest
  // one, for then the server had told of one that is no older; of one that came late by its time only the server knows.
  _count(chat, entry, { isKnown, isNewest }) {
    if (this._isExact(chat)) chat.unread = chat.countUnread();
    else if (!isKnown) {
      if (isNewest || !entry.revisionMs) chat.unread++; // the edit of an old one is that of one which was counted
      if (!isNewest) this._askNumbers();
    }
  }

  async _receipt(chat, ofOwn, { timeMs }) {
    if (!chat.markRead(ofOwn, timeMs)) return;
    this._archive.save(chat);
    if (!ofOwn && !this._recount(chat)) this._askNumbers();
  }

  async _tombstone(chat, { baseKey, timeMs }) {
    chat.remove(baseKey);
    this._archive.remove(chat, { baseKey, timeMs });
    if (timeMs > chat.inReadMs && !this._recount(chat)) this._askNumbers();
  }

  // Whether all that is not read is loaded.
  _isExact(chat) {
    const oldest = chat.sorted[0];
    return chat.listed && (!chat.hasMore || (oldest && chat.inReadMs >= oldest.timeMs));
  }

  // Returns whether the number is exact, else it is at least what is loaded.
  _recount(chat) {
    const exact = this._isExact(chat), count = chat.countUnread();
    chat.unread = exact ? count : Math.max(chat.unread, count);
    return exact;
  }

  // The person has read up to a message that is on screen.
  read(chat, timeMs) {
    chat.readUpTo(timeMs);
    this._archive.save(chat);
    this._changed(chat);
  }
}

// Whether there is another page after this one, which was asked for with `cursor`; the same one again is none.
function goesOn({ cursor: next, hasMore }, cursor) {
  return hasMore === true && typeof next === "string" && next !== cursor;
}
