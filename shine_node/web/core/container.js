// The SHiNE_DM container, version 1: its bytes, its rules, and the pairs that a client makes (PROTOCOL.md §4).

import { compare, concat, fromUtf8, random, toBase64, utf8 } from "./bytes.js";
import { ChatError } from "./errors.js";
import { baseKey, exact, isLogin, loginKey, parseBaseKey } from "./logins.js";

export const MESSAGE = 1, RECEIPT = 3, TOMBSTONE = 5; // the recipient's copies; the sender's are one more
export const OPAQUE = 0, TEXT = 1, SEALED = 2, REFERENCE = 3;

const MAGIC = utf8("SHiNE_DM");
const SIGNATURE_BYTES = 64;
const AHEAD_MS = 15 * 60 * 1000;

function bad(reason) {
  return new ChatError("BAD_CONTAINER", reason);
}

// Every byte before the signature. Times may be numbers or BigInts.
export function encodeUnsigned({ to, from, timeMs, nonce, type, revisionMs = 0, format, body }) {
  const head = [MAGIC, Uint8Array.of(1, to.length), utf8(to), Uint8Array.of(from.length), utf8(from)];
  const middle = new DataView(new ArrayBuffer(27));
  middle.setBigUint64(0, BigInt(timeMs));
  middle.setUint32(8, nonce);
  middle.setUint16(12, type);
  middle.setBigUint64(14, BigInt(revisionMs));
  middle.setUint8(22, format);
  middle.setUint32(23, body.length);
  return concat(...head, new Uint8Array(middle.buffer), body);
}

// Reads fields one after the other; a field that is cut off is named.
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.offset = 0;
  }

  skip(length, field) {
    const start = this.offset;
    if (this.bytes.length - start < length) throw bad(`missing bytes: ${field}`);
    this.offset += length;
    return start;
  }

  take(length, field) {
    const start = this.skip(length, field);
    return this.bytes.subarray(start, start + length);
  }

  u8(field) { return this.view.getUint8(this.skip(1, field)); }
  u16(field) { return this.view.getUint16(this.skip(2, field)); }
  u32(field) { return this.view.getUint32(this.skip(4, field)); }
  u64(field) { return exact(this.view.getBigUint64(this.skip(8, field))); }

  login(field) {
    const text = fromUtf8(this.take(this.u8(field), field));
    if (!isLogin(text)) throw bad(`${field} is not a login`);
    return text;
  }
}

// The fields, checked in the order of the table; the first failure decides. The clock and the signature are not looked at.
export function parseContainer(blob, maxBodyBytes = Infinity) {
  const reader = new Reader(blob);
  if (compare(reader.take(8, "magic"), MAGIC)) throw bad("the magic is not SHiNE_DM");
  if (reader.u8("version") !== 1) throw bad("unknown version");
  const to = reader.login("toLogin"), from = reader.login("fromLogin");
  const timeMs = reader.u64("timeMs"), nonce = reader.u32("nonce"), type = reader.u16("messageType");
  if (type < 1 || type > 6) throw bad("unknown messageType");
  const revisionMs = reader.u64("revisionMs");
  if (revisionMs && type > 2) throw bad("a receipt or tombstone cannot be edited");
  if (revisionMs && revisionMs <= timeMs) throw bad("revisionMs is not after timeMs");
  const format = reader.u8("bodyFormat");
  if (format > REFERENCE) throw bad("unknown bodyFormat");
  if ((format === REFERENCE) !== type > 2) throw bad("this bodyFormat is not allowed for this messageType");
  const bodyLength = reader.u32("bodyLen");
  if (bodyLength > maxBodyBytes) throw new ChatError("TOO_LARGE", `the body is over ${maxBodyBytes} bytes`);
  const body = reader.take(bodyLength, "body");
  const text = format === TEXT || format === REFERENCE ? fromUtf8(body) : null;
  if (text === null && (format === TEXT || format === REFERENCE)) throw bad("the body is not valid UTF-8");
  const reference = format === REFERENCE ? readReference(text, from, to, type) : null;
  const signature = reader.take(SIGNATURE_BYTES, "signature");
  if (reader.offset !== blob.length) throw bad("bytes too many");
  const signed = blob.subarray(0, blob.length - SIGNATURE_BYTES);
  const key = baseKey(from, to, timeMs, nonce);
  return { to, from, timeMs, nonce, type, revisionMs, format, body, text, reference, signature, signed, baseKey: key };
}

function readReference(text, from, to, type) {
  const reference = parseBaseKey(text);
  if (!reference) throw bad("the reference is not a baseKey");
  const [author, reader] = type < TOMBSTONE ? [to, from] : [from, to]; // a receipt is about the other's message
  if (reference.from !== loginKey(author) || reference.to !== loginKey(reader)) {
    throw bad("the reference is not a message of these two users in this direction");
  }
  return { ...reference, baseKey: text };
}

export function checkClock({ timeMs, revisionMs }, nowMs) {
  if (timeMs > nowMs + AHEAD_MS || revisionMs > nowMs + AHEAD_MS) {
    throw new ChatError("BAD_FIELDS", "a time is ahead of the clock by more than 15 minutes");
  }
}

// The time whose device key counts (§3).
export function effectiveMs({ timeMs, revisionMs }) {
  return revisionMs > timeMs ? revisionMs : timeMs;
}

// Whether revision a of a copy replaces revision b: the later one, of two equal ones the greater signature.
export function replaces(a, b) {
  if (a.revisionMs !== b.revisionMs) return a.revisionMs > b.revisionMs;
  return compare(a.signature, b.signature) > 0;
}

export function newNonce() {
  return new DataView(random(4).buffer).getUint32(0);
}

// Both signed copies, as SendMessagePair takes them. `bodies` are those of the recipient's and the sender's copy.
export async function signPair(device, { from, to, timeMs, nonce, revisionMs = 0 }, type, format, bodies) {
  const sign = async (body, i) => {
    const unsigned = encodeUnsigned({ to, from, timeMs, nonce, type: type + i, revisionMs, format, body });
    return concat(unsigned, await device.sign(unsigned));
  };
  const [incoming, outgoing] = await Promise.all(bodies.map(sign));
  return { incoming, outgoing };
}

export function pairPayload({ incoming, outgoing }) {
  return { incomingBlobB64: toBase64(incoming), outgoingBlobB64: toBase64(outgoing) };
}

// A receipt or a tombstone: both copies name the same message.
export function signReference(device, { from, to, timeMs }, type, reference) {
  const body = utf8(reference);
  return signPair(device, { from, to, timeMs, nonce: newNonce() }, type, REFERENCE, [body, body]);
}
