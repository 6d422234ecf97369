"use strict";
// The report: filters that hold for tables and charts, menus of charts, and files to save.
(() => {
  const { data, all, charts } = bilevo;
  const names = data.cases.map((c) => `${bilevo.plain(c.problem)} ${c.size}`);
  const places = all("[data-chart]");
  const menus = new Map(all("[data-menu]").map((menu) => [menu.dataset.menu, menu]));
  const pickers = new Map(all("details.picker").map((one) => [one.dataset.picker, one]));
  const boxes = (picker) => all("input[name]", picker);

  // ---- what is chosen -----------------------------------------------------------------------
  function isChosen(kind, value) {
    const picker = pickers.get(kind);
    if (!picker) return true; // there is only one, and no need to choose
    return boxes(picker).some((box) => box.checked && box.value === value);
  }

  function chosen() {
    const places = data.cases.map((_, i) => i);
    return {
      methods: data.methods.filter((m) => isChosen("method", m.name)),
      cases: places.filter((i) => isChosen("problem", data.cases[i].problem)
        && isChosen("size", data.cases[i].size)),
    };
  }

  let now = chosen();

  const wholeOf = (kind) => !pickers.has(kind) || boxes(pickers.get(kind)).every((b) => b.checked);

  // ---- tables -------------------------------------------------------------------------------
  function filterTables() {
    const narrowed = !wholeOf("problem") || !wholeOf("size");
    const methods = new Set(now.methods.map((m) => m.name));
    for (const row of all("tbody tr")) {
      const { problem, size, method } = row.dataset;
      const out = (problem !== undefined && !isChosen("problem", problem))
        || (size !== undefined && !isChosen("size", size))
        || (method !== undefined && !methods.has(method));
      row.hidden = out;
    }
    for (const cell of all("th[data-method], td[data-method]")) {
      cell.hidden = !methods.has(cell.dataset.method);
    }
    for (const foot of all("tfoot")) foot.hidden = narrowed;
    for (const note of all("[data-when=narrowed]")) note.hidden = !narrowed;
    for (const note of all("[data-when=filtered]")) note.hidden = !narrowed && wholeOf("method");
  }

  // ---- charts -------------------------------------------------------------------------------
  const BY_CASE = new Set(["convergence", "allocation"]);

  function filterMenus() {
    for (const [name, menu] of menus) {
      if (!BY_CASE.has(name)) continue;
      for (const option of menu.options) {
        option.hidden = option.disabled = !now.cases.includes(Number(option.value));
      }
      const open = Array.from(menu.options).filter((option) => !option.disabled);
      if (open.length && menu.selectedOptions[0]?.disabled !== false) menu.value = open[0].value;
    }
  }

  const view = (name) => menus.get(name)?.value ?? data.views[name][0];

  function inGroup() {
    const group = new Set(data.groups[Number(view("ecdf"))][1]);
    return { ...now, cases: now.cases.filter((c) => group.has(c)) };
  }

  function allocation(numbers) {
    const rows = now.methods.filter((m) => charts.own(numbers, m.name))
      .map((m) => ({ label: m.label, stages: numbers[m.name] }));
    return charts.allocation(rows);
  }

  function ofCase(name, draw) {
    const place = view(name);
    if (!now.cases.includes(Number(place))) return "This chart has none of the chosen problems.";
    return draw(data.charts[name][place]);
  }

  const PICTURES = {
    "ecdf": () => charts.ecdf(data.charts.ecdf, inGroup()),
    "convergence": () => ofCase("convergence", (numbers) => charts.convergence(numbers, now)),
    "critical-difference": () => charts.criticalDifference(
      data.charts["critical-difference"], view("critical-difference"), now),
    "allocation": () => ofCase("allocation", allocation),
    "runtime": () => charts.runtime(data.charts.runtime, view("runtime"), now, names),
  };

  // ---- filters ------------------------------------------------------------------------------
  function showPickers() {
    for (const picker of pickers.values()) {
      const every = boxes(picker);
      const on = every.filter((box) => box.checked);
      const one = on.length === 1 ? on[0].value : `${on.length} of ${every.length}`;
      const said = on.length === every.length ? "all" : on.length ? one : "none";
      picker.querySelector("summary b").textContent = said;
      picker.classList.toggle("some", on.length < every.length);
      for (const group of all("input[data-group]", picker)) {
        const members = every.filter((box) => box.dataset.member === group.dataset.group);
        const count = members.filter((box) => box.checked).length;
        group.checked = count === members.length;
        group.indeterminate = count > 0 && count < members.length;
      }
    }
  }

  function linesOfRuns() {
    const cases = new Set(now.cases);
    const methods = new Set(now.methods.map((m) => data.methods.indexOf(m)));
    return data.runs.rows.filter(([c, m]) => cases.has(c) && methods.has(m));
  }

  function apply() {
    now = chosen();
    showPickers();
    filterTables();
    filterMenus();
    bilevo.redraw();
    const shown = linesOfRuns().length;
    const total = data.runs.rows.length;
    const count = document.getElementById("count");
    count.textContent = shown === total ? `all ${total} runs` : `${shown} of ${total} runs`;
    document.getElementById("reset").hidden = shown === total;
  }

  function startPicker(picker) {
    picker.addEventListener("change", (event) => {
      const { group } = event.target.dataset;
      if (group !== undefined) {
        const members = boxes(picker).filter((box) => box.dataset.member === group);
        for (const box of members) box.checked = event.target.checked;
      }
      apply();
    });
    for (const button of all("button[data-all]", picker)) {
      button.addEventListener("click", () => {
        for (const box of boxes(picker)) box.checked = button.dataset.all === "yes";
        apply();
      });
    }
    picker.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      picker.open = false;
      picker.querySelector("summary").focus();
    });
    picker.addEventListener("toggle", () => {
      if (!picker.open) return;
      for (const other of pickers.values()) if (other !== picker) other.open = false;
    });
  }

  // ---- files --------------------------------------------------------------------------------
  function startDownloads() {
    document.getElementById("save-runs").addEventListener("click", () => {
      bilevo.save("runs.csv", [data.runs.header, ...linesOfRuns().map(([, , line]) => line)].join(""));
    });
    for (const button of all("button[data-csv]")) {
      button.addEventListener("click", () => {
        bilevo.save(`${button.dataset.csv}.csv`, data.tables[button.dataset.csv]);
      });
    }
  }

  // The contents mark the section that is being read.
  function startReading() {
    const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting || !links.has(target.id)) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    for (const section of all("section[id]")) seen.observe(section);
  }

  for (const picker of pickers.values()) startPicker(picker);
  document.addEventListener("click", (event) => {
    for (const picker of pickers.values()) {
      if (!picker.contains(event.target)) picker.open = false;
    }
  });
  document.getElementById("reset").addEventListener("click", () => {
    for (const picker of pickers.values()) for (const box of boxes(picker)) box.checked = true;
    apply();
  });
  for (const menu of menus.values()) menu.addEventListener("change", bilevo.redraw);
  for (const one of all("[data-needs-script]")) one.hidden = false;
  for (const place of places) bilevo.chart(place, PICTURES[place.dataset.chart]);
  startDownloads();
  startReading();
  apply();
})();
