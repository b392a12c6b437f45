// --- the end: everything starts here --------------------------------------------------------------------------------
function everything(round) {
  table();
  curves();
  sideBySide();
  selection(round ? Number(round) : undefined);
  theory();
  card();
  statistics();
}
head();
filters();
curveControls();
by("rows").addEventListener("change", table);
if (!D.table.rows.length) by("rows").value = "runs";
selectionControls();
theoryControls();
reproduce();
linkControls();
everything(restore());
for (const media of [dark, narrow]) media.addEventListener("change", () => everything(seen && by("scrubber").value));
document.documentElement.dataset.ready = "true";
