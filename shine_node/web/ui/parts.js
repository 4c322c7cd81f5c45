// Small parts that more than one view has.
import { h } from "./dom.js";
import { clockTime } from "./dates.js";
import { t } from "./i18n.js";
import { hueOf, initialOf } from "./text.js";

/** The round sign of a person; decoration, the name stands beside it. */
export function avatar(login) {
  return h("span", { class: `avatar hue-${hueOf(login)}`, "aria-hidden": "true" }, initialOf(login));
}

// Since when there is no connection: each try to get one changes the link's own time.
let lostMs = null;

/** What to say of the connection: {text, kind: "online" | "connecting" | "offline"}. */
export function statusText({ link, since }) {
  if (link === "offline") lostMs ??= since;
  else if (link !== "connecting") lostMs = null;
  if (link === "online") return { kind: "online", text: t("link.online") };
  if (lostMs === null) return { kind: "connecting", text: t("link.connecting") };
  return { kind: "offline", text: t("link.offlineSince", { time: clockTime(lostMs) }) };
}
