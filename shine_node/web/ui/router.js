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

/** Goes somewhere; `replace` leaves no step for Back. */
export function go(route, { replace = false } = {}) {
  const hash = routeTo(route);
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else if (location.hash !== hash) location.hash = hash;
}
