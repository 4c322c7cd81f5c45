// A person's keys: three seeds from one secret, Ed25519 through WebCrypto, and the recovery key as text.

import { concat, equal, fromBase32, fromBase64Url, random, sha256, toBase32, toHex, utf8 } from "./bytes.js";
import { isCanonicalKey, isReducedScalar, isSmallOrder } from "./curve.js";
import { ChatError } from "./errors.js";
import { isLogin, loginKey } from "./logins.js";

const SECRET_BYTES = 32;
const CHECKSUM_BYTES = 4;
const RECOVERY_LABEL = "SHiNE/Recovery:1";
const REMEMBERED = 256;

// What stands before a raw secret in PKCS #8 (RFC 8410); the last byte of the name tells the algorithms apart.
export function pkcs8(algorithm, secret) {
  const name = algorithm === "X25519" ? 0x6e : 0x70;
  return concat(Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, name, 4, 0x22, 4, 0x20), secret);
}

// The public key of a raw secret: WebCrypto tells it only by an export.
export async function publicOf(algorithm, secret) {
  const usages = algorithm === "X25519" ? ["deriveBits"] : ["sign"];
  const key = await crypto.subtle.importKey("pkcs8", pkcs8(algorithm, secret), algorithm, true, usages);
  return fromBase64Url((await crypto.subtle.exportKey("jwk", key)).x);
}

// An Ed25519 key pair of a 32-byte seed.
export class KeyPair {
  static async fromSeed(seed) {
    const pair = new KeyPair();
    pair.seed = seed;
    pair.public = await publicOf("Ed25519", seed);
    pair.key = await crypto.subtle.importKey("pkcs8", pkcs8("Ed25519", seed), "Ed25519", false, ["sign"]);
    return pair;
  }

  async sign(bytes) {
    return new Uint8Array(await crypto.subtle.sign("Ed25519", this.key, bytes));
  }
}

const imported = new Map(); // hex of a public key → its CryptoKey

// As libsodium checks (PROTOCOL.md, head): browsers leave out some of these rules.
export async function verify(publicKey, signature, bytes) {
  if (signature.length !== 64 || !isCanonicalKey(publicKey)) return false;
  if (isSmallOrder(signature.subarray(0, 32)) || !isReducedScalar(signature.subarray(32))) return false;
  const name = toHex(publicKey);
  try {
    let key = imported.get(name);
    if (!key) {
      key = await crypto.subtle.importKey("raw", publicKey, "Ed25519", false, ["verify"]);
      if (imported.size >= REMEMBERED) imported.delete(imported.keys().next().value);
      imported.set(name, key);
    }
    return await crypto.subtle.verify("Ed25519", key, signature, bytes);
  } catch {
    return false; // a key that is no point
  }
}

export async function hkdf(secret, salt, info, length) {
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const parameters = { name: "HKDF", hash: "SHA-256", salt, info: utf8(info) };
  return new Uint8Array(await crypto.subtle.deriveBits(parameters, key, 8 * length));
}

// Returns {login, secret, root, device, blockchain}: a person as its own devices know it.
export async function identityOf(login, secret) {
  const pair = async (name) =>
    KeyPair.fromSeed(await hkdf(secret, new Uint8Array(), `${RECOVERY_LABEL}/${name}`, SECRET_BYTES));
  const [root, device, blockchain] = await Promise.all(["root", "device", "blockchain"].map(pair));
  return { login, secret, root, device, blockchain };
}

export function newSecret() {
  return random(SECRET_BYTES);
}

async function checksum(login, secret) {
  return (await sha256(concat(utf8(RECOVERY_LABEL + loginKey(login)), secret))).subarray(0, CHECKSUM_BYTES);
}

// The login, a colon, then secret and checksum in groups of 4, as the command line's client writes it too.
export async function recoveryText(login, secret) {
  const text = toBase32(concat(secret, await checksum(login, secret)));
  return `${login}:${text.match(/.{1,4}/g).join("-")}`;
}

// Returns {login, secret}; throws BAD_RECOVERY_KEY for what no recoveryText has made.
export async function readRecoveryText(text) {
  const clean = text.replace(/\s/g, ""), colon = clean.indexOf(":"), login = clean.slice(0, Math.max(colon, 0));
  const bytes = isLogin(login) ? fromBase32(clean.slice(colon + 1)) : null;
  if (bytes?.length === SECRET_BYTES + CHECKSUM_BYTES) {
    const secret = bytes.slice(0, SECRET_BYTES);
    if (equal(bytes.subarray(SECRET_BYTES), await checksum(login, secret))) return { login, secret };
  }
  throw new ChatError("BAD_RECOVERY_KEY", "this is no recovery key, or a character of it is wrong or missing");
}

// Throws NOT_SECURE where this browser cannot do what the chat needs.
export async function checkBrowser() {
  if (!globalThis.crypto?.subtle) {
    throw new ChatError("NOT_SECURE", "the page must be opened by https:// or on this machine itself");
  }
  try {
    await publicOf("Ed25519", new Uint8Array(SECRET_BYTES));
    await publicOf("X25519", new Uint8Array(SECRET_BYTES).fill(64));
  } catch {
    throw new ChatError("NOT_SECURE", "this browser is too old: it does not know Ed25519 and X25519");
  }
}
