"use strict";
// The page of `bilevo watch`: the list of runs and campaigns, and which view is open. A live page
// gets its rows by server-sent events, and asks for the details of what is open. An exported page
// has everything in itself.
(() => {
  const { make, say, whole, number, percent, duration, rate, ago, badge, meter, tiles } = parts;
  const view = document.getElementById("view");
  const links = document.getElementById("links");
  const live = bilevo.data.rows === undefined;
  const rows = new Map(); // by id
  const AGAIN = 1000; // milliseconds between two requests for the same details
  const now = () => (live ? Date.now() / 1000 : bilevo.data.now);
  const stateOf = (row) => (row.error ? "damaged" : row.read < 1 ? "reading" : row.state);
  let group = 0;

  // ---- where we are --------------------------------------------------------------------------
  // The address ends with #, #run-ID or #campaign-ID, and perhaps with /SECTION.
  function place() {
    const [, kind, id, part] = /^#(run|campaign)-([0-9a-f]+)(?:\/([\w-]+))?$/.exec(location.hash) ?? [];
    return { kind: kind ?? "list", id: id ?? "", part: part ?? (kind ? "" : location.hash.slice(1)) };
  }

  let opened = "";
  async function go() {
    const { kind, id, part } = place();
    if (`${kind}-${id}` !== opened) {
      opened = `${kind}-${id}`;
      group = 0;
      if (kind === "list") openList();
      else await openDetail();
      if (!part) window.scrollTo(0, 0);
    }
    drawLinks();
    if (part) document.getElementById(part)?.scrollIntoView();
  }

  function drawLinks() {
    const { kind, id } = place();
    const titles = all("main section[id] > h2").map((head) => [head.parentElement.id, head.textContent]);
    const before = kind === "list" ? "#" : `#${kind}-${id}/`;
    const line = (href, text) => make("li", {}, make("a", { href }, text));
    const wanted = [make("h2", {}, "Watch"), make("ul", {}, line("#", "All runs")),
      make("h2", {}, "This page"), make("ul", {}, titles.map(([at, title]) => line(before + at, title)))];
    const text = wanted.map((one) => one.textContent).join("|") + before;
    if (links.dataset.text === text) return;
    links.dataset.text = text;
    links.replaceChildren(...wanted);
  }
  const all = bilevo.all;

  // ---- details -------------------------------------------------------------------------------
  let asked = 0, asking = false, waiting = false;
  async function details(id) {
    if (!live) return bilevo.data.details[group ? `${id}/${group}` : id] ?? null;
    const answer = await fetch(`detail/${id}?group=${group}`);
    return answer.ok ? answer.json() : null;
  }

  async function openDetail() {
    const { kind, id } = place();
    let found = null;
    try { found = await details(id); } catch { /* the server has ended; the badge says so */ }
    asked = Date.now();
    if (place().id !== id) return;
    if (found === null || (kind === "run" && !found.pairs) || (kind === "campaign" && !found.progress)) {
      view.replaceChildren(make("a", { class: "back", href: "#" }, "← All runs"), make("h1", {}, found?.path ?? "Nothing here"),
        make("p", { class: "missing" }, found?.error ?? "There is no such directory, or it was removed."));
      return;
    }
    if (kind === "run") runView.open(view, found, now());
    else campaignView.open(view, found, choose);
    if (found.stale) later();
  }

  async function choose(chosen) {
    group = chosen;
    await refresh();
  }

  async function refresh() {
    const { kind, id } = place();
    if (kind === "list") return;
    if (asking) { waiting = true; return; }
    asking = true;
    try {
      const found = await details(id);
      asked = Date.now();
      if (found !== null && place().id === id) {
        if (!view.querySelector("#standing")) { opened = ""; await go(); }
        else if (kind === "run" && found.pairs) runView.update(view, found, now());
        else if (kind === "campaign" && found.progress) campaignView.update(view, found, choose);
        drawLinks();
        waiting = waiting || found.stale === true; // tables that take long are made anew later
      }
    } catch { /* the server has ended; the badge says so */ }
    asking = false;
    if (waiting) { waiting = false; later(); }
  }

  let timer = null;
  function later() {
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; refresh(); }, Math.max(0, asked + AGAIN - Date.now()));
  }

  // ---- the list ------------------------------------------------------------------------------
  const certified = (row) => (row.F === null || row.F === undefined ? "" : !row.feasible ? "infeasible" : row.certified ? "certified" : "not certified");
  const evaluations = (row) => (row.nfev_upper ?? 0) + (row.nfev_lower ?? 0);
  // Each column: its name, its kind, the key to sort by, and how a cell is filled.
  const RUN_COLUMNS = [
    ["run", "text run-name", (r) => r.path, (cell, r) => fillName(cell, r, `run-${r.id}`, r.error || [r.problem, r.size, r.method, r.seed ? `seed ${r.seed}` : ""].filter(Boolean).join(" · "))],
    ["state", "text state", (r) => stateOf(r), (cell, r) => fillBadge(cell, stateOf(r))],
    ["best F", "number answer", (r) => r.F, (cell, r) => fillTwo(cell, number(r.F), certified(r))],
    ["evaluations", "number some-room", evaluations, (cell, r) => say(cell, whole(evaluations(r)))],
    ["of limits", "text share", (r) => r.share, (cell, r) => fillShare(cell, r.share, r.unlimited ? "no limit" : parts.DASH)],
    ["rate", "number roomy", (r) => r.rate, (cell, r) => say(cell, rate(r.rate))],
    ["time left", "number roomy", (r) => r.left, (cell, r) => say(cell, duration(r.left))],
    ["last", "text when roomy", (r) => r.written, (cell, r) => say(cell, ago(r.written, now()))],
    ["failures", "number some-room", (r) => r.failures, (cell, r) => say(cell, whole(r.failures))],
  ];
  const CAMPAIGN_COLUMNS = [
    ["campaign", "text run-name", (r) => r.path, (cell, r) => fillName(cell, r, `campaign-${r.id}`, r.error || r.sentence || "")],
    ["state", "text state", (r) => stateOf(r), (cell, r) => fillBadge(cell, stateOf(r))],
    ["runs", "text share", (r) => r.share, (cell, r) => fillShare(cell, r.share, `${whole(r.made)} made`, `${whole(r.made)} of ${whole(r.planned)}`)],
    ["failed", "number some-room", (r) => r.failed, (cell, r) => say(cell, whole(r.failed))],
    ["methods", "number roomy", (r) => r.methods, (cell, r) => say(cell, whole(r.methods))],
    ["problems", "number roomy", (r) => r.problems, (cell, r) => say(cell, whole(r.problems))],
    ["time left", "number some-room", (r) => r.left, (cell, r) => say(cell, duration(r.left))],
  ];

  function fillName(cell, row, target, about) {
    if (!cell.firstChild) {
      const short = row.path.split("/").slice(-2).join("/");
      cell.append(make("a", { href: `#${target}`, title: row.path }, short), make("small", { class: "why" }, ""));
    }
    say(cell.lastChild, about);
  }

  function fillBadge(cell, state) {
    if (cell.textContent !== state) cell.replaceChildren(badge(state));
  }

  function fillTwo(cell, text, below) {
    if (!cell.firstChild) cell.append(make("span", {}, ""), make("small", {}, ""));
    say(cell.firstChild, text);
    say(cell.lastChild, below);
  }

  function fillShare(cell, share, without, text) {
    if (share === null || share === undefined) { say(cell, without); return; }
    cell.replaceChildren(text ?? percent(share), meter(share, "share"));
  }

  const TITLES = { last: "when the last evaluation ended", "of limits": "the largest share of a limit on evaluations or time" };
  class List {
    constructor(kind, title, columns) {
      Object.assign(this, { kind, columns, column: -1, sign: 1, lines: new Map() });
      this.heads = columns.map(([name, look], i) => {
        const button = make("button", { type: "button", title: TITLES[name] }, name);
        button.addEventListener("click", () => this.sort(i));
        return make("th", { scope: "col", class: look, "aria-sort": "none" }, button);
      });
      this.body = make("tbody", {});
      this.none = make("p", { class: "missing" }, "None.");
      this.table = parts.scroll(title, make("table", { class: "sortable" }, make("thead", {}, make("tr", {}, this.heads)), this.body));
    }

    sort(column) {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[this.heads[column].getAttribute("aria-sort")];
      for (const head of this.heads) head.setAttribute("aria-sort", "none");
      this.heads[column].setAttribute("aria-sort", next);
      [this.column, this.sign] = next === "none" ? [-1, 1] : [column, next === "ascending" ? 1 : -1];
      this.update();
    }

    ordered() {
      const found = Array.from(rows.values()).filter((row) => row.kind === this.kind && wanted(row));
      const path = (a, b) => WORDS.compare(a.path, b.path);
      if (this.column < 0) return found.sort(path);
      const key = this.columns[this.column][2];
      return found.sort((a, b) => compare(key(a), key(b), this.sign) || path(a, b));
    }

    update() {
      const order = this.ordered();
      const there = new Set(order.map((row) => row.id));
      for (const [id, line] of this.lines) {
        if (!there.has(id)) { line.remove(); this.lines.delete(id); }
      }
      order.forEach((row, i) => {
        let line = this.lines.get(row.id);
        if (!line) {
          line = make("tr", {}, this.columns.map(([, look], k) => make(k ? "td" : "th", { class: look, scope: k ? null : "row" })));
          this.lines.set(row.id, line);
        }
        line.classList.toggle("damaged", Boolean(row.error));
        this.columns.forEach(([, , , fill], k) => fill(line.cells[k], row));
        if (this.body.children[i] !== line) this.body.insertBefore(line, this.body.children[i] ?? null);
      });
      this.table.hidden = !order.length;
      this.none.hidden = order.length > 0;
    }
  }

  const WORDS = new Intl.Collator("en", { numeric: true });
  const missing = (value) => value === null || value === undefined || value === "";
  function compare(a, b, sign) {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (typeof a === "number" ? a - b : WORDS.compare(a, b));
  }

  const filter = { text: "", state: "" };
  function wanted(row) {
    if (row.kind === "campaign") return true;
    const words = [row.path, row.problem, row.method, row.size].join(" ").toLowerCase();
    return (!filter.state || stateOf(row) === filter.state) && filter.text.toLowerCase().split(/\s+/).every((word) => words.includes(word));
  }

  const STATES = ["running", "dead", "stopped", "done", "damaged"];
  let lists = null;
  function openList() {
    lists = { campaign: new List("campaign", "Campaigns", CAMPAIGN_COLUMNS), run: new List("run", "Runs", RUN_COLUMNS) };
    const search = make("input", { type: "search", id: "search", placeholder: "Name, problem or method", "aria-label": "Show runs with these words" });
    const states = make("select", { id: "states", "aria-label": "Show runs in this state" }, make("option", { value: "" }, "all states"), STATES.map((name) => make("option", { value: name }, name)));
    search.value = filter.text;
    states.value = filter.state;
    search.addEventListener("input", () => { filter.text = search.value.trim(); updateList(); });
    states.addEventListener("change", () => { filter.state = states.value; updateList(); });
    view.replaceChildren(
      make("h1", { id: "headline", "aria-live": "polite" }), make("p", { class: "kicker", id: "said" }), make("div", { id: "counts" }),
      make("section", { id: "campaigns" }, make("h2", {}, "Campaigns"), lists.campaign.table),
      make("section", { id: "runs" }, make("h2", {}, "Runs"), make("div", { class: "row filters" }, search, states), lists.run.table, lists.run.none),
    );
    updateList();
  }

  function updateList() {
    if (lists === null || place().kind !== "list" || !view.querySelector("#headline")) return;
    const runs = Array.from(rows.values()).filter((row) => row.kind === "run");
    const campaigns = rows.size - runs.length;
    const counts = Object.fromEntries(STATES.map((name) => [name, runs.filter((row) => stateOf(row) === name).length]));
    const running = counts.running + Array.from(rows.values()).filter((row) => row.kind === "campaign" && row.state === "running").length;
    say(view.querySelector("#headline"), rows.size === 0 ? "Nothing here yet" : running ? `${whole(running)} running` : "Nothing is running");
    const several = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
    const reading = runs.filter((row) => row.read < 1).length;
    say(view.querySelector("#said"), `${several(runs.length, "run")} and ${several(campaigns, "campaign")}${reading ? `; ${several(reading, "run")} yet to be read` : ""}.`);
    const shown = Object.entries(counts).filter(([name, count]) => count || name !== "damaged");
    const text = JSON.stringify(shown);
    const place_ = view.querySelector("#counts");
    if (place_.dataset.text !== text) {
      place_.dataset.text = text;
      place_.replaceChildren(tiles(shown.map(([name, count]) => [name, whole(count), "", count && (name === "dead" || name === "damaged") ? "warn" : null])));
    }
    view.querySelector("#campaigns").hidden = campaigns === 0;
    view.querySelector("#runs").hidden = runs.length === 0 && campaigns > 0;
    lists.campaign.update();
    lists.run.update();
  }

  // ---- what comes in -------------------------------------------------------------------------
  const link = document.getElementById("link");
  function connected(is, text) {
    link.className = `badge ${is ? "good" : "bad"}`;
    say(link, text);
  }

  function take({ rows: changed, gone }) {
    for (const row of changed) rows.set(row.id, row);
    for (const id of gone) rows.delete(id);
    updateList();
    const { id } = place();
    if (id && (gone.includes(id) || changed.some((row) => row.id === id))) later();
  }

  function listen() {
    const source = new EventSource("events");
    source.onopen = () => { rows.clear(); connected(true, "live"); };
    source.onmessage = (event) => take(JSON.parse(event.data));
    source.onerror = () => connected(false, "no connection");
  }

  window.addEventListener("hashchange", go);
  if (live) {
    connected(false, "connecting");
    listen();
    setInterval(updateList, 1000); // "3 s ago" grows
  } else {
    link.className = "badge quiet";
    say(link, `as of ${parts.date(bilevo.data.now)}`);
    take({ rows: bilevo.data.rows, gone: [] });
  }
  go();
})();
