// What waits to be sent: kept in the browser's store as it was written, signed and sent by one tab, in order for each chat.

import { MESSAGE, pairPayload, RECEIPT, SEALED, signPair, signReference, TOMBSTONE } from "./container.js";
import { pauseMs } from "./link.js";
import { baseKey } from "./logins.js";
import { newestDeviceKey } from "./people.js";
import { seal } from "./seal.js";

const SEND_MS = 60000; // the answer may wait for the recipient's server
const CHATS_AT_ONCE = 8;
const FRAME_TOO_LARGE = 1009;
const TOLD_AFTER = 3; // tries in a row that a person need not know of

// Nothing can be sealed for this person until somebody has looked into it: no server has been given anything then.
const KEY_PROBLEMS = new Set(["USER_NOT_FOUND", "BAD_SIGNATURE", "BAD_KEY_FORMAT", "ROOT_KEY_MISMATCH"]);

// An item: {id, peer (key), to (login), kind: "message" | "edit" | "receipt" | "tombstone", baseKey (of the message that it
// is or is about), timeMs, nonce, revisionMs, text, edited (whether the message counts as edited after it), incoming,
// outgoing (the signed copies, or null), code (of the refusal that ended it, or null)}. It is signed at the moment at which it
// is handed over: without copies no server can have it, and it may still be changed or dropped in place.
export const isHandedOver = (item) => item.incoming !== null;

// The same item without what one attempt to send it has left in it.
export const anew = (item) => ({ ...item, incoming: null, outgoing: null, code: null });

const isSame = (one, other) =>
  ["text", "baseKey", "timeMs", "revisionMs", "code"].every((name) => one[name] === other[name]);

export class Outbox {
  // changed(item): it is there, or gone, or another one. accepted(item, deliveryState): the server has it; waited for
  // before the item goes. refused(item, code): returns whether it is to stay, to be seen. timed(item): the item with a time
  // that is not ahead of the clock. opened(item): the text of an item that holds it sealed only, or null. stuck(code): what keeps something from being sent for long, or null once it is over.
  constructor({ db, link, locks, people, identity, changed, accepted, refused, timed, opened, stuck }) {
    Object.assign(this, { _db: db, _link: link, _locks: locks, _people: people, _identity: identity });
    Object.assign(this, { _changed: changed, _accepted: accepted, _refusedBy: refused, _timed: timed, _opened: opened, _tellStuck: stuck });
    this.items = []; // in order of writing
    this._changes = 0;
    this._busy = new Set(); // chats of which something is under way
    this._resting = new Map(); // chats that wait before the next try → {tries, code, ended}
    this._oneByOne = false; // some frame was too large: whose it was shows only where it is alone
    this._stuck = null;
    this._turn = null; // a signal while this tab is the one that sends
  }

  async load() {
    let stored, changes;
    do {
      changes = this._changes;
      stored = await Promise.all((await this._db.all("outbox")).map((item) => this._readable(item)));
    } while (changes !== this._changes); // else something would be lost that was written meanwhile
    this.items = stored;
  }

  // An earlier page kept what it had signed without its text.
  async _readable(item) {
    const isSealed = (item.kind === "message" || item.kind === "edit") && typeof item.text !== "string" && isHandedOver(item);
    return isSealed ? { ...item, text: await this._opened(item) } : item;
  }

  ofChat(peer) {
    return this.items.filter((item) => item.peer === peer);
  }

  // Keeps an item, in one step with the end of the chat's draft if it was one, and sends it as soon as that can be.
  async add(item, { ofDraft = false } = {}) {
    const kept = { text: null, ...anew(item) };
    kept.id = await (ofDraft ? this._db.move("outbox", kept, "drafts", kept.peer) : this._db.put("outbox", kept));
    this._put(kept.id, [kept]);
    this._changed(kept);
    this._kick();
  }

  // Changes what waits in one step that no tab's sending comes between. decide(items, as they are stored): {put, remove},
  // both of items, or null for nothing. Returns whether something was written.
  async revise(decide) {
    let decided = null;
    const keys = await this._db.revise("outbox", null, (stored) => {
      decided = decide(stored);
      return decided && { put: decided.put, remove: (decided.remove ?? []).map(({ id }) => id) };
    });
    if (!keys) return false;
    const { put = [], remove = [] } = decided;
    put.forEach((item, at) => (item.id = keys[at]));
    for (const { id } of remove) this._put(id, []);
    for (const item of put) this._put(item.id, [item]);
    for (const item of [...put, ...remove]) this._changed(item);
    this._kick();
    return true;
  }

  _put(id, items) {
    const known = this.items.some((other) => other.id === id);
    this.items = known ? this.items.flatMap((other) => (other.id === id ? items : [other])) : [...this.items, ...items];
    this._changes++;
  }

  // Another tab has written or sent something.
  async reload() {
    await this.load();
    this._kick();
  }

  // From now on this tab takes its turn as the one that sends; only tabs that are online do.
  start() {
    if (this._ending) return;
    const ending = (this._ending = new AbortController());
    const work = () => this._work(ending.signal);
    const turn = this._locks ? this._locks.request("shine-outbox", { signal: ending.signal }, work) : work();
    Promise.resolve(turn).catch(() => {}); // it was not this tab's turn before stop()
  }

  stop() {
    this._ending?.abort();
    this._ending = null;
    this._turn = null;
    this._sayStuck();
  }

