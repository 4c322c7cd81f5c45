// What waits to be sent: signed pairs in the browser's store, sent by one tab at a time, in order for each chat.

import { equal } from "./bytes.js";
import { MESSAGE, pairPayload, RECEIPT, SEALED, signPair, signReference, TOMBSTONE } from "./container.js";
import { pauseMs } from "./link.js";
import { baseKey } from "./logins.js";
import { newestDeviceKey } from "./people.js";
import { seal } from "./seal.js";

const SEND_MS = 60000; // the answer may wait for the recipient's server
const CHATS_AT_ONCE = 8;
const FRAME_TOO_LARGE = 1009;

// An item: {id, peer (key), to (login), kind: "message" | "edit" | "receipt" | "tombstone", baseKey (of the message that it
// is or is about), timeMs, nonce, revisionMs, text (of messages not sealed yet), incoming, outgoing (null: not signed yet),
// code (of the refusal that ended it, or null), madeMs}.
export class Outbox {
  // changed(item): it is there, or gone, or another one. accepted(item, deliveryState): the server has it; waited for
  // before the item goes. refused(item, code).
  constructor({ db, link, locks, people, identity, changed, accepted, refused }) {
    Object.assign(this, { _db: db, _link: link, _locks: locks, _people: people, _identity: identity });
    Object.assign(this, { _changed: changed, _accepted: accepted, _refusedBy: refused });
    this.items = []; // in order of writing
    this._changes = 0;
    this._busy = new Set(); // chats of which something is under way
    this._turn = null; // {signal} while this tab is the one that sends
  }

  async load() {
    let stored, changes;
    do {
      changes = this._changes;
      stored = await this._db.all("outbox");
    } while (changes !== this._changes); // else something would be lost that was written meanwhile
    const known = new Map(this.items.map((item) => [item.id, item]));
    for (const item of stored) {
      const before = known.get(item.id);
      const same = before && (before.incoming ? item.incoming && equal(before.incoming, item.incoming) : !item.text || item.text === before.text);
      item.shown = same ? before.shown : null;
    }
    this.items = stored;
  }

  ofChat(peer) {
    return this.items.filter((item) => item.peer === peer);
  }

  // Keeps an item, and sends it as soon as that can be. `shown`: its text, which is stored only where it is not sealed.
  async add(item, shown = null) {
    const kept = await this._signed({ incoming: null, outgoing: null, text: shown, code: null, madeMs: Date.now(), ...item }, false);
    kept.id = await this._db.put("outbox", kept);
    kept.shown = shown;
    this.items.push(kept);
    this._changes++;
    this._changed(kept);
    this._kick();
  }

  // Puts something else in an item's place, or nothing.
  async replace(item, changes) {
    const { shown, ...stored } = { ...item, ...changes };
    if (changes) await this._db.put("outbox", stored);
    else await this._db.remove("outbox", item.id);
    this._put(item.id, changes ? [{ ...stored, shown }] : []);
    this._changed(item);
    this._kick();
  }

  _put(id, items) {
    this.items = this.items.flatMap((other) => (other.id === id ? items : [other]));
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
  }

  async _work(signal) {
    if (signal.aborted) return;
    const ended = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    await this.load();
    this._turn = signal;
    this._kick();
    await ended;
    if (this._turn === signal) this._turn = null;
  }

  _kick() {
    const signal = this._turn;
    if (!signal || signal.aborted) return;
    for (const { peer, code } of this.items) {
      if (code || this._busy.has(peer) || this._busy.size >= CHATS_AT_ONCE) continue;
      this._busy.add(peer);
      this._sendChat(peer, signal).finally(() => {
        this._busy.delete(peer);
        this._kick(); // there may be a chat for which there was no room
      });
    }
  }

  _next(peer) {
    return this.items.find((item) => item.peer === peer && !item.code);
  }

  async _sendChat(peer, signal) {
    let tries = 0;
    for (let item; !signal.aborted && (item = this._next(peer)); ) {
      try {
        await this._send(item);
        tries = 0;
      } catch (problem) {
        if (signal.aborted) return;
        const pause = Math.max(problem.retryAfterMs ?? 0, pauseMs(tries++));
        await rest(pause, signal);
      }
    }
  }

  // Sends one item; throws where that may succeed later.
  async _send(item) {
    let answer;
    // As it is on disk, before and after it is signed: sent twice, by whatever tab, it must be the same bytes.
    const stored = await this._db.get("outbox", item.id);
    if (!stored || stored.code) {
      await this.load();
      return;
    }
    try {
      const signed = await this._signed(stored, true);
      if (!stored.incoming) await this._db.put("outbox", signed);
      item = { ...signed, shown: item.shown };
      answer = await this._link.request("SendMessagePair", pairPayload(item), SEND_MS);
    } catch (problem) {
      const code = problem.closeCode === FRAME_TOO_LARGE ? "TOO_LARGE" : problem.code;
      if (!code || (problem.retryable && code !== "TOO_LARGE")) throw problem;
      await this._refused(item, code);
      return;
    }
    await this._accepted(item, answer.deliveryState);
    await this._db.remove("outbox", item.id);
    this._put(item.id, []);
    this._changed(item);
  }

  // A message that was refused stays, to be seen and sent again; of anything else there is nothing to be seen.
  async _refused(item, code) {
    this._refusedBy(item, code);
    await this.replace(this.items.find(({ id }) => id === item.id) ?? item, item.kind === "message" ? { code } : null);
  }

  // The item with both copies signed. Without `ask`, a message for somebody whose keys are not at hand stays as it is.
  async _signed(item, ask) {
    const { login: from, device } = this._identity;
    const { kind, to, timeMs, nonce, revisionMs } = item;
    if (item.incoming) return item;
    if (kind === "receipt" || kind === "tombstone") {
      const type = kind === "receipt" ? RECEIPT : TOMBSTONE;
      return { ...item, text: null, ...(await signReference(device, { from, to, timeMs }, type, item.baseKey)) };
    }
    const person = ask ? await this._people.current(item.peer) : await this._people.atHand(item.peer);
    if (!person) return item;
    const key = baseKey(from, to, timeMs, nonce);
    const readers = [newestDeviceKey(person), device.public];
    const bodies = await Promise.all(readers.map((reader) => seal(item.text, reader, key)));
    const pair = await signPair(device, { from, to, timeMs, nonce, revisionMs }, MESSAGE, SEALED, bodies);
    return { ...item, text: null, ...pair };
  }
}

// Waits so long, or until the signal.
async function rest(ms, signal) {
  let done;
  await new Promise((resolve) => {
    done = resolve;
    setTimeout(resolve, ms);
    signal.addEventListener("abort", resolve);
  });
  signal.removeEventListener("abort", done);
}
