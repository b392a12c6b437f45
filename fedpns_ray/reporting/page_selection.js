// --- selection: nodes from left to right, i.i.d. ones first; rounds from top to bottom ------------------------------
const MOST_COLUMNS = 6; // strategies side by side
let seen = null; // the run that is shown, decoded
let timer = null;
const NODES = "node";
const ofNodes = (one) => (one.iid && one.iid < one.nodes ? `node (0 to ${one.iid - 1}: i.i.d.)` : NODES);
const fateColour = (fate) => D.fates.colours[["drawn", "labelled", "excluded"].indexOf(fate)];
const onPaper = (colour) => (dark.matches && colour === D.fates.colours[0] ? "#4a6a82" : colour);

function selectionControls() {
  if (!D.selection.length) {
    const none = element("p", { className: "hint", textContent: "No run has completed a round yet." });
    by("selection").replaceChildren(by("selection-title"), none);
    by("data").hidden = true;
    return;
  }
  const panels = [...new Set(D.means.map((one) => D.settings[one.setting].panel))];
  options(
    by("compare-panel"),
    panels.map((panel) => [panel, panel || D.title]),
  );
  by("compare-panel").closest("label").hidden = panels.length < 2;
  const fates = ["probability", "drawn", "labelled", "excluded"];
  options(
    by("fate"),
    fates.filter((fate) => D.means.some((one) => one.maps[fate])).map((fate) => [fate, fate]),
  );
  by("fate").value = "drawn";
  for (const id of ["compare-panel", "fate"]) by(id).addEventListener("change", sideBySide);
  options(
    by("run"),
    D.selection.map((one, k) => [k, `${naming(D.settings[one.setting])}, seed ${one.seed}`]),
  );
  by("run").value = Math.max(
    D.selection.findIndex((one) => one.probability),
    0,
  );
  by("run").addEventListener("change", () => {
    stop();
    selection();
  });
  by("shade").addEventListener("change", heat);
  by("scrubber").addEventListener("input", () => {
    stop();
    scrub();
  });
  by("play").addEventListener("click", () => (timer ? stop() : play()));
}

