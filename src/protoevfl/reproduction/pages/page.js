"use strict";
// Tables: click a header to sort, type to filter. The state is in the address: #sort=TABLE:COLUMN:down&filter=TABLE:text
(() => {
  const value = (cell) => {
    const text = cell.dataset.v ?? cell.textContent.trim();
    const number = text === "" || text === "–" ? NaN : Number(text);
    return { text, number };
  };
  const compare = (a, b) => {
    const empty = (v) => v.text === "" || v.text === "–";
    if (empty(a) || empty(b)) return empty(a) - empty(b); // always last
    if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return a.number - b.number;
    return a.text.localeCompare(b.text, undefined, { numeric: true });
  };
  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, index) => ({ row, index, v: value(row.cells[column]) }));
    const last = (v) => v.text === "" || v.text === "–";
    rows.sort((a, b) => {
      const order = compare(a.v, b.v);
      const turned = down && !last(a.v) && !last(b.v) ? -order : order;
      return turned || a.index - b.index;
    });
    body.append(...rows.map((r) => r.row));
    [...table.tHead.rows[0].cells].forEach((th, i) => {
      if (i === column) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
  };
  const filter = (table, text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const content = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => content.includes(word));
      shown += !row.hidden;
    }
    const note = document.querySelector(`output[data-for="${table.id}"]`);
    if (note) note.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
  };
  const remember = (name, text) => {
    const state = new URLSearchParams(location.hash.slice(1));
    state.set(name, text);
    history.replaceState(null, "", "#" + state.toString());
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((th, column) => {
      th.querySelector("button").addEventListener("click", () => {
        const down = th.getAttribute("aria-sort") === "ascending";
        sort(table, column, down);
        remember("sort", `${table.id}:${column}:${down ? "down" : "up"}`);
      });
    });
  }
  for (const input of document.querySelectorAll(".filter input")) {
    const table = document.getElementById(input.dataset.for);
    filter(table, "");
    input.addEventListener("input", () => {
      filter(table, input.value);
      remember("filter", `${table.id}:${input.value}`);
    });
  }
  const restore = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    const [sorted, column, way] = (state.get("sort") ?? "").split(":");
    const table = sorted && document.getElementById(sorted);
    if (table && table.tHead && Number(column) < table.tHead.rows[0].cells.length) {
      sort(table, Number(column), way === "down");
    }
    const [filtered, ...words] = (state.get("filter") ?? "").split(":");
    const input = filtered && document.querySelector(`.filter input[data-for="${CSS.escape(filtered)}"]`);
    if (input) {
      input.value = words.join(":");
      filter(document.getElementById(filtered), input.value);
    }
  };
  restore();
  window.addEventListener("hashchange", restore);
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  document.documentElement.dataset.ready = "yes";
})();
