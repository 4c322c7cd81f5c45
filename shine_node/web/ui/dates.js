// Times as a person reads them, in the language of the page and the time zone of the machine.
import { currentLanguage, t } from "./i18n.js";

const LAST_TIME = 8.64e15; // what a Date can hold; a container's timeMs can be anything
const formats = new Map();

// The browser's own kind of the language where it has one: en-GB writes days and hours in another way than en-US.
function localeOf(language) {
  return (navigator.languages ?? []).find((tag) => tag.toLowerCase().split("-")[0] === language) ?? language;
}

function format(timeMs, options) {
  if (!(Math.abs(timeMs) <= LAST_TIME)) return "—";
  const language = currentLanguage();
  const key = language + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(localeOf(language), options));
  return formats.get(key).format(timeMs);
}

/** How long, in the largest unit of which it is at least two; minutes are the smallest. */
export function duration(ms) {
  const [unit, length] = [["day", 86400000], ["hour", 3600000]].find(([, each]) => ms >= 2 * each) ?? ["minute", 60000];
  const options = { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: 0 };
  return new Intl.NumberFormat(localeOf(currentLanguage()), options).format(ms / length);
}

/** A number that is the same for two times exactly if they lie on one day here. */
export function dayOf(timeMs) {
  if (!(Math.abs(timeMs) <= LAST_TIME)) return 0;
  const date = new Date(timeMs);
  return date.getFullYear() * 10000 + date.getMonth() * 100 + date.getDate();
}

// By the calendar and not by 24 hours: days of 23 and 25 hours exist.
function daysAgo(timeMs, nowMs) {
  const start = (ms) => new Date(ms).setHours(0, 0, 0, 0);
  return Math.round((start(nowMs) - start(timeMs)) / 86400000);
}

export function clockTime(timeMs) {
  return format(timeMs, { hour: "2-digit", minute: "2-digit" });
}

export function fullTime(timeMs) {
  return format(timeMs, { dateStyle: "long", timeStyle: "short" });
}

/** The separator of a day: today, yesterday, or its date, with the year unless it is this one. */
export function dayLabel(timeMs, nowMs = Date.now()) {
  const ago = daysAgo(timeMs, nowMs);
  if (ago === 0) return t("day.today");
  if (ago === 1) return t("day.yesterday");
  const sameYear = new Date(timeMs).getFullYear() === new Date(nowMs).getFullYear();
  return format(timeMs, { day: "numeric", month: "long", ...(sameYear ? {} : { year: "numeric" }) });
}

/** A short time for a list: the clock today, the weekday in the last week, else the date. */
export function listTime(timeMs, nowMs = Date.now()) {
  const ago = daysAgo(timeMs, nowMs);
  if (ago === 0) return clockTime(timeMs);
  if (ago > 0 && ago < 7) return format(timeMs, { weekday: "short" });
  return format(timeMs, { day: "2-digit", month: "2-digit", year: "2-digit" });
}
