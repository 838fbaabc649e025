// The rows of a table as bars, best first, for one of its columns; read from the table's own cells.
(() => {
  "use strict";
  const { choosing, columnsOf, element } = window.report;

  function rowsOf(table, column) {
    return [...table.tBodies[0].rows].map((row) => {
      const cell = row.cells[column];
      return {
        name: row.cells[0].firstChild.textContent.trim(),
        kind: row.dataset.kind,
        tag: row.cells[0].querySelector(".tag")?.textContent,
        value: cell.dataset.value === undefined ? null : Number(cell.dataset.value),
        half: cell.dataset.half === undefined ? null : Number(cell.dataset.half),
        text: cell.textContent.trim(),
        href: cell.querySelector("a")?.getAttribute("href") ?? null,
        missing: cell.classList.contains("missing"),
      };
    });
  }

  function line({ name, kind, tag, value, half, text, href }) {
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(0, Math.min(100, value))}%`;
    const track = element("span", { class: "track", "aria-hidden": "true" }, bar);
    if (half !== null) {
      const whisker = element("span", { class: "whisker" });
      const low = Math.max(0, value - half);
      whisker.style.left = `${low}%`;
      whisker.style.width = `${Math.min(100, value + half) - low}%`;
      track.append(whisker);
    }
    const label = element("span", { class: "name" }, name);
    if (tag) label.append(" ", element("span", { class: "tag" }, tag));
    return element("li", { "data-kind": kind }, label, track, element("span", { class: "value" }, href ? element("a", { href }, text) : text));
  }

  for (const place of document.querySelectorAll(".ranking")) {
    const table = document.getElementById(place.dataset.table);
    const columns = columnsOf(table)
      .map((header, index) => ({ name: header.dataset.chart, index }))
      .filter(({ name }) => name);
    if (!columns.length) continue;
    const list = element("ol", { class: "rank" });
    const absent = element("p", { class: "notes" });
    const any = (index) => rowsOf(table, index).some((row) => row.value !== null);
    const offered = columns.filter(({ index }) => any(index)).map(({ name, index }) => [String(index), name]);
    if (!offered.length) continue;
    offered.sort((a, b) => (b[1] === place.dataset.first) - (a[1] === place.dataset.first)); // the first is shown first
    choosing(place, [{ key: table.id, label: "Accuracy on", options: () => offered }], (chosen) => {
      const rows = rowsOf(table, Number(chosen[table.id]));
      const present = rows.filter((row) => row.value !== null).sort((a, b) => b.value - a.value);
      const missing = rows.filter((row) => row.missing).map((row) => row.name);
      list.replaceChildren(...present.map(line));
      absent.textContent = missing.length ? `Missing: ${missing.join("; ")}.` : "";
    });
    place.append(list, absent);
    place.hidden = false;
  }
})();
