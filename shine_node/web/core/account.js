// Whose browser this is: registering, recovering, and the keys in the store.

import { toBase64 } from "./bytes.js";
import { ChatError } from "./errors.js";
import { identityOf, newSecret, readRecoveryText, recoveryText } from "./keys.js";
import { isLogin, isServerUrl, loginKey } from "./logins.js";
import { makeRecord } from "./record.js";

export class Account {
  constructor({ db, link, clock }) {
    Object.assign(this, { _db: db, _link: link, _clock: clock });
  }

  // The identity that is stored, or null.
  async stored() {
    const account = await this._db.get("meta", "account");
    return account ? this._identity(account) : null;
  }

  // Makes keys and registers them; `info` as serverInfo says it.
  async register(login, token, info) {
    const server = this._server(info);
    // The keys are kept before they are sent: should the answer be lost, the login is this browser's all the same.
    const begun = await this._db.get("meta", "registering");
    const secret = begun && loginKey(begun.login) === loginKey(login) ? begun.secret : newSecret();
    await this._db.put("meta", { login, secret }, "registering");
    const identity = await this._identity({ login, secret });
    const record = await makeRecord(identity, [server], this._clock());
    try {
      await this._link.request("AddUser", { ...record, ...(token && { registrationToken: token }) });
    } catch (problem) {
      if (problem.code !== "USER_ALREADY_EXISTS" || !(await this._isThere(identity))) throw problem;
    }
    await this._keep(identity);
    return identity;
  }

  // For a closed server: makes keys, and the record with which its operator adds them. Both wait in the store.
  async prepare(login, info) {
    const server = this._server(info);
    const begun = await this._db.get("meta", "registering");
    const secret = begun && loginKey(begun.login) === loginKey(login) ? begun.secret : newSecret();
    const identity = await this._identity({ login, secret });
    await this._isThere(identity); // or nobody's
    const record = await makeRecord(identity, [server], this._clock());
    await this._db.put("meta", { login, secret, record }, "registering");
    return { login, recoveryKey: identity.recoveryKey, record };
  }

  // {login, record} of what waits for the operator, or null.
  async waiting() {
    const begun = await this._db.get("meta", "registering");
    return begun?.record ? { login: begun.login, record: begun.record } : null;
  }

  // Takes what waits as this browser's account, once the operator has added it; else null. Throws USER_ALREADY_EXISTS where
  // somebody else has come by this login, so that there is nothing more to wait for.
  async joined() {
    const begun = await this._db.get("meta", "registering");
    if (!begun?.record) return null;
    const identity = await this._identity(begun);
    if (!(await this._isThere(identity))) return null;
    await this._keep(identity);
    return identity;
  }

  async recover(text, serverLogin) {
    const { login, secret } = await readRecoveryText(text);
    const known = await this._link.request("GetUserAccess", { login });
    if (!known.exists || !isLogin(known.login) || loginKey(known.login) !== loginKey(login)) {
      throw new ChatError("USER_NOT_FOUND", "this server does not know this login");
    }
    const identity = await this._identity({ login: known.login, secret }); // the case of the text does not count
    if (known.solanaKey !== toBase64(identity.root.public)) {
      throw new ChatError("ROOT_KEY_MISMATCH", "the login belongs to another key here");
    }
    if (known.deviceKey !== toBase64(identity.device.public)) {
      throw new ChatError("DEVICE_KEY_NOT_ACTUAL", "the device key has been replaced since");
    }
    const isThis = (server) => isLogin(server?.serverLogin) && loginKey(server.serverLogin) === loginKey(String(serverLogin));
    const isServed = Array.isArray(known.accessServers) && known.accessServers.some(isThis);
    if (!isServed) throw new ChatError("NOT_ACCESS_SERVER", "this server is not one of this user's");
    await this._keep(identity);
    return identity;
  }

  async _identity({ login, secret }) {
    const identity = await identityOf(login, secret);
    return { ...identity, recoveryKey: await recoveryText(login, secret) };
  }

  // What of a server is signed with the record. Where it is reached is known without it; what it is called is not.
  _server({ serverLogin, url }) {
    if (!isLogin(serverLogin)) throw new ChatError("INTERNAL_ERROR", "the server does not say what it is called");
    return { serverLogin, url: isServerUrl(url) ? url : this._link.url };
  }

  // Whether the server knows this account; throws USER_ALREADY_EXISTS where it knows the login with another key.
  async _isThere({ login, root }) {
    const known = await this._link.request("GetUserAccess", { login });
    if (known.exists !== true) return false;
    if (known.solanaKey !== toBase64(root.public)) throw new ChatError("USER_ALREADY_EXISTS", "this login is taken");
    return true;
  }

  async _keep({ login, secret }) {
    await this._db.put("meta", { login, secret }, "account");
    await this._db.remove("meta", "registering");
    await globalThis.navigator?.storage?.persist?.().catch(() => {}); // asks the browser not to tidy the keys away
  }
}
