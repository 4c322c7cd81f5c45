// One WebSocket to the page's own server: requests matched by requestId, events, a bound on every wait, and reconnects.

import { ChatError, within } from "./errors.js";

const CONNECT_MS = 15000;
const REQUEST_MS = 30000;
const IDLE_MS = 45000; // without a frame for so long the server is pinged: a phone's network dies without a word
const PONG_MS = 10000;
const LOOK_MS = 100;
const QUIET_LOOKS = 3; // in a row: one request often follows another
const MOST_LOOKS = 100;
const STEADY_MS = 30000; // a connection that has lasted so long ends the row of failed ones
const PAUSES_MS = [1000, 2000, 5000, 10000, 20000, 40000, 60000];

export const SESSION_CLOSED = 1008;

// The pause before try number n, with full jitter in its upper half.
export function pauseMs(n, chance = Math.random()) {
  const longest = PAUSES_MS[Math.min(n, PAUSES_MS.length - 1)];
  return longest / 2 + (chance * longest) / 2;
}

// Dispatches "state" (of `state`: "none", "connecting", "online", "offline") and "event" (detail: {op, payload}).
// introduce(exchange): called on each new connection before it is online. refused(problem): it has failed finally, or the
// session was closed; returns whether to stay offline until again().
export class Link extends EventTarget {
  constructor(url, { introduce, refused }) {
    super();
    this.url = url;
    this.state = "none";
    this.since = Date.now();
    this._introduce = introduce;
    this._refused = refused;
    this._pending = new Map();
    this._lastId = 0;
    this._tries = 0;
    this._wanted = false;
    this._held = false; // offline until a person decides otherwise
    this._wake = () => this.wake();
    this._doubt = () => this.online && this._ping();
  }

  get online() {
    return this.state === "online";
  }

  // Begins to connect, and stays connected until stop().
  start() {
    if (this._wanted) return;
    this._wanted = true;
    this._held = false;
    globalThis.addEventListener?.("online", this._wake);
    globalThis.addEventListener?.("offline", this._doubt);
    globalThis.document?.addEventListener("visibilitychange", this._wake);
    this._connect();
  }

  stop() {
    this._wanted = false;
    clearTimeout(this._retry);
    globalThis.removeEventListener?.("online", this._wake);
    globalThis.removeEventListener?.("offline", this._doubt);
    globalThis.document?.removeEventListener("visibilitychange", this._wake);
    this._lose(1000);
    this._become("none");
  }

  // The network or the person is back: no more waiting, and a connection that only seems to be there is found out.
  wake() {
    if (!this._wanted || this._held || globalThis.document?.visibilityState === "hidden") return;
    this._tries = 0; // should a try that is under way fail, it began before
    if (this.state === "offline") {
      clearTimeout(this._retry);
      this._connect();
    } else if (this.state === "online") this._ping();
  }

  // Ends the present connection and begins a new one, for instance as somebody else.
  again() {
    if (!this._wanted) return;
    clearTimeout(this._retry);
    this._held = false;
    this._tries = 0;
    this._lose(1000);
    this._connect();
  }

  // Resolves once online; rejects with OFFLINE after `ms`.
  async ready(ms) {
    if (this.online) return;
    let settle;
    const there = new Promise((resolve) => {
      settle = () => this.online && resolve();
      this.addEventListener("state", settle);
    });
    this.wake();
    try {
      await within(ms, there, "connection");
    } catch {
      throw new ChatError("OFFLINE", "the server cannot be reached");
    } finally {
      this.removeEventListener("state", settle);
    }
  }

  // Returns the payload of a success; throws a ChatError with the server's code, OFFLINE or TIMED_OUT.
  async request(op, payload = {}, ms = REQUEST_MS) {
    if (!this.online) throw new ChatError("OFFLINE", "there is no connection");
    return this.exchange(op, payload, ms);
  }

