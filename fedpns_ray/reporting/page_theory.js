// --- theory ---------------------------------------------------------------------------------------------------------
function theoryControls() {
  const panels = [...new Set(D.settings.map((setting) => setting.panel))];
  options(
    by("theory-panel"),
    panels.map((panel) => [panel, panel || D.title]),
  );
  by("theory-panel").closest("label").hidden = panels.length < 2;
  by("theory-panel").addEventListener("change", theory);
}
function theory() {
  const panel = by("theory-panel").value;
  const settings = D.settings.filter((setting) => setting.panel === panel && !state.hidden.has(setting.line));
  const legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 10 } };
  for (const { chart, title, parts, needs, without, optional } of D.theory) {
    const id = `theory-${chart}`;
    const able = settings.filter((setting) => !needs || setting.series[needs]);
    const traces = able.flatMap((setting) =>
      parts.flatMap(([key, name, dash]) =>
        lineTraces(setting, key, "round", { dash: dash || "solid", name: `${setting.line}${name}` }),
      ),
    );
    by(id).hidden = Boolean(optional && !traces.length);
    if (traces.length) draw(id, traces, "round", title, { showlegend: traces.length > 1, legend });
    else empty(id, without || `${title}: these runs have no such data.`);
  }
}
