"use strict";
// The page draws and filters what report-data holds; every number was computed in Python. The other parts of this
// script follow it in one file: taking away, tables, curves, selection, theory, and the end, which starts everything.
const D = JSON.parse(document.getElementById("report-data").textContent);
const by = (id) => document.getElementById(id);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 600px)");
const state = { filters: {}, hidden: new Set(), sort: {} };

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
// Plotly interprets some HTML in its texts: names are escaped.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const unescaped = (text) => String(text).replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const lookOf = (line) => D.lines.find((one) => one.label === line);
const colourOf = (line) => (dark.matches ? lookOf(line).dark : lookOf(line).colour);
const faded = (colour, alpha) => {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};
const upTo = (length) => Array.from({ length }, (_, k) => k + 1); // 1, 2, …
const from0 = (length) => Array.from({ length }, (_, k) => k);
const naming = (setting) => [setting.panel, setting.line].filter(Boolean).join(" · ");
const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const several = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// `what` names the plot for readers who do not see it, and its files.
function draw(target, traces, x, y, { what, ...more } = {}) {
  const chart = typeof target === "string" ? by(target) : target;
  const axis = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line"), automargin: true };
  const title = (text) => ({ text, font: { size: 12 }, standoff: 8 });
  const tip = { bgcolor: css("--wash"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 } };
  const layout = {
    font: { color: css("--ink"), size: 12, family: "system-ui, 'DejaVu Sans', sans-serif" },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { ...tip, namelength: 40 },
    barmode: "overlay",
    margin: { l: 54, r: 12, t: 10, b: 42 },
    dragmode: narrow.matches ? false : "zoom",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    ...more,
    xaxis: { ...axis, title: title(x), ...more.xaxis },
    yaxis: { ...axis, title: title(y), ...more.yaxis },
  };
  const last = traces.reduce((most, trace) => Math.max(most, ...(x === "round" ? trace.x.slice(-1) : [])), 0);
  if (last > 1 && last < 9) layout.xaxis.dtick = 1; // there is no round 1.5
  const name = unescaped(what || `${y || "values"} over ${x}`);
  chart.querySelectorAll(":scope > p").forEach((note) => note.remove());
  chart.classList.remove("vacant");
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `${name}; the data are in the table below the plot`);
  const drawn = Plotly.react(chart, traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  takeable(chart, name, unescaped(x));
  return drawn;
}
function empty(id, message) {
  Plotly.purge(by(id));
  by(id).classList.add("vacant");
  takeable(by(id), "");
  by(id).replaceChildren(element("p", { className: "hint", textContent: message }));
}
function options(select, entries) {
  select.replaceChildren(...entries.map(([value, textContent]) => element("option", { value, textContent })));
}
function swatch(line) {
  const made = element("span", { className: "swatch" });
  made.dataset.line = line;
  return made;
}
// Pixels on and off.
const DASHES = { solid: [1, 0], dash: [7, 4], dot: [3, 3], dashdot: [9, 3], longdash: [12, 4], longdashdot: [14, 3] };
function paintSwatches() {
  document.querySelectorAll(".swatch").forEach((one) => {
    const [colour, dash] = [colourOf(one.dataset.line), lookOf(one.dataset.line).dash];
    const [on, off] = DASHES[dash];
    const gaps = `${colour} 0 ${on}px, transparent ${on}px ${on + off}px`;
    one.style.background = `repeating-linear-gradient(90deg, ${gaps})`;
  });
}

// --- head -----------------------------------------------------------------------------------------------------------
function head() {
  by("title").textContent = D.title;
  const done = D.runs.filter((run) => run.status === "finished").length;
  by("summary").textContent =
    `${D.standing ? `${D.standing}. ` : ""}${several(D.runs.length, "run")}, ${done} finished; ` +
    `${several(D.settings.length, "setting")}.`;
  by("answers").replaceChildren(...D.answers.map((textContent) => element("li", { textContent })));
  by("warning").textContent = D.warning;
  by("notes").replaceChildren(...D.notes.map((textContent) => element("li", { textContent })));
  by("made").textContent =
    `Made ${D.made} by fedpns-ray ${D.version}. This page is self-contained: it loads nothing from any server.`;
  for (const { name, meaning } of D.glossary)
    by("glossary").append(element("dt", { textContent: name }), element("dd", { textContent: meaning }));
}