  // The same on a connection that has not been introduced yet.
  async exchange(op, payload = {}, ms = REQUEST_MS) {
    const socket = this._socket;
    if (socket?.readyState !== WebSocket.OPEN) throw new ChatError("OFFLINE", "there is no connection");
    const requestId = String(++this._lastId);
    const answered = new Promise((resolve, reject) => this._pending.set(requestId, { resolve, reject }));
    try {
      socket.send(JSON.stringify({ op, requestId, payload }));
      return await within(ms, answered, op);
    } finally {
      this._pending.delete(requestId);
    }
  }

  // Resolves once nothing waits for an answer, or after some seconds all the same.
  async quiet() {
    for (let looks = 0, quiet = 0; this.online && looks < MOST_LOOKS && quiet < QUIET_LOOKS; looks++) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      quiet = this._pending.size ? 0 : quiet + 1;
    }
  }

  _connect() {
    this._become("connecting");
    let socket;
    try {
      socket = new WebSocket(this.url);
    } catch {
      this._later();
      return;
    }
    this._socket = socket;
    const current = () => this._socket === socket;
    const tooLate = setTimeout(() => current() && this._dropped(0), CONNECT_MS);
    socket.onopen = async () => {
      try {
        await this._introduce((...request) => this.exchange(...request));
      } catch (problem) {
        clearTimeout(tooLate);
        if (!current()) return;
        const stays = !problem.retryable && this._refused(problem);
        this._dropped(0, stays);
        return;
      }
      clearTimeout(tooLate);
      if (!current()) return;
      this._watch();
      this._become("online");
    };
    socket.onmessage = ({ data }) => current() && this._take(data);
    socket.onclose = ({ code, reason }) => {
      clearTimeout(tooLate);
      if (!current()) return;
      const stays = code === SESSION_CLOSED && this._refused(new ChatError("SESSION_CLOSED", reason));
      this._dropped(code, stays);
    };
  }

  _dropped(code, stays = false) {
    if (this.online && Date.now() - this.since > STEADY_MS) this._tries = 0;
    this._lose(code);
    this._held = stays;
    if (stays) this._become("offline");
    else if (this._wanted) this._later();
  }

  _later() {
    this._become("offline");
    this._retry = setTimeout(() => this._connect(), pauseMs(this._tries++));
  }

  // Lets go of the socket; what waits for an answer fails, and whether the server took it is not known.
  _lose(closeCode) {
    clearTimeout(this._idle);
    const socket = this._socket;
    this._socket = null;
    socket?.close();
    const waiting = [...this._pending.values()];
    this._pending.clear();
    const alone = waiting.length === 1;
    for (const { reject } of waiting) reject(new ChatError("OFFLINE", "the connection was lost", { closeCode, alone }));
  }

  _take(data) {
    this._watch();
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return;
    }
    if (frame?.event === true) {
      this.dispatchEvent(new CustomEvent("event", { detail: { op: frame.op, payload: frame.payload ?? {} } }));
      return;
    }
    const waiting = this._pending.get(frame?.requestId);
    if (!waiting) return; // it was given up meanwhile
    const payload = frame.payload ?? {};
    if (frame.ok === true) waiting.resolve(payload);
    else {
      const code = typeof frame.error === "string" ? frame.error : "INTERNAL_ERROR";
      waiting.reject(new ChatError(code, frame.message, { answered: true, retryAfterMs: Number(payload.retryAfterMs) || 0 }));
    }
  }

  _watch() {
    clearTimeout(this._idle);
    this._idle = setTimeout(() => this._ping(), IDLE_MS);
  }

  async _ping() {
    const socket = this._socket;
    try {
      await this.exchange("Ping", {}, PONG_MS);
    } catch (problem) {
      if (problem.code === "TIMED_OUT" && socket && socket === this._socket) this._dropped(0);
    }
  }

  _become(state) {
    if (this.state === state) return;
    this.state = state;
    this.since = Date.now();
    this.dispatchEvent(new Event("state"));
  }
}
