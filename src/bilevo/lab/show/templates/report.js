"use strict";
// Tables that sort by a click on a header, and figures drawn by plotly. The page works alone:
// nothing here may ask for anything from elsewhere.
(() => {
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const empty = (key) => key === "" || Number.isNaN(key);

  function keyOf(row, column) {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent.trim();
    return value === "" ? NaN : Number(value);
  }

  // Cells without a value are last, whichever way the others go.
  function compare(a, b, sign) {
    if (empty(a) || empty(b)) return empty(a) - empty(b);
    if (typeof a === "number" && typeof b === "number") return a === b ? 0 : sign * (a - b);
    return sign * words.compare(String(a), String(b));
  }

  function makeSortable(table) {
    const body = table.tBodies[0];
    const first = Array.from(body.rows);
    const heads = Array.from(table.tHead.rows[0].cells);
    const sort = (head, column) => {
      const direction = NEXT[head.getAttribute("aria-sort")];
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", direction);
      const sign = direction === "descending" ? -1 : 1;
      const order = (a, b) => compare(keyOf(a, column), keyOf(b, column), sign);
      body.append(...(direction === "none" ? first : Array.from(body.rows).sort(order)));
    };
    heads.forEach((head, column) => {
      head.firstElementChild.addEventListener("click", () => sort(head, column));
    });
  }

  const AXIS = {
    showline: true, linecolor: "#8a929a", gridcolor: "#e1e4e8", zeroline: false, ticks: "",
    automargin: true, exponentformat: "power", title: { standoff: 12 },
  };
  const LOOK = {
    layout: {
      font: { family: "system-ui, sans-serif", size: 13, color: "#1c2126" },
      margin: { l: 56, r: 12, t: 36, b: 48 },
      xaxis: AXIS, yaxis: AXIS,
      legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom" },
      hoverlabel: { align: "left", namelength: -1 },
    },
  };
  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    // Plotly's default buttons would include one that sends the figure to Plotly's server.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };
  const PAGE = 680; // pixels that fit an A4 page between its margins

  function draw(place, view) {
    return Plotly.react(place, view.data, { height: 440, template: LOOK, ...view.layout }, CONFIG);
  }

  function showFigures(figures) {
    const places = Array.from(document.querySelectorAll("[data-figure]"));
    for (const place of places) draw(place, figures[place.dataset.figure][0]);
    for (const menu of document.querySelectorAll("[data-menu]")) {
      const name = menu.dataset.menu;
      const place = places.find((each) => each.dataset.figure === name);
      menu.addEventListener("change", () => draw(place, figures[name][Number(menu.value)]));
    }
    window.addEventListener("beforeprint", () => {
      for (const place of places) Plotly.relayout(place, { width: PAGE });
    });
    window.addEventListener("afterprint", () => {
      for (const place of places) Plotly.relayout(place, { width: null, autosize: true });
    });
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  showFigures(JSON.parse(document.getElementById("figures").textContent));
})();
