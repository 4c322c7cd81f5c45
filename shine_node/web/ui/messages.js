// The scrolled part of a chat: a bounded window of its messages, older ones as a person scrolls up, without a jump.
import { Bubble } from "./bubble.js";
import { dayLabel } from "./dates.js";
import { h, reconcile, setAttribute, setText, spoken } from "./dom.js";
import { plural, t } from "./i18n.js";
import { icon } from "./icons.js";
import { cameIn, isUnread } from "./news.js";
import { isLookedAt, Reading } from "./reading.js";
import { timeline } from "./timeline.js";
import { around, moved, newer, newest, older } from "./window.js";

const NEAR = 900; // pixels from an edge at which the next messages come in
const AT_END = 48;
const RETRY_MS = 3000;
const MOST_PAGES_TO_UNREAD = 10;
const LATE_MS = 60000; // two who write at once do so by less

export class Messages {
  constructor({ chat, peer, actions, signal }) {
    Object.assign(this, { chat, peer, actions, signal });
    this.nodes = new Map();
    this.all = [];
    this.window = { start: 0, end: 0 };
    this.pinned = true; // whether the end of the chat stays in sight
    this.mayBeOlder = false;
    this.loading = false;
    this.opening = false; // until the first unread message is known nothing counts as seen: a receipt is for all before it
    this.waiting = false;
    this.away = false; // whether something has changed while nobody was looking
    this.unreadKey = null;
    this.unseen = 0;
    this.edge = h("p", { class: "edge" });
    this.list = h("ol", { class: "timeline", role: "list", "aria-label": t("chat.messages", { peer }) });
    this.scroller = h("div", { class: "scroller" }, this.edge, this.list);
    this.count = h("span", { class: "badge" });
    this.downText = spoken(t("chat.toNewest"));
    this.down = h(
      "button", { type: "button", class: "down", hidden: true, on: { click: () => this.toNewest({ focus: true }) } },
      icon("down"), this.count, this.downText,
    );
    this.element = h("div", { class: "messages" }, this.scroller, this.down);
    this.reading = new Reading({ chat, peer, root: this.scroller, signal });
    this.scroller.addEventListener("scroll", () => this.onScroll(), { signal, passive: true });
    this.list.addEventListener("keydown", (event) => this.onKey(event), { signal });
    this.list.addEventListener("focusin", (event) => this.setCursor(event.target.closest(".message")), { signal });
    chat.addEventListener("messages", (event) => {
      if (event.detail.peer.toLowerCase() === peer.toLowerCase()) this.schedule();
    }, { signal });
    this.sizes = new ResizeObserver(() => this.onResize());
    this.sizes.observe(this.scroller);
    signal.addEventListener("abort", () => this.sizes.disconnect());
  }

  /** Loads the chat and shows its first unread message, or its end. */
  async open() {
    this.opening = true;
    this.render();
    setText(this.edge, t("chat.loading"));
    try {
      await this.chat.openChat(this.peer);
      this.mayBeOlder = true;
      for (let page = 0; page < MOST_PAGES_TO_UNREAD && !this.signal.aborted; page += 1) {
        const { at, sure } = this.firstUnread(this.chat.messages(this.peer));
        // Otherwise there may be unread ones before it, which only the server has.
        if (at < 0 || sure || !this.mayBeOlder || this.chat.state.link !== "online") break;
        this.mayBeOlder = await this.chat.loadOlder(this.peer);
      }
    } finally {
      this.opening = false;
    }
    if (this.signal.aborted) return;
    this.render();
    const { at } = this.firstUnread(this.all);
    if (at >= 0 && this.pinned) {
      this.unreadKey = this.all[at].key;
      this.window = around(at, this.all.length);
      this.pinned = false;
      this.draw();
      this.nodes.get("unread")?.scrollIntoView({ block: "start" });
    }
    this.onScroll(); // what does not fill the screen has its beginning in sight
  }

  // Where the unread messages begin, or -1; `sure` if a message that was read stands before them.
  firstUnread(all) {
    let first = -1;
    for (let at = all.length - 1; at >= 0; at -= 1) {
      if (isUnread(all[at])) first = at;
      else if (isUnread({ ...all[at], read: false })) return { at: first, sure: true };
    }
    return { at: first, sure: false };
  }

