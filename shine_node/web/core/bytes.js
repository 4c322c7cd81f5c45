// Bytes and their texts: UTF-8, hexadecimal, Base64 (RFC 4648 §4, strict) and the Base32 of recovery keys (§6, no padding).

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function utf8(text) {
  return encoder.encode(text);
}

// Returns null for bytes that are not valid UTF-8.
export function fromUtf8(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

// The order of bytes: below, equal to or above 0.
export function compare(a, b) {
  const shared = Math.min(a.length, b.length);
  for (let i = 0; i < shared; i++) {
    if (a[i] !== b[i]) return a[i] - b[i];
  }
  return a.length - b.length;
}

export function equal(a, b) {
  return compare(a, b) === 0;
}

export function random(length) {
  return crypto.getRandomValues(new Uint8Array(length));
}

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function toBase64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

// Returns null for what is not the one standard text of some bytes: atob alone would let spaces, missing padding and
// left-over bits through.
export function fromBase64(text) {
  if (typeof text !== "string") return null;
  let raw;
  try {
    raw = atob(text);
  } catch {
    return null;
  }
  const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
  return toBase64(bytes) === text ? bytes : null;
}

export function fromBase64Url(text) {
  const padded = text.replace(/-/g, "+").replace(/_/g, "/");
  return fromBase64(padded + "=".repeat((4 - (padded.length % 4)) % 4));
}

export function toBase32(bytes) {
  let text = "", value = 0, bits = 0;
  for (const byte of bytes) {
    value = ((value << 8) | byte) & 0xfff;
    bits += 8;
    for (; bits >= 5; bits -= 5) text += BASE32[(value >> (bits - 5)) & 31];
  }
  return bits ? text + BASE32[(value << (5 - bits)) & 31] : text;
}

// Takes any case, spaces and dashes. Returns null for anything else that toBase32 does not write.
export function fromBase32(text) {
  const clean = text.toUpperCase().replace(/[\s\p{Pd}]/gu, "");
  const bytes = [];
  let value = 0, bits = 0;
  for (const character of clean) {
    const digit = BASE32.indexOf(character);
    if (digit < 0) return null;
    value = ((value << 5) | digit) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push((value >> bits) & 255);
    }
  }
  return bits >= 5 || value & ((1 << bits) - 1) ? null : Uint8Array.from(bytes);
}
