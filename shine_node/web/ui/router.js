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
    this.hashes = [location.hash];
  }

  /** Notes where the person is now; the place before the last one again is a step back. */
  note() {
    const { hash } = location;
    if (hash === this.hashes.at(-2)) this.hashes.pop();
    else if (hash !== this.hashes.at(-1)) this.hashes.push(hash);
    this.hashes.splice(0, this.hashes.length - 50);
  }

  /** Goes to the list of chats. */
  toList() {
    const before = this.hashes.at(-2);
    if (before !== undefined && parseRoute(before).name === "chats") history.back();
    else {
      this.hashes.pop();
      history.replaceState(null, "", routeTo({ name: "chats" }));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }
  }
}