  async _work(signal) {
    if (signal.aborted) return;
    const ended = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    await this.load();
    this._turn = signal;
    this._resting.clear();
    this._stuck = undefined; // what the tab before has told is over, too
    this._sayStuck();
    this._kick();
    await ended;
    if (this._turn === signal) this._turn = null;
  }

  _kick() {
    const signal = this._turn;
    if (!signal || signal.aborted) return;
    if (this.items.every(({ code }) => code)) this._oneByOne = false;
    for (const { peer, code } of this.items) {
      if (this._busy.size >= (this._oneByOne ? 1 : CHATS_AT_ONCE)) break;
      if (code || this._busy.has(peer) || this._resting.get(peer)?.ended === false) continue;
      this._busy.add(peer);
      this._sendChat(peer, signal).finally(() => {
        this._busy.delete(peer);
        this._kick(); // there may be a chat for which there was no room
      });
    }
    this._sayStuck();
  }

  _next(peer) {
    return this.items.find((item) => item.peer === peer && !item.code);
  }

  async _sendChat(peer, signal) {
    for (let item; !signal.aborted && (item = this._next(peer)); ) {
      try {
        await this._send(item);
        this._resting.delete(peer);
      } catch (problem) {
        if (!signal.aborted) this._rest(peer, problem, signal);
        return;
      }
    }
  }

  // A chat waits before its next try; its place is free meanwhile.
  _rest(peer, problem, signal) {
    const tries = this._resting.get(peer)?.tries ?? 0;
    const rest = { tries: tries + 1, code: problem.code ?? "INTERNAL_ERROR", ended: false };
    this._resting.set(peer, rest);
    const go = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", go);
      rest.ended = true;
      this._kick();
    };
    const timer = setTimeout(go, Math.max(problem.retryAfterMs ?? 0, pauseMs(tries)));
    signal.addEventListener("abort", go);
  }

  // What has failed again and again is told, as long as it does; without a connection there is nothing more to say.
  _sayStuck() {
    const waits = ([peer, { tries, code }]) =>
      this._next(peer) && (code === "STORAGE_FULL" || (tries >= TOLD_AFTER && code !== "OFFLINE" && code !== "RATE_LIMITED"));
    const code = (this._turn && [...this._resting].find(waits)?.[1].code) ?? null;
    if (code === this._stuck) return;
    this._stuck = code;
    this._tellStuck(code);
  }

  // Sends one item; throws where that may succeed later. Only an answer to this very request can be its refusal.
  async _send({ id }) {
    const item = await this._handedOver(id);
    if (!item) return;
    if (this._oneByOne) await this._link.quiet();
    let answer;
    try {
      answer = await this._link.request("SendMessagePair", pairPayload(item), SEND_MS);
    } catch (problem) {
      const { answered, retryable, closeCode, alone } = problem;
      if (closeCode === FRAME_TOO_LARGE) this._oneByOne = !alone;
      if (closeCode === FRAME_TOO_LARGE && alone) await this._refused(item, "TOO_LARGE");
      else if (answered && !retryable) await this._refused(item, problem.code);
      else throw problem;
      return;
    }
    await this._accepted(item, answer.deliveryState);
    await this._remove(item);
  }

  // The item as it is on disk, signed from now on: sent twice, by whatever tab, it must be the same bytes. Null where it
  // was changed or dropped meanwhile, or cannot be handed over.
  async _handedOver(id) {
    const stored = await this._db.get("outbox", id);
    if (stored && !stored.code && isHandedOver(stored)) return stored;
    if (!stored || stored.code) {
      await this.load();
      return null;
    }
    let signed;
    try {
      signed = await this._signed(this._timed(stored));
    } catch (problem) {
      if (!KEY_PROBLEMS.has(problem.code) && !(problem.answered && !problem.retryable)) throw problem;
      await this._refused(stored, problem.code);
      return null;
    }
    const unchanged = (now) => now && !isHandedOver(now) && isSame(now, stored);
    if (!(await this._db.revise("outbox", id, (now) => (unchanged(now) ? { put: [signed] } : null)))) {
      await this.load();
      return null;
    }
    this._put(id, [signed]);
    if (signed.baseKey !== stored.baseKey) this._changed(signed);
    return signed;
  }

  // What was refused stays, to be seen and sent again, unless nobody would miss it.
  async _refused(item, code) {
    const stays = this._refusedBy(item, code);
    const same = (now) => now && isHandedOver(now) === isHandedOver(item) && isSame(now, item);
    const decide = (now) => (same(now) ? (stays ? { put: [{ ...now, code }] } : { remove: [now.id] }) : null);
    await this._db.revise("outbox", item.id, decide);
    await this.load();
    this._changed(item);
  }

  async _remove(item) {
    await this._db.remove("outbox", item.id);
    this._put(item.id, []);
    this._changed(item);
  }

  // The item with both copies signed.
  async _signed(item) {
    const { login: from, device } = this._identity;
    const { kind, to, timeMs, nonce, revisionMs } = item;
    if (kind === "receipt" || kind === "tombstone") {
      const type = kind === "receipt" ? RECEIPT : TOMBSTONE;
      return { ...item, ...(await signReference(device, { from, to, timeMs }, type, item.baseKey)) };
    }
    const person = await this._people.current(item.peer);
    const key = baseKey(from, to, timeMs, nonce);
    const readers = [newestDeviceKey(person), device.public];
    const bodies = await Promise.all(readers.map((reader) => seal(item.text, reader, key)));
    const pair = await signPair(device, { from, to, timeMs, nonce, revisionMs }, MESSAGE, SEALED, bodies);
    return { ...item, ...pair };
  }
}
