// Bodies that only the reader can open (PROTOCOL.md §4.1).

import { concat, fromUtf8, random, utf8 } from "./bytes.js";
import { isCanonicalKey, montgomerySecret, toMontgomery } from "./curve.js";
import { ChatError } from "./errors.js";
import { hkdf, pkcs8, publicOf } from "./keys.js";

const VERSION = 1;
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const HEAD_BYTES = 1 + KEY_BYTES + IV_BYTES;
const INFO = "SHiNE/Sealed:1";

// How many bytes a sealed body has more than its text.
export const SEAL_BYTES = HEAD_BYTES + TAG_BYTES;

async function sharedSecret(secret, publicKey) {
  const own = await crypto.subtle.importKey("pkcs8", pkcs8("X25519", secret), "X25519", false, ["deriveBits"]);
  const other = await crypto.subtle.importKey("raw", publicKey, "X25519", false, []);
  const shared = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: other }, own, 8 * KEY_BYTES));
  if (shared.every((byte) => byte === 0)) throw new ChatError("BAD_KEY_FORMAT", "the shared secret is all zeros");
  return shared;
}

async function bodyKey(shared, ephemeral, reader, usage) {
  const key = await hkdf(shared, concat(ephemeral, reader), INFO, KEY_BYTES);
  return crypto.subtle.importKey("raw", key, "AES-GCM", false, [usage]);
}

const parameters = (iv, baseKey) => ({ name: "AES-GCM", iv, additionalData: utf8(baseKey), tagLength: 8 * TAG_BYTES });

// deviceKey: the reader's public Ed25519 key. The last two are random; a test gives them.
export async function seal(text, deviceKey, baseKey, ephemeralSecret = random(KEY_BYTES), iv = random(IV_BYTES)) {
  if (!isCanonicalKey(deviceKey)) throw new ChatError("BAD_KEY_FORMAT", "the reader's key is not usable");
  const reader = toMontgomery(deviceKey);
  const ephemeral = await publicOf("X25519", ephemeralSecret);
  const key = await bodyKey(await sharedSecret(ephemeralSecret, reader), ephemeral, reader, "encrypt");
  const sealed = await crypto.subtle.encrypt(parameters(iv, baseKey), key, utf8(text));
  return concat(Uint8Array.of(VERSION), ephemeral, iv, new Uint8Array(sealed));
}

// The text, or null: it was sealed for another key or another message, or it is broken.
export async function open(body, device, baseKey) {
  if (body.length < SEAL_BYTES || body[0] !== VERSION) return null;
  const ephemeral = body.subarray(1, 1 + KEY_BYTES), iv = body.subarray(1 + KEY_BYTES, HEAD_BYTES);
  try {
    const secret = (device.exchange ??= await montgomerySecret(device.seed));
    const shared = await sharedSecret(secret, ephemeral);
    const key = await bodyKey(shared, ephemeral, toMontgomery(device.public), "decrypt");
    return fromUtf8(new Uint8Array(await crypto.subtle.decrypt(parameters(iv, baseKey), key, body.subarray(HEAD_BYTES))));
  } catch {
    return null; // a wrong tag, or a shared secret of zeros
  }
}
