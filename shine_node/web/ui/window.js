// Which part of a long chat is in the page. Pure: a window is {start, end} over a list of `count` messages.

/** The most messages that are in the page at once. */
export const MOST = 150;
/** How many come in at an edge at a time. */
export const STEP = 50;

/** The newest ones. */
export function newest(count) {
  return { start: Math.max(0, count - MOST), end: count };
}

/** A step back; what is too much then goes away at the new end. */
export function older({ start, end }) {
  const from = Math.max(0, start - STEP);
  return { start: from, end: Math.min(end, from + MOST) };
}

/** A step forward; what is too much then goes away at the old end. */
export function newer({ start, end }, count) {
  const to = Math.min(count, end + STEP);
  return { start: Math.max(start, to - MOST), end: to };
}

/** With the message `at` in its middle. */
export function around(at, count) {
  const start = Math.max(0, Math.min(at - Math.floor(MOST / 2), count - MOST));
  return { start, end: Math.min(count, start + MOST) };
}

/**
 * The same messages after the list has changed: `at` is where the first one is now. One that showed the newest message
 * takes in the new ones as long as there is room: what is being read stays.
 */
export function moved({ start, end }, at, { hadNewest, count }) {
  return { start: at, end: Math.min(count, at + (hadNewest ? MOST : Math.max(end - start, STEP))) };
}
