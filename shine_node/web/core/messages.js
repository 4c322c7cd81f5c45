// The chats of one account in this tab: history, outbox and drafts put together, and told to the other tabs.

import { Archive } from "./archive.js";
import { utf8 } from "./bytes.js";
import { newNonce, parseContainer } from "./container.js";
import { ChatError } from "./errors.js";
import { Feed } from "./feed.js";
import { History, isProven } from "./history.js";
import { pauseMs } from "./link.js";
import { baseKey, isLogin, loginKey, parseBaseKey } from "./logins.js";
import { anew, Outbox } from "./outbox.js";
import { lastOf, messagesOf } from "./overlay.js";
import { discarded, edited, mayArrive, removed } from "./own.js";
import { People } from "./people.js";
import { Reader, rowOfCopy } from "./reading.js";
import { SEAL_BYTES } from "./seal.js";

const MOST_TEXT_BYTES = 65536 - SEAL_BYTES; // the default of a server's limits.maxBodyBytes
const REFRESHED_CHATS = 5; // after each reconnect; others when they are opened
const LEAD_MS = 10000;

export class Messages {
  constructor({ db, link, locks, identity, clock, tell, changed, failed }) {
    Object.assign(this, { _db: db, _link: link, _identity: identity, _clock: clock, _tell: tell, _changed: changed, _failed: failed });
    const people = new People({ link, db });
    this._reader = new Reader({ people, identity });
    this._history = new History();
    this._archive = new Archive({ db, reader: this._reader });
    this._people = people;
    this._outbox = new Outbox({
      db,
      link,
      locks,
      people,
      identity,
      changed: (item) => this._outboxChanged(item),
      accepted: (item, deliveryState) => this._sent(item, deliveryState),
      refused: (item, code) => this._refused(item, code),
      timed: (item) => this._timed(item),
      opened: async ({ outgoing }) => (await this._reader.text(parseContainer(outgoing))).text,
      stuck: (code) => {
        this._tell({ kind: "stuck", code });
        this._isStuck(code);
      },
    });
    this._feed = new Feed({
      link,
      reader: this._reader,
      history: this._history,
      archive: this._archive,
      own: identity.login,
      changed: (chat) => this._chatChanged(chat),
      missed: () => this._catchUp(),
      hasReceipt: (chat) => this._outbox.ofChat(chat.key).some(({ kind }) => kind === "receipt"),
    });
    this.drafts = new Map();
    this.stuck = null; // the code of what keeps messages from being sent for long
    this._opened = []; // chats, the one opened last first
    this._givenMs = new Map(); // chat → the time given last to something new
    this._unkept = new Set(); // chats whose draft the store has not taken
  }

  async load() {
    for (const { key, text } of await this._db.all("drafts")) this.drafts.set(key, text);
    await this._archive.load(this._history);
    await this._outbox.load();
    this._showWaiting();
    if (this._link.online) this.online();
  }

  close() {
    this._closed = true;
    this._archive.close();
    this.offline();
  }

  // The link is there: what happened meanwhile is found again, and what waits is sent.
  online() {
    this._feed.begin();
    this._outbox.start();
    this._catchUp();
  }

  offline() {
    this._turn = null;
    this._outbox.stop();
  }

