// What all drawn charts share: SVG elements, an axis of accuracies, and marks that tell their numbers to mouse and keyboard.
(() => {
  "use strict";

  function svg(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Lines and numbers of an accuracy axis; `y` maps per cent to pixels.
  function accuracyAxis(y, left, right, ticks) {
    return ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "axis", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)),
    ]);
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);

  let target = null;

  // Beside its mark, within the window.
  function placeTip() {
    const box = target.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, room))}px`;
    tip.style.top = `${above >= 8 ? above : box.bottom + 8}px`;
  }

  // Lines of text, never markup.
  function showTip(node, lines) {
    target = node;
    tip.replaceChildren(...lines.map((line, i) => Object.assign(document.createElement(i ? "span" : "strong"), { textContent: line })));
    tip.hidden = false;
    placeTip();
  }

  function hideTip() {
    tip.hidden = true;
  }

  // Moving to a mark may scroll the page: its tip goes with it as long as the mark has the focus or the pointer.
  function afterScrolling() {
    if (target === document.activeElement || target?.matches(":hover")) placeTip();
    else hideTip();
  }

  window.addEventListener("scroll", afterScrolling, { passive: true, capture: true });
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });

  // `marks`: [{node, lines, row, column}]. One stop for the Tab key; arrows move within a row, up and down between rows.
  function interactive(marks, open) {
    let current = 0;

    function focus(place) {
      marks[current].node.setAttribute("tabindex", "-1");
      current = place;
      marks[current].node.setAttribute("tabindex", "0");
      marks[current].node.focus();
    }

    function beside(place, rows) {
      const { row, column } = marks[place];
      const wanted = row + rows;
      const found = marks.findIndex((mark) => mark.row === wanted && mark.column === column);
      return found >= 0 ? found : place;
    }

    const moves = {
      ArrowRight: (place) => Math.min(place + 1, marks.length - 1),
      ArrowLeft: (place) => Math.max(place - 1, 0),
      ArrowDown: (place) => beside(place, 1),
      ArrowUp: (place) => beside(place, -1),
      Home: () => 0,
      End: () => marks.length - 1,
    };

    marks.forEach(({ node, lines }, place) => {
      node.setAttribute("tabindex", place === 0 ? "0" : "-1");
      node.setAttribute("role", "img");
      node.setAttribute("aria-label", lines.join(", "));
      node.addEventListener("pointerenter", () => showTip(node, lines));
      node.addEventListener("pointerleave", hideTip);
      node.addEventListener("focus", () => showTip(node, lines));
      node.addEventListener("blur", hideTip);
      node.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && open) open(place);
        if (!(event.key in moves)) return;
        event.preventDefault();
        focus(moves[event.key](place));
      });
    });
  }

  // Draw now and whenever the place changes its width.
  function drawToWidth(place, draw) {
    let drawn = 0;
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width > 0 && width !== drawn) {
        drawn = width;
        place.replaceChildren(draw(width));
      }
    }).observe(place);
  }

  // As Python writes it in the tables: the nearest tenth to the number as it is stored. Of the two that are equally near to
  // x.25 or x.75 exactly, Python takes the even one and toFixed the larger.
  const tenths = (value) => (Math.abs(value % 1) === 0.25 ? Math.trunc(value * 10) / 10 : value).toFixed(1).replace(/^-(?!0\.0$)/, "\u2212").replace("-", "");
  const accuracy = (mean, half) => `${tenths(mean)}${half === null || half === undefined ? "" : ` ± ${tenths(half)}`} %`;

  window.report = { ...window.report, svg, accuracyAxis, interactive, drawToWidth, accuracy, tenths };
})();
