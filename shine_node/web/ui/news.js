// What has come in since, whatever time it says: what is delivered late stands between older messages. Pure.

const SEEN_AS = new Set(["not-text", "sealed-for-another-key"]);

/** Whether a message is to be read. What has no text here is seen by what stands instead; what nobody has proven never is. */
export function isUnread({ out, read, deleted, problem }) {
  return !out && !read && !deleted && (!problem || SEEN_AS.has(problem));
}

/**
 * The messages in `all` that came in after `before`, both oldest first: those after the last one that was there, and the
 * unread ones among the others. What is older than all that was there was loaded, and has not come in.
 */
export function cameIn(all, before) {
  const known = new Set(before.map(({ key }) => key));
  const first = all.findIndex(({ key }) => known.has(key));
  const last = all.findLastIndex(({ key }) => known.has(key));
  return all.filter((message, at) => at > first && !message.out && !known.has(message.key) && (at > last || isUnread(message)));
}
