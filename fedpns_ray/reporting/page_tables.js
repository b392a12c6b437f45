// --- overview -------------------------------------------------------------------------------------------------------
const passes = (values) => Object.entries(state.filters).every(([axis, value]) => !value || values[axis] === value);
const asNumber = (text) => {
  const number = parseFloat(String(text).replace("+", ""));
  return Number.isNaN(number) ? null : number;
};

function filters() {
  for (const axis of D.axes) {
    const values = [...new Set(D.settings.map((setting) => setting.values[axis]))];
    const select = element("select", { id: `filter-${axis}` });
    options(select, [["", "all"], ...values.map((value) => [value, value])]);
    select.addEventListener("change", () => {
      state.filters[axis] = select.value;
      table();
      curves();
    });
    by("filters").append(element("label", {}, `${axis} `, select));
  }
}
function table() {
  const source = by("rows").value === "runs" ? D.single : D.table;
  const texts = new Set([...D.axes, "status", "weights", "folder"]);
  const kept = source.rows
    .map((cells, k) => ({ cells, best: source.best && source.best[k], values: source.values[k] }))
    .filter(({ values }) => passes(values));
  by("count").textContent = `${kept.length} of ${source.rows.length} rows`;
  sortable(by("table"), "the results", { header: source.header, better: source.better, rows: kept, texts });
}
// `better` says of each column whether higher or lower values are the better ones: the first click sorts best first.
function sortable(target, name, { header, better, rows, texts }) {
  const sort = state.sort[target.id] || {};
  const column = header.indexOf(sort.column);
  const shown =
    column < 0
      ? rows
      : [...rows].sort((a, b) => {
          const [x, y] = [asNumber(a.cells[column]), asNumber(b.cells[column])];
          if (x !== null && y !== null) return sort.sign * (x - y);
          if (x !== null || y !== null) return x !== null ? -1 : 1; // text comes last
          return sort.sign * String(a.cells[column]).localeCompare(String(b.cells[column]));
        });
  const heads = header.map((title, k) => {
    const press = element("button", { type: "button", textContent: title });
    press.addEventListener("click", () => {
      const before = state.sort[target.id] || {};
      const first = better && better[k] === "higher" ? -1 : 1;
      state.sort[target.id] = { column: title, sign: before.column === title ? -before.sign : first };
      sortable(target, name, { header, better, rows, texts });
      [...target.querySelectorAll("th button")].find((one) => one.textContent === title).focus();
      remember();
    });
    const cell = element("th", { scope: "col", className: texts.has(title) ? "text" : "" }, press);
    const order = sort.sign > 0 ? "ascending" : "descending";
    cell.setAttribute("aria-sort", sort.column === title ? order : "none");
    return cell;
  });
  const body = shown.map(({ cells, best }) => {
    const kind = (k) => (texts.has(header[k]) ? "text" : "");
    const made = cells.map((textContent, k) => element("td", { textContent, className: kind(k) }));
    if (best) made[0].append(element("span", { className: "best", textContent: " ★ best" }));
    return element("tr", { className: best ? "winner" : "" }, ...made);
  });
  target.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
  target.taken = { header, rows: shown.map(({ cells }) => cells), texts };
  takeableTable(target, name, () => target.taken);
}

function card() {
  const { header, better, rows, what } = D.card;
  by("card").hidden = document.querySelector("nav a[href='#card']").hidden = !rows.length;
  by("card-hint").textContent = what;
  const lines = rows.map((cells) => ({ cells }));
  sortable(by("card-table"), "the selection report card", { header, better, rows: lines, texts: new Set(D.axes) });
}

// --- statistics -----------------------------------------------------------------------------------------------------
function statistics() {
  const { points, unit } = D.pairs;
  if (!points.length) {
    by("pairs-hint").textContent =
      `No finished setting has a baseline (${D.baseline}, with everything else and the seed equal) to compare with.`;
    by("forest").hidden = true;
    by("pairs").parentElement.hidden = true;
    return;
  }
  by("pairs-hint").textContent =
    `Final ${unit === "loss" ? "loss" : "accuracy"} minus that of ${D.baseline}, seed by seed: runs with the same ` +
    "seed share the partition, the initial weights and the test data. Mean, 95 % interval, and p: how likely a " +
    "difference at least this large would be if there were none (paired t-test, not corrected for multiple " +
    "comparisons).";
  const shown = [...points].reverse();
  by("forest").style.height = `${Math.max(150, 90 + 26 * shown.length)}px`;
  const colours = shown.map((pair) => (lookOf(pair.line) ? colourOf(pair.line) : css("--iid")));
  const bars = { type: "data", array: shown.map((pair) => pair.half), color: css("--soft"), thickness: 1.5 };
  const trace = {
    x: shown.map((pair) => pair.difference),
    y: shown.map((pair) => plain(pair.label)),
    mode: "markers",
    type: "scatter",
    marker: { size: 9, color: colours },
    error_x: bars,
    customdata: shown.map((pair) => pair.text),
    hovertemplate: `%{y}: %{customdata} ${unit}<extra></extra>`,
  };
  draw("forest", [trace], `${unit} above ${plain(D.baseline)}`, "", {
    what: "Differences from the baseline with 95 % intervals",
    hovermode: "closest",
    margin: { l: 20, r: 20, t: 10, b: 46 },
    xaxis: { zeroline: true, zerolinecolor: css("--soft"), rangemode: "tozero" },
    yaxis: { type: "category", tickfont: { size: narrow.matches ? 9 : 11 } },
  });
  const rows = D.pairs.rows.map((cells) => ({ cells }));
  sortable(by("pairs"), "the paired differences", {
    header: D.pairs.header,
    better: D.pairs.better,
    rows,
    texts: new Set(D.axes),
  });
}

// --- reproduce ------------------------------------------------------------------------------------------------------
function reproduce() {
  for (const step of D.reproduce)
    by("commands").append(
      element("p", { className: "hint", textContent: step.what }),
      element("pre", { textContent: step.command, tabIndex: 0 }),
    );
  for (const setting of D.settings) {
    const title = `${naming(setting)} (seed${setting.seeds.length === 1 ? "" : "s"} ${setting.seeds.join(" ") || "-"})`;
    by("configurations").append(
      element(
        "details",
        {},
        element("summary", { textContent: title }),
        element("pre", { textContent: setting.flags }),
        element("pre", { textContent: setting.config }),
      ),
    );
  }
  const all = new Set(D.versions.flatMap((one) => Object.keys(one)));
  const names = [...all].sort((a, b) => (a === "runs") - (b === "runs"));
  const rows = D.versions.map((one) => ({ cells: names.map((name) => one[name] || "-") }));
  const header = names.map((name) => name || "run");
  sortable(by("versions"), "the versions", { header, rows, texts: new Set(header) });
}
