// The height that is left above a virtual keyboard, for browsers that lay the keyboard over the page.

/** Keeps `--app-height` at the visible height while something covers the lower part of the page. */
export function followKeyboard() {
  const view = globalThis.visualViewport;
  if (!view) return;
  const root = document.documentElement;
  const fit = () => {
    if (view.scale === 1 && innerHeight - view.height > 80) {
      root.style.setProperty("--app-height", `${Math.round(view.height)}px`);
      scrollTo(0, 0);
    } else root.style.removeProperty("--app-height");
  };
  view.addEventListener("resize", fit);
  view.addEventListener("scroll", fit);
}
