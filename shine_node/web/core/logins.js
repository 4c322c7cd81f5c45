// Logins and the keys of messages (PROTOCOL.md §1, §4).

const LOGIN = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,29}$/;
const LOWER_LOGIN = /^[a-z0-9][a-z0-9_.-]{0,29}$/;
const SERVER_URL = /^wss?:\/\/[\x21-\x7e]+$/;
const DECIMAL = /^(0|[1-9][0-9]{0,19})$/;
const U32 = 2n ** 32n - 1n;
const U64 = 2n ** 64n - 1n;

export function isLogin(text) {
  return typeof text === "string" && LOGIN.test(text);
}

// An address as an access record can name it (PROTOCOL.md §3).
export function isServerUrl(text) {
  return typeof text === "string" && text.length <= 256 && SERVER_URL.test(text);
}

// The form in which logins are compared.
export function loginKey(login) {
  return login.toLowerCase();
}

// A number where that is exact, else a BigInt: the two compare exactly with each other.
export function exact(value) {
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

// Logins in any case.
export function baseKey(from, to, timeMs, nonce) {
  return `${loginKey(from)}|${loginKey(to)}|${timeMs}|${nonce}`;
}

function decimal(text, greatest) {
  if (!DECIMAL.test(text)) return null;
  const value = BigInt(text);
  return value <= greatest ? exact(value) : null;
}

// {from, to, timeMs, nonce} of a baseKey as a reference writes it, or null.
export function parseBaseKey(text) {
  const parts = text.split("|");
  if (parts.length !== 4 || !LOWER_LOGIN.test(parts[0]) || !LOWER_LOGIN.test(parts[1])) return null;
  const timeMs = decimal(parts[2], U64), nonce = decimal(parts[3], U32);
  return timeMs === null || nonce === null ? null : { from: parts[0], to: parts[1], timeMs, nonce };
}