// --- side by side, as means over seeds ------------------------------------------------------------------------------
function sideBySide() {
  if (!D.selection.length) return;
  const panel = by("compare-panel").value;
  const fate = by("fate").value;
  const wanted = (setting) => setting.panel === panel && !state.hidden.has(setting.line);
  const all = D.means.filter((one) => wanted(D.settings[one.setting]));
  const shown = all.slice(0, MOST_COLUMNS);
  const most = Math.max(...shown.map((one) => (one.maps[fate] ? one.maps[fate].largest : 0)));
  const target = by("columns");
  target.querySelectorAll(".chart").forEach((chart) => Plotly.purge(chart));
  target.replaceChildren(...shown.map(() => element("div", { className: "column" })));
  shown.forEach((one, k) => column(target.children[k], one, fate, most));
  const what = fate === "probability" ? "the probability p with which a node is drawn" : `how often a node was ${fate}`;
  const hints = [
    `Brightness: ${what}, in a step of rounds, as the mean over seeds; the same scale for all. Below: ` +
      "how often in a whole run, and the labels that nodes hold in the first seed's population, in the same order.",
  ];
  if (all.length > shown.length)
    hints.push(`${shown.length} of ${all.length} strategies are shown: hide others with the boxes above the curves.`);
  by("compare-hint").textContent = hints.join(" ");
  paintSwatches();
}
function column(place, one, fate, most) {
  const setting = D.settings[one.setting];
  const title = element(
    "p",
    { className: "panel-title" },
    swatch(setting.line),
    ` ${setting.line}, `,
    one.seeds.length > 1 ? `mean of ${one.seeds.length} seeds` : `seed ${one.seeds[0]}`,
  );
  const [map, times, labels] = from0(3).map((k) => element("div", { className: `chart ${k ? "low" : ""}` }));
  place.append(title, map, times, labels);
  const margin = { l: 50, r: 76, t: 8, b: 36 }; // the same for all three, so that nodes stand below each other
  const [x, name] = [from0(one.nodes), plain(setting.line)];
  if (one.maps[fate]) {
    const values = decode(one.maps[fate].values);
    const z = one.ends.map((_, t) => x.map((node) => (values[t * one.nodes + node] / 255) * one.maps[fate].largest));
    const trace = {
      type: "heatmap",
      z,
      x,
      y: one.ends,
      colorscale: "Viridis",
      zmin: 0,
      zmax: most,
      colorbar: scale(fate === "probability" ? "p" : "share", 8),
      hovertemplate: `node %{x}, up to round %{y}: %{z:.3f}<extra>${name}</extra>`,
    };
    draw(map, [trace], ofNodes(one), "round", {
      what: `${setting.line}: ${fate} by node and round`,
      margin,
      hovermode: "closest",
      xaxis: across(one),
      yaxis: { autorange: "reversed" },
      shapes: border(one),
    });
  } else map.append(element("p", { className: "hint", textContent: `${setting.line}: no node is ${fate}.` }));
  const bars = fateBars(one.times);
  draw(times, bars, ofNodes(one), "times", {
    what: `${setting.line}: times per run by node`,
    xaxis: across(one),
    showlegend: bars.length > 1,
    margin: { ...margin, t: bars.length > 1 ? 24 : 8 },
  });
  const run = D.selection.find((other) => other.setting === one.setting);
  const held = run && D.populations[run.population];
  if (!held) return labels.remove();
  const what = `${setting.line}: labels by node, seed ${run.seed}`;
  return draw(labels, [labelMap(held, 8)], ofNodes(one), "label", {
    what,
    hovermode: "closest",
    margin,
    xaxis: across(one),
    yaxis: { dtick: held.histogram[0].length > 12 ? undefined : 2 },
  });
}
const across = (one) => ({ range: [-0.5, one.nodes - 0.5], automargin: false });
const scale = (text, thickness) => ({ thickness, title: { text, side: "top", font: { size: 10 } } });
// One in front of the other, each narrower: all remain visible where they are equally high.
function fateBars(times) {
  const width = { drawn: 0.9, labelled: 0.6, excluded: 0.3 };
  return Object.entries(times).map(([fate, y]) => ({
    type: "bar",
    name: fate,
    x: from0(y.length),
    y,
    width: width[fate],
    marker: { color: onPaper(fateColour(fate)) },
  }));
}
// The line between i.i.d. nodes and the others.
function border(one) {
  if (!one.iid || one.iid >= one.nodes) return [];
  const line = (color, width) => ({
    type: "line",
    xref: "x",
    yref: "paper",
    x0: one.iid - 0.5,
    x1: one.iid - 0.5,
    y0: 0,
    y1: 1,
    line: { color, width },
  });
  return [line("#000000", 3), line("#ffffff", 1.5)];
}
function labelMap(held, thickness) {
  const labels = held.histogram[0].map((_, label) => label);
  return {
    type: "heatmap",
    z: labels.map((label) => held.histogram.map((row) => row[label])),
    y: labels,
    x: held.histogram.map((_, node) => node),
    colorscale: "Viridis",
    colorbar: scale("samples", thickness),
    hovertemplate: "node %{x}, label %{y}: %{z} samples<extra></extra>",
  };
}

// --- data -----------------------------------------------------------------------------------------------------------
function population() {
  const held = D.populations[seen.population];
  by("data-hint").textContent = held
    ? `For the run above: ${seen.population}.`
    : "The labels of the run above are not shown: the notes at the top say why.";
  if (!held) {
    empty("histogram", "No labels to show.");
    empty("distance", "No distances to show.");
    return;
  }
  draw("histogram", [labelMap(held, 12)], ofNodes(seen), "label", {
    what: "Samples of every label on every node",
    hovermode: "closest",
    shapes: border(seen),
    margin: WIDE,
    xaxis: across(seen),
    yaxis: { dtick: held.histogram[0].length > 12 ? undefined : 1 },
  });
  const bars = (name, kept, color) => ({
    type: "bar",
    name,
    x: kept,
    y: kept.map((node) => held.q_dif[node]),
    marker: { color: css(color) },
    hovertemplate: "node %{x}: %{y:.3f}<extra></extra>",
  });
  const nodes = from0(held.q_dif.length);
  const both = [
    bars("i.i.d. nodes", nodes.slice(0, seen.iid), "--iid"),
    bars(seen.iid ? "other nodes" : "q_dif", nodes.slice(seen.iid), "--other"),
  ].filter((trace) => trace.x.length);
  draw("distance", both, ofNodes(seen), "q_dif (L1 distance, 0 to 2)", {
    what: "Distance of every node's labels from those of all nodes",
    hovermode: "closest",
    showlegend: both.length > 1,
    margin: WIDE,
    xaxis: across(seen),
    yaxis: { range: [0, 2] },
  });
}
