// --- curves ---------------------------------------------------------------------------------------------------------
const PANELS = 24; // the most panels drawn at once
const OVER = {
  round: "round",
  megabytes: "transmitted (MB)",
  simulated: "simulated time (s)",
  seconds: "run time (s)",
};
const titleOf = (key) => D.titles[key] || key;

function curveControls() {
  const present = Object.keys(D.titles).filter((key) => D.settings.some((setting) => setting.series[key]));
  options(
    by("quantity"),
    present.map((key) => [key, titleOf(key)]),
  );
  if (!D.settings.some((setting) => setting.series.simulated)) by("over").querySelector("[value=simulated]").remove();
  for (const { label } of D.lines) {
    const box = element("input", { type: "checkbox", checked: true });
    box.dataset.line = label;
    box.addEventListener("change", () => {
      state.hidden[box.checked ? "delete" : "add"](label);
      curves();
      sideBySide();
      theory();
    });
    by("lines").append(element("label", {}, box, swatch(label), label));
  }
  by("bands").checked = D.bands; // the bands of many lines would hide each other
  const banded = D.settings.some((setting) => Object.values(setting.series).some((series) => series.half));
  by("bands").closest("label").hidden = !banded; // with one seed or two there are none
  const printed = D.settings.some((setting) => Object.keys(setting.published).length);
  by("published").closest("label").hidden = !printed;
  by("in-brackets").hidden = !printed;
  for (const id of ["quantity", "over", "bands", "published", "singles"]) by(id).addEventListener("change", curves);
}
function bandOf(series, x, key, colour) {
  const [low, high] = D.bounds[key] || [null, null];
  const bounded = (value) => Math.min(high ?? Infinity, Math.max(low ?? -Infinity, value));
  const at = from0(x.length).filter((k) => series.mean[k] !== null && series.half[k] !== null);
  const edge = (sign) => at.map((k) => bounded(series.mean[k] + sign * series.half[k]));
  const xs = at.map((k) => x[k]);
  return {
    x: [...xs, ...[...xs].reverse()],
    y: [...edge(1), ...edge(-1).reverse()],
    fill: "toself",
    mode: "lines",
    fillcolor: faded(colour, 0.18),
    line: { width: 0 },
    hoverinfo: "skip",
    meta: "band",
  };
}
function lineTraces(setting, key, over, look) {
  const series = setting.series[key];
  const x = series && (over === "round" ? upTo(series.mean.length) : (setting.series[over] || {}).mean);
  if (!x) return [];
  const colour = colourOf(setting.line);
  const traces = [];
  if (look.bands && series.half) traces.push(bandOf(series, x, key, colour));
  if (look.singles && over === "round")
    for (const run of D.runs.filter((one) => D.settings[one.setting] === setting && one.curves[key]))
      traces.push({
        x: upTo(run.curves[key].length),
        y: run.curves[key],
        mode: "lines",
        connectgaps: true,
        line: { color: faded(colour, 0.45), width: 0.8 },
        hoverinfo: "skip",
        meta: "single",
      });
  if (look.published && over === "round" && setting.published[key]) {
    const paper = setting.published[key];
    traces.push({
      x: paper.round,
      y: paper.value,
      name: plain(`${setting.line}, published`),
      mode: "lines",
      line: { color: faded(colour, 0.65), width: 1.2, dash: "dot" },
      meta: "published",
    });
  }
  const alone = series.mean.filter((value) => value !== null).length === 1;
  const of = setting.seeds.length > 1 ? `, mean of ${setting.seeds.length}` : "";
  const unit = D.units[key] ? ` ${D.units[key]}` : "";
  const half = series.half ? series.half.map((value) => (value === null ? "" : ` ± ${value}`)) : undefined;
  traces.push({
    x,
    y: series.mean,
    name: plain(`${look.name || setting.line}${of}`),
    mode: alone ? "markers" : "lines",
    line: { color: colour, width: 2, dash: look.dash || lookOf(setting.line).dash },
    marker: { color: colour, size: 8 },
    connectgaps: true,
    meta: "mean",
    halves: series.half,
    customdata: half,
    hovertemplate: `%{y}${half ? "%{customdata}" : ""}${unit}`,
  });
  return traces;
}
function curves() {
  const [key, over] = [by("quantity").value, by("over").value];
  const look = { bands: by("bands").checked, published: by("published").checked, singles: by("singles").checked };
  by("singles").disabled = over !== "round" || !D.runs.some((run) => run.curves[key]);
  by("published").disabled = over !== "round";
  const visible = D.settings.filter((setting) => passes(setting.values) && !state.hidden.has(setting.line));
  const panels = [...new Set(visible.filter((setting) => setting.series[key]).map((setting) => setting.panel))];
  const target = by("panels");
  target.querySelectorAll(".chart").forEach((chart) => Plotly.purge(chart));
  target.classList.toggle("one", panels.length === 1);
  target.replaceChildren();
  for (const panel of panels.slice(0, PANELS)) {
    const chart = element("div", { className: "chart" });
    target.append(element("div", {}, element("p", { className: "panel-title", textContent: panel }), chart));
    const traces = visible
      .filter((setting) => setting.panel === panel)
      .flatMap((setting) => lineTraces(setting, key, over, look));
    const what = `${titleOf(key)} over ${OVER[over]}${panel ? `, ${panel}` : ""}`;
    draw(chart, traces, OVER[over], titleOf(key), { what, hovermode: over === "round" ? "x unified" : "closest" });
  }
  paintSwatches();
  by("curves-hint").textContent = curveHints(panels.length, over).join(" ");
}
function curveHints(count, over) {
  const hints = [
    "Lines are means over the finished seeds of a setting (if none is finished, as far as all its seeds " +
      "have come), with bands for three or more seeds. Drag to zoom, double-click to reset.",
  ];
  if (count > PANELS) hints.push(`${PANELS} of ${count} panels are shown: filter by axis in the overview.`);
  if (over === "megabytes")
    hints.push(
      "Transmitted: the model in float32 to every drawn node, and back from every node whose update was " +
        "requested.",
    );
  if (over === "simulated")
    hints.push("Simulated by the device model: the time until the last node that a round waits for has answered.");
  if (over === "seconds")
    hints.push("Wall-clock time as recorded; it depends on the machines and on what else they were running.");
  if (!count) hints.push("Nothing to show with these filters.");
  return hints;
}
