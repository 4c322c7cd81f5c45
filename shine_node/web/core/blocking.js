// From whom this user takes nothing: the signed setting `blocked`, one login to a line (PROTOCOL.md §8.4). The user's
// servers heed it and tell each other of it.

import { toBase64, utf8 } from "./bytes.js";
import { ChatError } from "./errors.js";
import { isLogin, loginKey } from "./logins.js";

const PARAM = "blocked";
const MOST = 1000; // of more the servers heed the first ones only

async function stored(link, login) {
  const { exists, value, time_ms: timeMs } = await link.request("GetUserParam", { login, param: PARAM });
  if (exists !== true) return { logins: [], timeMs: 0 };
  if (typeof value !== "string" || !Number.isSafeInteger(timeMs)) throw new ChatError("BAD_FIELDS", "the setting is not well-formed");
  const logins = value.split("\n").map((line) => line.trim()).filter(isLogin).map(loginKey);
  return { logins: [...new Set(logins)].slice(0, MOST), timeMs };
}

// The logins in lower case, the earliest first.
export async function listBlocked(link, { login }) {
  return (await stored(link, login)).logins;
}

export async function setBlocked(link, { login, device }, peer, blocked, nowMs) {
  const { logins, timeMs } = await stored(link, login);
  const key = loginKey(peer);
  if (logins.includes(key) === blocked) return;
  if (blocked && logins.length >= MOST) throw new ChatError("TOO_LARGE", "as many are blocked as servers heed");
  const value = (blocked ? [...logins, key] : logins.filter((one) => one !== key)).join("\n");
  const time = Math.max(nowMs, timeMs + 1); // of two settings the later one counts
  const signature = toBase64(await device.sign(utf8(`SHiNe/UserParameter:${login}${PARAM}${time}${value}`)));
  await link.request("UpsertUserParam", { login, param: PARAM, time_ms: time, value, device_key: toBase64(device.public), signature });
}
