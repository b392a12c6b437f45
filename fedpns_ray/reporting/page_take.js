// --- taking away: plots as PNG, SVG and CSV, tables as CSV, Markdown and LaTeX, the view as a link ------------------
function say(message) {
  by("said").textContent = message;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => {
    by("said").textContent = "";
  }, 4000);
}
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // not allowed here: the old way
    const area = element("textarea", { value: text, className: "skip" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  document.documentElement.dataset.copied = text;
  say(`${what} copied`);
}
function download(name, href) {
  const link = element("a", { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}
const fileName = (name, ending) =>
  `${name
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")}.${ending}`;
function press(textContent, label, act) {
  const made = element("button", { type: "button", textContent, className: "small", title: label });
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replace(/"/g, '""')}"` : String(cell));
const toCsv = ({ header, rows }) => [header, ...rows].map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
const asFile = (text) => `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
function toMarkdown({ header, rows, texts }) {
  const line = (cells) => `| ${cells.map((cell) => String(cell).replace(/\|/g, "\\|")).join(" | ")} |`;
  const rule = header.map((name) => (texts && texts.has(name) ? "---" : "---:"));
  return [line(header), line(rule), ...rows.map(line)].join("\n") + "\n";
}
function toLatex({ header, rows, texts }) {
  const escaped = (cell) =>
    String(cell)
      .replace(
        /[\\&%$#_{}~^]/g,
        (mark) =>
          ({ "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" })[mark] || `\\${mark}`,
      )
      .replace(/±/g, "$\\pm$");
  const line = (cells) => `  ${cells.map(escaped).join(" & ")} \\\\`;
  const columns = header.map((name) => (texts && texts.has(name) ? "l" : "r")).join("");
  return (
    [
      `\\begin{tabular}{${columns}}`,
      "  \\hline",
      line(header),
      "  \\hline",
      ...rows.map(line),
      "  \\hline",
      "\\end{tabular}",
    ].join("\n") + "\n"
  );
}

// What a plot shows, as a table: a column per line; of a map, a row per node.
function dataOf(chart, x) {
  const traces = chart.data.filter((trace) => trace.meta !== "band" && trace.meta !== "single");
  const map = traces.find((trace) => trace.type === "heatmap");
  if (map) {
    const texts = map.customdata || map.z;
    return {
      header: [`${x} \\ ${chart.layout.yaxis.title.text}`, ...map.y],
      rows: map.x.map((at, k) => [at, ...texts.map((row) => row[k])]),
    };
  }
  const sideways = traces.some((trace) => trace.error_x);
  if (sideways) {
    const [trace] = traces;
    return {
      header: ["", x, "± 95 %"],
      rows: trace.y.map((name, k) => [unescaped(name), trace.x[k], trace.error_x.array[k]]),
    };
  }
  const places = [...new Set(traces.flatMap((trace) => [...trace.x]))].sort((a, b) => a - b);
  const at = traces.map((trace) => new Map(trace.x.map((one, k) => [one, k])));
  const columns = traces.flatMap((trace, k) => {
    const name = unescaped(trace.name || x);
    const cell = (values) => (place) => (at[k].has(place) ? (values[at[k].get(place)] ?? "") : "");
    const own = [[name, cell(trace.y)]];
    if (trace.halves) own.push([`${name}, ± 95 %`, cell(trace.halves)]);
    return own;
  });
  return {
    header: [x, ...columns.map(([name]) => name)],
    rows: places.map((place) => [place, ...columns.map(([, cell]) => cell(place))]),
  };
}
// The plot as it leaves the page: with its name and those of its lines, on the page's ground.
function standalone(chart, name) {
  const named = (trace) => trace.name && !["band", "single"].includes(trace.meta);
  const data = chart.data.map((trace) => ({ ...trace, showlegend: Boolean(named(trace)) }));
  const { xaxis, yaxis } = chart.layout;
  const layout = {
    ...chart.layout,
    title: { text: plain(name), font: { size: 14 }, x: 0.02, xanchor: "left", y: 0.98, yanchor: "top" },
    showlegend: data.filter(named).length > 1,
    legend: { ...chart.layout.legend, x: 0, y: 1.01 },
    paper_bgcolor: css("--paper"),
    margin: { ...chart.layout.margin, t: 64, autoexpand: true },
    xaxis: { ...xaxis, automargin: true },
    yaxis: { ...yaxis, automargin: true },
  };
  return { data, layout };
}
// Under a plot: its files, and its data as a table, made when it is opened.
function takeable(chart, name, x) {
  let bar = chart.nextElementSibling;
  if (!bar || !bar.classList.contains("take")) {
    bar = element("div", { className: "take" });
    chart.after(bar);
  }
  if (!name) return bar.replaceChildren();
  if (bar.dataset.name === name && bar.childElementCount) return undefined;
  bar.dataset.name = name;
  const picture = (format) => async () => {
    const size = { format, width: 900, height: 560, scale: format === "png" ? 2 : 1 };
    const href = await Plotly.toImage(standalone(chart, name), size);
    download(fileName(name, format), href);
    say(`${name}: ${format.toUpperCase()} saved`);
  };
  const details = element("details", { className: "behind" }, element("summary", { textContent: "data" }));
  details.addEventListener("toggle", () => {
    details.querySelectorAll(".scroll").forEach((old) => old.remove());
    if (!details.open) return;
    const { header, rows } = dataOf(chart, x);
    const place = element("div", { className: "scroll", tabIndex: 0 });
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", `Data of ${name}`);
    const shown = element("table", {}, element("caption", { textContent: name }));
    fill(shown, header, rows);
    place.append(shown);
    details.append(place);
  });
  const save = () => download(fileName(name, "csv"), asFile(toCsv(dataOf(chart, x))));
  return bar.replaceChildren(
    press("PNG", `Save ${name} as PNG`, picture("png")),
    press("SVG", `Save ${name} as SVG`, picture("svg")),
    press("CSV", `Save the data of ${name} as CSV`, save),
    details,
  );
}
function fill(target, header, rows) {
  const cell = (tag, textContent) => element(tag, tag === "th" ? { textContent, scope: "col" } : { textContent });
  const short = (value) => (typeof value === "number" && !Number.isInteger(value) ? +value.toPrecision(6) : value);
  target.append(element("thead", {}, element("tr", {}, ...header.map((name) => cell("th", name)))));
  const lines = rows.map((row) => element("tr", {}, ...row.map((one) => cell("td", short(one)))));
  target.append(element("tbody", {}, ...lines));
}
// Under a table: `content` returns what it shows now.
function takeableTable(target, name, content) {
  const place = target.parentElement;
  if (place.nextElementSibling && place.nextElementSibling.classList.contains("take")) return;
  place.after(
    element(
      "div",
      { className: "take" },
      press("CSV", `Save ${name} as CSV`, () => download(fileName(name, "csv"), asFile(toCsv(content())))),
      press("Copy Markdown", `Copy ${name} as Markdown`, () => copy(toMarkdown(content()), "Markdown table")),
      press("Copy LaTeX", `Copy ${name} as LaTeX`, () => copy(toLatex(content()), "LaTeX table")),
    ),
  );
}

// --- the view as a link ---------------------------------------------------------------------------------------------
const VIEW = "#view?";
const defaults = new Map();
const isControl = (one) => one.id && one.id !== "scrubber"; // which follows the run that is shown
const controls = () => [...document.querySelectorAll("main select, main input")].filter(isControl);
const valueOf = (one) => (one.type === "checkbox" ? String(one.checked) : one.value);
function view() {
  const kept = new URLSearchParams();
  for (const one of controls()) if (valueOf(one) !== defaults.get(one.id)) kept.set(one.id, valueOf(one));
  if (seen && Number(by("scrubber").value) < seen.rounds) kept.set("round", by("scrubber").value);
  for (const line of state.hidden) kept.append("hide", line);
  for (const [id, { column, sign }] of Object.entries(state.sort)) kept.set(`sort ${id}`, `${sign} ${column}`);
  return kept.toString();
}
function remember() {
  const now = view();
  const place = now ? VIEW + now : location.pathname + location.search;
  if (location.hash.startsWith(VIEW) || now) history.replaceState(null, "", place);
}
// Sets the controls to what the link says; draws nothing. Returns the round to go to, if the link names one.
function restore() {
  if (!location.hash.startsWith(VIEW)) return null;
  const kept = new URLSearchParams(location.hash.slice(VIEW.length));
  const put = (one) => {
    const value = kept.get(one.id) ?? defaults.get(one.id);
    if (one.type === "checkbox") one.checked = value === "true";
    else if (one.tagName !== "SELECT" || [...one.options].some((option) => option.value === value)) one.value = value;
  };
  controls().forEach(put);
  for (const axis of D.axes) state.filters[axis] = by(`filter-${axis}`).value;
  state.hidden = new Set(kept.getAll("hide").filter(lookOf));
  document.querySelectorAll("#lines input").forEach((box) => {
    box.checked = !state.hidden.has(box.dataset.line);
  });
  state.sort = {};
  for (const [key, value] of kept) {
    const [, id] = key.match(/^sort (.+)$/) || [];
    if (id) state.sort[id] = { column: value.replace(/^-?1 /, ""), sign: value.startsWith("-") ? -1 : 1 };
  }
  return kept.get("round");
}
function linkControls() {
  for (const one of controls()) defaults.set(one.id, valueOf(one));
  document.addEventListener("change", remember);
  window.addEventListener("hashchange", () => {
    if (location.hash.startsWith(VIEW)) everything(restore());
  });
  by("link").addEventListener("click", () => {
    remember();
    copy(location.href, "Link to this view");
  });
}
