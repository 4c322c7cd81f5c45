// The arithmetic that WebCrypto lacks: which Ed25519 keys are usable, and their images as X25519 keys (RFC 7748 §4.1).

const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const ROOT_OF_MINUS_ONE = 19681161376707505956807079304988542015446066515923890162744021073123829784752n;

// The y of the points whose order divides 8; with any sign, and P and P + 1 in place of 0 and 1, these are the
// encodings that libsodium refuses as keys and as R.
const ORDER_8_Y = 2707385501144840649318225287225658788936804267575313519463743609750303402022n;
const SMALL_ORDER_Y = new Set([0n, 1n, P - 1n, P, P + 1n, ORDER_8_Y, P - ORDER_8_Y]);

const mod = (a) => ((a % P) + P) % P;

function power(base, exponent) {
  let result = 1n;
  for (let square = base; exponent; exponent >>= 1n, square = (square * square) % P) {
    if (exponent & 1n) result = (result * square) % P;
  }
  return result;
}

function fromLittleEndian(bytes) {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[i]);
  return value;
}

function toLittleEndian(value) {
  return Uint8Array.from({ length: 32 }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));
}

const yOf = (bytes) => fromLittleEndian(bytes) & ((1n << 255n) - 1n);

export function isSmallOrder(bytes) {
  return SMALL_ORDER_Y.has(yOf(bytes));
}

// A key that a signature may be checked with: 32 bytes, written in the one canonical way, and not of small order.
export function isCanonicalKey(bytes) {
  return bytes.length === 32 && yOf(bytes) < P && !isSmallOrder(bytes);
}

// What PROTOCOL.md asks of a key in a record: it also is a point of the prime-order group. Some milliseconds.
export function isUsableKey(bytes) {
  if (!isCanonicalKey(bytes)) return false;
  const y = yOf(bytes);
  const x = recoverX(y, bytes[31] >> 7);
  return x !== null && isNeutral(times(L, [x, y, 1n, (x * y) % P]));
}

// u = (1 + y) / (1 - y); the key must be canonical.
export function toMontgomery(publicKey) {
  const y = yOf(publicKey);
  return toLittleEndian((mod(1n + y) * power(mod(1n - y), P - 2n)) % P);
}

// The X25519 secret of an Ed25519 seed: the first half of its SHA-512, clamped.
export async function montgomerySecret(seed) {
  const secret = new Uint8Array(await crypto.subtle.digest("SHA-512", seed)).slice(0, 32);
  secret[0] &= 248;
  secret[31] = (secret[31] & 127) | 64;
  return secret;
}

// Whether S, the second half of a signature, is below the group order.
export function isReducedScalar(bytes) {
  return fromLittleEndian(bytes) < L;
}

function recoverX(y, sign) {
  const square = (y * y) % P;
  const u = mod(square - 1n), v = mod(D * square + 1n);
  const v3 = (((v * v) % P) * v) % P;
  let x = (((u * v3) % P) * power((((u * v3) % P) * ((v3 * v) % P)) % P, (P - 5n) / 8n)) % P;
  const found = (((v * x) % P) * x) % P;
  if (found === mod(-u)) x = (x * ROOT_OF_MINUS_ONE) % P;
  else if (found !== u) return null;
  if (x === 0n && sign) return null;
  return (x & 1n) === BigInt(sign) ? x : P - x;
}

// Twisted Edwards addition in extended coordinates (RFC 8032 §5.1.4); complete, so that it doubles too.
function add([x1, y1, z1, t1], [x2, y2, z2, t2]) {
  const a = mod(y1 - x1) * mod(y2 - x2) % P, b = (y1 + x1) * (y2 + x2) % P;
  const c = (2n * t1 * D % P) * t2 % P, d = 2n * z1 * z2 % P;
  const e = mod(b - a), f = mod(d - c), g = (d + c) % P, h = (b + a) % P;
  return [e * f % P, g * h % P, f * g % P, e * h % P];
}

function times(scalar, point) {
  let result = [0n, 1n, 1n, 0n];
  for (let double = point; scalar; scalar >>= 1n, double = add(double, double)) {
    if (scalar & 1n) result = add(result, double);
  }
  return result;
}

const isNeutral = ([x, y, z]) => x === 0n && y === z;
