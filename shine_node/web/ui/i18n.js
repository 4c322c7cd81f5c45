// The language of the page: which one, and its texts.
import en from "../i18n/en.js";
import ru from "../i18n/ru.js";

const DICTIONARIES = { en, ru };

/** Languages by code, each named in itself. */
export const LANGUAGES = { ru: "Русский", en: "English" };

let language = "en";

/** The first language of the browser that the page has; English where it has none of them. */
export function browserLanguage(preferred = navigator.languages ?? [navigator.language]) {
  for (const tag of preferred) {
    const code = String(tag).toLowerCase().split("-")[0];
    if (code in DICTIONARIES) return code;
  }
  return "en";
}

/** Takes a language of LANGUAGES; anything else becomes that of the browser. */
export function setLanguage(code) {
  language = Object.hasOwn(DICTIONARIES, code ?? "") ? code : browserLanguage();
  document.documentElement.lang = language;
}

export function currentLanguage() {
  return language;
}

export function hasText(key) {
  return Object.hasOwn(en, key);
}

// A value from outside must not turn round the sentence that it stands in.
function isolate(value) {
  const text = String(value);
  return /^[\x20-\x7e]*$/.test(text) ? text : `\u2068${text}\u2069`;
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? isolate(values[name]) : whole));
}

/** The text of `key`, with `{name}` replaced by the value of that name. */
export function t(key, values = {}) {
  const text = DICTIONARIES[language][key];
  if (text === undefined) throw new RangeError(`no text for ${key}`);
  return fill(text, values);
}

/** The form for the number `n` among those that the text lists, separated by `|`, in the order one, few, many. */
export function plural(key, n, values = {}) {
  const forms = DICTIONARIES[language][key].split("|");
  const rule = new Intl.PluralRules(language).select(n);
  const at = rule === "one" ? 0 : rule === "few" ? 1 : forms.length - 1;
  return fill(forms[at], { n, ...values });
}

/** What went wrong, for a person: by the code of the error, or with the code where there is no text for it. */
export function errorText(error) {
  const code = error?.code ?? (typeof error === "string" ? error : "");
  if (hasText(`error.${code}`)) return t(`error.${code}`);
  return t("error.other", { code: code || error?.message || "?" });
}