  // Changes come in bursts; the page is drawn once for each frame. A hidden page draws when it is looked at again.
  schedule() {
    this.away ||= !isLookedAt();
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (!this.signal.aborted) this.render();
    });
  }

  render() {
    const before = this.all;
    const hadNewest = this.window.end >= before.length;
    const firstKey = before[this.window.start]?.key;
    this.all = [...this.chat.messages(this.peer)];
    const count = this.all.length;
    if (this.pinned || firstKey === undefined) this.window = newest(count);
    else {
      const at = this.all.findIndex((message) => message.key === firstKey);
      this.window = at < 0 ? newest(count) : moved(this.window, at, { hadNewest, count });
    }
    if (before.length) this.takeNews(before);
    this.draw();
  }

  // What has come in: counted, and marked where nobody was looking, or would look for it.
  takeNews(before) {
    const news = cameIn(this.all, before);
    if (!this.pinned) this.unseen += news.length;
    const isLate = news.length > 0 && news[0].timeMs < before.at(-1).timeMs - LATE_MS;
    if (!news.length || !(this.away || isLate)) return;
    const marked = this.all.find((message) => message.key === this.unreadKey);
    if (!marked || marked.read || news[0].timeMs < marked.timeMs) this.unreadKey = news[0].key;
    this.away = false;
  }

  /** What is in sight, to be found again by `goTo`; null at the end of the chat. */
  place() {
    const anchor = this.pinned ? null : this.anchor();
    return anchor && { key: anchor.node.bubble.message.key, top: anchor.top, unreadKey: this.unreadKey };
  }

  goTo({ key, top, unreadKey }) {
    const at = this.all.findIndex((message) => message.key === key);
    if (at < 0) return;
    Object.assign(this, { unreadKey, pinned: false, window: around(at, this.all.length) });
    this.draw();
    this.scroller.scrollTop += this.nodes.get(key).getBoundingClientRect().top - top;
  }

  draw() {
    const anchor = this.pinned ? null : this.anchor();
    const entries = timeline(this.all, this.window, this.unreadKey);
    reconcile(this.list, this.nodes, entries, {
      key: (entry) => entry.id,
      create: (entry) => this.create(entry),
      update: (node, entry) => this.update(node, entry),
      remove: (node) => node.bubble && this.reading.forget(node.bubble.foot),
    });
    setText(this.edge, this.edgeText());
    setAttribute(this.list, "aria-busy", this.loading ? "true" : null);
    this.keepCursor();
    if (this.pinned) this.scroller.scrollTop = this.scroller.scrollHeight;
    else if (anchor?.node.isConnected) {
      this.scroller.scrollTop += anchor.node.getBoundingClientRect().top - anchor.top;
    }
    this.showDown();
  }

  edgeText() {
    if (this.loading) return t("chat.loading");
    if (this.waiting && this.window.start === 0) return t("chat.olderOffline");
    if (this.window.start > 0 || this.mayBeOlder) return "";
    return this.all.length ? t("chat.beginning") : t("chat.empty", { peer: this.peer });
  }

  create(entry) {
    if (entry.kind === "message") return new Bubble(this.actions, this.peer).element;
    return h("li", { class: entry.kind });
  }

  update(node, entry) {
    if (entry.kind === "day") setText(node, dayLabel(entry.timeMs));
    else if (entry.kind === "unread") setText(node, t("chat.unreadMark"));
    else {
      const { bubble } = node;
      const foot = bubble.foot;
      bubble.update(entry);
      if (foot && foot !== bubble.foot) this.reading.forget(foot);
      const { message } = entry;
      if (isUnread(message) && !this.opening) this.reading.watch(bubble.foot, message);
      else this.reading.forget(bubble.foot);
    }
  }

  // The first message in sight, and where it is.
  anchor() {
    const { top } = this.scroller.getBoundingClientRect();
    for (const node of this.list.children) {
      const box = node.getBoundingClientRect();
      if (node.bubble && box.bottom > top) return { node, top: box.top };
    }
    return null;
  }

  atEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return this.window.end >= this.all.length && scrollHeight - clientHeight - scrollTop < AT_END;
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.pinned = this.atEnd();
    if (this.pinned) this.unseen = 0;
    if (scrollTop < NEAR) this.goOlder();
    else if (scrollHeight - clientHeight - scrollTop < NEAR && this.window.end < this.all.length) {
      this.window = newer(this.window, this.all.length);
      this.draw();
    }
    this.showDown();
  }

  goOlder() {
    if (this.window.start > 0) {
      this.window = older(this.window);
      this.pinned = false;
      this.draw();
    } else if (this.mayBeOlder && !this.loading && !this.waiting) this.loadOlder();
  }

  async loadOlder() {
    this.loading = true;
    setText(this.edge, t("chat.loading"));
    const known = this.all.length;
    let more = true;
    try {
      more = await this.chat.loadOlder(this.peer);
    } catch {
      // It is tried again below.
    }
    this.loading = false;
    if (this.signal.aborted) return;
    const offline = this.chat.state.link !== "online";
    this.mayBeOlder = more || offline; // without a connection "no more" is only said of this browser's store
    this.render();
    if (this.all.length === known && this.mayBeOlder) await this.pause(offline);
    // The new ones are before the window; what is near is taken in, and more is asked for where that was not enough.
    if (!this.signal.aborted && this.scroller.scrollTop < NEAR) requestAnimationFrame(() => this.goOlder());
  }

  // Nothing has come: wait for the connection, or a little where there is one.
  async pause(offline) {
    this.waiting = offline;
    setText(this.edge, this.edgeText());
    await new Promise((resolve) => {
      const look = () => this.chat.state.link === "online" && resolve();
      if (offline) this.chat.addEventListener("state", look, { signal: this.signal });
      else setTimeout(resolve, RETRY_MS);
      this.signal.addEventListener("abort", resolve);
    });
    this.waiting = false;
    setText(this.edge, this.edgeText());
  }

  // The keyboard of a phone, a longer text field: the end stays in sight if it was.
  onResize() {
    if (this.pinned) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  toNewest({ focus = false } = {}) {
    this.pinned = true;
    this.unseen = 0;
    this.render();
    if (focus) this.messageNodes().at(-1)?.focus({ preventScroll: true });
  }

  showDown() {
    this.down.hidden = this.pinned || this.all.length === 0 || this.atEnd();
    setText(this.count, this.unseen ? String(Math.min(this.unseen, 999)) : "");
    setText(this.downText, this.unseen ? plural("chat.toUnseen", this.unseen) : t("chat.toNewest"));
  }

  /** The days' names change at midnight. */
  onNewDay() {
    this.draw();
  }

  messageNodes() {
    return [...this.list.children].filter((node) => node.bubble);
  }

  // One message is in the order of Tab; the arrow keys go from there.
  setCursor(node) {
    if (!node || node === this.cursor) return;
    if (this.cursor) this.cursor.tabIndex = -1;
    if (this.cursor?.bubble) this.cursor.bubble.more.tabIndex = -1;
    this.cursor = node;
    node.tabIndex = 0;
  }

  keepCursor() {
    if (!this.cursor?.isConnected) {
      this.cursor = null;
      this.setCursor(this.messageNodes().at(-1));
    } else if (this.pinned && !this.list.contains(document.activeElement)) this.setCursor(this.messageNodes().at(-1));
  }

  onKey(event) {
    const node = event.target.closest(".message");
    if (!node || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step) this.step(event, node, step);
    else if (event.key === "End") {
      event.preventDefault();
      this.toNewest({ focus: true });
    } else if (event.target === node && (event.key === "Enter" || event.key === " " || event.key === "ContextMenu")) {
      event.preventDefault();
      node.bubble.openMenu();
    }
  }

  step(event, node, step) {
    event.preventDefault();
    const nodes = this.messageNodes();
    const target = nodes[nodes.indexOf(node) + step];
    if (!target) return;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
  }
}
