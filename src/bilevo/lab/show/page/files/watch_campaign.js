"use strict";
// The view of a campaign: its progress, tables and the ECDF, as they fill.
const campaignView = (() => {
  const { make, whole, percent, duration, badge, meter, tiles } = parts;
  let shown = null;

  function panel(one) {
    const kind = one.error ? " bad" : one.state === "running" ? "" : " quiet";
    const inside = [make("p", {}, badge(one.error ? "damaged" : one.state), " ", one.error || `${one.sentence}.`)];
    if (one.unread) inside.push(make("p", {}, `${whole(one.unread)} files are yet to be read.`));
    return make("div", { class: `panel${kind}`, id: "state" }, inside);
  }

  function numbers(one) {
    const made = one.planned ? `${whole(one.made)} of ${whole(one.planned)}` : whole(one.made);
    return tiles([
      ["runs made", made, one.share === null ? "" : percent(one.share), "wide"],
      ["failed", whole(one.failed), "", one.failed ? "warn" : null],
      ["methods", whole(one.methods)],
      ["problems", whole(one.problems)],
      ["time left", duration(one.left), one.left === null ? "" : "estimated"],
    ]);
  }

  function progress(one) {
    const { methods, cases, counts } = one.progress;
    if (!cases.length) return null;
    const head = make("tr", {}, make("th", { scope: "col", class: "text" }, "problem"), methods.map((name) => make("th", { scope: "col" }, name)));
    const body = cases.map((name, i) => make("tr", {}, make("th", { scope: "row", class: "text" }, name), counts[i].map((count) => {
      if (count === null) return make("td", { class: "count" }, "");
      const [made, planned] = count;
      const full = planned > 0 && made >= planned;
      return make("td", { class: `count${full ? " full" : ""}` }, planned ? `${whole(made)} / ${whole(planned)}` : whole(made));
    })));
    return parts.section("progress", "Progress", make("p", { class: "about" }, "Runs made and planned, over all limits on evaluations."),
      one.share === null ? null : meter(one.share, "runs made"), make("p", {}),
      parts.scroll("Progress", make("table", {}, make("thead", {}, head), make("tbody", {}, body))));
  }

  function failed(one) {
    if (!one.failed_runs.length) return null;
    const kinds = [["problem", "text"], ["(m, n)", "text"], ["method", "text"], ["run", "number"], ["seed", "number"], ["error", "prose"]];
    const lines = one.failed_runs.map((run) => [run.problem, `(${run.m}, ${run.n})`, run.method, run.number, run.seed, run.error]);
    return parts.section("failed", "Failed runs", parts.textTable("Failed runs", kinds, lines));
  }

  function ecdf() {
    const found = shown?.ecdf;
    if (!found) return "There are no runs yet.";
    if (found.missing) return found.missing;
    const { methods, cases } = shown.names;
    return bilevo.charts.ecdf(found, { methods, cases: cases.map((_, i) => String(i)) });
  }

  function open(view, one, choose) {
    view.replaceChildren(
      make("a", { class: "back", href: "#" }, "← All runs"),
      make("h1", {}, one.path.split("/").at(-1) || one.path),
      make("p", { class: "kicker mono" }, one.path),
      make("div", { id: "standing" }),
      make("div", { id: "filling" }),
      make("div", { id: "choice" }),
      parts.section("ecdf", "Targets", make("p", { class: "about" }, "Share of pairs of a run and a target that are reached, over the problems with a known optimum on which every method has a run by now."),
        make("div", { class: "plot", "data-chart": "ecdf", role: "img", "aria-label": "Targets" })),
      make("div", { id: "tables" }),
    );
    update(view, one, choose);
    bilevo.chart(view.querySelector("[data-chart=ecdf]"), ecdf);
  }

  function update(view, one, choose) {
    const again = shown !== null && shown.id === one.id && shown.changes === one.changes && shown.group === one.group;
    const drawn = shown !== null && shown.id === one.id;
    shown = one;
    view.querySelector("#standing").replaceChildren(panel(one), numbers(one));
    if (again && view.querySelector("#filling").childElementCount) return;
    view.querySelector("#filling").replaceChildren(...[progress(one), failed(one)].filter(Boolean));
    view.querySelector("#choice").replaceChildren(...menu(one, choose));
    const tables = (one.tables ?? []).map((table, i) => parts.section(`table-${i}`, table.title, parts.resultTable(table)));
    view.querySelector("#tables").replaceChildren(...tables);
    if (drawn) bilevo.redraw();
  }

  // Runs with different limits are not compared, so one of them is chosen.
  function menu(one, choose) {
    if ((one.groups ?? []).length < 2) return [];
    const list = make("select", { id: "group" }, one.groups.map((name, i) => make("option", { value: i, selected: i === one.group }, name)));
    list.addEventListener("change", () => choose(Number(list.value)));
    return [make("section", {}, make("div", { class: "menu" }, make("label", { for: "group" }, "Runs with"), list))];
  }

  return { open, update };
})();
