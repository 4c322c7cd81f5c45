// Runs before the first paint, so that a chosen theme does not flash in the other one. A classic script: modules wait.
(() => {
  try {
    const theme = localStorage.getItem("shine-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is forbidden here: the theme is then that of the system.
  }
})();
