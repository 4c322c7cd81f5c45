// What a copy says: checked with the sender's key of its time, and opened.

import { fromBase64 } from "./bytes.js";
import { effectiveMs, parseContainer, SEALED, TEXT } from "./container.js";
import { verify } from "./keys.js";
import { loginKey } from "./logins.js";
import { open } from "./seal.js";

const BAD = { text: null, problem: "bad-signature" };

// An entry of a chat, as history.js holds it: {baseKey, out, timeMs, nonce, revisionMs, signature, blob, deleted,
// deliveryState, text, problem}. A `row` is the same without text and problem: what is stored, and what a server lists.

// The row of an entry of GetDirectMessages or ListDialogs; null for one that is none.
export function rowOf(listed) {
  const nonce = Number(String(listed?.baseKey).split("|")[3]);
  const blob = listed?.deleted ? null : fromBase64(listed?.blobB64);
  if (!Number.isSafeInteger(listed?.timeMs) || !Number.isSafeInteger(nonce) || !(blob || listed.deleted)) return null;
  return {
    baseKey: listed.baseKey,
    out: listed.direction === "out",
    timeMs: listed.timeMs,
    nonce,
    revisionMs: listed.revisionMs,
    blob,
    deleted: listed.deleted === true,
    deliveryState: listed.deliveryState ?? null,
  };
}

// The row of a message's copy that came by itself.
export function rowOfCopy(container, blob, deliveryState = null) {
  const { baseKey, timeMs, nonce, revisionMs, type } = container;
  return { baseKey, out: type === 2, timeMs, nonce, revisionMs, blob, deleted: false, deliveryState };
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

  // The entry of a row.
  async entry(row, peer) {
    if (row.deleted) return { ...row, signature: null, text: null, problem: null };
    let container;
    try {
      container = await this.container(row.blob, peer);
    } catch (problem) {
      return { ...row, signature: null, text: null, problem: problem.code ?? "INTERNAL_ERROR" }; // the keys are not to be had now
    }
    if (!container || container.baseKey !== row.baseKey || (container.type === 2) !== row.out) {
      return { ...row, signature: null, ...BAD };
    }
    const { revisionMs, signature } = container;
    return { ...row, revisionMs, signature, ...(await this.text(container)) };
  }

  // {text, problem} of a message's container.
  async text({ format, text, body, baseKey }) {
    if (format === TEXT) return { text, problem: null };
    if (format !== SEALED) return { text: null, problem: "not-text" };
    const opened = await open(body, this._identity.device, baseKey);
    return { text: opened, problem: opened === null ? "sealed-for-another-key" : null };
  }
}
