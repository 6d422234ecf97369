"use strict";
// Parts of the page of `bilevo watch`: elements, numbers in words, tables. Texts from files become
// text nodes only, never HTML.
const parts = (() => {
  const DASH = "–";

  // Make an element: `set` has its attributes, `inside` its texts and elements.
  function make(tag, set = {}, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(set)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...inside.flat().filter((one) => one !== null && one !== undefined));
    return element;
  }

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function whole(value) {
    return value === null || value === undefined ? DASH : Math.round(value).toLocaleString("en");
  }

  function number(value, digits = 6) {
    if (value === null || value === undefined) return DASH;
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = size >= 1e6 || size < 1e-4 ? value.toExponential(digits - 2) : value.toPrecision(digits);
    return text.includes("e") ? text.replace(/\.?0+e/, "e") : text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  }

  function percent(share) {
    if (share === null || share === undefined) return DASH;
    const value = 100 * share;
    return `${value < 10 && value > 0 ? value.toFixed(1) : Math.floor(value)} %`;
  }

  function duration(seconds) {
    if (seconds === null || seconds === undefined) return DASH;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 100) return `${Math.round(seconds)} s`;
    if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
  }

  function rate(value) {
    if (value === null || value === undefined) return DASH;
    return value >= 1 || value === 0 ? `${whole(value)} /s` : `${number(value * 60, 2)} /min`;
  }

  function date(seconds) {
    const time = new Date(seconds * 1000);
    return Number.isNaN(time.getTime()) ? DASH : time.toLocaleString("sv");
  }

  function ago(seconds, now) {
    if (seconds === null || seconds === undefined) return DASH;
    const passed = now - seconds;
    return passed < 2 ? "just now" : `${duration(Math.round(passed))} ago`;
  }

  const KINDS = { running: "good", done: "quiet", stopped: "quiet", dead: "bad", damaged: "bad", unknown: "quiet", reading: "quiet" };
  function badge(state) {
    return make("span", { class: `badge ${KINDS[state] ?? "quiet"}` }, state);
  }

  function meter(share, label) {
    const filled = make("span", {});
    filled.style.width = `${Math.min(100, 100 * share)}%`;
    const given = { class: "meter", role: "meter", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": label };
    return make("div", { ...given, "aria-valuenow": Math.round(100 * share) }, filled);
  }

  function tiles(values) {
    return make("dl", { class: "tiles" }, values.map(([name, text, small, kind]) => make(
      "div", { class: kind ?? null }, make("dt", {}, name),
      make("dd", {}, text, small ? make("small", {}, small) : null),
    )));
  }

  function section(id, title, ...inside) {
    return make("section", { id }, make("h2", {}, title), ...inside);
  }

  function scroll(title, table) {
    return make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": title }, table);
  }

  // A table of plain texts; `columns` has the name and the kind of each column.
  function textTable(title, columns, lines) {
    const head = make("tr", {}, columns.map(([name, kind]) => make("th", { scope: "col", class: kind }, name)));
    const body = lines.map((line) => make("tr", {}, line.map((text, i) => make(
      i ? "td" : "th", { class: columns[i][1], scope: i ? null : "row" }, String(text),
    ))));
    const made = scroll(title, make("table", {}, make("thead", {}, head), make("tbody", {}, body)));
    made.classList.add("tall");
    return made;
  }

  // A table of results, in the form in which the server has it from the tables of the report.
  function resultTable(table) {
    if (table.missing) return make("p", { class: "missing" }, table.missing);
    const rows = (lines) => lines.map((line) => make("tr", {}, line.map(resultCell)));
    const head = table.columns.map((column) => make(
      "th", { scope: "col", class: column.kind, "aria-sort": "none" }, make("button", { type: "button" }, column.name),
    ));
    const made = make("table", { class: "sortable" },
      make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows(table.body)),
      table.foot.length ? make("tfoot", {}, rows(table.foot)) : null);
    bilevo.makeSortable(made);
    const notes = table.notes.map((note) => make("li", {}, note));
    return make("div", {}, scroll(table.title, made), notes.length ? make("ul", { class: "notes" }, notes) : null);
  }

  function resultCell(cell, place) {
    const kind = [cell.kind, cell.best ? "best" : "", cell.shown.length < 25 ? "short" : ""].join(" ").trim();
    const inside = cell.kind !== "number" ? [cell.shown] : [make("span", {}, cell.shown,
      cell.doubt ? make("b", { title: cell.doubt_meaning }, cell.doubt) : null,
      cell.mark ? " " : null, cell.mark ? make("i", { title: cell.meaning }, cell.mark) : null)];
    const beside = cell.beside.map((text) => make("small", {}, text));
    return make(place ? "td" : "th", { class: kind, scope: place ? null : "row", "data-value": cell.value }, inside, beside);
  }

  return {
    make, say, whole, number, percent, duration, rate, date, ago, badge, meter, tiles, section,
    scroll, textTable, resultTable, DASH,
  };
})();
