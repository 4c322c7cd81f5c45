// The chat without its face: the one door between the page's core and what a person sees.

import { ChatError } from "./errors.js";
import { Account } from "./account.js";
import { listBlocked, setBlocked } from "./blocking.js";
import { Database } from "./db.js";
import { checkBrowser } from "./keys.js";
import { Link } from "./link.js";
import { isLogin, loginKey } from "./logins.js";
import { Messages } from "./messages.js";
import { list, signIn } from "./session.js";

export { ChatError } from "./errors.js";

const READY_MS = 10000;
const GOODBYE_MS = 3000;
const SKEW_MS = 5000; // a clock that is wrong by less is not corrected: the way to the server takes its time too
const ASK_AGAIN_MS = 30000; // somebody may be setting the clock just now
const MOST_SKEW_MS = 15 * 60 * 1000; // by more no server sets the time of what is signed: one of the two is wrong

function ownUrl() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
}

// By how much the time of what is signed differs from this device's, where the server's does by `skew`.
function corrected(skew) {
  return Math.abs(skew) > SKEW_MS && Math.abs(skew) <= MOST_SKEW_MS ? skew : 0;
}

export class Chat extends EventTarget {
  constructor({ url = ownUrl(), indexedDB = globalThis.indexedDB, locks = globalThis.navigator?.locks } = {}) {
    super();
    this._indexedDB = indexedDB;
    this._locks = locks;
    this._problem = null;
    this._clockProblem = null;
    this._skewMs = 0;
    this._clock = () => Date.now() + this._skewMs;
    this._dirty = new Set();
    this._link = new Link(url, { introduce: (exchange) => this._introduce(exchange), refused: (problem) => this._refuse(problem) });
    this._link.addEventListener("state", () => this._linkChanged());
    this._link.addEventListener("event", ({ detail }) => this._messages?.event(detail.op, detail.payload));
  }

  get secure() {
    return Boolean(globalThis.crypto?.subtle);
  }

  get state() {
    const account = this._identity ? { login: this._identity.login } : null;
    return { account, link: this._link.state, since: this._link.since, problem: this._problem ?? this._clockProblem ?? this._sendProblem };
  }

  get _sendProblem() {
    const code = this._messages?.stuck;
    return code ? { code, message: "what was written cannot be sent now" } : null;
  }

  async open() {
    try {
      await checkBrowser();
      this._db = await Database.open(this._indexedDB);
      this._account = new Account({ db: this._db, link: this._link, clock: this._clock });
      this._skewMs = corrected((await this._db.get("meta", "skewMs")) ?? 0);
      this._tabs = new BroadcastChannel("shine");
      this._tabs.onmessage = ({ data }) => this._told(data);
      await this._begin(await this._account.stored());
    } catch (problem) {
      this._refuse(problem);
      return;
    }
    this._link.start();
  }

  async serverInfo() {
    await this._link.ready(READY_MS);
    const { serverLogin, description, registration, url } = await this._link.request("GetServerInfo");
    return { serverLogin, description, registration, url };
  }

  async register({ login, token }) {
    const server = await this._mayMake(login);
    await this._enter(await this._account.register(login, token, server));
    return { recoveryKey: await this.recoveryKey() };
  }

  // At a closed server: makes {recoveryKey, record}, which waits until the operator has added the record.
  async prepare({ login }) {
    return this._account.prepare(login, await this._mayMake(login));
  }

  async waiting() {
    return this._account?.waiting() ?? null;
  }

  // Enters the account that waits; false while the operator has not added it.
  async join() {
    this._needNobody();
    await this._link.ready(READY_MS);
    const identity = await this._account.joined();
    if (identity && !this._identity) await this._enter(identity);
    return Boolean(identity);
  }

  async recover(recoveryKey) {
    this._needNobody();
    const { serverLogin } = await this.serverInfo();
    await this._enter(await this._account.recover(recoveryKey, serverLogin));
  }

