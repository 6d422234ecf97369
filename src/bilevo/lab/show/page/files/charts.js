"use strict";
// The charts of reports and of `bilevo watch`. Each function takes numbers that
// `bilevo.lab.show.interactive` made and what the reader has chosen, {methods, cases}, and returns
// a picture for `bilevo.chart`: traces and a layout, or a text if there is nothing to draw.
bilevo.charts = (() => {
  const { plain, colour, stepLine, bandLines, logAxis, namedAxis } = bilevo;
  const X_LABEL = { text: "evaluations of both levels" };
  const NONE = "Nothing to show for the chosen methods and problems.";
  const BAR = "#8a929a"; // grey, on light and on dark pages
  const SURVIVED = { light: "#2a7f62", dark: "#4fb894" };
  const DROPPED = "rgba(128, 134, 140, 0.25)"; // pale, within an edge of BAR
  const SYMBOLS = { // by dashes, which tell methods of one colour apart
    solid: "circle", dash: "triangle-down", dashdot: "square", dot: "triangle-up",
    longdashdot: "diamond",
  };
  const ROW = 26; // pixels of a method in a list of methods
  const PANEL = 160; // pixels of one of several charts
  const MAX_TICKS = 5;
  // A method may have any name, also one that every object of JavaScript has, such as "toString".
  const own = (of, name) => (of !== undefined && Object.hasOwn(of, name) ? of[name] : undefined);
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  // The share of targets reached. Only problems that all methods ran on count, because shares
  // over different problems could not be compared.
  function ecdf({ grid, counts }, { methods, cases }) {
    const there = methods.filter((m) => cases.some((c) => own(own(counts, m.name), c)));
    const common = cases.filter((c) => there.every((m) => counts[m.name][c]));
    if (!there.length || !common.length) return NONE;
    const data = there.map((m) => {
      const of = common.map((c) => counts[m.name][c]);
      const pairs = sum(of.map((one) => one.pairs));
      const end = Math.max(...of.map((one) => one.end));
      const x = [...grid.filter((count) => count < end), end];
      const last = grid.length - 1; // all that is reached is reached at the end
      const reached = (i) => sum(of.map((one) => one.reached[i < x.length - 1 ? i : last]));
      const y = x.map((_, i) => reached(i) / pairs);
      return stepLine(m, x, y, { hovertemplate: "%{y:.1%} after %{x:,}" });
    });
    const title = `share reached, ${common.length} problem${common.length > 1 ? "s" : ""}`;
    const layout = {
      xaxis: { ...logAxis(grid), title: X_LABEL },
      yaxis: { range: [0, 1.02], tickformat: ".0%", title: { text: title } },
    };
    return { data, layout };
  }

  // Medians and quartiles over evaluations, of one problem.
  function convergence({ label, known, bands }, { methods }) {
    const byName = new Map(methods.map((m) => [m.name, m]));
    const shown = bands.filter((band) => byName.has(band.method));
    if (!shown.length) return NONE;
    const more = { hovertemplate: "%{y:.3g} after %{x:,}" };
    const data = shown.flatMap((band) => bandLines(byName.get(band.method), band.x, band.y, more));
    const values = (axis) => data.flatMap((trace) => trace[axis]);
    const scale = known ? logAxis(values("y")) : {};
    const layout = {
      xaxis: { ...logAxis(values("x")), title: X_LABEL },
      yaxis: { ...scale, title: { text: plain(label) } },
    };
    return { data, layout };
  }

  // ---- average ranks ------------------------------------------------------------------------
  // Ranks of values from 1; equal values share the mean of their ranks.
  function ranked(values) {
    return values.map((value) => {
      const smaller = values.filter((other) => other < value).length;
      const equal = values.filter((other) => other === value).length;
      return smaller + (equal + 1) / 2;
    });
  }

  // The probability that chi-square with `degrees` degrees of freedom exceeds x.
  function chiSquareTail(x, degrees) {
    const a = degrees / 2;
    const z = x / 2;
    if (z <= 0) return 1;
    // Q(a, z) by recurrence from Q(1, z) = exp(-z) or Q(1/2, z) = erfc(sqrt(z)).
    const whole = degrees % 2 === 0;
    let total = whole ? Math.exp(-z) : erfc(Math.sqrt(z));
    let term = whole ? Math.exp(-z) * z : Math.exp(-z) * Math.sqrt(z) * 2 / Math.sqrt(Math.PI);
    for (let k = whole ? 1 : 0.5; k < a; k += 1) {
      total += term;
      term *= z / (k + 1);
    }
    return Math.min(total, 1);
  }

  // erfc by its series or its continued fraction, to about ten digits.
  function erfc(x) {
    if (x < 2.5) {
      let term = x;
      let total = x;
      for (let n = 1; n < 60; n += 1) {
        term *= -x * x / n;
        total += term / (2 * n + 1);
      }
      return 1 - 2 / Math.sqrt(Math.PI) * total;
    }
    let fraction = x;
    for (let n = 60; n > 0; n -= 1) fraction = x + n / 2 / fraction;
    return Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction;
  }

  // Friedman's test, as scipy makes it, and Nemenyi's critical difference.
  function friedman(medians, units) {
    const blocks = medians.length;
    const k = medians[0].length;
    const ranks = medians.map(ranked);
    const sums = medians[0].map((_, i) => sum(ranks.map((line) => line[i])));
    const ties = sum(medians.map((line) => sum(line.map((value) => {
      const equal = line.filter((other) => other === value).length;
      return equal * equal - 1; // over the members of a tie of t, this adds up to t^3 - t
    }))));
    const correction = 1 - ties / (k * (k * k - 1) * blocks);
    const raw = 12 / (k * blocks * (k + 1)) * sum(sums.map((s) => s * s)) - 3 * blocks * (k + 1);
    const p = correction <= 0 ? 1 : chiSquareTail(raw / correction, k - 1);
    return {
      average: sums.map((s) => s / blocks), p, blocks, difference: units[k] / Math.sqrt(blocks),
    };
  }

  // The largest groups of rows, sorted by rank, whose ranks differ by at most `difference`.
  function cliques(ranks, difference) {
    const found = [];
    ranks.forEach((first, start) => {
      const last = ranks.findLastIndex((rank) => rank - first <= difference);
      if (last > start && !found.some(([, end]) => end >= last)) found.push([start, last]);
    });
    return found;
  }

  // A critical-difference diagram on its side, so that names of any length fit.
  function criticalDifference({ medians, units }, view, { methods, cases }) {
    const number = (value) => (value === "inf" ? Infinity : value);
    const blocks = cases.map((c) => medians[view][c])
      .filter((of) => methods.every((m) => own(of, m.name) !== undefined))
      .map((of) => methods.map((m) => number(of[m.name])));
    if (methods.length < 3) return "Ranks need three methods or more.";
    if (!blocks.length) return NONE;
    const test = friedman(blocks, units);
    const order = methods.map((m, i) => ({ m, rank: test.average[i] }))
      .sort((a, b) => a.rank - b.rank);
    return rankDiagram(order, test);
  }

  // `order` has the methods with their ranks, the best first; `test` is what `friedman` returns.
  function rankDiagram(order, test) {
    const k = order.length;
    const step = 0.045 * (k - 1); // the distance of bars that join methods
    const top = -1.1; // where the critical difference is drawn, above the first method
    const groups = cliques(order.map((one) => one.rank), test.difference);
    const said = `average rank<br>${test.blocks} problem${test.blocks > 1 ? "s" : ""}, `
      + `Friedman p = ${test.p.toPrecision(2)}<br>critical difference ${test.difference.toFixed(2)}`;
    const data = [
      ...order.map(({ rank }, row) => bar([1, rank], [row, row], 1)),
      ...groups.map(([a, b], i) => {
        const x = k + step * (i + 1.5);
        return bar([x, x], [a - 0.28, b + 0.28], 7);
      }),
      bar([1, 1 + test.difference], [top, top], 3),
      ...order.map(rankPoint),
    ];
    const right = Math.max(k + step * (groups.length + 2), 1.05 + test.difference);
    const names = order.map(({ m }) => plain(m.label));
    const layout = {
      height: 170 + ROW * (k + 1), showlegend: false,
      xaxis: {
        title: { text: said }, tick0: 1, dtick: Math.ceil((k - 1) / 9), range: [1 - step, right],
      },
      yaxis: { ...namedAxis(names), range: [k - 0.4, top - 0.7], showgrid: false },
      annotations: [note("critical difference", 1, top, "bottom", { xref: "x", yref: "y" })],
    };
    return { data, layout };
  }

  function bar(x, y, width) {
    const line = { color: BAR, width };
    return { type: "scatter", mode: "lines", x, y, line, hoverinfo: "skip", showlegend: false };
  }

  function rankPoint({ m, rank }, row) {
    return {
      type: "scatter", mode: "markers+text", x: [rank], y: [row], text: [`  ${rank.toFixed(2)}`],
      textposition: "middle right", cliponaxis: false, marker: marker(m, 11), showlegend: false,
      hovertemplate: `${plain(m.label)}: %{x:.2f}<extra></extra>`,
    };
  }

  const marker = (m, size) => ({ color: colour(m), symbol: SYMBOLS[m.dash], size });

  function note(text, x, y, side, more = {}) {
    return {
      text, x, y, xref: "paper", yref: "paper", showarrow: false, xanchor: "left", yanchor: side,
      font: { size: 12 }, ...more,
    };
  }

  // ---- executions of tasks ------------------------------------------------------------------
  // A row of bar charts for each method, with its own scale and a column for each stage. `rows`
  // has a label and stages for each row.
  function allocation(rows) {
    if (!rows.length) return NONE;
    const data = [];
    const annotations = [];
    const layout = { showlegend: false, bargap: 0.2, margin: { b: 8 }, annotations };
    rows.forEach(({ label, stages }, row) => {
      const [top, upper, lower] = [0, 0.3, 0.84].map((part) => 1 - (row + part) / rows.length);
      annotations.push(note(`<b>${plain(label)}</b>`, 0, top, "top"));
      const highest = Math.max(0, ...stages.flatMap((stage) => stage.executions));
      const first = data.length ? String(data.length + 1) : "";
      stages.forEach((stage, column) => {
        const axis = data.length ? String(data.length + 1) : "";
        const [left, right] = [column / stages.length, (column + 0.93) / stages.length];
        data.push(bars(stage, axis));
        annotations.push(note(`${stage.name} (${stage.generation})`, left, upper, "bottom"));
        layout[`xaxis${axis}`] = { domain: [left, right], anchor: `y${axis}`, tickvals: stage.ticks };
        layout[`yaxis${axis}`] = {
          domain: [lower, upper], anchor: `x${axis}`, dtick: wholeStep(highest),
          showticklabels: column === 0, ...(column ? { matches: `y${first}` } : {}),
        };
      });
    });
    return { data, layout: { ...layout, height: 50 + PANEL * rows.length } };
  }

  function bars(stage, axis) {
    const survived = SURVIVED[bilevo.isDark() ? "dark" : "light"];
    return {
      type: "bar", x: stage.executions.map((_, i) => i + 1), y: stage.executions,
      xaxis: `x${axis}`, yaxis: `y${axis}`, hovertemplate: "task %{x}: %{y}<extra></extra>",
      marker: {
        color: stage.survived.map((s) => (s ? survived : DROPPED)),
        line: { color: stage.survived.map((s) => (s ? survived : BAR)), width: 1 },
      },
    };
  }

  // The smallest of 1, 2, 5, 10 ... that makes at most MAX_TICKS steps.
  function wholeStep(highest) {
    let power = 1;
    for (;;) {
      for (const digit of [1, 2, 5]) if (highest <= MAX_TICKS * digit * power) return digit * power;
      power *= 10;
    }
  }

  // ---- times --------------------------------------------------------------------------------
  // Medians with bars from quartile to quartile, with methods side by side. `names` has the
  // name of each case, which `plain` has escaped.
  function runtime(numbers, what, { methods, cases }, names) {
    const there = methods.filter((m) => own(numbers[what], m.name));
    const shown = cases.filter((c) => there.some((m) => numbers[what][m.name][c]));
    if (!shown.length) return NONE;
    const labels = shown.map((c) => names[c]);
    const data = there.map((m) => {
      const of = shown.map((c, x) => [x, numbers[what][m.name][c]]).filter(([, q]) => q);
      return {
        type: "scatter", mode: "markers", name: plain(m.label), x: of.map(([x]) => x),
        y: of.map(([, q]) => q[1]), marker: marker(m, 8),
        text: of.map(([x]) => labels[x]), hovertemplate: "%{text}: %{y:.3g} s",
        error_y: {
          symmetric: false, thickness: 2, width: 0, array: of.map(([, q]) => q[2] - q[1]),
          arrayminus: of.map(([, q]) => q[1] - q[0]),
        },
      };
    });
    const layout = {
      scattermode: "group", scattergap: 0.4,
      xaxis: { ...namedAxis(labels), range: [-0.5, labels.length - 0.5], showgrid: false },
      yaxis: { ...logAxis(data.flatMap((t) => t.y)), title: { text: `seconds for ${what}` } },
    };
    return { data, layout };
  }

  return { own, ecdf, convergence, criticalDifference, friedman, allocation, runtime };
})();
