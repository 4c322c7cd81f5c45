// What a copy says: checked with the sender's key of its time, and opened.

import { fromBase64 } from "./bytes.js";
import { effectiveMs, parseContainer, SEALED, TEXT } from "./container.js";
import { verify } from "./keys.js";
import { loginKey, parseBaseKey } from "./logins.js";
import { open } from "./seal.js";

const BAD = "bad-signature";
const STATES = new Set(["accepted", "delivered", "failed"]);

// An entry of a chat, as history.js holds it: {baseKey, out, timeMs, nonce, revisionMs, signature, blob, deleted,
// deliveryState, text, problem, edited (false: this device knows that its newer revision says the same)}. A `row` is the
// same without text and problem: what is stored, and what a server lists.

// One of the delivery states, or null for what is none.
export function deliveryOf(state) {
  return STATES.has(state) ? state : null;
}

// The row of an entry of GetDirectMessages or ListDialogs in the chat of `own` (a login) with `peer` (its key); null for
// one that is none. Whose message it is and of when says its key, which the container must have too; of what the server
// says beside that only the delivery state is taken. `mismatch`: it says something else.
export function rowOf(listed, own, peer) {
  const baseKey = String(listed?.baseKey), key = parseBaseKey(baseKey), me = loginKey(own);
  const deleted = listed?.deleted === true, blob = deleted ? null : fromBase64(listed?.blobB64);
  if (!key || !Number.isSafeInteger(key.timeMs) || !(blob || deleted)) return null;
  const out = key.from === me;
  if (out ? key.to !== peer : key.from !== peer || key.to !== me) return null;
  const { timeMs, nonce } = key;
  const mismatch = listed.timeMs !== timeMs || (listed.direction === "out") !== out;
  const deliveryState = out ? deliveryOf(listed.deliveryState) : null;
  return { baseKey, out, timeMs, nonce, revisionMs: 0, blob, deleted, deliveryState, mismatch };
}

// The row of a message's copy that came by itself.
export function rowOfCopy(container, blob, deliveryState = null) {
  const { baseKey, timeMs, nonce, revisionMs, type } = container;
  return { baseKey, out: type === 2, timeMs, nonce, revisionMs, blob, deleted: false, deliveryState: deliveryOf(deliveryState) };
}

export class Reader {
  constructor({ people, identity }) {
    this._people = people;
    this._identity = identity; // the owner, as identityOf returns it
  }

  // The container of a copy that belongs to the chat with `peer` and is signed by its sender; null where it is not.
  async container(blob, peer) {
    let container;
    try {
      container = parseContainer(blob);
    } catch {
      return null;
    }
    const own = loginKey(this._identity.login), from = loginKey(container.from), to = loginKey(container.to);
    const incoming = container.type % 2 === 1;
    if (incoming ? from !== peer || to !== own : from !== own || to !== peer) return null;
    const isSignedBy = (key) => verify(key, container.signature, container.signed);
    if (from === own && (await isSignedBy(this._identity.device.public))) return container; // nobody need be asked
    return (await this._people.verifiedBy(from, effectiveMs(container), isSignedBy)) ? container : null;
  }

  // The entry of a row: its time and revision are the container's. Without a signature it is not proven.
  async entry({ mismatch = false, ...row }, peer) {
    if (row.deleted) return { ...row, signature: null, text: null, problem: null };
    const unproven = (problem) => ({ ...row, revisionMs: 0, signature: null, text: null, problem });
    let container;
    try {
      container = await this.container(row.blob, peer);
    } catch (problem) {
      return unproven(problem.code ?? "INTERNAL_ERROR"); // the keys are not to be had now
    }
    if (mismatch || !container || container.baseKey !== row.baseKey || (container.type === 2) !== row.out) return unproven(BAD);
    const { timeMs, nonce, revisionMs, signature } = container;
    return { ...row, timeMs, nonce, revisionMs, signature, ...(await this.text(container)) };
  }

  // {text, problem} of a message's container; `plain`: no server on its way was kept from reading it.
  async text({ format, text, body, baseKey }) {
    if (format === TEXT) return { text, problem: null, plain: true };
    if (format !== SEALED) return { text: null, problem: "not-text" };
    const opened = await open(body, this._identity.device, baseKey);
    return { text: opened, problem: opened === null ? "sealed-for-another-key" : null };
  }
}