  // What the server says of itself, where an account can be made here and now.
  async _mayMake(login) {
    this._needNobody();
    if (!isLogin(login)) throw new ChatError("BAD_LOGIN", "a login is 1 to 30 of A-Z a-z 0-9 _ . -, and begins with a letter or digit");
    const server = await this.serverInfo();
    if (this._clockProblem) await this._askTime((op) => this._link.request(op)); // it may have been set meanwhile
    if (this._clockProblem) throw new ChatError("TIME_SKEW", this._clockProblem.message); // a record is signed, with its time
    return server;
  }

  recoveryKey() {
    return this._identity?.recoveryKey ?? null;
  }

  async search(prefix) {
    if (!prefix) return [];
    const { logins } = await this._link.request("SearchUsers", { prefix });
    if (logins.length || !isLogin(prefix)) return logins;
    const found = await this._link.request("GetUser", { login: prefix }); // has the server ask its peers
    return found.exists ? [found.login] : [];
  }

  dialogs() {
    return this._messages?.dialogs() ?? [];
  }

  messages(peer) {
    return this._messages?.of(peer) ?? [];
  }

  async openChat(peer) {
    return this._needMessages().open(peer);
  }

  async loadOlder(peer) {
    return this._needMessages().older(peer);
  }

  async send(peer, text) {
    return this._needMessages().send(peer, text);
  }

  async edit(message, text) {
    return this._needMessages().edit(message, text);
  }

  async remove(message) {
    return this._needMessages().remove(message);
  }

  async resend(message) {
    return this._needMessages().resend(message);
  }

  async discard(message) {
    return this._needMessages().discard(message);
  }

  // {messages, drafts}: how many of them would be lost with this browser.
  unsent() {
    return this._messages?.unsent() ?? { messages: 0, drafts: 0 };
  }

  async read(peer, message) {
    return this._needMessages().read(peer, message);
  }

  draft(peer) {
    return this._messages?.drafts.get(loginKey(peer)) ?? "";
  }

  setDraft(peer, text) {
    this._needMessages().setDraft(peer, text);
  }

  async sessions() {
    return list(this._link, (await this._db.get("meta", "session"))?.id);
  }

  async closeSession(id) {
    await this._link.request("CloseActiveSession", { sessionId: id });
  }

  // From whom nothing is taken, in lower case.
  async blocked() {
    this._needMessages();
    return listBlocked(this._link, this._identity);
  }

  async setBlocked(peer, blocked) {
    this._needMessages();
    const { _link: link, _locks: locks, _identity: identity, _clock: clock } = this;
    return setBlocked({ link, locks, identity, clock }, peer, blocked);
  }

  async logOut() {
    const session = await this._db.get("meta", "session");
    const goodbye = session && this._link.request("CloseActiveSession", { sessionId: session.id }, GOODBYE_MS);
    this._leaving = true; // the server ends the connection, which is no news then
    await goodbye?.catch(() => {});
    this._link.stop();
    this._messages?.close();
    this._tabs.postMessage({ kind: "leaving" });
    await this._db.forget();
    await this._goOn(null);
    this._leaving = false;
    this._tabs.postMessage({ kind: "account" });
  }

  // Signs in again after the session was closed elsewhere.
  reconnect() {
    this._problem = null;
    this._link.again();
    this._emit("state");
  }

  setting(name) {
    return this._db.get("meta", `setting:${name}`);
  }

  setSetting(name, value) {
    return this._db.put("meta", value, `setting:${name}`);
  }

  // Ends everything that this tab does, as when it is closed.
  close() {
    clearTimeout(this._asking);
    this._messages?.close();
    this._link.stop();
    this._tabs?.close();
    this._db?.close();
  }

  _needNobody() {
    if (!this._db) throw new ChatError(this._problem?.code ?? "NOT_SECURE", this._problem?.message);
    if (this._identity) throw new ChatError("ALREADY_SIGNED_IN", "log out first");
  }

  _needMessages() {
    if (!this._messages) throw new ChatError("NOT_AUTHENTICATED", "register or recover first");
    return this._messages;
  }

