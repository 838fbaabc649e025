// After every step of a stream, one bar for each task seen: a chart for each encoding and head.
(() => {
  "use strict";
  const { accuracy, accuracyAxis, choosing, distinct, drawToWidth, element, interactive, svg, tenths } = window.report;
  const place = document.getElementById("bars");
  if (!place) return;
  const panels = JSON.parse(document.getElementById("bars-data").textContent);

  const HEIGHT = 240;
  const EDGE = { left: 34, right: 4, top: 10, bottom: 40 };
  const NAMED_TASKS = 12;
  const ALL = "all";

  const withAll = (values, name) => (values.length > 1 ? [[ALL, `all ${name}`], ...values.map((v) => [v, v])] : values.map((v) => [v, v || "–"]));
  const ofModel = ({ benchmark, model }) => panels.filter((p) => p.benchmark === benchmark && p.model === model);

  function draw(panel, width) {
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

  function figure(panel) {
    const canvas = element("div", { class: "canvas" });
    drawToWidth(canvas, (width) => draw(panel, width));
    const caption = element("figcaption", {}, element("strong", {}, panel.title), element("span", {}, panel.outcome));
    return element("figure", { class: "chart" }, caption, canvas, numbers(panel), element("a", { href: panel.href }, "Record"));
  }

  function legend(panel) {
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
      { key: "encoding", label: "Encoding", options: (chosen) => withAll(distinct(ofModel(chosen).map((p) => p.encoding ?? "")), "encodings") },
      { key: "head", label: "Head", options: (chosen) => withAll(distinct(ofModel(chosen).map((p) => p.head)), "heads") },
    ],
    (chosen) => {
      const shown = ofModel(chosen).filter((p) => [ALL, p.encoding ?? ""].includes(chosen.encoding) && [ALL, p.head].includes(chosen.head));
      charts.replaceChildren(element("p", { class: "setting" }, shown[0].setting), legend(shown[0]), element("div", { class: "charts" }, ...shown.map(figure)));
    },
  );
  place.append(charts);
  place.hidden = false;
})();
