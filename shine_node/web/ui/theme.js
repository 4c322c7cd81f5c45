// Light, dark, or as the system has it.

const COLOURS = { light: "#ffffff", dark: "#15181d" };

export const THEMES = ["auto", "light", "dark"];

/** Applies a theme of THEMES; anything else is "auto". The choice is also kept where early.js finds it. */
export function setTheme(theme) {
  const chosen = theme === "light" || theme === "dark" ? theme : null;
  const root = document.documentElement;
  if (chosen) root.dataset.theme = chosen;
  else delete root.dataset.theme;
  for (const meta of document.querySelectorAll('meta[name="theme-color"]')) {
    meta.content = COLOURS[chosen ?? (meta.media.includes("dark") ? "dark" : "light")];
  }
  try {
    if (chosen) localStorage.setItem("shine-theme", chosen);
    else localStorage.removeItem("shine-theme");
  } catch {
    // Storage is forbidden here: the theme holds until the page is left.
  }
}
