// Stands in for core/chat.js in the tests of the UI: the same door, everything in memory, and handles to turn.
// `globalThis.scenario` says how it begins; `globalThis.standIn` is the object, for the test to do things with.

export class ChatError extends Error {
  constructor(code, message = code) {
    super(message);
    this.code = code;
  }
}

const DEFAULTS = {
  secure: true, login: "alice", link: "online", problem: null, registration: "open", chats: {}, users: [], page: 50,
  settings: {}, delay: 0, failing: {}, unsent: { messages: 0, drafts: 0 }, sessions: null, blocked: [], openFails: null, description: "A server for tests", long: {},
};

const copy = (value) => JSON.parse(JSON.stringify(value));

export class Chat extends EventTarget {
  constructor(options) {
    super();
    this.options = options;
    this.scenario = { ...DEFAULTS, ...(globalThis.scenario ?? {}) };
    this.calls = [];
    this.busy = 0;
    this.reads = [];
    this.drafts = new Map();
    this.settings = new Map(Object.entries(this.scenario.settings));
    this.histories = new Map(); // all that there is with a peer, oldest first
    this.loaded = new Map(); // how many of them, the newest, are here
    this.nonce = 0;
    this.account = null;
    this.link = "none";
    this.since = 0;
    this.problem = null;
    globalThis.standIn = this;
  }

  get secure() { return this.scenario.secure; }
  get state() { return { account: this.account, link: this.link, since: this.since, problem: this.problem }; }

