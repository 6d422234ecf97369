"use strict";
// The view of one run. `update` draws it anew from its details; charts keep their places.
const runView = (() => {
  const { make, whole, number, percent, duration, rate, date, ago, badge, meter, tiles } = parts;
  const SHOWN = { evaluations: "nfev", seconds: "elapsed" };
  const LOWEST = 1e-16; // distances below are drawn there
  let over = "nfev";

  const style = (i, label) => {
    const [light, dark] = bilevo.data.palette[i % bilevo.data.palette.length];
    const dash = ["solid", "dash", "dot", "dashdot", "longdash"][Math.floor(i / bilevo.data.palette.length) % 5];
    return { light, dark, dash, label };
  };

  function panel(run, now) {
    const inside = [make("p", {}, badge(run.error ? "damaged" : run.state), " ", run.error || `${run.sentence}.`)];
    const times = [];
    if (run.since) times.push(`${run.state === "running" ? "Running since" : "Last begun"} ${date(run.since)}`);
    if (run.written) times.push(`last evaluation ${date(run.written)} (${ago(run.written, now)})`);
    if (times.length) inside.push(make("p", {}, `${times.join("; ")}.`));
    if (run.message && !run.error) inside.push(make("p", {}, `${run.message}.`));
    if (run.resume.length) {
      inside.push(make("p", {}, "To continue it, with the options that it began with (below, under Settings):"));
      inside.push(...run.resume.map((call) => make("pre", { class: "call mono" }, call)));
    }
    const kind = run.error || run.state === "dead" ? " bad" : run.state === "running" ? "" : " quiet";
    return make("div", { class: `panel${kind}`, id: "state" }, inside);
  }

  function certificate(run) {
    if (run.F === null || run.F === undefined) return ["–", ""];
    if (!run.feasible) return ["infeasible", `constraints exceeded by ${number(run.violation, 3)}`];
    return [run.certified ? "certified" : "not certified", run.certificate];
  }

  function numbers(run) {
    return tiles([
      ["best F", number(run.F, 7), run.f === null || run.f === undefined ? "" : `f ${number(run.f)}`],
      ["follower's answer", ...certificate(run), "wide"],
      ["evaluations", whole(run.nfev_upper + run.nfev_lower), `${whole(run.nfev_upper)} upper, ${whole(run.nfev_lower)} lower`],
      ["generations", whole(run.generations)],
      ["rate", rate(run.rate), "over its last minute"],
      ["time", duration(run.elapsed), run.left === null ? "" : `about ${duration(run.left)} left`],
      ["failures", whole(run.failures), "", run.failures ? "warn" : null],
    ]);
  }

  function limits(run) {
    const lines = Object.entries(run.limits).map(([name, [used, limit]]) => {
      const shown = name === "max_time" ? duration : whole;
      return make("div", {}, make("dt", {}, name), make("dd", {}, meter(used / limit, name)),
        make("dd", {}, `${shown(used)} of ${shown(limit)} (${percent(used / limit)})`));
    });
    return lines.length ? make("dl", { class: "limits" }, lines)
      : make("p", { class: "about" }, run.unlimited ? "There is no limit on evaluations or time: the method's own rules end it." : "Its limits are not known: an older version began it, or nobody has run it here.");
  }

  // Evaluations are drawn on a logarithmic scale, as in the report, unless they are all alike.
  function axis(run) {
    if (over !== "nfev") return { title: { text: "seconds" }, rangemode: "tozero" };
    const title = { text: "evaluations of both levels" };
    const first = Math.max(1, run.pairs.nfev[0] ?? 1);
    return last(run) >= 10 * first ? { ...bilevo.logAxis([first, last(run)]), title } : { title, rangemode: "tozero" };
  }
  const last = (run) => (over === "nfev" ? run.nfev_upper + run.nfev_lower : run.elapsed);

  // The values of a list over time, held until now.
  function held(run, values) {
    const x = [...run.pairs[over]];
    return [[...x, Math.max(last(run), x.at(-1) ?? 0)], [...values, values.at(-1) ?? null]];
  }

  function convergence(run) {
    if (!run.pairs.nfev.length) return "No pair has been evaluated yet.";
    const aim = run.target?.optimum ? run.target.F : null;
    const seen = aim === null ? (F) => F : (F) => (F === null ? null : Math.max(Math.abs(F - aim), LOWEST));
    const all = run.pairs.F.map(seen);
    const some = (is) => all.map((value, i) => (run.pairs.violation[i] === 0 === is ? value : null));
    const data = [];
    const [good, bad] = [some(true), some(false)];
    if (good.some((v) => v !== null)) data.push(bilevo.stepLine(style(0, "feasible"), ...held(run, good), { hovertemplate: "%{y:.6g} after %{x:,}" }));
    if (bad.some((v) => v !== null)) data.push(bilevo.stepLine({ ...style(1, "infeasible"), dash: "dot" }, ...held(run, bad), { mode: "lines+markers" }));
    const yaxis = aim === null ? { title: { text: "F" } } : { ...bilevo.logAxis(all.filter((v) => v !== null)), title: { text: "|F - F*|" } };
    return { data, layout: { xaxis: axis(run), yaxis, height: 380 } };
  }

  function variables(run, name) {
    const lists = run.pairs[name];
    if (!lists.length) return `No best pair with ${name} is stored yet.`;
    const data = lists.map((values, i) => bilevo.stepLine(style(i, `${name}${i + 1}`), ...held(run, values)));
    return { data, layout: { xaxis: axis(run), yaxis: { title: { text: name } }, height: 380 } };
  }

  function allocation(run) {
    if (!run.allocation.length) return "This method reports no executions of tasks (or no generation has ended yet).";
    const { data, layout } = bilevo.charts.allocation([{ label: "", stages: run.allocation }]);
    return { data, layout: { ...layout, height: 330, margin: { b: 24 } } };
  }

  const CHARTS = {
    convergence: ["Convergence", convergence],
    x: ["x of the best pair", (run) => variables(run, "x")],
    y: ["y of the best pair", (run) => variables(run, "y")],
    allocation: ["Allocation", allocation],
  };
  const ABOUT = {
    convergence: "F of the best pair so far, or its distance to the known optimum. It can rise: "
      + "the leader gets another F where a better answer of the follower is found.",
    x: "The leader's decision; a leap says that the search found a better place.",
    y: "The follower's answer to it.",
    allocation: "Executions of each task, the follower's search of one leader, in an early, a middle and a late generation. Coloured: tasks that survived.",
  };

  function pairList(run) {
    if (!run.x) return null;
    const items = (name, values, size) => [
      ...values.map((value, i) => make("li", {}, make("span", {}, `${name}${i + 1}`), make("span", {}, number(value, 8)))),
      size > values.length ? make("li", {}, `and ${whole(size - values.length)} more`) : null,
    ];
    return parts.section("pair", "Best pair",
      make("h3", {}, "x, the leader's decision"), make("ul", { class: "pair" }, items("x", run.x, run.m)),
      make("h3", {}, "y, the follower's answer"), make("ul", { class: "pair" }, items("y", run.y, run.n)));
  }

  function failures(run) {
    if (!run.failures) return null;
    const list = (values) => `(${values.map((value) => number(value, 5)).join(", ")})`;
    const kinds = [["evaluation", "number"], ["level", "text"], ["x", "prose"], ["y", "prose"], ["error", "prose"]];
    const lines = run.failed.map((one) => [one.evaluation, one.level, list(one.x), list(one.y), one.error]);
    const more = run.failures > lines.length ? make("p", { class: "about" }, `The first ${lines.length} of ${whole(run.failures)}.`) : null;
    return parts.section("failures", "Failures", more, parts.textTable("Failures", kinds, lines));
  }

  function settings(run) {
    const lines = Object.entries(run.settings).map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)));
    return lines.length ? parts.section("settings", "Settings", make("dl", { class: "facts" }, lines)) : null;
  }

  function thinned(run) {
    const { count, step } = run.pairs;
    return step > 1 ? `${whole(count)} best pairs are shown thinned: about every ${whole(step)}th.` : "";
  }

  // Build the view once; later only its parts are replaced, so that charts keep their zoom.
  function open(view, run, now) {
    const menu = make("select", { id: "over" }, Object.entries(SHOWN).map(([name, key]) => make("option", { value: key, selected: key === over }, name)));
    const charts = Object.entries(CHARTS).map(([name, [title]]) => parts.section(name, title,
      make("p", { class: "about" }, ABOUT[name]), make("div", { class: "plot", "data-chart": name, role: "img", "aria-label": title })));
    view.replaceChildren(
      make("a", { class: "back", href: "#" }, "← All runs"),
      make("h1", {}, `${run.problem || "a run"} ${run.size ?? ""} by ${run.method || "?"}, seed ${run.seed ?? "?"}`),
      make("p", { class: "kicker mono" }, run.path),
      make("div", { id: "standing" }),
      make("section", {}, make("div", { class: "menu" }, make("label", { for: "over" }, "Over"), menu), make("p", { class: "about", id: "thinned" }), make("div", { class: "charts" }, charts)),
      make("div", { id: "rest" }),
    );
    menu.addEventListener("change", () => { over = menu.value; bilevo.redraw(); });
    update(view, run, now);
    for (const [name, [, draw]] of Object.entries(CHARTS)) {
      bilevo.chart(view.querySelector(`[data-chart=${name}]`), () => draw(shown));
    }
  }

  let shown = null;
  function update(view, run, now) {
    const first = shown === null || shown.id !== run.id;
    const moved = !first && (shown.pairs.count !== run.pairs.count || shown.generations !== run.generations || last(shown) !== last(run));
    shown = run;
    view.querySelector("#standing").replaceChildren(panel(run, now), numbers(run), limits(run));
    view.querySelector("#thinned").textContent = thinned(run);
    view.querySelector("#rest").replaceChildren(...[pairList(run), failures(run), settings(run)].filter(Boolean));
    if (moved) bilevo.redraw();
  }

  return { open, update };
})();