  async _catchUp() {
    const turn = (this._turn = {}); // a later one takes over
    const still = () => this._turn === turn && this._link.online && !this._closed;
    for (let tries = 0; still(); tries++) {
      try {
        await this._feed.dialogs();
        for (const chat of this._opened.slice(0, REFRESHED_CHATS)) await this._feed.refresh(chat);
        return;
      } catch (problem) {
        if (!problem.retryable) {
          this._failed(problem);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, Math.max(problem.retryAfterMs, pauseMs(tries))));
      }
    }
  }

  event(op, payload) {
    return this._feed.event(op, payload);
  }

  // [{peer, last, unread, draft}], the one with the newest message first.
  dialogs() {
    const keys = new Set([...this._history.chats.keys(), ...this.drafts.keys()]);
    const found = [];
    for (const key of keys) {
      const chat = this._history.chat(key);
      const last = lastOf(chat, this._outbox.ofChat(key));
      const draft = this.drafts.get(key) ?? "";
      if (last || draft) found.push({ peer: chat.peer, last, unread: chat.unread, draft });
    }
    return found.sort((a, b) => (b.last?.timeMs ?? Infinity) - (a.last?.timeMs ?? Infinity) || (a.peer < b.peer ? -1 : 1));
  }

  of(peer) {
    const chat = this._history.chats.get(loginKey(peer));
    return chat ? messagesOf(chat, this._outbox.ofChat(chat.key)) : [];
  }

  async open(peer) {
    const chat = this._chat(peer);
    this._opened = [chat, ...this._opened.filter((other) => other !== chat)];
    for (const old of this._opened.slice(REFRESHED_CHATS)) old.listed = false; // not kept up: begins anew when opened
    if (!chat.loaded) {
      await this._archive.loadChat(chat);
      this._chatChanged(chat);
    }
    await this._unlessOffline(this._feed.refresh(chat));
    const person = await this._people.remembered(chat.key);
    if (person) chat.peer = person.login; // as registered, not as somebody has typed it
  }

  async older(peer) {
    const chat = this._chat(peer);
    if (!chat.listed) await this._unlessOffline(this._feed.refresh(chat));
    return chat.listed ? (await this._unlessOffline(this._feed.older(chat))) ?? true : false;
  }

  // Resolves once it is kept in this browser, in the same step as the chat's draft is not any more.
  async send(peer, text) {
    this._needOpen();
    checkText(text);
    const chat = this._chat(peer), fresh = this._fresh(chat);
    // Else it would be gone from what is shown as soon as the server has it. What was kept is not needed for writing.
    const loaded = this._archive.loadChat(chat).catch(() => {});
    await this._outbox.add({ kind: "message", peer: chat.key, to: chat.peer, ...fresh, text }, { ofDraft: true });
    if (this.drafts.has(chat.key)) {
      this._drafted(chat.key, "");
      this._tell({ kind: "draft", peer: chat.key, text: "" });
    }
    await loaded;
    this._chatChanged(chat);
    return this.of(chat.key).find((message) => message.key === fresh.baseKey);
  }

  // Another text, or the same one once more.
  async edit({ peer, key }, text) {
    this._needOpen();
    checkText(text);
    const { chat } = this._own(peer, key);
    const edit = (arriving) => {
      const before = messagesOf(chat, arriving).find((message) => message.key === key);
      const { timeMs, nonce } = parseBaseKey(key);
      const changed = !before || before.edited || text !== before.text;
      const revisionMs = this._revisionMs(timeMs, before);
      return { kind: "edit", peer: chat.key, to: chat.peer, baseKey: key, timeMs, nonce, revisionMs, edited: changed };
    };
    const how = { stored: isStored(chat, key), fresh: () => this._fresh(chat), edit };
    await this._outbox.revise((all) => edited(all, key, text, how));
  }

  async remove({ peer, key }) {
    this._needOpen();
    const { chat } = this._own(peer, key);
    const tombstone = { kind: "tombstone", peer: chat.key, to: chat.peer, baseKey: key, timeMs: this._clock(), text: null };
    await this._outbox.revise((all) => removed(all, key, tombstone, isStored(chat, key)));
  }

  // What was refused, or did not arrive, once more.
  async resend({ peer, key }) {
    const { message } = this._own(peer, key);
    if (message.refused === "tombstone") await this.remove(message);
    else await this.edit(message, message.text);
  }

  // Gives up what was refused of a message.
  async discard({ peer, key }) {
    this._needOpen();
    this._own(peer, key);
    await this._outbox.revise((all) => discarded(all, key));
  }

  // How many messages and drafts are in this browser alone.
  unsent() {
    const waiting = this._outbox.items.filter(({ kind }) => kind !== "receipt");
    return { messages: new Set(waiting.map(({ baseKey }) => baseKey)).size, drafts: this.drafts.size };
  }

  // Time, nonce and key of a message that is written now.
  _fresh(chat) {
    const now = this._clock(), nonce = newNonce();
    // A clock that is a little late must not put an answer before what it answers, nor a message before the one before it.
    const before = [lastOf(chat, this._outbox.ofChat(chat.key))?.timeMs ?? 0, this._givenMs.get(chat.key) ?? 0];
    const timeMs = Math.max(now, ...before.filter((ms) => ms < now + LEAD_MS).map((ms) => ms + 1));
    this._givenMs.set(chat.key, timeMs);
    return { timeMs, nonce, revisionMs: 0, baseKey: baseKey(this._identity.login, chat.peer, timeMs, nonce) };
  }

  _revisionMs(timeMs, before) {
    return Math.max(this._clock(), timeMs + 1, (before?.revisionMs ?? 0) + 1);
  }

  // An item that is about to be signed. What was written by a clock that has been set right since is of now: no server
  // takes what is far ahead.
  _timed(item) {
    if (Math.max(item.timeMs, item.revisionMs ?? 0) <= this._clock() + LEAD_MS) return item;
    const chat = this._chat(item.peer);
    if (item.kind === "message") return { ...item, ...this._fresh(chat) };
    if (item.kind !== "edit") return { ...item, timeMs: this._clock() };
    const arriving = this._outbox.ofChat(chat.key).filter(mayArrive);
    const before = messagesOf(chat, arriving).find(({ key }) => key === item.baseKey);
    return { ...item, revisionMs: this._revisionMs(item.timeMs, before) };
  }

  // A receipt is signed: only for a message that was proven and seen, and with the time and key of its container.
  async read(peer, { key }) {
    this._needOpen();
    const chat = this._chat(peer), entry = chat.known(key);
    if (!entry || !chat.isUnread(entry)) return;
    const { baseKey, timeMs } = entry;
    this._feed.read(chat, timeMs);
    this._tell({ kind: "read", peer: chat.key, timeMs });
    // A receipt covers those before it: of those that wait only that of the newest message need be sent.
    const receipt = anew({ kind: "receipt", peer: chat.key, to: chat.peer, baseKey, timeMs: this._clock(), text: null });
    await this._outbox.revise((all) => {
      const others = all.filter((item) => item.kind === "receipt" && item.peer === chat.key);
      const isCovered = others.some((other) => parseBaseKey(other.baseKey).timeMs >= timeMs);
      return isCovered ? null : { put: [receipt], remove: others };
    });
  }

  setDraft(peer, text) {
    this._needOpen();
    const key = loginKey(peer);
    if ((this.drafts.get(key) ?? "") === text) return;
    this._drafted(key, text);
    const written = text ? this._db.put("drafts", { key, text }) : this._db.remove("drafts", key);
    const failed = (problem) => {
      this._unkept.add(key);
      this._failed(problem);
    };
    written.then(() => this._unkept.delete(key), failed);
    this._tell({ kind: "draft", peer: key, text });
  }

  // Another tab has done something.
  async told({ kind, peer, ...detail }) {
    if (kind === "draft") this._drafted(peer, detail.text);
    else if (kind === "read") this._feed.read(this._chat(peer), detail.timeMs);
    else if (kind === "outbox") {
      await this._readDraft(peer); // the tab may have ended before it could say that this is sent
      await this._outbox.reload();
      this._showWaiting();
      this._chatChanged(this._chat(peer));
    } else if (kind === "stuck") this._isStuck(detail.code);
    else if (kind === "sent") await this._accepted(detail.item, detail.deliveryState);
  }

  // A chat's draft as it is stored, unless it is being changed here just now.
  async _readDraft(key) {
    const before = this.drafts.get(key) ?? "";
    const text = (await this._db.get("drafts", key))?.text ?? "";
    if (text !== before && (this.drafts.get(key) ?? "") === before && !this._unkept.has(key)) this._drafted(key, text);
  }

  _drafted(key, text) {
    if (text) this.drafts.set(key, text);
    else this.drafts.delete(key);
    this._changed("drafts", key);
    this._changed("dialogs");
  }

  // Whoever has left, or become somebody else, writes nothing into a store that is another's.
  _needOpen() {
    if (this._closed) throw new ChatError("NOT_AUTHENTICATED", "this account is not used here any more");
  }

  _chat(peer) {
    if (!isLogin(peer)) throw new ChatError("BAD_LOGIN", `${peer} is not a login`);
    return this._history.chat(peer);
  }

  // A message of one's own, as it is shown now.
  _own(peer, key) {
    const chat = this._chat(peer);
    const message = this.of(peer).find((one) => one.key === key);
    if (!message?.out || message.deleted) throw new ChatError("FORBIDDEN", "only what one has written oneself can be changed");
    return { chat, message };
  }

  // Offline is no failure: what is in the store is shown, and the rest comes after the next reconnect.
  async _unlessOffline(done) {
    try {
      return await done;
    } catch (problem) {
      if (!problem.retryable) throw problem;
      return undefined;
    }
  }

  _chatChanged(chat) {
    this._dropOutdated(chat);
    this._changed("messages", chat.key);
    this._changed("dialogs");
  }

  // What was refused has no message to be seen on where another device has removed it, or edited it since; and nothing was
  // refused where the server has the message all the same.
  _dropOutdated(chat) {
    const isOver = ({ kind, baseKey: key, code, revisionMs }) => {
      const known = code ? chat.known(key) : null;
      if (!known || known.deleted) return Boolean(known);
      if (kind === "edit") return known.revisionMs > revisionMs;
      return kind === "message" && isProven(known);
    };
    if (!this._outbox.ofChat(chat.key).some(isOver)) return;
    const ofChat = (item) => item.peer === chat.key && isOver(item);
    this._outbox.revise((all) => ({ remove: all.filter(ofChat) })).catch(() => {}); // then with the next change
  }

  _outboxChanged({ peer }) {
    this._tell({ kind: "outbox", peer });
    this._chatChanged(this._chat(peer));
  }

  async _sent(item, deliveryState) {
    this._tell({ kind: "sent", peer: item.peer, item, deliveryState });
    await this._accepted(item, deliveryState);
  }

  // The server has it: from now on it is part of the history.
  async _accepted(item, deliveryState) {
    const blob = item.outgoing;
    if (item.kind === "message") await this._readDraft(item.peer).catch(() => {}); // of a tab that has ended, as above
    if (item.kind === "message" || item.kind === "edit") {
      const chat = this._chat(item.peer), container = parseContainer(blob);
      const text = item.text ?? (await this._reader.text(container)).text;
      const known = item.edited === false ? { text, problem: null, edited: false } : { text, problem: null };
      const entry = { ...rowOfCopy(container, blob, deliveryState), signature: container.signature, ...known };
      if (chat.put(entry)) this._archive.save(chat, [chat.entries.get(entry.baseKey) ?? entry]);
      this._chatChanged(chat);
    } else await this._feed.copy(item.to, blob, deliveryState);
    // An edit, or a tombstone, can be accepted where the message itself was refused, which is of no use any more then.
    const useless = (other) => other.code && other.kind !== "receipt" && other.baseKey === item.baseKey;
    if (item.kind !== "receipt" && this._outbox.items.some(useless)) {
      await this._outbox.revise((all) => ({ remove: all.filter(useless) }));
    }
  }

  // What the server will not have stays on its message. Of revisions the newest stands, another device's too: the server
  // has the message then; and nobody misses a receipt.
  _refused({ kind, peer }, code) {
    if (code === "STALE_REVISION" || code === "KEY_CONFLICT") this._feed.refresh(this._chat(peer)).catch(() => {});
    return kind !== "receipt" && !(code === "STALE_REVISION" && kind !== "tombstone");
  }

  _isStuck(code) {
    this.stuck = code;
    this._changed("state");
  }

  // What waits since before this tab was loaded, or was written in another one.
  _showWaiting() {
    for (const { to } of this._outbox.items) this._history.chat(to);
  }
}

// Whether the server is proven to have a message of one's own.
function isStored(chat, key) {
  const known = chat.known(key);
  return known !== null && isProven(known);
}

function checkText(text) {
  if (typeof text !== "string") throw new ChatError("NO_TEXT", "there is no text to be sent");
  if (utf8(text).length > MOST_TEXT_BYTES) throw new ChatError("TOO_LARGE", `a message has at most ${MOST_TEXT_BYTES} bytes`);
}
