// What is made of untrusted text before it is shown: cut, folded, counted. Pure; the result is still shown as text only.

export const FOLD_CHARACTERS = 1500;
export const FOLD_LINES = 24;

/** The most bytes of UTF-8 that fit into a body of 64 KiB once it is sealed (61 bytes more, §4.1). */
export const MOST_BYTES = 65536 - 61;

export const LOGIN = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,29}$/;

// Never between the two halves of a character, and at a space where one is near.
function cut(text, at) {
  const space = text.slice(0, at).search(/\s\S{0,60}$/);
  if (space > at / 2) return text.slice(0, space);
  const last = text.charCodeAt(at - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? at - 1 : at);
}

/** The beginning of a very long text, or null where the text is short enough to be shown whole. */
export function folded(text) {
  let end = text.length;
  for (let at = -1, lines = 0; (at = text.indexOf("\n", at + 1)) >= 0; ) {
    lines += 1;
    if (lines === FOLD_LINES) {
      end = at;
      break;
    }
  }
  if (end > FOLD_CHARACTERS) return cut(text, FOLD_CHARACTERS);
  return end < text.length ? text.slice(0, end) : null;
}

/** One line of at most `most` characters. */
export function excerpt(text, most = 140) {
  const line = text.slice(0, most * 4).replace(/\s+/g, " ").trim();
  return line.length > most ? `${cut(line, most)}…` : line;
}

/** Whether nothing in the text can be seen: only spaces, controls and characters of no width. */
export function isInvisible(text) {
  return !/[^\s\p{C}\p{Z}\p{M}\u115f\u1160\u3164\uffa0\u2800]/u.test(text);
}

const encoder = new TextEncoder();

export function byteLength(text) {
  return encoder.encode(text).length;
}

/** One of eight colours for a login, always the same one. */
export function hueOf(login) {
  let sum = 0;
  for (const character of login.toLowerCase()) sum = (sum * 31 + character.codePointAt(0)) % 65521;
  return sum % 8;
}

/** The sign on the avatar. */
export function initialOf(login) {
  return (String.fromCodePoint(login.codePointAt(0) ?? 63) || "?").toUpperCase();
}
