// Keeps the page's files in the browser (sw.js), so that it opens without the server.
import { note } from "./notices.js";
import { t } from "./i18n.js";

const UPDATE_MS = 3600 * 1000;

// The page's policy asks for a checked address where a script comes from: this one and no other.
function scriptAddress() {
  const address = "sw.js";
  if (!globalThis.trustedTypes) return address;
  const policy = trustedTypes.createPolicy("shine-worker", {
    createScriptURL: (url) => {
      if (url !== address) throw new TypeError("not a script of this page");
      return url;
    },
  });
  return policy.createScriptURL(address);
}

// A page that stays open for days asks for a new version when it is looked at again.
function lookForUpdates(registration) {
  let asked = Date.now();
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible" || Date.now() - asked < UPDATE_MS) return;
    asked = Date.now();
    registration.update().catch(() => {});
  });
}

/** Registers the service worker; where there is none, or it fails, the page works as before while it is online. */
export function keepOffline() {
  const workers = navigator.serviceWorker;
  if (!workers) return;
  const had = workers.controller !== null;
  workers.addEventListener("controllerchange", () => {
    if (had) note(t("page.newVersion"), { text: t("page.reload"), act: () => location.reload() });
  });
  workers.register(scriptAddress()).then(lookForUpdates, () => {});
}
