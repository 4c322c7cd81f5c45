// Whose keys are whose: access records, checked, with the root key that was seen first pinned (PROTOCOL.md §3).

import { equal } from "./bytes.js";
import { ChatError } from "./errors.js";
import { loginKey } from "./logins.js";
import { checkRecord, deviceKeyAt, isOf, ordered } from "./record.js";

const FRESH_MS = 5 * 60 * 1000;
const MISSED_MS = 30 * 1000;

// A person: {key, login, rootKey, records (checked, oldest first), checkedMs, problem: null | "ROOT_KEY_MISMATCH"}.
export class People {
  constructor({ link, db }) {
    this._link = link;
    this._db = db;
    this._known = new Map();
    this._asked = new Map(); // login → the look-up that is under way
    this._doubted = new Map(); // login → when a copy last did not fit the keys that were known
    this._missed = new Map(); // login → {atMs, problem} of a look-up that found nobody
  }

  // What is known without asking anybody, or null.
  async remembered(login) {
    const key = loginKey(login);
    const found = this._known.get(key) ?? (await this._db.get("people", key)) ?? null;
    if (found) this._known.set(key, found);
    return found;
  }

  // A person of whom at least something is known, asked for where it is nothing. Throws USER_NOT_FOUND, BAD_SIGNATURE,
  // BAD_KEY_FORMAT, or what a request throws.
  async find(login) {
    return (await this.remembered(login)) ?? this.ask(login);
  }

  // A person as the server knows it now: for sealing. What is known is good enough for some minutes, and offline.
  async current(login) {
    const found = await this.remembered(login);
    if (found && (!this._link.online || Date.now() - found.checkedMs < FRESH_MS)) return usable(found);
    try {
      return usable(await this.ask(login));
    } catch (problem) {
      if (found && problem.retryable) return usable(found);
      throw problem;
    }
  }

  // Whether some record of a person's allows this check; asks once more where the keys that are known do not fit.
  async verifiedBy(login, timeMs, check) {
    const known = await this.find(login);
    if (await check(deviceKeyAt(known.records, timeMs))) return true;
    if (!this._link.online) return false;
    if (!this._asked.has(known.key)) {
      if (Date.now() - (this._doubted.get(known.key) ?? 0) < MISSED_MS) return false;
      this._doubted.set(known.key, Date.now());
    }
    const newer = await this.ask(login).catch(() => known);
    return check(deviceKeyAt(newer.records, timeMs));
  }

  // Asks the server, once at a time for each login.
  ask(login) {
    const key = loginKey(login);
    const missed = this._missed.get(key);
    if (missed && Date.now() - missed.atMs < MISSED_MS) return Promise.reject(missed.problem);
    let asked = this._asked.get(key);
    if (!asked) {
      asked = this._ask(key).finally(() => this._asked.delete(key));
      this._asked.set(key, asked);
    }
    return asked;
  }

  async _ask(key) {
    try {
      const answer = await this._lookUp(key);
      if (!isOf(answer, key)) throw new ChatError("BAD_SIGNATURE", "the server answered with another user's record");
      return await this._learn(key, answer);
    } catch (problem) {
      if (!problem.retryable) this._missed.set(key, { atMs: Date.now(), problem });
      throw problem;
    }
  }

  async _lookUp(login) {
    let answer = await this._link.request("GetUserAccess", { login });
    if (answer.exists) return answer;
    // GetUserAccess answers from what the server knows; GetUser has it ask its peers.
    const { exists } = await this._link.request("GetUser", { login });
    if (exists) answer = await this._link.request("GetUserAccess", { login });
    if (!answer.exists) throw new ChatError("USER_NOT_FOUND", "nobody of this login is known");
    return answer;
  }

  async _learn(key, answer) {
    const known = await this.remembered(key);
    const newest = await checkRecord(answer);
    const rootKey = known?.rootKey ?? newest.rootKey;
    const changed = !equal(newest.rootKey, rootKey);
    const older = await Promise.all(
      (answer.history ?? []).map((record) => checkRecord(record, { superseded: true }).catch(() => null)),
    );
    // What was once seen stays: a server that has lost the newest record must not bring back the key before it.
    const records = ordered(
      [...(known?.records ?? []), ...older, newest].filter((record) => record && isOf(record, key) && equal(record.rootKey, rootKey)),
    );
    const login = records.at(-1).login;
    const problem = changed ? "ROOT_KEY_MISMATCH" : null;
    const person = { key, login, rootKey, records, checkedMs: Date.now(), problem };
    this._missed.delete(key);
    this._known.set(key, person);
    await this._db.put("people", person);
    return person;
  }
}

// Nothing is sealed for somebody whose root key has changed: that is somebody else.
function usable(person) {
  if (person.problem) throw new ChatError(person.problem, "another root key was seen first for this login");
  return person;
}

export function newestDeviceKey(person) {
  return person.records.at(-1).deviceKey;
}
