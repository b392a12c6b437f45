// --- one run, round by round ----------------------------------------------------------------------------------------
function selection(round) {
  if (!D.selection.length) return;
  const run = D.selection[by("run").value];
  seen = {
    ...run,
    fates: decode(run.fates),
    probability: run.probability ? decode(run.probability) : null,
    labels: run.codes.some((code) => code === 2 || code === 3),
    excludes: run.codes.some((code) => code > 2),
  };
  by("shade").value = seen.probability ? by("shade").value : "fates";
  by("shade").disabled = !seen.probability;
  by("scrubber").max = seen.rounds;
  by("scrubber").value = Number.isInteger(round) ? round : seen.rounds;
  heat();
  scrub();
  population();
}
function heat() {
  const shade = by("shade").value;
  const known = [0, ...seen.codes]; // only the fates that this run has
  const at = (t, node) => t * seen.nodes + node;
  const value =
    shade === "probability"
      ? (t, node) => (seen.probability[at(t, node)] / 255) * seen.largest
      : (t, node) => known.indexOf(seen.fates[at(t, node)]);
  const z = from0(seen.rounds).map((t) => from0(seen.nodes).map((node) => value(t, node)));
  const trace = { type: "heatmap", z, x: from0(seen.nodes), y: upTo(seen.rounds), zsmooth: false };
  if (shade === "probability")
    Object.assign(trace, {
      colorscale: "Viridis",
      zmin: 0,
      colorbar: scale("p", 12),
      hovertemplate: "round %{y}, node %{x}: p = %{z:.4f}<extra></extra>",
    });
  else {
    const colours = [css("--wash"), ...seen.codes.map((code) => onPaper(D.fates.colours[code - 1]))];
    const n = known.length;
    const names = known.map((code) => D.fates.names[code]);
    const ticks = narrow.matches ? names.map((name) => name.replace(/, .*/, "")) : names;
    Object.assign(trace, {
      colorscale: colours.flatMap((colour, k) => [
        [k / n, colour],
        [(k + 1) / n, colour],
      ]),
      zmin: -0.5,
      zmax: n - 0.5,
      customdata: z.map((row) => row.map((code) => names[code])),
      hovertemplate: "round %{y}, node %{x}: %{customdata}<extra></extra>",
      colorbar: { thickness: 12, tickvals: from0(n), ticktext: ticks },
    });
  }
  const what = `${shade === "probability" ? "Probability p" : "Fate"} of every node in every round`;
  draw("heat", [trace], ofNodes(seen), "round", {
    what,
    hovermode: "closest",
    shapes: marks(),
    margin: WIDE,
    xaxis: across(seen),
    yaxis: { autorange: "reversed" },
  });
}
const WIDE = { l: 54, r: 96, t: 28, b: 42 };
const RED = { color: "#ff3b30", width: 1.5 };
function marks() {
  const t = Number(by("scrubber").value);
  return [...border(seen), { type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: t, y1: t, line: RED }];
}
function scrub() {
  const t = Number(by("scrubber").value);
  by("round").textContent = `${t} of ${seen.rounds}`;
  const kinds = ["drawn", ...(seen.labels ? ["labelled"] : []), ...(seen.excludes ? ["excluded"] : [])];
  const met = { drawn: (code) => code > 0, labelled: (code) => code === 2 || code === 3, excluded: (code) => code > 2 };
  const counts = Object.fromEntries(kinds.map((kind) => [kind, Array.from({ length: seen.nodes }, () => 0)]));
  for (let k = 0; k < t * seen.nodes; k++)
    for (const kind of kinds) if (met[kind](seen.fates[k])) counts[kind][k % seen.nodes]++;
  const now = (kind) => from0(seen.nodes).filter((node) => met[kind](seen.fates[(t - 1) * seen.nodes + node]));
  const said = kinds.map((kind) => `${kind} ${now(kind).join(" ") || "none"}`);
  by("happened").textContent = `Round ${t}: ${said.join("; ")}.`;
  Plotly.relayout(by("heat"), { shapes: marks() });
  draw("triples", fateBars(counts), ofNodes(seen), `times, up to round ${t}`, {
    what: "Times by node",
    xaxis: across(seen),
    showlegend: kinds.length > 1,
    margin: WIDE,
  });
  share(t);
}
function share(t) {
  const drawn = [];
  let [among, all] = [0, 0];
  for (let k = 0; k < seen.fates.length; k++) {
    if (seen.fates[k]) {
      all++;
      if (k % seen.nodes < seen.iid) among++;
    }
    if ((k + 1) % seen.nodes === 0) drawn.push(all ? among / all : null);
  }
  const x = upTo(seen.rounds);
  const line = (name, y, color, width, dash) => ({ x, y, name, mode: "lines", line: { color, width, dash } });
  const traces = [
    line(
      "share of the nodes",
      x.map(() => seen.iid / seen.nodes),
      css("--soft"),
      1,
      "dash",
    ),
    line("of all draws so far", drawn, css("--other"), 1.5, "dot"),
  ];
  if (seen.share.some((value) => value !== null)) traces.push(line("of the probability", seen.share, css("--iid"), 2));
  const now = { type: "line", xref: "x", yref: "paper", x0: t, x1: t, y0: 0, y1: 1, line: RED };
  draw("share", traces, "round", "held by i.i.d. nodes", {
    what: "Share of the i.i.d. nodes over rounds",
    margin: WIDE,
    showlegend: true,
    yaxis: { range: [0, 1], tickformat: ".0%" },
    shapes: [now],
  });
}
function play() {
  const box = by("scrubber");
  if (Number(box.value) >= seen.rounds) box.value = 1;
  by("play").textContent = "Pause";
  by("play").setAttribute("aria-pressed", "true");
  timer = setInterval(
    () => {
      if (Number(box.value) >= seen.rounds) return stop();
      box.value = Number(box.value) + 1;
      return scrub();
    },
    Math.max(60, 12000 / seen.rounds),
  );
  scrub();
}
function stop() {
  clearInterval(timer);
  timer = null;
  by("play").textContent = "Play";
  by("play").setAttribute("aria-pressed", "false");
}