  emit(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })); }

  // `busy` says how many answers are on their way.
  async pause() {
    this.busy += 1;
    await new Promise((resolve) => setTimeout(resolve, this.scenario.delay));
    this.busy -= 1;
  }

  async act(name, ...given) {
    this.calls.push([name, ...given]);
    await this.pause();
    const code = this.scenario.failing[name];
    if (code) throw new ChatError(code);
  }

  async open() {
    await this.pause();
    if (this.scenario.openFails) throw new ChatError(this.scenario.openFails);
    for (const [peer, messages] of Object.entries(this.scenario.chats)) {
      this.histories.set(peer, messages.map((one) => this.make(peer, one)));
      this.loaded.set(peer, 0);
    }
    for (const [peer, { count, unread = 0 }] of Object.entries(this.scenario.long)) this.makeLong(peer, count, unread);
    if (this.scenario.login) this.account = { login: this.scenario.login };
    this.link = this.account ? this.scenario.link : "none";
    this.problem = this.scenario.problem;
    this.since = Date.now();
  }

  make(peer, given) {
    this.nonce += 1;
    const timeMs = given.timeMs ?? Date.now() - 60000 + this.nonce;
    return {
      key: `${given.out ? "alice" : peer}|${given.out ? peer : "alice"}|${timeMs}|${this.nonce}`, peer, out: false, text: "", timeMs,
      revisionMs: 0, edited: false, deleted: false, read: !given.out, state: given.out ? "delivered" : null, problem: null, ...given,
    };
  }

  makeLong(peer, count, unread) {
    const start = Date.now() - count * 60000;
    const history = [];
    for (let at = 0; at < count; at += 1) {
      const out = at % 3 === 0;
      history.push(this.make(peer, { out, text: `message ${at}${"\nline".repeat(at % 4)}`, timeMs: start + at * 60000, read: at < count - unread }));
    }
    this.histories.set(peer, history);
    this.loaded.set(peer, 0);
  }

  async waiting() {
    return null;
  }

  async serverInfo() {
    await this.act("serverInfo");
    return { serverLogin: "node.example", description: this.scenario.description, registration: this.scenario.registration };
  }

  async register({ login, token }) {
    await this.act("register", login, token);
    if (this.scenario.registration === "token" && token !== "welcome") throw new ChatError("REGISTRATION_CLOSED");
    this.logIn(login);
    return { recoveryKey: this.recoveryKey() };
  }

  async recover(key) {
    await this.act("recover", key);
    if (!/^\s*\w+ /.test(key)) throw new ChatError("BAD_RECOVERY_KEY");
    this.logIn(key.trim().split(/\s/)[0]);
  }

  logIn(login) {
    this.account = { login };
    this.setLink("online");
  }

  recoveryKey() { return `${this.account.login} A7QK 2MZP X4TD 9WEB LN3R UVC6 H8YS GJ5F K2QA 7PZM 4XDT W9BE R3LN VU6C`; }

  async search(prefix) {
    await this.act("search", prefix);
    if (this.link !== "online") throw new ChatError("OFFLINE");
    return this.scenario.users.filter((login) => login.toLowerCase().startsWith(prefix.toLowerCase())).slice(0, 5);
  }

  dialogs() {
    const found = [];
    for (const [peer, history] of this.histories) {
      if (!history.length && !this.drafts.get(peer)) continue;
      const unread = history.filter((one) => !one.out && !one.read && !one.deleted).length;
      found.push({ peer, last: history.at(-1) ?? null, unread, draft: this.drafts.get(peer) ?? "" });
    }
    return found.sort((one, other) => (other.last?.timeMs ?? 0) - (one.last?.timeMs ?? 0));
  }

  messages(peer) {
    const history = this.histories.get(peer) ?? [];
    return history.slice(history.length - Math.min(history.length, this.loaded.get(peer) ?? 0));
  }

  async openChat(peer) {
    await this.act("openChat", peer);
    if (!this.histories.has(peer)) this.histories.set(peer, []);
    this.loaded.set(peer, Math.max(this.loaded.get(peer) ?? 0, this.scenario.page));
    this.emit("messages", { peer });
  }

  async loadOlder(peer) {
    await this.act("loadOlder", peer);
    this.loaded.set(peer, this.loaded.get(peer) + this.scenario.page);
    this.emit("messages", { peer });
    return this.loaded.get(peer) < this.histories.get(peer).length;
  }

  add(peer, given) {
    if (!this.histories.has(peer)) this.histories.set(peer, []);
    const message = this.make(peer, { timeMs: Date.now(), read: false, ...given });
    this.histories.get(peer).push(message);
    this.histories.get(peer).sort((one, other) => one.timeMs - other.timeMs); // it may come late
    this.loaded.set(peer, (this.loaded.get(peer) ?? 0) + 1);
    this.changed(peer);
    return message;
  }

  changed(peer) {
    this.emit("messages", { peer });
    this.emit("dialogs");
  }

  async send(peer, text) {
    if (this.scenario.failing.send) return this.act("send", peer, text);
    const message = this.add(peer, { out: true, text, state: "waiting", read: false });
    await this.act("send", peer, text);
    this.setDraft(peer, "");
    if (this.link === "online") setTimeout(() => this.set(peer, message.key, { state: "accepted" }), this.scenario.delay);
    return message;
  }

  /** Changes a message as the server would. */
  set(peer, key, changes) {
    const history = this.histories.get(peer);
    const at = history.findIndex((one) => one.key === key);
    history[at] = { ...history[at], ...changes };
    this.changed(peer);
    return history[at];
  }

  setLink(link) {
    this.link = link;
    this.since = Date.now();
    this.emit("state");
  }

  setProblem(code, more = {}) {
    this.problem = code ? { code, message: code, ...more } : null;
    this.emit("state");
  }

  async edit(message, text) {
    await this.act("edit", message.key, text);
    this.set(message.peer, message.key, { text, edited: true, revisionMs: Date.now(), state: "waiting" });
    if (this.link === "online") setTimeout(() => this.set(message.peer, message.key, { state: "delivered" }), this.scenario.delay);
  }

  async remove(message) {
    await this.act("remove", message.key);
    this.set(message.peer, message.key, { text: null, deleted: true });
  }

  async resend(message) {
    await this.act("resend", message.key);
    this.set(message.peer, message.key, { state: "waiting" });
    if (this.link === "online") setTimeout(() => this.set(message.peer, message.key, { state: "delivered" }), this.scenario.delay);
  }

  async discard(message) {
    await this.act("discard", message.key);
    this.set(message.peer, message.key, { state: "delivered", problem: null, refused: null });
  }

  unsent() { return this.scenario.unsent; }

  async read(peer, message) {
    this.reads.push([peer, message.key, message.timeMs]);
    await this.pause();
    for (const one of this.histories.get(peer)) if (!one.out && one.timeMs <= message.timeMs) one.read = true;
    this.changed(peer);
  }

  draft(peer) { return this.drafts.get(peer) ?? ""; }
  setDraft(peer, text) {
    this.drafts.set(peer, text);
    this.emit("drafts", { peer });
    this.emit("dialogs");
  }

  async sessions() {
    await this.act("sessions");
    if (this.link !== "online") throw new ChatError("OFFLINE");
    this.scenario.sessions ??= [
      { id: "1", current: true, client: "Chromium on Linux", lastMs: Date.now() },
      { id: "2", current: false, client: "Firefox on Android", lastMs: Date.now() - 86400000 * 3 },
    ];
    return copy(this.scenario.sessions);
  }

  async closeSession(id) {
    await this.act("closeSession", id);
    this.scenario.sessions = this.scenario.sessions.filter((one) => one.id !== id);
  }

  async blocked() {
    await this.act("blocked");
    if (this.link !== "online") throw new ChatError("OFFLINE");
    return [...this.scenario.blocked];
  }

  async setBlocked(peer, blocked) {
    await this.act("setBlocked", peer, blocked);
    const others = this.scenario.blocked.filter((one) => one !== peer.toLowerCase());
    this.scenario.blocked = blocked ? [...others, peer.toLowerCase()] : others;
  }

  async logOut() {
    await this.act("logOut");
    this.account = null;
    this.histories.clear();
    this.settings.clear();
    this.setLink("none");
  }

  async setting(name) { return this.settings.get(name); }
  async setSetting(name, value) { this.settings.set(name, value); }
}
