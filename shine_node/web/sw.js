// Keeps the page's files, exactly those of the list, so that the page opens without its server. The files of one
// version are kept and dropped together: VERSION is made from all of them, and a change of it makes a new worker.

const VERSION = "586f9584963c1b2f";

const FILES = [
  "./",
  "app.js",
  "core/account.js",
  "core/archive.js",
  "core/blocking.js",
  "core/bytes.js",
  "core/chat.js",
  "core/container.js",
  "core/curve.js",
  "core/db.js",
  "core/errors.js",
  "core/feed.js",
  "core/history.js",
  "core/keys.js",
  "core/link.js",
  "core/logins.js",
  "core/messages.js",
  "core/outbox.js",
  "core/overlay.js",
  "core/own.js",
  "core/people.js",
  "core/reading.js",
  "core/record.js",
  "core/seal.js",
  "core/session.js",
  "early.js",
  "i18n/en.js",
  "i18n/ru.js",
  "icon.svg",
  "index.html",
  "manifest.webmanifest",
  "style.css",
  "ui/bubble.js",
  "ui/chat.js",
  "ui/composer.js",
  "ui/confirm.js",
  "ui/dates.js",
  "ui/dom.js",
  "ui/i18n.js",
  "ui/icons.js",
  "ui/joining.js",
  "ui/main.js",
  "ui/menu.js",
  "ui/messages.js",
  "ui/news.js",
  "ui/notices.js",
  "ui/offline.js",
  "ui/parts.js",
  "ui/reading.js",
  "ui/recovery.js",
  "ui/router.js",
  "ui/search.js",
  "ui/settings.js",
  "ui/sidebar.js",
  "ui/start.js",
  "ui/text.js",
  "ui/theme.js",
  "ui/ticks.js",
  "ui/timeline.js",
  "ui/viewport.js",
  "ui/welcome.js",
  "ui/window.js",
];

const PREFIX = "shine-page-";
const CACHE = PREFIX + VERSION;
const KEPT = new Set(FILES.map((name) => new URL(name, self.location).href));

self.addEventListener("install", (event) => {
  // Past the browser's own cache: it might still have files of the last version.
  const requests = FILES.map((name) => new Request(name, { cache: "no-cache" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)).then(() => self.skipWaiting()));
});

async function takeOver() {
  for (const name of await caches.keys()) {
    if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
  }
  await self.clients.claim();
}

self.addEventListener("activate", (event) => event.waitUntil(takeOver()));

async function answer(request, address) {
  const cache = await caches.open(CACHE);
  return (await cache.match(address)) ?? fetch(request); // the browser may have thrown the cache away
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const address = request.url.split("#")[0];
  if (request.method === "GET" && KEPT.has(address)) event.respondWith(answer(request, address));
});
