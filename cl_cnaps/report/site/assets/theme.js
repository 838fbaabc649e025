// Light or dark: the reader's choice if there is one, else the system's. Runs before the page is drawn.
(() => {
  "use strict";
  const KEY = "cl-cnaps-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  // Storage may be refused to pages from the file system; the choice then lasts as long as the page.
  function remembered() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function remember(theme) {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      return;
    }
  }

  const root = document.documentElement;
  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("button.theme");
    const show = () => button.setAttribute("aria-pressed", String(isDark()));
    button.hidden = false;
    show();
    system.addEventListener("change", show);
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      show();
    });
  });
})();
