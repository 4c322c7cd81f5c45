// What the core throws on purpose: a code for the program, a sentence for a person.

// Codes after which the same request may succeed later (PROTOCOL.md §2), and those of a link that is not there.
const RETRYABLE = new Set(["RATE_LIMITED", "SERVER_BUSY", "STORAGE_FULL", "INTERNAL_ERROR", "OFFLINE", "TIMED_OUT"]);

export class ChatError extends Error {
  // retryAfterMs: how long the server asks to wait; answered: whether it is the server's answer to this very request;
  // closeCode: of the WebSocket that ended before the answer; alone: whether no other request waited then.
  constructor(code, message = code, { retryAfterMs = 0, answered = false, closeCode = 0, alone = false } = {}) {
    super(message);
    this.name = "ChatError";
    this.code = code;
    this.retryAfterMs = retryAfterMs;
    this.answered = answered;
    this.closeCode = closeCode;
    this.alone = alone;
  }

  get retryable() {
    return RETRYABLE.has(this.code);
  }
}

// Bounds a wait: what is not there after `ms` is TIMED_OUT, and what comes later is dropped.
export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new ChatError("TIMED_OUT", `${what}: nothing within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
