// From whom this user takes nothing: the signed setting `blocked`, one login to a line (PROTOCOL.md §8.4). The user's
// servers heed it and tell each other of it.

import { equal, fromBase64, toBase64, utf8 } from "./bytes.js";
import { ChatError } from "./errors.js";
import { verify } from "./keys.js";
import { isLogin, loginKey } from "./logins.js";

const PARAM = "blocked";
const MOST = 1000; // of more the servers heed the first ones only
const AHEAD_MS = 15 * 60 * 1000; // no server takes a setting that is further ahead
const TRIES = 3;
const TURN_MS = 30000;

const signedText = (login, time, value) => utf8(`SHiNe/UserParameter:${login}${PARAM}${time}${value}`);

// The list as this user has signed it: what a server makes up must not be signed on as this user's own.
async function stored(link, { login, device }) {
  const answer = await link.request("GetUserParam", { login, param: PARAM });
  if (answer.exists !== true) return { logins: [], timeMs: 0 };
  const { login: of, param, value, time_ms: timeMs } = answer;
  const key = fromBase64(answer.device_key), signature = fromBase64(answer.signature);
  const isWhole = isLogin(of) && param === PARAM && typeof value === "string" && Number.isSafeInteger(timeMs) && key && signature;
  if (!isWhole) throw new ChatError("BAD_FIELDS", "the setting is not well-formed");
  const isOwn = loginKey(of) === loginKey(login) && equal(key, device.public);
  if (!isOwn || !(await verify(device.public, signature, signedText(of, timeMs, value)))) {
    throw new ChatError("BAD_SIGNATURE", "the list of the blocked is not signed by this user");
  }
  const logins = value.split("\n").map((line) => line.trim()).filter(isLogin).map(loginKey);
  return { logins: [...new Set(logins)].slice(0, MOST), timeMs };
}

// The logins in lower case, the earliest first.
export async function listBlocked(link, identity) {
  return (await stored(link, identity)).logins;
}

// `locks`: the tabs of one browser do this one after the other. Where another device has changed the list in the same
// moment, it is looked at and changed anew.
export async function setBlocked({ link, locks, identity, clock }, peer, blocked) {
  const change = async () => {
    for (let tries = 0; tries < TRIES; tries++) {
      if (!(await changed({ link, identity, clock }, loginKey(peer), blocked))) return;
    }
    const { logins } = await stored(link, identity);
    if (logins.includes(loginKey(peer)) !== blocked) throw new ChatError("SERVER_BUSY", "the list is being changed elsewhere");
  };
  if (!locks) return change();
  const waiting = AbortSignal.timeout(TURN_MS);
  return locks.request("shine-blocked", { signal: waiting }, change).catch((problem) => {
    throw problem.name === "TimeoutError" ? new ChatError("TIMED_OUT", "another tab is changing the list") : problem;
  });
}

// Writes the list where it is not as wanted; returns whether that was so.
async function changed({ link, identity, clock }, key, blocked) {
  const { login, device } = identity;
  const { logins, timeMs } = await stored(link, identity);
  if (logins.includes(key) === blocked) return false;
  if (blocked && logins.length >= MOST) throw new ChatError("TOO_LARGE", "as many are blocked as servers heed");
  const value = (blocked ? [...logins, key] : logins.filter((one) => one !== key)).join("\n");
  const time = Math.max(clock(), timeMs + 1); // of two settings the later one counts
  if (time > clock() + AHEAD_MS) throw new ChatError("TIME_SKEW", "the list is of a time that is far ahead of this clock");
  const signature = toBase64(await device.sign(signedText(login, time, value)));
  await link.request("UpsertUserParam", { login, param: PARAM, time_ms: time, value, device_key: toBase64(device.public), signature });
  return true;
}
