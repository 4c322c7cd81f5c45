// The session of this browser (PROTOCOL.md §8.1): all its tabs log in to it, and a new one begins where it is gone.

import { random, toBase64, utf8 } from "./bytes.js";
import { ChatError } from "./errors.js";
import { KeyPair } from "./keys.js";

const GONE = new Set(["SESSION_NOT_FOUND", "SESSION_KEY_NOT_ACTUAL", "SESSION_OF_ANOTHER_USER"]);

const sessionKey = (pair) => `ed25519/${toBase64(pair.public)}`;

// What ListSessions shows of this browser.
export function clientInfo(userAgent) {
  const browsers = [["Firefox", /Firefox\//], ["Edge", /Edg/], ["Opera", /OPR\//], ["Chrome", /Chrom/], ["Safari", /Safari\//]];
  const systems = [["Android", /Android/], ["iOS", /iPhone|iPad/], ["Windows", /Windows/], ["macOS", /Mac OS/], ["Linux", /Linux/]];
  const named = (pairs) => pairs.find(([, pattern]) => pattern.test(userAgent))?.[0];
  return [named(browsers) ?? "Browser", named(systems)].filter(Boolean).join(", ");
}

export function createText({ login, sessionKey, storagePwd, timeMs, authNonce }) {
  return ["AUTH_CREATE_SESSION", login, sessionKey, storagePwd, timeMs, authNonce].join(":");
}

export function loginText({ sessionId, timeMs }, nonce) {
  return ["SESSION_LOGIN", sessionId, timeMs, nonce].join(":");
}

// Proves on a new connection who this is. `clock` gives the server's time; `locks` keep two tabs from creating two.
export async function signIn(exchange, { identity, db, locks, clock }) {
  const stored = await db.get("meta", "session");
  if (stored && (await logIn(exchange, stored, clock))) return stored.id;
  const anew = async () => {
    const other = await db.get("meta", "session"); // another tab may have been first
    if (other && other.id !== stored?.id && (await logIn(exchange, other, clock))) return other.id;
    const session = await create(exchange, identity, clock);
    await db.put("meta", session, "session");
    return session.id;
  };
  return locks ? locks.request("shine-session", anew) : anew();
}

async function logIn(exchange, { id, seed }, clock) {
  try {
    const pair = await KeyPair.fromSeed(seed);
    const { nonce } = await exchange("SessionChallenge", { sessionId: id });
    const request = { sessionId: id, sessionKey: sessionKey(pair), timeMs: clock(), clientInfo: clientInfo(navigator.userAgent) };
    const signatureB64 = toBase64(await pair.sign(utf8(loginText(request, nonce))));
    await exchange("SessionLogin", { ...request, signatureB64 });
    return true;
  } catch (problem) {
    if (problem instanceof ChatError && GONE.has(problem.code)) return false;
    throw problem;
  }
}

async function create(exchange, { login, device }, clock) {
  const seed = random(32), pair = await KeyPair.fromSeed(seed);
  const { authNonce } = await exchange("AuthChallenge", { login });
  const request = {
    login,
    sessionKey: sessionKey(pair),
    storagePwd: toBase64(random(32)),
    timeMs: clock(),
    authNonce,
    deviceKey: toBase64(device.public),
    clientInfo: clientInfo(navigator.userAgent),
  };
  const signatureB64 = toBase64(await device.sign(utf8(createText(request))));
  const { sessionId } = await exchange("CreateAuthSession", { ...request, signatureB64 });
  return { id: sessionId, seed };
}

export async function list(link, currentId) {
  const { sessions } = await link.request("ListSessions");
  return sessions.map((session) => ({
    id: session.sessionId,
    current: session.sessionId === currentId,
    client: session.clientInfoFromClient || session.clientInfoFromRequest,
    lastMs: session.lastAuthenticatedAtMs,
  }));
}
