// Access records: the signed text, and which device key counted when (PROTOCOL.md §3).

import { compare, equal, fromBase64, toBase64, utf8 } from "./bytes.js";
import { isCanonicalKey, isUsableKey } from "./curve.js";
import { ChatError } from "./errors.js";
import { verify } from "./keys.js";
import { isLogin, loginKey } from "./logins.js";

export function signedText(record) {
  return [
    "SHiNE/UserAccess:1",
    record.login,
    record.blockchainName,
    record.solanaKey,
    record.blockchainKey,
    record.deviceKey,
    String(record.accessServers.length),
    ...record.accessServers.map(({ serverLogin, url }) => `${serverLogin} ${url}`),
    String(record.timeMs),
  ].join("\n");
}

// The record of a new user, signed, as AddUser takes it.
export async function makeRecord({ login, root, device, blockchain }, accessServers, timeMs) {
  const record = {
    login,
    blockchainName: `${login}-001`,
    solanaKey: toBase64(root.public),
    blockchainKey: toBase64(blockchain.public),
    deviceKey: toBase64(device.public),
    accessServers,
    timeMs,
  };
  return { ...record, signatureB64: toBase64(await root.sign(utf8(signedText(record)))) };
}

const isLine = (value) => typeof value === "string" && !value.includes("\n");

function hasFields(record) {
  const { accessServers, timeMs } = record;
  return (
    isLogin(record.login) &&
    [record.blockchainName, record.solanaKey, record.blockchainKey, record.deviceKey, record.signatureB64].every(isLine) &&
    Array.isArray(accessServers) &&
    accessServers.every((server) => isLine(server?.serverLogin) && isLine(server?.url)) &&
    Number.isSafeInteger(timeMs) &&
    timeMs >= 0
  );
}

// Returns {timeMs, login, rootKey, deviceKey, signature} of a record that is what it says; throws otherwise.
// A record without a signature proves nothing and is refused like one with a wrong one. Superseded ones may be many, and
// nothing is sealed for their keys: the costly look at those is left out.
export async function checkRecord(record, { superseded = false } = {}) {
  const isGood = superseded ? isCanonicalKey : isUsableKey;
  const signature = hasFields(record) ? fromBase64(record.signatureB64) : null;
  if (!signature) throw new ChatError("BAD_SIGNATURE", "the access record is not signed");
  const keys = [record.solanaKey, record.deviceKey, record.blockchainKey].map(fromBase64);
  const [rootKey, deviceKey] = keys;
  if (!keys.every((key) => key && isGood(key))) {
    throw new ChatError("BAD_KEY_FORMAT", "a key of the access record is not usable");
  }
  if (!(await verify(rootKey, signature, utf8(signedText(record))))) {
    throw new ChatError("BAD_SIGNATURE", "the access record is not signed by its root key");
  }
  return { timeMs: record.timeMs, login: record.login, rootKey, deviceKey, signature };
}

// Checked records of one login, oldest first, each once: the newest timeMs is last, of two equal ones the greater signature.
export function ordered(records) {
  const sorted = [...records].sort((a, b) => a.timeMs - b.timeMs || compare(a.signature, b.signature));
  return sorted.filter((record, i) => !i || !equal(record.signature, sorted[i - 1].signature));
}

// The device key of the record in force at a time; before the first record, the first one's.
export function deviceKeyAt(records, timeMs) {
  return (records.findLast((record) => record.timeMs <= timeMs) ?? records[0]).deviceKey;
}

export function isOf(record, login) {
  return loginKey(String(record.login)) === loginKey(login);
}
