// The scripts of every page: colours, menus, tables, charts. Nothing is fetched; without scripts the tables remain.
(() => {
  "use strict";

  // Light or dark: the reader's choice if there is one, else the system's. Runs before the page is drawn.
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

  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(tip);
    connectTables();
    for (const place of document.querySelectorAll(".compare")) compare(place);
    drawBars();
    for (const place of document.querySelectorAll(".curves")) drawCurves(place);
    connectCopies();
    window.report = { tenths };
  });

  // Menus above a chart. What is chosen stands in the address after #, so that a link shows the same chart.
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

  // What all drawn charts share: SVG elements, an axis of accuracies, and marks that tell their numbers to mouse and keyboard.
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

  // Tables: sort by a column, choose kinds of rows, find rows by their text.
  const NEXT = { none: null, ascending: "descending", descending: "ascending" };

  // The place of a header's column. Headers stand in two lines where columns are grouped, each column once with a button.
  function columnsOf(table) {
    const lines = [...table.tHead.rows];
    if (lines.length === 1) return [...lines[0].cells];
    const below = [...lines[1].cells];
    return [...lines[0].cells].flatMap((cell) => (cell.colSpan > 1 || cell.classList.contains("group") ? below.splice(0, cell.colSpan) : [cell]));
  }

  function sort(table, columns, place) {
    const header = columns[place];
    const direction = NEXT[header.getAttribute("aria-sort")] ?? header.dataset.first;
    for (const other of columns) other.setAttribute("aria-sort", other === header ? direction : "none");
    const sign = direction === "ascending" ? 1 : -1;
    const numeric = header.classList.contains("numeric");
    const key = (row) => {
      const value = row.cells[place].dataset.value;
      return value === undefined ? null : numeric ? Number(value) : value;
    };
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null); // nothing to sort by: last, always
      return sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, index) => ({ row, index, key: key(row) }));
    rows.sort((a, b) => compare(a.key, b.key) || a.index - b.index);
    body.append(...rows.map(({ row }) => row));
  }

  function connectTools(table, tools) {
    const ticks = [...tools.querySelectorAll("input[type=checkbox]")];
    const search = tools.querySelector("input[type=search]");
    const status = tools.querySelector(".shown");
    const apply = () => {
      const kinds = new Set(ticks.filter((tick) => tick.checked).map((tick) => tick.value));
      const parts = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = parts.length ? row.textContent.toLowerCase() : "";
        row.hidden = (ticks.length > 0 && !kinds.has(row.dataset.kind)) || !parts.every((part) => text.includes(part));
        if (!row.hidden) shown += 1;
      }
      const all = table.tBodies[0].rows.length;
      status.textContent = shown === all ? "" : `${shown} of ${all} rows shown`;
    };
    tools.addEventListener("input", apply);
    tools.hidden = ticks.length === 0 && !search;
    apply(); // a browser may have kept the choice from before a reload
  }

  // A table wider than its place is scrolled: a line above it tells so, as long as it is.
  function hint(box) {
    const line = element("p", { class: "hint", hidden: "" }, "Wider than the page: scroll sideways →");
    box.before(line);
    new ResizeObserver(() => {
      line.hidden = box.scrollWidth <= box.clientWidth + 1;
      box.classList.toggle("wide", !line.hidden);
    }).observe(box);
    box.addEventListener("scroll", () => box.classList.toggle("end", box.scrollLeft + box.clientWidth >= box.scrollWidth - 2), { passive: true });
  }

  function connectTables() {
    for (const table of document.querySelectorAll(".table-box > table:has(thead)")) {
      const columns = columnsOf(table);
      [...table.tBodies[0].rows].forEach((row, index) => (row.dataset.row = index));
      columns.forEach((header, place) => header.querySelector("button.sort")?.addEventListener("click", () => sort(table, columns, place)));
      const tools = document.querySelector(`.table-tools[data-for="${CSS.escape(table.id)}"]`);
      if (tools) connectTools(table, tools);
    }
    document.querySelectorAll(".table-box").forEach(hint);
  }

  // The rows of a table on one axis, best first, with their intervals; which column and which rows is the reader's choice.
  // Read from the table's own cells, so that the two cannot disagree.
  const MOST_COMPARED = 14;

  function rowsOf(table, column) {
    return [...table.tBodies[0].rows].map((row) => {
      const cell = row.cells[column];
      return {
        id: row.dataset.row,
        name: row.cells[0].firstChild.textContent.trim(),
        kind: row.dataset.kind,
        tag: row.cells[0].querySelector(".tag")?.textContent,
        value: cell.dataset.value === undefined ? null : Number(cell.dataset.value),
        half: cell.dataset.half === undefined ? null : Number(cell.dataset.half),
        text: cell.textContent.trim(),
        href: cell.querySelector("a")?.getAttribute("href") ?? null,
      };
    });
  }

  function axisOf(rows) {
    const low = Math.min(...rows.map(({ value, half }) => value - (half ?? 0)));
    const high = Math.min(100, Math.max(...rows.map(({ value, half }) => value + (half ?? 0))));
    const step = [1, 2, 5, 10, 20, 25].find((s) => (high - low) / s <= 6) ?? 50;
    const from = Math.max(0, Math.floor(low / step) * step);
    const to = Math.max(from + step, Math.ceil(high / step) * step);
    return Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => from + i * step);
  }

  function compared({ name, kind, tag, value, half, text, href }, ticks) {
    const at = (number) => `${(100 * (number - ticks[0])) / (ticks.at(-1) - ticks[0])}%`;
    const track = element("span", { class: "track", "aria-hidden": "true" });
    for (const tick of ticks) track.append(Object.assign(element("span", { class: "line" }), { style: `left: ${at(tick)}` }));
    if (half !== null) {
      const low = Math.max(ticks[0], value - half);
      const width = (100 * (Math.min(ticks.at(-1), value + half) - low)) / (ticks.at(-1) - ticks[0]);
      track.append(Object.assign(element("span", { class: "whisker" }), { style: `left: ${at(low)}; width: ${width}%` }));
    }
    track.append(Object.assign(element("span", { class: "point" }), { style: `left: ${at(value)}` }));
    const label = element("span", { class: "name" }, name);
    if (tag) label.append(" ", element("span", { class: "tag" }, tag));
    return element("li", { "data-kind": kind }, label, track, element("span", { class: "value" }, href ? element("a", { href }, text) : text));
  }

  function scale(ticks) {
    const track = element("span", { class: "track" });
    for (const tick of ticks) track.append(Object.assign(element("span", { class: "tick-label" }, String(tick)), { style: `left: ${(100 * (tick - ticks[0])) / (ticks.at(-1) - ticks[0])}%` }));
    return element("li", { class: "scale", "aria-hidden": "true" }, element("span", { class: "name" }), track, element("span", { class: "value" }, "%"));
  }

  function compare(place) {
    const table = document.getElementById(place.dataset.table);
    const columns = columnsOf(table)
      .map((header, index) => ({ name: header.dataset.chart, index }))
      .filter(({ name, index }) => name && rowsOf(table, index).some((row) => row.value !== null));
    if (!columns.length) return;
    const offered = columns.map(({ name, index }) => [String(index), name]);
    const ours = (index) => rowsOf(table, Number(index)).some((row) => row.kind === "here" && row.value !== null);
    const rank = ([index, name]) => 4 * ours(index) + 2 * (name === place.dataset.first) + name.endsWith("single head"); // first what was measured here
    offered.sort((a, b) => rank(b) - rank(a));
    const rowsKey = `${table.id}-rows`;
    const list = element("ol", { class: "rank" });
    const ticks = element("div", { class: "choices" });
    const summary = element("summary", {});
    const choices = element("details", { class: "choose" }, summary, ticks);
    let chosen = inAddress(rowsKey)?.split(".") ?? null; // null: the best
    let column = null;

    function show() {
      const rows = rowsOf(table, column).filter((row) => row.value !== null).sort((a, b) => b.value - a.value);
      const usual = rows.filter((row) => !["each", "paper-other"].includes(row.kind));
      const shown = chosen === null ? usual.slice(0, MOST_COMPARED) : rows.filter((row) => chosen.includes(row.id));
      const axis = axisOf(shown.length ? shown : rows);
      list.replaceChildren(scale(axis), ...shown.map((row) => compared(row, axis)));
      summary.textContent = `Choose rows: ${shown.length} of ${rows.length} shown`;
      const ids = new Set(shown.map((row) => row.id));
      ticks.replaceChildren(
        ...rows.map((row) => {
          const tick = element("input", { type: "checkbox", value: row.id });
          tick.checked = ids.has(row.id);
          return element("label", { class: "tick" }, tick, ` ${row.name}${row.tag ? ` (${row.tag})` : ""}`);
        }),
      );
    }

    ticks.addEventListener("change", () => {
      chosen = [...ticks.querySelectorAll("input:checked")].map((tick) => tick.value);
      toAddress(rowsKey, chosen.join("."));
      const open = document.activeElement?.value;
      show();
      ticks.querySelector(`input[value="${open}"]`)?.focus();
    });
    choosing(place, [{ key: table.id, label: "Accuracy on", options: () => offered }], (now) => {
      column = Number(now[table.id]);
      show();
    });
    place.append(list, choices);
    place.hidden = false;
  }

  // After every step of a stream, one bar for each task seen: a chart for each encoding and head.
  function drawBars() {
    const place = document.getElementById("bars");
    if (!place) return;
    const panels = JSON.parse(document.getElementById("bars-data").textContent);
    const HEIGHT = 240;
    const EDGE = { left: 34, right: 4, top: 10, bottom: 40 };
    const NAMED_TASKS = 12;
    const ALL = "all";

    const withAll = (values, name, first) => {
      const each = values.map((v) => [v, v || "–"]);
      if (values.length < 2) return each;
      return [...each.filter(([v]) => v === first), [ALL, `all ${name}`], ...each.filter(([v]) => v !== first)];
    };
    const ofModel = ({ benchmark, model }) => panels.filter((p) => p.benchmark === benchmark && p.model === model);

    function drawPanel(panel, width) {
      const steps = panel.steps;
      const bars = steps.reduce((sum, step) => sum + step.learned, 0);
      const gap = panel.tasks.length <= NAMED_TASKS ? 1.2 : 0.06 * panel.tasks.length;
      const unit = (width - EDGE.left - EDGE.right) / (bars + gap * steps.length);
      const base = HEIGHT - EDGE.bottom;
      const y = (value) => base - (Math.max(0, Math.min(100, value)) / 100) * (base - EDGE.top);
      const drawing = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `${panel.model}: ${panel.title}; ${panel.outcome}` });
      drawing.append(...accuracyAxis(y, EDGE.left, width - EDGE.right, [0, 20, 40, 60, 80, 100]));
      const marks = [];
      let left = EDGE.left + (gap / 2) * unit;
      steps.forEach((step, row) => {
        step.mean.forEach((mean, task) => {
          const half = step.half?.[task] ?? null;
          const x = left + task * unit;
          const node = svg("g", { class: "mark" });
          // The whole height answers to the pointer: a bar near zero can be reached as well.
          node.append(svg("rect", { class: "reach", x, y: EDGE.top, width: unit, height: base - EDGE.top }));
          const slim = unit > 4 ? 0.92 : 1;
          node.append(svg("rect", { class: "bar", x, y: y(mean), width: unit * slim, height: base - y(mean), fill: panel.colours[task] }));
          if (half !== null && unit > 4) {
            const middle = x + (unit * slim) / 2;
            node.append(svg("line", { class: "whisker", x1: middle, x2: middle, y1: y(mean + half), y2: y(mean - half) }));
          }
          const lines = [accuracy(mean, half), `task ${task + 1}: ${panel.tasks[task]}`, `after ${step.learned} of ${panel.tasks.length} tasks`];
          marks.push({ node, lines, row, column: task });
          drawing.append(node);
        });
        const end = left + step.learned * unit;
        for (const name of ["halo", "average"]) drawing.append(svg("line", { class: name, x1: left, x2: end, y1: y(step.average), y2: y(step.average) }));
        drawing.append(svg("text", { class: "axis", x: (left + end) / 2, y: base + 16, "text-anchor": "middle" }, String(step.learned)));
        left = end + gap * unit;
      });
      if (panel.paper) {
        for (const name of ["halo", "paper"]) drawing.append(svg("line", { class: name, x1: EDGE.left, x2: width - EDGE.right, y1: y(panel.paper.mean), y2: y(panel.paper.mean) }));
      }
      const label = steps.length === panel.tasks.length ? "tasks learned" : `tasks learned (${steps.length} of ${panel.tasks.length} steps shown)`;
      drawing.append(svg("text", { class: "axis", x: (EDGE.left + width) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, label));
      interactive(marks, () => location.assign(panel.href));
      return drawing;
    }

    function numbers(panel) {
      const head = element("tr", {}, element("th", { scope: "col" }, "tasks learned"), ...panel.tasks.map((_, i) => element("th", { scope: "col", class: "numeric" }, `task ${i + 1}`)), element("th", { scope: "col", class: "numeric" }, "mean"));
      const rows = panel.steps.map((step) =>
        element("tr", {}, element("th", { scope: "row" }, String(step.learned)), ...panel.tasks.map((_, i) => element("td", { class: "numeric" }, i < step.learned ? accuracy(step.mean[i], step.half?.[i]).replace(" %", "") : "")), element("td", { class: "numeric" }, tenths(step.average))),
      );
      const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
      return element("details", {}, element("summary", {}, "Numbers, %"), element("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": `Numbers: ${panel.title}` }, table));
    }

    function panelFigure(panel) {
      const canvas = element("div", { class: "canvas" });
      drawToWidth(canvas, (width) => drawPanel(panel, width));
      const caption = element("figcaption", {}, element("strong", {}, panel.title), element("span", {}, panel.outcome));
      return element("figure", { class: "chart" }, caption, canvas, numbers(panel), element("a", { href: panel.href }, "Record"));
    }

    function taskLegend(panel) {
      const list = element("ul", { class: "legend" });
      panel.tasks.slice(0, NAMED_TASKS).forEach((name, i) => {
        const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
        swatch.style.background = panel.colours[i];
        list.append(element("li", {}, swatch, `${i + 1}: ${name}`));
      });
      if (panel.tasks.length > NAMED_TASKS) list.append(element("li", {}, `… ${panel.tasks.length} tasks, dark to light in the order of learning`));
      return list;
    }

    const charts = element("div", {});
    choosing(
      place,
      [
        { key: "benchmark", label: "Benchmark", options: () => distinct(panels.map((p) => p.benchmark)).map((b) => [b, b]) },
        { key: "model", label: "Model", options: ({ benchmark }) => distinct(panels.filter((p) => p.benchmark === benchmark).map((p) => p.model)).map((m) => [m, m]) },
        { key: "encoding", label: "Encoding", options: (chosen) => withAll(distinct(ofModel(chosen).map((p) => p.encoding ?? "")), "encodings", "first") },
        { key: "head", label: "Head", options: (chosen) => withAll(distinct(ofModel(chosen).map((p) => p.head)), "heads", null) },
      ],
      (chosen) => {
        const shown = ofModel(chosen).filter((p) => [ALL, p.encoding ?? ""].includes(chosen.encoding) && [ALL, p.head].includes(chosen.head));
        charts.replaceChildren(element("p", { class: "setting" }, shown[0].setting), taskLegend(shown[0]), element("div", { class: "charts" }, ...shown.map(panelFigure)));
      },
    );
    place.append(charts);
    place.hidden = false;
  }

  // Accuracy against labels, queries or shots: a chart for each model or kind of tasks, a line for each strategy or method.
  const CURVE_HEIGHT = 280;
  const CURVE_EDGE = { left: 34, right: 12, top: 10, bottom: 40 };
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

  // A range of whole steps around all accuracies drawn, so that curves near each other come apart.
  function range(shown) {
    const low = Math.min(...shown.flatMap((c) => c.mean.map((m, i) => m - (c.half?.[i] ?? 0))));
    const high = Math.max(...shown.flatMap((c) => c.mean.map((m, i) => m + (c.half?.[i] ?? 0))));
    const step = high - low > 50 ? 20 : high - low > 20 ? 10 : high - low > 8 ? 5 : 2;
    const from = Math.max(0, Math.floor(low / step) * step);
    const to = Math.min(100, Math.max(from + step, Math.ceil(high / step) * step));
    return Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => from + i * step);
  }

  function stepTicks(from, to, width) {
    const step = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000].find((s) => (to - from) / s <= width / 55) ?? to - from;
    const ticks = [];
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
    return ticks;
  }

  // 1, 2, 5, 10, 20, ...
  function factorTicks(from, to) {
    return Array.from({ length: 12 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)).filter((tick) => from <= tick && tick <= to);
  }

  // `what` is drawn against `along`, with equal factors equally wide if `log`.
  function drawCurve(shown, name, { what, along, log }, ticks, width) {
    const from = Math.min(...shown.map((c) => c.at[0]));
    const to = Math.max(...shown.map((c) => c.at.at(-1)));
    const base = CURVE_HEIGHT - CURVE_EDGE.bottom;
    const inside = (value) => Math.max(ticks[0], Math.min(ticks.at(-1), value));
    const y = (value) => base - ((inside(value) - ticks[0]) / (ticks.at(-1) - ticks[0])) * (base - CURVE_EDGE.top);
    const scale = log === undefined ? (at) => at : Math.log;
    const x = (at) => CURVE_EDGE.left + (to === from ? 0.5 : (scale(at) - scale(from)) / (scale(to) - scale(from))) * (width - CURVE_EDGE.left - CURVE_EDGE.right);
    const drawing = svg("svg", { width, height: CURVE_HEIGHT, viewBox: `0 0 ${width} ${CURVE_HEIGHT}`, role: "group", "aria-label": `${name}: ${what} in per cent against ${along}` });
    drawing.append(...accuracyAxis(y, CURVE_EDGE.left, width - CURVE_EDGE.right, ticks));
    for (const tick of log === undefined ? stepTicks(from, to, width) : factorTicks(from, to)) drawing.append(svg("text", { class: "axis", x: x(tick), y: base + 16, "text-anchor": "middle" }, String(tick)));
    drawing.append(svg("text", { class: "axis", x: (CURVE_EDGE.left + width) / 2, y: CURVE_HEIGHT - 6, "text-anchor": "middle" }, along));
    const marks = [];
    shown.forEach((curve, row) => {
      const points = curve.mean.map((mean, i) => [x(curve.at[i]), mean, curve.half?.[i] ?? null]);
      if (curve.half) {
        const upper = points.map(([px, mean, half]) => `${px},${y(mean + half)}`);
        const lower = points.map(([px, mean, half]) => `${px},${y(mean - half)}`).reverse();
        drawing.append(svg("polygon", { class: "band", points: [...upper, ...lower].join(" "), fill: curve.colour }));
      }
      drawing.append(svg("polyline", { class: "curve", points: points.map(([px, mean]) => `${px},${y(mean)}`).join(" "), stroke: curve.colour, "stroke-dasharray": DASHES[row % DASHES.length] }));
    });
    shown.forEach((curve, row) => {
      curve.mean.forEach((mean, i) => {
        const at = { cx: x(curve.at[i]), cy: y(mean) };
        const node = svg("g", { class: "mark" }, svg("circle", { class: "reach", ...at, r: 7 }), svg("circle", { class: "dot", ...at, r: 3, fill: curve.colour }));
        marks.push({ node, row, column: i, lines: [accuracy(mean, curve.half?.[i]), `${curve.line}, ${curve.labels?.[i] ?? curve.at[i]} ${along}`] });
        drawing.append(node);
      });
    });
    interactive(marks, (mark) => location.assign(shown[marks[mark].row].href));
    return drawing;
  }

  function legend(shown) {
    const list = element("ul", { class: "legend" });
    shown.forEach((curve, row) => {
      const key = svg("svg", { width: 28, height: 10, "aria-hidden": "true" }, svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, stroke: curve.colour, "stroke-width": 2.5, "stroke-dasharray": DASHES[row % DASHES.length] }));
      list.append(element("li", {}, key, " ", element("a", { href: curve.href }, curve.line), ` ${accuracy(curve.mean[0])} → ${accuracy(curve.mean.at(-1), curve.half?.at(-1))}`));
    });
    return list;
  }

  function figure(shown, name, words, ticks) {
    const canvas = element("div", { class: "canvas" });
    drawToWidth(canvas, (width) => drawCurve(shown, name, words, ticks, width));
    return element("figure", { class: "chart" }, element("figcaption", {}, element("strong", {}, name)), canvas, legend(shown));
  }

  function drawCurves(place) {
    const curves = JSON.parse(place.querySelector("script").textContent);
    const charts = element("div", { class: "charts" });
    const names = (task) => distinct(curves.filter((c) => c.task === task).map((c) => c.chart));
    const show = ({ task, model }) => {
      const shown = names(task).filter((name) => ["all", name].includes(model));
      const ticks = range(curves.filter((c) => c.task === task && shown.includes(c.chart))); // one for all: charts are compared
      charts.replaceChildren(...shown.map((name) => figure(curves.filter((c) => c.task === task && c.chart === name), name, place.dataset, ticks)));
    };
    if (place.dataset.choose === undefined) show({ task: curves[0].task, model: "all" });
    else
      choosing(
        place,
        [
          { key: "task", label: "Task", options: () => distinct(curves.map((c) => c.task)).map((t) => [t, t]) },
          { key: "model", label: "Model", options: ({ task }) => [...(names(task).length > 1 ? [["all", "all models"]] : []), ...names(task).map((m) => [m, m])] },
        ],
        show,
      );
    place.append(charts);
    place.hidden = false;
  }

  // A button that copies a command; where the clipboard is refused, the command is selected for the reader to copy.
  function connectCopies() {
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
  }
})();
