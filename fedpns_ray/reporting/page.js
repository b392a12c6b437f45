"use strict";
// Draws and filters what report-data holds; every number was computed in Python.
(() => {
  const D = JSON.parse(document.getElementById("report-data").textContent);
  const by = (id) => document.getElementById(id);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 600px)");
  const PANELS = 24; // the most panels drawn at once
  const state = { filters: {}, hidden: new Set(), sort: {} };

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }
  // Plotly interprets some HTML in its texts: names are escaped.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const lookOf = (line) => D.lines.find((one) => one.label === line);
  const colourOf = (line) => {
    const colour = lookOf(line).colour;
    return dark.matches && colour === "#000000" ? "#DDDDDD" : dark.matches && colour === "#0072B2" ? "#4BA3E0" : colour;
  };
  const faded = (colour, alpha) => {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  };
  const rounds = (length) => Array.from({ length }, (_, k) => k + 1);
  const naming = (setting) => [setting.panel, setting.line].filter(Boolean).join(" · ");

  function draw(id, traces, x, y, more = {}) {
    const target = typeof id === "string" ? by(id) : id;
    const axis = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line"), automargin: true };
    const title = (text) => ({ text, font: { size: 12 }, standoff: 8 });
    const layout = {
      font: { color: css("--ink"), size: 12, family: "system-ui, 'DejaVu Sans', sans-serif" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "x unified",
      hoverlabel: { bgcolor: css("--wash"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 }, namelength: 40 },
      margin: { l: 54, r: 12, t: 10, b: 42 }, dragmode: narrow.matches ? false : "zoom",
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
      ...more,
      xaxis: { ...axis, title: title(x), ...more.xaxis }, yaxis: { ...axis, title: title(y), ...more.yaxis },
    };
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", `${y} over ${x}`);
    return Plotly.react(target, traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }
  function empty(id, message) {
    Plotly.purge(by(id));
    by(id).replaceChildren(element("p", { className: "hint", textContent: message }));
  }
  function options(select, entries) {
    select.replaceChildren(...entries.map(([value, textContent]) => element("option", { value, textContent })));
  }

  // --- head ---------------------------------------------------------------------------------------------------------
  function head() {
    by("title").textContent = D.title;
    const done = D.runs.filter((run) => run.status === "finished").length;
    by("summary").textContent = `${D.standing ? `${D.standing}. ` : ""}${D.runs.length} run${D.runs.length === 1 ? "" : "s"}, ${done} finished; ${D.settings.length} setting${D.settings.length === 1 ? "" : "s"}.`;
    by("notes").replaceChildren(...D.notes.map((textContent) => element("li", { textContent })));
    by("made").textContent = `Made ${D.made} by fedpns-ray ${D.version}. This page is self-contained: it loads nothing from any server.`;
  }

  // --- overview -----------------------------------------------------------------------------------------------------
  const passes = (values) => Object.entries(state.filters).every(([axis, value]) => !value || values[axis] === value);
  const asNumber = (text) => { const n = parseFloat(String(text).replace("+", "")); return Number.isNaN(n) ? null : n; };

  function filters() {
    for (const axis of D.axes) {
      const values = [...new Set(D.settings.map((setting) => setting.values[axis]))];
      const select = element("select", { id: `filter-${axis}` });
      options(select, [["", "all"], ...values.map((value) => [value, value])]);
      select.addEventListener("change", () => { state.filters[axis] = select.value; table(); curves(); });
      by("filters").append(element("label", {}, `${axis} `, select));
    }
  }
  function table() {
    const single = by("rows").value === "runs";
    const header = single ? [...D.axes, "seed", "status", "rounds", "final accuracy", "best accuracy", "last loss", "seconds", "weights", "folder"] : D.table.header;
    const number = (value, digits) => (value === null ? "-" : value.toFixed(digits));
    const rows = single
      ? D.runs.map((run) => [D.settings[run.setting].values, [...D.axes.map((axis) => D.settings[run.setting].values[axis]), run.seed, run.status, run.rounds < run.of ? `${run.rounds} of ${run.of}` : run.rounds, number(run.final, 2), number(run.best, 2), number(run.loss, 4), number(run.seconds, 1), run.weights || "-", run.name]])
      : D.table.rows.map((cells, k) => [D.table.values[k], cells]);
    const kept = rows.filter(([values]) => passes(values)).map(([, cells]) => cells);
    by("count").textContent = `${kept.length} of ${rows.length} rows`;
    sortable(by("table"), header, kept, new Set([...D.axes, "status", "weights", "folder"]));
  }
  function sortable(target, header, rows, texts = new Set()) {
    const sort = state.sort[target.id] || {};
    const column = header.indexOf(sort.column);
    if (column >= 0) {
      const compare = (a, b) => {
        const [x, y] = [asNumber(a[column]), asNumber(b[column])];
        if (x !== null && y !== null) return sort.sign * (x - y);
        if (x !== null || y !== null) return x !== null ? -1 : 1; // text comes last
        return sort.sign * String(a[column]).localeCompare(String(b[column]));
      };
      rows = [...rows].sort(compare);
    }
    const heads = header.map((name) => {
      const press = element("button", { type: "button", textContent: name });
      press.addEventListener("click", () => {
        const again = (state.sort[target.id] || {}).column === name;
        state.sort[target.id] = { column: name, sign: again ? -state.sort[target.id].sign : 1 };
        sortable(target, header, rows, texts);
        [...target.querySelectorAll("th button")].find((one) => one.textContent === name).focus();
      });
      const cell = element("th", { scope: "col", className: texts.has(name) ? "text" : "" }, press);
      cell.setAttribute("aria-sort", sort.column === name ? (sort.sign > 0 ? "ascending" : "descending") : "none");
      return cell;
    });
    const body = rows.map((cells) => element("tr", {}, ...cells.map((cell, k) => element("td", { textContent: cell, className: texts.has(header[k]) ? "text" : "" }))));
    target.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
  }

  // --- curves -------------------------------------------------------------------------------------------------------
  const OVER = { round: "round", megabytes: "transmitted (MB)", simulated: "simulated time (s)", seconds: "run time (s)" };
  const titleOf = (key) => D.titles[key] || key;

  function curveControls() {
    const present = Object.keys(D.titles).filter((key) => D.settings.some((setting) => setting.series[key]));
    options(by("quantity"), present.map((key) => [key, titleOf(key)]));
    if (!D.settings.some((setting) => setting.series.simulated)) by("over").querySelector("[value=simulated]").remove();
    for (const { label } of D.lines) {
      const box = element("input", { type: "checkbox", checked: true });
      box.dataset.line = label;
      box.addEventListener("change", () => { state.hidden[box.checked ? "delete" : "add"](label); curves(); theory(); });
      const swatch = element("span", { className: "swatch" });
      swatch.dataset.line = label;
      by("lines").append(element("label", {}, box, swatch, label));
    }
    by("bands").checked = D.bands; // the bands of many lines would hide each other
    for (const id of ["quantity", "over", "bands", "published", "singles"]) by(id).addEventListener("change", curves);
  }
  function lineTraces(setting, key, over, look) {
    const series = setting.series[key];
    if (!series) return [];
    const colour = colourOf(setting.line);
    const x = over === "round" ? rounds(series.mean.length) : (setting.series[over] || {}).mean;
    if (!x) return [];
    const traces = [];
    const bounded = (value) => (D.percent.includes(key) ? Math.min(100, Math.max(0, value)) : value);
    if (look.bands && series.half) {
      const at = rounds(x.length).map((k) => k - 1).filter((k) => series.mean[k] !== null && series.half[k] !== null);
      const edge = (sign) => at.map((k) => bounded(series.mean[k] + sign * series.half[k]));
      const xs = at.map((k) => x[k]);
      traces.push({ x: [...xs, ...[...xs].reverse()], y: [...edge(1), ...edge(-1).reverse()], fill: "toself", fillcolor: faded(colour, 0.18), line: { width: 0 }, mode: "lines", hoverinfo: "skip", meta: "band" });
    }
    if (look.singles && over === "round") {
      for (const run of D.runs.filter((one) => D.settings[one.setting] === setting && one.curves[key]))
        traces.push({ x: rounds(run.curves[key].length), y: run.curves[key], mode: "lines", line: { color: faded(colour, 0.45), width: 0.8 }, connectgaps: true, hoverinfo: "skip", meta: "single" });
    }
    if (look.published && over === "round" && setting.published[key]) {
      const paper = setting.published[key];
      traces.push({ x: paper.round, y: paper.value, name: plain(`${setting.line}, published`), mode: "lines", line: { color: faded(colour, 0.65), width: 1.2, dash: "dot" }, meta: "published" });
    }
    const alone = series.mean.filter((value) => value !== null).length === 1;
    traces.push({ x, y: series.mean, name: plain(`${look.name || setting.line}${setting.seeds.length > 1 ? `, mean of ${setting.seeds.length}` : ""}`), mode: alone ? "markers" : "lines", line: { color: look.colour || colour, width: 2, dash: look.dash || lookOf(setting.line).dash }, marker: { color: colour, size: 8 }, connectgaps: true, meta: "mean" });
    return traces;
  }
  function curves() {
    const [key, over] = [by("quantity").value, by("over").value];
    const look = { bands: by("bands").checked, published: by("published").checked, singles: by("singles").checked };
    const visible = D.settings.filter((setting) => passes(setting.values) && !state.hidden.has(setting.line));
    const panels = [...new Set(visible.filter((setting) => setting.series[key]).map((setting) => setting.panel))];
    const target = by("panels");
    target.querySelectorAll(".chart").forEach((chart) => Plotly.purge(chart));
    target.classList.toggle("one", panels.length === 1);
    target.replaceChildren();
    for (const panel of panels.slice(0, PANELS)) {
      const chart = element("div", { className: "chart" });
      target.append(element("div", {}, element("p", { className: "panel-title", textContent: panel }), chart));
      const traces = visible.filter((setting) => setting.panel === panel).flatMap((setting) => lineTraces(setting, key, over, look));
      draw(chart, traces, OVER[over], titleOf(key), { hovermode: over === "round" ? "x unified" : "closest" });
    }
    document.querySelectorAll(".swatch").forEach((swatch) => {
      const [colour, dash] = [colourOf(swatch.dataset.line), lookOf(swatch.dataset.line).dash];
      const gaps = { dash: "0 7px, transparent 7px 11px", dashdot: "0 9px, transparent 9px 12px" }[dash];
      swatch.style.background = gaps ? `repeating-linear-gradient(90deg, ${colour} ${gaps})` : colour;
    });
    const hints = ["Lines are means over the finished seeds of a setting (if none is finished, as far as all its seeds have come), with bands for three or more seeds. Drag to zoom, double-click to reset."];
    if (panels.length > PANELS) hints.push(`${PANELS} of ${panels.length} panels are shown: filter by axis in the overview.`);
    if (over === "megabytes") hints.push("Transmitted: the model in float32 to every drawn node, and back from every node whose update was requested.");
    if (over === "simulated") hints.push("Simulated by the device model: the time until the last node that a round waits for has answered.");
    if (over === "seconds") hints.push("Wall-clock time as recorded; it depends on the machines and on what else they were running.");
    if (!panels.length) hints.push("Nothing to show with these filters.");
    by("curves-hint").textContent = hints.join(" ");
  }

  // --- selection ----------------------------------------------------------------------------------------------------
  const FATES = ["not drawn", "drawn", "labelled, kept", "excluded", "excluded, not labelled"];
  let seen = null; // the run that is shown, decoded
  let timer = null;
  const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  function selectionControls() {
    if (!D.selection.length) {
      by("selection").replaceChildren(by("selection-title"), element("p", { className: "hint", textContent: "No run has completed a round yet." }));
      by("data").hidden = true;
      return;
    }
    options(by("run"), D.selection.map((one, k) => [k, `${naming(D.settings[one.setting])}, seed ${one.seed}`]));
    const first = D.selection.findIndex((one) => one.probability);
    by("run").value = Math.max(first, 0);
    by("run").addEventListener("change", () => { stop(); selection(); });
    by("shade").addEventListener("change", heat);
    by("scrubber").addEventListener("input", () => { stop(); scrub(); });
    by("play").addEventListener("click", () => (timer ? stop() : play()));
    selection();
  }
  function selection() {
    const run = D.selection[by("run").value];
    seen = { ...run, fates: decode(run.fates), probability: run.probability ? decode(run.probability) : null };
    by("shade").value = seen.probability ? by("shade").value : "fates";
    by("shade").disabled = !seen.probability;
    by("scrubber").max = seen.rounds;
    by("scrubber").value = seen.rounds;
    heat();
    scrub();
    population();
  }
  function heat() {
    const shade = by("shade").value;
    const values = shade === "probability" ? seen.probability : seen.fates;
    const grid = Array.from({ length: seen.nodes }, (_, node) => Array.from({ length: seen.rounds }, (_, t) => {
      const value = values[t * seen.nodes + node];
      return shade === "probability" ? (value / 255) * seen.largest : value;
    }));
    const paper = css("--wash");
    const steps = [paper, "#7fb3d5", "#E69F00", "#D55E00", "#CC79A7"];
    const discrete = steps.flatMap((colour, k) => [[k / 5, colour], [(k + 1) / 5, colour]]);
    const trace = { type: "heatmap", z: grid, x: rounds(seen.rounds), y: rounds(seen.nodes).map((k) => k - 1), zsmooth: false };
    if (shade === "probability") Object.assign(trace, { colorscale: "Viridis", zmin: 0, colorbar: { title: { text: "p", side: "top" }, thickness: 12 }, hovertemplate: "round %{x}, node %{y}: p = %{z:.4f}<extra></extra>" });
    else Object.assign(trace, { colorscale: discrete, zmin: -0.5, zmax: 4.5, customdata: grid.map((row) => row.map((value) => FATES[value])), hovertemplate: "round %{x}, node %{y}: %{customdata}<extra></extra>", colorbar: { thickness: 12, tickvals: [0, 1, 2, 3], ticktext: narrow.matches ? ["·", "d", "l", "e"] : FATES.slice(0, 4) } });
    draw("heat", [trace], "round", "node (i.i.d. above the line)", { hovermode: "closest", shapes: marks(), yaxis: { autorange: "reversed" } });
  }
  function marks() {
    const t = Number(by("scrubber").value);
    const line = (place, colour, width) => ({ type: "line", xref: "x", yref: "y", line: { color: colour, width }, ...place });
    const border = line({ x0: 0.5, x1: seen.rounds + 0.5, y0: seen.iid - 0.5, y1: seen.iid - 0.5 }, "#ffffff", 1.5);
    const dark_under = line({ x0: 0.5, x1: seen.rounds + 0.5, y0: seen.iid - 0.5, y1: seen.iid - 0.5 }, "#000000", 3);
    const now = line({ x0: t, x1: t, y0: -0.5, y1: seen.nodes - 0.5 }, "#ff3b30", 1.5);
    return seen.iid > 0 && seen.iid < seen.nodes ? [dark_under, border, now] : [now];
  }
  function scrub() {
    const t = Number(by("scrubber").value);
    by("round").textContent = `${t} of ${seen.rounds}`;
    const fates = [[], [], [], []];
    const counts = { drawn: new Array(seen.nodes).fill(0), labelled: new Array(seen.nodes).fill(0), excluded: new Array(seen.nodes).fill(0) };
    for (let k = 0; k < t; k++)
      for (let node = 0; node < seen.nodes; node++) {
        const fate = seen.fates[k * seen.nodes + node];
        if (!fate) continue;
        counts.drawn[node]++;
        if (fate === 2) counts.labelled[node]++;
        if (fate === 3) { counts.labelled[node]++; counts.excluded[node]++; }
        if (fate === 4) counts.excluded[node]++;
        if (k === t - 1) { fates[0].push(node); if (fate === 2 || fate === 3) fates[1].push(node); if (fate > 2) fates[2].push(node); }
      }
    const list = (nodes) => nodes.join(" ") || "none";
    by("happened").textContent = `Round ${t}: drawn ${list(fates[0])}; labelled ${list(fates[1])}; excluded ${list(fates[2])}.`;
    Plotly.relayout(by("heat"), { shapes: marks() });
    const nodes = rounds(seen.nodes).map((k) => k - 1);
    const bar = (name, y, colour) => ({ type: "bar", name, x: nodes, y, marker: { color: colour } });
    draw("triples", [bar("drawn", counts.drawn, dark.matches ? "#4a6a82" : "#b9d4e6"), bar("labelled", counts.labelled, "#E69F00"), bar("excluded", counts.excluded, "#D55E00")],
      `node (0 to ${seen.iid - 1}: i.i.d.)`, `times, up to round ${t}`, { barmode: "overlay", showlegend: true, bargap: 0.1, margin: { l: 54, r: 12, t: 28, b: 42 }, ...(seen.iid ? {} : { xaxis: { title: { text: "node" } } }) });
    const uniform = seen.iid / seen.nodes;
    const shared = seen.share.some((value) => value !== null);
    const drawn = [];
    let [among, all] = [0, 0];
    for (let k = 0; k < seen.rounds; k++) {
      for (let node = 0; node < seen.nodes; node++) if (seen.fates[k * seen.nodes + node]) { all++; if (node < seen.iid) among++; }
      drawn.push(all ? among / all : null);
    }
    const x = rounds(seen.rounds);
    const traces = [{ x, y: x.map(() => uniform), name: "share of the nodes", mode: "lines", line: { color: css("--soft"), width: 1, dash: "dash" } },
      { x, y: drawn, name: "of all draws so far", mode: "lines", line: { color: css("--other"), width: 1.5 } }];
    if (shared) traces.push({ x, y: seen.share, name: "of the probability", mode: "lines", line: { color: css("--iid"), width: 2 } });
    draw("share", traces, "round", "held by i.i.d. nodes", { showlegend: true, margin: { l: 54, r: 12, t: 28, b: 42 }, yaxis: { range: [0, 1], tickformat: ".0%" },
      shapes: [{ type: "line", xref: "x", yref: "paper", x0: t, x1: t, y0: 0, y1: 1, line: { color: "#ff3b30", width: 1 } }] });
  }
  function play() {
    const box = by("scrubber");
    if (Number(box.value) >= seen.rounds) box.value = 1;
    by("play").textContent = "Pause";
    by("play").setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (Number(box.value) >= seen.rounds) return stop();
      box.value = Number(box.value) + 1;
      scrub();
    }, Math.max(60, 12000 / seen.rounds));
    scrub();
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    by("play").textContent = "Play";
    by("play").setAttribute("aria-pressed", "false");
  }

  // --- data ---------------------------------------------------------------------------------------------------------
  function population() {
    const held = D.populations[seen.population];
    by("data-hint").textContent = held ? `For the run above: ${seen.population}.` : "The data set of the run above was not available where this page was made, so its labels are not shown.";
    if (!held) { empty("histogram", "No labels to show."); empty("distance", "No distances to show."); return; }
    const nodes = rounds(seen.nodes).map((k) => k - 1);
    const labels = held.histogram[0].map((_, label) => label);
    draw("histogram", [{ type: "heatmap", z: labels.map((label) => held.histogram.map((row) => row[label])), x: nodes, y: labels, colorscale: "Viridis", colorbar: { title: { text: "samples", side: "top" }, thickness: 12 }, hovertemplate: "node %{x}, label %{y}: %{z} samples<extra></extra>" }],
      "node", "label", { hovermode: "closest", yaxis: { dtick: 1 } });
    draw("distance", [{ type: "bar", x: nodes, y: held.q_dif, marker: { color: nodes.map((node) => css(node < seen.iid ? "--iid" : "--other")) }, hovertemplate: "node %{x}: %{y:.3f}<extra></extra>" }],
      "node", "q_dif (L1 distance, 0 to 2)", { hovermode: "closest", yaxis: { range: [0, 2] } });
  }

  // --- theory -------------------------------------------------------------------------------------------------------
  function theoryControls() {
    const panels = [...new Set(D.settings.map((setting) => setting.panel))];
    options(by("theory-panel"), panels.map((panel) => [panel, panel || D.title]));
    by("theory-panel").addEventListener("change", theory);
  }
  function theory() {
    const settings = D.settings.filter((setting) => setting.panel === by("theory-panel").value && !state.hidden.has(setting.line));
    const legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 10 } };
    for (const { chart, title, parts, needs, without, optional } of D.theory) {
      const id = `theory-${chart}`;
      const able = settings.filter((setting) => !needs || setting.series[needs]);
      const traces = able.flatMap((setting) =>
        parts.flatMap(([key, name, dash]) => lineTraces(setting, key, "round", { dash, name: `${setting.line}${name}` })));
      by(id).hidden = Boolean(optional && !traces.length);
      if (!traces.length) {
        empty(id, without || `${title}: these runs have no such data.`);
        continue;
      }
      by(id).querySelectorAll(":scope > p").forEach((note) => note.remove());
      draw(id, traces, "round", title, { showlegend: traces.length > 1, legend });
    }
  }

  // --- statistics ---------------------------------------------------------------------------------------------------
  function statistics() {
    const pairs = D.table.pairs;
    if (!pairs.length) {
      by("pairs-hint").textContent = `No finished setting has a baseline (${D.baseline}, with everything else and the seed equal) to compare with.`;
      by("forest").remove();
      by("pairs").parentElement.remove();
      return;
    }
    by("pairs-hint").textContent = `Final accuracy minus that of ${D.baseline}, seed by seed: runs with the same seed share the partition, the initial weights and the test data. Mean, 95 % interval, and the p-value of a paired t-test, not corrected for multiple comparisons.`;
    const shown = [...pairs].reverse();
    by("forest").style.height = `${Math.max(150, 90 + 26 * shown.length)}px`;
    draw("forest", [{ x: shown.map((pair) => pair.difference), y: shown.map((pair) => plain(pair.label)), mode: "markers", type: "scatter", marker: { size: 9, color: css("--iid") }, error_x: { type: "data", array: shown.map((pair) => pair.difference_interval || 0), color: css("--iid"), thickness: 1.5 }, hovertemplate: "%{y}: %{x:+.2f}<extra></extra>" }],
      `percentage points above ${plain(D.baseline)}`, "", { hovermode: "closest", margin: { l: 20, r: 20, t: 10, b: 46 }, yaxis: { type: "category", tickfont: { size: narrow.matches ? 9 : 11 } }, xaxis: { zeroline: true, zerolinecolor: css("--soft") } });
    by("forest").setAttribute("aria-label", "Differences of final accuracy with 95 % intervals; the same numbers are in the table below");
    const number = (value, digits = 2) => (value === null ? "-" : (value >= 0 && digits === 2 ? "+" : "") + value.toFixed(digits));
    sortable(by("pairs"), [...D.axes, "difference (points)", "± 95 %", "p", "better in"], pairs.map((pair) => [...D.axes.map((axis) => pair.values[axis]), number(pair.difference), pair.difference_interval === null ? "-" : pair.difference_interval.toFixed(2), pair.p === null ? "-" : pair.p < 0.0001 ? pair.p.toExponential(1) : pair.p.toFixed(4), `${pair.better} of ${pair.pairs}`]), new Set(D.axes));
  }

  // --- reproduce ----------------------------------------------------------------------------------------------------
  function reproduce() {
    for (const step of D.reproduce) by("commands").append(element("p", { className: "hint", textContent: step.what }), element("pre", { textContent: step.command, tabIndex: 0 }));
    for (const setting of D.settings)
      by("configurations").append(element("details", {}, element("summary", { textContent: `${naming(setting)} (seeds ${setting.seeds.join(" ") || "-"})` }), element("pre", { textContent: setting.flags }), element("pre", { textContent: setting.config })));
    const names = [...new Set(D.versions.flatMap((one) => Object.keys(one)))].sort((a, b) => (a === "runs") - (b === "runs"));
    sortable(by("versions"), names.map((name) => name || "run"), D.versions.map((one) => names.map((name) => one[name] || "-")), new Set(names));
  }

  function everything() { table(); curves(); if (seen) { heat(); scrub(); population(); } theory(); statistics(); }

  head();
  filters();
  curveControls();
  by("rows").addEventListener("change", table);
  if (!D.table.rows.length) by("rows").value = "runs";
  table();
  curves();
  selectionControls();
  theoryControls();
  theory();
  statistics();
  reproduce();
  for (const media of [dark, narrow]) media.addEventListener("change", everything);
  document.documentElement.dataset.ready = "true";
})();