  // Goes on as somebody, or as nobody.
  async _begin(identity) {
    this._messages?.close();
    this._messages = null;
    this._identity = identity;
    this._problem = null;
    if (identity) {
      this._messages = new Messages({
        db: this._db,
        link: this._link,
        locks: this._locks,
        identity,
        clock: this._clock,
        tell: (message) => this._tabs.postMessage(message),
        changed: (kind, peer) => this._emit(kind, peer),
        failed: (problem) => this._refuse(problem),
      });
      await this._messages.load();
    }
    this._emit("state");
    this._emit("dialogs");
  }

  // The same on a new connection, for a session is given to one that has said who it is.
  async _goOn(identity) {
    this._link.stop();
    await this._begin(identity);
    this._link.start();
  }

  async _enter(identity) {
    await this._goOn(identity);
    this._tabs.postMessage({ kind: "account" });
    await this._link.ready(READY_MS).catch(() => {}); // it is registered all the same
  }

  // Asks the server what time it is; returns by how much that differs from this device's time.
  async _askTime(exchange) {
    clearTimeout(this._asking);
    const asked = Date.now();
    const { ts } = await exchange("Ping");
    if (!Number.isSafeInteger(ts)) throw new ChatError("BAD_FIELDS", "the server does not say what time it is");
    const skew = Math.round(ts - (asked + Date.now()) / 2);
    const message = `the clocks of this device and of the server differ by ${Math.round(Math.abs(skew) / 60000)} minutes`;
    this._clockProblem = Math.abs(skew) > MOST_SKEW_MS ? { code: "CLOCKS_DIFFER", message, byMs: Math.abs(skew) } : null;
    this._skewMs = corrected(skew);
    if (this._clockProblem) this._asking = setTimeout(() => this._askAgain(), ASK_AGAIN_MS);
    await this._db.put("meta", this._skewMs, "skewMs");
    return skew;
  }

  async _askAgain() {
    if (!this._link.online) return; // the next connection begins with it
    const later = () => (this._asking = setTimeout(() => this._askAgain(), ASK_AGAIN_MS));
    await this._askTime((op) => this._link.request(op)).catch(later);
    this._emit("state");
  }

  // On each new connection: what time it is, and who this is.
  async _introduce(exchange) {
    const skew = await this._askTime(exchange);
    if (!this._identity) return;
    const before = (await this._db.get("meta", "session"))?.id;
    const clock = () => Date.now() + (this._clockProblem ? skew : this._skewMs); // a session is the server's, and so is its time
    const id = await signIn(exchange, { identity: this._identity, db: this._db, locks: this._locks, clock });
    if (id !== before) this._tabs.postMessage({ kind: "session" }); // for those whose session was closed
    this._problem = null;
  }

  // Keeps a problem to be shown; returns whether it is for a person to decide how to go on.
  _refuse(problem) {
    if (this._leaving) return false;
    this._problem = { code: problem.code ?? "INTERNAL_ERROR", message: problem.message };
    this._emit("state");
    return problem.code === "SESSION_CLOSED";
  }

  _linkChanged() {
    if (this._link.online) this._messages?.online();
    else this._messages?.offline();
    this._emit("state");
  }

  // Another tab of this browser says what it has done.
  async _told(message) {
    try {
      await this._heed(message);
    } catch (problem) {
      this._refuse(problem);
    }
  }

  async _heed(message) {
    if (message.kind === "account") {
      await this._goOn(await this._account.stored());
    } else if (message.kind === "leaving") {
      this._link.stop();
      this._messages?.close(); // it must not keep anything any more
    } else if (message.kind === "session") {
      if (this._problem?.code === "SESSION_CLOSED") this.reconnect();
    } else await this._messages?.told(message);
  }

  // Events are told a moment later, each once, however much has changed meanwhile.
  _emit(type, peer = null) {
    if (!this._dirty.size) setTimeout(() => this._flush());
    this._dirty.add(peer === null ? type : `${type} ${peer}`);
  }

  _flush() {
    const told = [...this._dirty];
    this._dirty.clear();
    for (const name of told) {
      const [type, peer] = name.split(" ");
      this.dispatchEvent(new CustomEvent(type, { detail: peer ? { peer } : {} }));
    }
  }
}
