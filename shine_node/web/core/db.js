// What this browser keeps: one IndexedDB database, versioned; each operation is one transaction, bounded in time.

import { ChatError, within } from "./errors.js";

const NAME = "shine";
const VERSION = 1;
const LIMIT_MS = 10000;

// meta: account, session, settings, clock by name. people, drafts, chats by login. outbox by number, in order of writing.
// messages: what the server listed, by [peer, timeMs, baseKey], so that the newest of a chat are a range.
const STORES = {
  meta: {},
  people: { keyPath: "key" },
  chats: { keyPath: "key" },
  drafts: { keyPath: "key" },
  outbox: { keyPath: "id", autoIncrement: true },
  messages: { keyPath: ["peer", "timeMs", "baseKey"] },
};

// What nobody else has yet; the rest can be had again.
const DURABLE = new Set(["meta", "outbox"]);

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function failed(problem) {
  if (problem instanceof ChatError) return problem;
  return new ChatError("NO_STORE", `the browser's store cannot be used: ${problem?.message ?? problem}`);
}

export class Database {
  static async open(indexedDB) {
    if (!indexedDB) throw new ChatError("NO_STORE", "this browser keeps nothing for this page");
    const database = new Database();
    let request = null;
    try {
      request = indexedDB.open(NAME, VERSION);
      request.onupgradeneeded = () => {
        for (const [name, options] of Object.entries(STORES)) request.result.createObjectStore(name, options);
      };
      database._idb = await within(LIMIT_MS, done(request), "opening the store");
    } catch (problem) {
      if (request) request.onsuccess = () => request.result.close(); // should it still come
      throw failed(problem);
    }
    // A newer page in another tab wants to change the store: this one lets go, and is of no use until it is loaded anew.
    database._idb.onversionchange = () => database.close();
    return database;
  }

  close() {
    this._idb.close();
  }

  get(store, key) {
    return this._run(store, "readonly", (place) => place.get(key));
  }

  all(store, range = null, count = undefined) {
    return this._run(store, "readonly", (place) => place.getAll(range, count));
  }

  // Returns the key. `key` only for "meta".
  put(store, value, key = undefined) {
    return this._run(store, "readwrite", (place) => place.put(value, key));
  }

  remove(store, key) {
    return this._run(store, "readwrite", (place) => place.delete(key));
  }

  // Writes values and deletes keys of one store, all of them or none.
  change(store, values, keys = []) {
    return this._run(store, "readwrite", (place) => {
      for (const value of values) place.put(value);
      for (const key of keys) place.delete(key);
      return null;
    });
  }

  // Puts a value into one store and removes a key from another, both or neither; returns the key of the value.
  move(to, value, from, key) {
    return this._run([to, from], "readwrite", (_, transaction) => {
      transaction.objectStore(from).delete(key);
      return transaction.objectStore(to).put(value);
    });
  }

  // Reads a value (without a key: all) and writes in the same transaction what `decide` makes of it: {put: values, remove:
  // keys}, or null for nothing. Returns the keys of what was put, or null. Nothing is written where `decide` throws.
  revise(store, key, decide) {
    return this._run(store, "readwrite", (place, transaction) => {
      const done = { result: null };
      const read = key === null ? place.getAll() : place.get(key);
      const write = ({ put = [], remove = [] }) => {
        done.result = [];
        for (const one of remove) place.delete(one);
        put.forEach((value, at) => {
          const written = place.put(value);
          written.onsuccess = () => (done.result[at] = written.result);
        });
      };
      read.onsuccess = () => {
        try {
          const decided = decide(read.result);
          if (decided) write(decided);
        } catch (problem) {
          transaction.problem = problem;
          transaction.abort();
        }
      };
      return done;
    });
  }

  // Writes those values of one store that `counts(value, stored)` prefers to what is stored under their keys.
  merge(store, values, keyOf, counts) {
    return this._run(store, "readwrite", (place) => {
      for (const value of values) {
        const found = place.get(keyOf(value));
        found.onsuccess = () => {
          if (found.result === undefined || counts(value, found.result)) place.put(value);
        };
      }
      return null;
    });
  }

  // The keys of a range, in order.
  keys(store, range) {
    return this._run(store, "readonly", (place) => place.getAllKeys(range));
  }

  // Forgets everything but the settings.
  async forget() {
    await this._run(Object.keys(STORES), "readwrite", (_, transaction) => {
      for (const name of Object.keys(STORES)) {
        if (name !== "meta") transaction.objectStore(name).clear();
      }
      for (const name of ["account", "session", "registering"]) transaction.objectStore("meta").delete(name);
      return null;
    });
  }

  async _run(stores, mode, work) {
    const durability = [stores].flat().some((name) => DURABLE.has(name)) ? "strict" : "relaxed";
    let transaction = null;
    try {
      transaction = this._idb.transaction(stores, mode, { durability });
      const finished = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.problem ?? transaction.error ?? new Error("aborted"));
      });
      finished.catch(() => {}); // where `work` throws nobody waits for it
      const request = work(typeof stores === "string" ? transaction.objectStore(stores) : null, transaction);
      await within(LIMIT_MS, finished, "the store");
      return request?.result;
    } catch (problem) {
      abandon(transaction);
      throw failed(problem);
    }
  }
}

// What was given up must not be done later all the same: its caller says that it was not.
function abandon(transaction) {
  try {
    transaction?.abort();
  } catch {
    // It has ended, or is being written just now.
  }
}

// The range of all messages of a chat.
export function chatRange(peer) {
  return IDBKeyRange.bound([peer], [peer, []]);
}
