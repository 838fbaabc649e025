// Accuracy against labels, queries or shots: a chart for each model or kind of tasks, a line for each strategy or method.
(() => {
  "use strict";
  const { accuracy, accuracyAxis, choosing, distinct, drawToWidth, element, interactive, svg } = window.report;
  const HEIGHT = 280;
  const EDGE = { left: 34, right: 12, top: 10, bottom: 40 };
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
  const ALL = "all";

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
  function draw(shown, name, { what, along, log }, ticks, width) {
    const from = Math.min(...shown.map((c) => c.at[0]));
    const to = Math.max(...shown.map((c) => c.at.at(-1)));
    const base = HEIGHT - EDGE.bottom;
    const inside = (value) => Math.max(ticks[0], Math.min(ticks.at(-1), value));
    const y = (value) => base - ((inside(value) - ticks[0]) / (ticks.at(-1) - ticks[0])) * (base - EDGE.top);
    const scale = log === undefined ? (at) => at : Math.log;
    const x = (at) => EDGE.left + (to === from ? 0.5 : (scale(at) - scale(from)) / (scale(to) - scale(from))) * (width - EDGE.left - EDGE.right);
    const drawing = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `${name}: ${what} in per cent against ${along}` });
    drawing.append(...accuracyAxis(y, EDGE.left, width - EDGE.right, ticks));
    for (const tick of log === undefined ? stepTicks(from, to, width) : factorTicks(from, to)) drawing.append(svg("text", { class: "axis", x: x(tick), y: base + 16, "text-anchor": "middle" }, String(tick)));
    drawing.append(svg("text", { class: "axis", x: (EDGE.left + width) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, along));
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
        marks.push({ node, row, column: i, lines: [accuracy(mean, curve.half?.[i]), `${curve.line}, ${curve.said?.[i] ?? curve.at[i]} ${along}`] });
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
    drawToWidth(canvas, (width) => draw(shown, name, words, ticks, width));
    return element("figure", { class: "chart" }, element("figcaption", {}, element("strong", {}, name)), canvas, legend(shown));
  }

  for (const place of document.querySelectorAll(".curves")) {
    const curves = JSON.parse(place.querySelector("script").textContent);
    const charts = element("div", { class: "charts" });
    const names = (task) => distinct(curves.filter((c) => c.task === task).map((c) => c.chart));
    const show = ({ task, model }) => {
      const shown = names(task).filter((name) => [ALL, name].includes(model));
      const ticks = range(curves.filter((c) => c.task === task && shown.includes(c.chart))); // one for all: charts are compared
      charts.replaceChildren(...shown.map((name) => figure(curves.filter((c) => c.task === task && c.chart === name), name, place.dataset, ticks)));
    };
    if (place.dataset.choose === undefined) show({ task: curves[0].task, model: ALL });
    else
      choosing(
        place,
        [
          { key: "task", label: "Task", options: () => distinct(curves.map((c) => c.task)).map((t) => [t, t]) },
          { key: "model", label: "Model", options: ({ task }) => [...(names(task).length > 1 ? [[ALL, "all models"]] : []), ...names(task).map((m) => [m, m])] },
        ],
        show,
      );
    place.append(charts);
    place.hidden = false;
  }
})();
