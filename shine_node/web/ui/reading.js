// Tells the core which message has really been seen: on the screen to its last line, in a page that has the focus.

/** Whether a person can see the page just now. */
export function isLookedAt() {
  return document.visibilityState === "visible" && document.hasFocus();
}

export class Reading {
  constructor({ chat, peer, root, signal }) {
    this.chat = chat;
    this.peer = peer;
    this.messages = new Map(); // what is watched, from the foot of a bubble to its message
    this.visible = new Set();
    this.newestMs = -1;
    this.observer = new IntersectionObserver((entries) => this.onSeen(entries), { root, threshold: 0.9 });
    const look = () => this.look();
    document.addEventListener("visibilitychange", look, { signal });
    addEventListener("focus", look, { signal });
    signal.addEventListener("abort", () => this.observer.disconnect());
  }

  /** Watches the foot of an unread message; the same one again changes nothing. */
  watch(foot, message) {
    if (!this.messages.has(foot)) this.observer.observe(foot);
    this.messages.set(foot, message);
  }

  forget(foot) {
    if (!this.messages.delete(foot)) return;
    this.visible.delete(foot);
    this.observer.unobserve(foot);
  }

  onSeen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && this.messages.has(target)) this.visible.add(target);
      else this.visible.delete(target);
    }
    this.look();
  }

  look() {
    if (!isLookedAt()) return;
    let newest = null;
    for (const foot of this.visible) {
      const message = this.messages.get(foot);
      if (message.timeMs > (newest?.timeMs ?? this.newestMs)) newest = message;
    }
    if (newest === null) return;
    this.tell(newest);
  }

  async tell(message) {
    const before = this.newestMs;
    this.newestMs = message.timeMs;
    try {
      await this.chat.read(this.peer, message);
    } catch {
      this.newestMs = Math.min(this.newestMs, before); // the next look tries again
    }
  }
}
