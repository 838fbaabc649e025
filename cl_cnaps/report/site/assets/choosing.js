// Menus above a chart. What is chosen stands in the address after #, so that a link shows the same chart.
(() => {
  "use strict";

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function inAddress(key) {
    return new URLSearchParams(location.hash.slice(1)).get(key);
  }

  function toAddress(key, value) {
    const all = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    all.set(key, value);
    history.replaceState(null, "", `#${all}`);
  }

  // `menus`: [{key, label, options(chosen) -> [[value, text], ...]}]; the options of a menu may depend on those before it.
  function choosing(place, menus, changed) {
    const bar = element("div", { class: "chooser" });
    const selects = new Map();
    for (const { key, label } of menus) {
      const select = element("select", { name: key });
      bar.append(element("label", {}, `${label} `, select));
      selects.set(key, select);
      select.addEventListener("change", () => {
        toAddress(key, select.value);
        update();
      });
    }
    place.append(bar);

    function update() {
      const chosen = {};
      for (const { key, options } of menus) {
        const select = selects.get(key);
        const offered = options(chosen);
        const wanted = select.options.length ? select.value : inAddress(key);
        select.replaceChildren(...offered.map(([value, text]) => element("option", { value }, text)));
        select.value = offered.some(([value]) => value === wanted) ? wanted : offered[0][0];
        select.disabled = offered.length < 2;
        chosen[key] = select.value;
      }
      changed(chosen);
    }
    update();
  }

  const distinct = (values) => [...new Set(values)];

  window.report = { ...window.report, choosing, element, distinct };
})();
