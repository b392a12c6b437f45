"""Figures for papers: which there are, as PDF with real text and as PNG."""

import re
import shutil
import zlib

import pytest
from matplotlib.container import ErrorbarContainer

from fedpns_ray import Experiment, run
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.figures import rounds_to_target
from fedpns_ray.reporting.published import figures, triples
from fedpns_ray.reporting.tables import table
from fedpns_ray.terminal.command_line import main


def names(folder):
    assert {path.suffix for path in folder.iterdir()} == {".pdf", ".png"}
    assert all((folder / f"{path.stem}.png").exists() for path in folder.glob("*.pdf"))
    return {path.stem for path in folder.iterdir()}


def test_any_study_gets_figures_with_vector_text(study_folder, tmp_path):
    assert main(["report", str(study_folder), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f")]) == 0
    assert names(tmp_path / "f") == {"curves", "curves-column", "rounds-to-target", "triples"}
    for path in (tmp_path / "f").glob("*.pdf"):
        content = path.read_bytes()
        assert b"/CIDFontType2" in content and b"/Type3" not in content, path  # text is text, not outlines
        streams = re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL)
        assert not any(b"/Subtype /Image" in stream for stream in streams)
        assert any(b"BT" in zlib.decompress(stream) for stream in streams if stream[:1] == b"x")


def test_bars_have_the_intervals_of_the_table_and_say_how_many_seeds_arrived(study_folder, tmp_path):
    shutil.copytree(study_folder, tmp_path / "s")
    trials = gather([study_folder]).results.trials
    second = sorted(trials.groupby("setting")["best_accuracy"].get_group(trials["setting"].iloc[0]))[-2]
    text = (tmp_path / "s" / "study.yaml").read_text()
    (tmp_path / "s" / "study.yaml").write_text(text.replace("targets: [0.1, 0.2]", f"targets: [{second!r}]"))
    found = gather([tmp_path / "s"])
    rows = table(found.results, found.trials)
    reached, half = rows[f"reached_{second:g}"], rows[f"rounds_to_{second:g}_interval"].astype(float)
    assert 2 in set(reached) and half.notna().any()
    (axis,) = rounds_to_target(found).axes
    bars = [one for one in axis.containers if isinstance(one, ErrorbarContainer)]
    assert len(bars) == half.notna().sum()
    assert sorted(one.get_text() for one in axis.texts) == sorted(f"{count}/3" for count in reached if count < 3)


def test_alpha_and_beta_get_a_map(tmp_path):
    for alpha in (1, 3):
        for beta in (0.5, 0.8):
            experiment = Experiment(nodes=10, samples_per_node=50, epochs=1, rounds=2, alpha=alpha, beta=beta)
            run(experiment, tmp_path / "runs" / f"{alpha}-{beta}")
    out = tmp_path / "figures"
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "r.html"), "--figures", str(out)]) == 0
    assert "alpha-beta" in names(out) and "figure5" not in names(out)


def test_the_papers_figures_are_known_by_their_runs(mnist, tmp_path):
    """Figure 1, two rounds of one seed: known by its experiments, whatever its length."""
    for strategy in ("fedavg", "optimal-aggregation"):
        experiment = Experiment(
            strategy=strategy, selection="half", dataset="mnist", model="cnn-m", sigma=0.5, rounds=2
        )
        run(experiment, tmp_path / "runs" / strategy)
    out = tmp_path / "figures"
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "r.html"), "--figures", str(out)]) == 0
    assert names(out) >= {"figure1", "curves"} and not names(out) & {"figure2", "figure3", "figure5", "figure6"}


def test_the_papers_arrangement():
    shapes = {
        name: (1 + max(p.row for p in panels), 1 + max(p.column for p in panels)) for name, panels in figures().items()
    }
    assert shapes == {"fig1": (1, 1), "fig2": (2, 6), "fig3": (2, 6), "fig4": (1, 6), "fig5": (2, 2), "fig6": (2, 1)}
    assert len(triples()) == 50 and (triples()["drawn"] >= triples()["labelled"]).all()


@pytest.mark.parametrize("what", ["unfinished", "file"])
def test_what_cannot_be_drawn_is_one_line(study_folder, tmp_path, capsys, what):
    import shutil

    place = tmp_path / "run"
    shutil.copytree(next((study_folder / "trials").iterdir()), place)
    figures = tmp_path / "figures"
    if what == "unfinished":
        (place / "summary.json").unlink()
    else:
        figures.write_text("")
    assert main(["report", str(place), "--out", str(tmp_path / "r.html"), "--figures", str(figures)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_many_strategies_get_a_panel_each_best_first(tmp_path):
    """Nobody can follow sixteen crossing lines. FedAdam's own learning rate follows from its strategy: no axis."""
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.curves import study_figure

    strategies = ("fedavg", "fedpns", "fedprox", "cmfl", "oort", "fedadam", "fedavgm")
    for strategy in strategies:
        experiment = Experiment(strategy=strategy, nodes=10, samples_per_node=50, epochs=1, rounds=2)
        run(experiment, tmp_path / strategy)
    results = gather([tmp_path]).results
    assert results.study.axes == ["strategy"]
    panels = [axis for axis in study_figure(results).axes if axis.get_visible()]
    titles = [axis.get_title().splitlines() for axis in panels]
    assert len(titles) == 7 and {"FedAvg", "FedPNS", "FedAdam"} <= {name.partition(". ")[2] for name, _ in titles}
    finals = [float(final.split()[0]) for _, final in titles]
    assert finals == sorted(finals, reverse=True)
    for axis, (name, _) in zip(panels, titles, strict=True):
        greys = [line.get_color() for line in axis.lines if line.get_color().startswith("0.")]
        fedavg = 0 if name.endswith("FedAvg") else 1  # in the panels of the others it is dashed, for reference
        assert len(axis.lines) == 7 and greys.count("0.3") == fedavg and greys.count("0.82") == 6 - fedavg


def test_few_lines_are_named_where_they_end_and_nothing_covers_a_title(study_folder):
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.curves import Sheet, study_figure

    for sheet in (None, Sheet(7.16, 4, title=False), Sheet(3.5, 2, title=False)):
        figure = study_figure(gather([study_folder]).results, sheet)
        last = figure.axes[-1]
        assert {text.get_text() for text in last.texts} == {"FedPNS", "FedAvg"} and not figure.legends
        assert [axis.get_title() for axis in figure.axes] == ["σ = 0.25", "σ = 0.5"]
        styles = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in last.lines}
        assert all(len({look[k] for look in styles}) == 2 for k in range(3))  # colour, dash and marker: each is enough
