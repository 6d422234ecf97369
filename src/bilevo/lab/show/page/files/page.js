"use strict";
// What every page needs: light and dark, contents, sorting, charts by plotly, and files to save.
// `bilevo` is what the scripts of a page use. Nothing here asks for anything from elsewhere.
const bilevo = (() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, place = document) => Array.from(place.querySelectorAll(selector));
  root.classList.add("with-script");

  // ---- light and dark -----------------------------------------------------------------------
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (night.matches ? "dark" : "light")) === "dark";

  function keep(name, value) {
    try { localStorage.setItem(name, value); } catch { /* a file without storage forgets */ }
  }

  function kept(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  }

  function showTheme() {
    const button = document.getElementById("theme");
    button.textContent = isDark() ? "Light" : "Dark";
    button.hidden = false;
    redraw();
  }

  function startTheme() {
    const chosen = kept("bilevo-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      keep("bilevo-theme", root.dataset.theme);
      showTheme();
    });
    night.addEventListener("change", showTheme);
    showTheme();
  }

  // ---- contents -----------------------------------------------------------------------------
  function startContents() {
    const list = document.getElementById("contents");
    const button = document.getElementById("open-contents");
    const open = (is) => {
      list.classList.toggle("open", is);
      button.setAttribute("aria-expanded", String(is));
    };
    button.hidden = false;
    button.addEventListener("click", () => open(!list.classList.contains("open")));
    list.addEventListener("click", (event) => { if (event.target.closest("a")) open(false); });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !list.classList.contains("open")) return;
      open(false);
      button.focus();
    });
  }

  // ---- sorting ------------------------------------------------------------------------------
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
      head.querySelector("button").addEventListener("click", () => sort(head, column));
    });
  }

  // ---- charts -------------------------------------------------------------------------------
  const AXIS = {
    showline: true, linecolor: "#8a929a", gridcolor: "#e1e4e8", zeroline: false, ticks: "",
    automargin: true, exponentformat: "power", title: { standoff: 12 },
  };
  const LOOK = {
    layout: {
      font: { family: "system-ui, sans-serif", size: 13, color: "#1c2126" },
      margin: { l: 56, r: 12, t: 28, b: 44 },
      xaxis: AXIS, yaxis: AXIS,
      legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", traceorder: "normal" },
      hoverlabel: { align: "left", namelength: -1 },
    },
  };
  const CONFIG = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    // Plotly's default buttons would include one that sends the figure to Plotly's server.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };
  const HEIGHT = 400;
  const PAGE = 680; // pixels that fit an A4 page between its margins
  const MAX_NAME = 28; // letters of a name in a chart
  const charts = new Map(); // by place: the function that makes the picture

  // Draw `make()` at a place, now and whenever colours or filters change. `make` returns traces
  // and a layout in plotly's notation, or a text that says why there is nothing to draw.
  function chart(place, make) {
    charts.set(place, make);
    drawOne(place, make);
  }

  function drawOne(place, make) {
    const picture = make();
    const none = typeof picture === "string";
    let note = place.previousElementSibling;
    if (!note?.matches(".missing.now")) {
      note = document.createElement("p");
      note.className = "missing now";
      place.before(note);
    }
    note.hidden = !none;
    note.textContent = none ? picture : "";
    place.hidden = none;
    if (none) return;
    const layout = { height: HEIGHT, template: LOOK, ...picture.layout };
    place.style.height = `${layout.height}px`; // plotly forgets it when the window changes
    Plotly.react(place, picture.data, layout, CONFIG).then(() => reachable(place));
  }

  function redraw() {
    for (const [place, make] of charts) drawOne(place, make);
  }

  // Plotly's buttons are for a mouse; these lines let a keyboard reach and press them.
  function reachable(place) {
    for (const button of all(".modebar-btn:not([tabindex])", place)) {
      button.tabIndex = 0;
      button.setAttribute("role", "button");
      button.setAttribute("aria-label", button.dataset.title ?? "");
      button.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        button.click();
      });
    }
  }

  function startPrinting() {
    const drawn = () => Array.from(charts.keys()).filter((place) => !place.hidden);
    window.addEventListener("beforeprint", () => {
      for (const place of drawn()) Plotly.relayout(place, { width: PAGE });
    });
    window.addEventListener("afterprint", () => {
      for (const place of drawn()) Plotly.relayout(place, { width: null, autosize: true });
    });
  }

  // Plotly interprets some HTML in texts (tags, links, entities), so a name is cut and escaped.
  function plain(name) {
    const letters = Array.from(String(name).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd"));
    const text = letters.length > MAX_NAME ? `${letters.slice(0, MAX_NAME - 1).join("")}…` : letters.join("");
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  }

  // A style is {light, dark, dash, label}, as `palette.page_styles` makes it.
  const colour = (style) => (isDark() ? style.dark : style.light);

  // A step line that holds each value until the next; null is a gap.
  function stepLine(style, x, y, more = {}) {
    return {
      type: "scatter", mode: "lines", name: plain(style.label), x, y,
      line: { color: colour(style), dash: style.dash, width: 2, shape: "hv" }, ...more,
    };
  }

  // The same with a band between two more lists of values, which may be null as well.
  function bandLines(style, x, [lower, y, upper], more = {}) {
    const whole = x.map((_, i) => i).filter((i) => lower[i] !== null && upper[i] !== null);
    const edge = (values) => stepLine(style, whole.map((i) => x[i]), whole.map((i) => values[i]), {
      line: { width: 0, shape: "hv" }, showlegend: false, hoverinfo: "skip",
    });
    const fill = { fill: "tonexty", fillcolor: `${colour(style)}26` };
    return [edge(lower), { ...edge(upper), ...fill }, stepLine(style, x, y, more)];
  }

  // A logarithmic axis, labelled also between powers of ten if it shows few of them.
  function logAxis(values) {
    const there = values.filter((value) => value > 0);
    const [least, most] = there.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, 0]);
    return { type: "log", dtick: most < 1000 * least ? "D2" : 1, minorloglabels: "complete" };
  }

  // An axis with these texts, which `plain` has escaped, at 0, 1, 2 ... Plotly would read names
  // like "2" as numbers.
  function namedAxis(texts) {
    return { tickvals: texts.map((_, i) => i), ticktext: texts, autotickangles: [0, -45, -90] };
  }

  // ---- files --------------------------------------------------------------------------------
  function save(name, text, type = "text/csv") {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  all("table.sortable").forEach(makeSortable);
  startContents();
  startTheme();
  startPrinting();
  return {
    data, all, chart, redraw, makeSortable, plain, colour, stepLine, bandLines, logAxis, namedAxis,
    save, isDark,
  };
})();
