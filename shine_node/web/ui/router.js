// Where in the page a person is: kept in the part of the address after #, so that Back and a reload work.
import { LOGIN } from "./text.js";

/** {name: "chats"}, {name: "chat", peer} or {name: "settings"}; whatever else stands there is the list of chats. */
export function parseRoute(hash) {
  const [, name, rest] = /^#\/(\w+)(?:\/(.*))?$/.exec(hash) ?? [];
  if (name === "settings") return { name };
  if (name === "chat") {
    let peer = "";
    try {
      peer = decodeURIComponent(rest ?? "");
    } catch {
      // A broken escape: no login.
    }
    if (LOGIN.test(peer)) return { name, peer };
  }
  return { name: "chats" };
}

export function routeTo({ name, peer }) {
  if (name === "chat") return `#/chat/${encodeURIComponent(peer)}`;
  return name === "settings" ? "#/settings" : "#/";
}

export function currentRoute() {
  return parseRoute(location.hash);
}

/**
 * The way that a person has gone through the page, so that the page's own Back is that of the browser where both lead
 * to the list: on a phone they are pressed in turn.
 */
export class Trail {
  constructor() {
    this.hashes = []; // by the number of the entry in the browser's history, as far as this page knows them
    this.at = history.state?.at ?? 0;
    this.keep();
  }

  keep(hash = location.hash) {
    this.hashes[this.at] = hash;
    history.replaceState({ at: this.at }, "", hash || "#/");
  }

  /** Notes where the person is now: at a new entry, or at one of before. */
  note() {
    if (history.state) this.at = history.state.at;
    else {
      this.at += 1;
      this.keep();
    }
  }

  /** Goes to the list of chats. */
  toList() {
    const before = this.hashes[this.at - 1];
    if (before !== undefined && parseRoute(before).name === "chats") history.back();
    else {
      this.keep(routeTo({ name: "chats" }));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }
  }
}
