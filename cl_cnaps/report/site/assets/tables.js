// Tables: sort by a column, choose kinds of rows, find rows by their text.
(() => {
  "use strict";
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

  for (const table of document.querySelectorAll(".table-box > table")) {
    const columns = columnsOf(table);
    columns.forEach((header, place) => header.querySelector("button.sort")?.addEventListener("click", () => sort(table, columns, place)));
    const tools = document.querySelector(`.table-tools[data-for="${CSS.escape(table.id)}"]`);
    if (tools) connectTools(table, tools);
  }

  window.report = { ...window.report, columnsOf };
})();
