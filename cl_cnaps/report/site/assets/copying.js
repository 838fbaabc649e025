// A button that copies a command; where the clipboard is refused, the command is selected for the reader to copy.
(() => {
  "use strict";
  for (const button of document.querySelectorAll("button.copy")) {
    const source = document.getElementById(button.dataset.copies);
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = "Selected";
      }
    });
  }
})();
