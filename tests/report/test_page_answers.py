"""The page gives its answer first, shows selections side by side, tells one truth, and can be taken away."""

import base64
import csv
import io
import shutil
import urllib.parse

import numpy as np
import pytest

from fedpns_ray import Experiment, load, run
from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.formatting import formatted
from fedpns_ray.reporting.page import page_data
from fedpns_ray.reporting.palette import ORDER, looks
from fedpns_ray.reporting.ranking import best, ranked
from fedpns_ray.reporting.report_card import report_card
from fedpns_ray.reporting.tables import table
from fedpns_ray.terminal.command_line import main
from tests.report.test_page import browse, cells, choose, complaints, until

DOWNLOADS = """window.saved = []; window.real = window.real || download;
    download = (name, href) => window.saved.push([name, href]);"""


@pytest.fixture
def opened(chromium, study_page):
    browse(chromium, study_page)
    return chromium


@pytest.fixture(scope="module")
def data(study_folder):
    return page_data(gather([study_folder]), "")


# --- the answer first ------------------------------------------------------------------------------------------------


def test_rows_are_ranked_within_their_data_and_the_best_is_marked(opened, study_folder):
    results = gather([study_folder])
    rows = ranked(table(results.results, results.trials), results.results)
    assert list(rows["sigma"]) == [0.25, 0.25, 0.5, 0.5]
    assert all(rows["test_accuracy"][k] >= rows["test_accuracy"][k + 1] for k in (0, 2))
    assert best(rows, results.results) == [True, False, True, False]
    marked = opened.execute_script("return [...document.querySelectorAll('#table tr.winner')].map((r) => r.rowIndex)")
    assert marked == [1, 3] and len(opened.find_elements("css selector", "#table .best")) == 2
    header, body = formatted(rows, results.results)  # the terminal's table, to the last digit
    for column in ("final accuracy", "minus fedavg"):
        assert cells(opened, "table", column) == [row[header.index(column)] for row in body]


def test_few_seeds_are_warned_of(opened, data):
    said = "The settings have 3 seeds: with fewer than 5, means and intervals say little."
    assert opened.find_element("id", "warning").text == said == data["warning"]


def test_symbols_are_explained_and_nothing_published_is_offered_where_there_is_none(opened):
    assert "sigma (σ)\nFraction of nodes with i.i.d. data." in opened.find_element("id", "glossary").text
    assert "p: the probability with which a node is drawn" in opened.find_element("id", "selection").text
    assert not opened.find_element("id", "published").is_displayed()
    assert "in brackets" not in opened.find_element("id", "overview").text


# --- side by side ----------------------------------------------------------------------------------------------------


def test_who_draws_whom_is_the_mean_over_seeds_of_every_strategy(opened, study_folder):
    titles = [title.text for title in opened.find_elements("css selector", "#columns .panel-title")]
    assert titles == ["fedpns, mean of 3 seeds", "fedavg, mean of 3 seeds"]
    runs = [load(path) for path in (study_folder / "trials").iterdir()]
    shown = "return [...document.querySelectorAll('#columns .column')].map((c) => [...c.querySelectorAll('.chart')]"
    maps, bars, labels = zip(*opened.execute_script(f"{shown}.map((one) => one.data))"), strict=True)
    for strategy, drawn, times in zip(("fedpns", "fedavg"), maps, bars, strict=True):
        mine = [r for r in runs if (r.experiment.sigma, r.experiment.strategy) == (0.25, strategy)]
        met = np.array([[[node in record.drawn for node in range(12)] for record in r.records] for r in mine])
        assert np.abs(np.array(drawn[0]["z"]) - met.mean(axis=0)).max() < 0.01  # eight rounds: a step each
        assert times[0]["y"] == pytest.approx(met.sum(axis=1).mean(axis=0), rel=1e-3)
    fates = [[trace["name"] for trace in each] for each in bars]
    assert fates[0][:2] == ["drawn", "labelled"] and fates[1] == ["drawn"]  # only what a strategy has
    assert all(one[0]["x"] == list(range(12)) for one in (*maps, *bars, *labels))  # the same order
    choose(opened, "fate", "labelled")
    assert "fedavg: no node is labelled." in opened.find_element("id", "columns").text
    opened.find_element("css selector", "#lines input[data-line='fedpns']").send_keys(" ")
    assert len(opened.find_elements("css selector", "#columns .column")) == 1


def test_every_colour_of_a_fate_has_a_name(opened):
    for which, strategy in ((0, "fedpns"), (3, "fedavg")):
        choose(opened, "run", str(which))
        choose(opened, "shade", "fates")
        heat = opened.execute_script("return document.getElementById('heat').data[0]")
        assert len(heat["colorbar"]["ticktext"]) == len(set(np.array(heat["z"]).ravel())) == len(heat["colorscale"]) / 2
        assert ("labelled, kept" in heat["colorbar"]["ticktext"]) <= (strategy == "fedpns")
        text = opened.find_element("id", "happened").text
        assert ("labelled" in text) == (strategy == "fedpns")


# --- one truth -------------------------------------------------------------------------------------------------------


def test_a_strategy_looks_the_same_everywhere(data, study_folder, monkeypatch):
    assert len(set(looks(ORDER).values())) == len(ORDER)
    own = looks(["fedpns", "fedavg"])
    assert looks(["fedavg", "oort", "fedpns"])["fedpns"] == own["fedpns"]  # whoever is beside it
    assert {line["label"]: line["colour"] for line in data["lines"]} == {name: own[name].colour for name in own}
    from fedpns_ray.reporting.curves import study_figure

    drawn = {line.get_color() for axis in study_figure(gather([study_folder]).results).axes for line in axis.lines}
    assert drawn == {look.colour for look in own.values()}


def test_the_terminal_prints_a_strategy_in_its_colour(study_folder, monkeypatch):
    from rich.console import Console

    from fedpns_ray.terminal import study

    found = gather([study_folder])
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)
    monkeypatch.setattr(study, "console", screen)
    study._print_table(table(found.results, found.trials), found.results)
    colour = looks(["fedpns"])["fedpns"].on_dark
    rgb = ";".join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))
    assert f"38;2;{rgb}mfedpns" in screen.file.getvalue()


def test_bands_stay_within_what_is_possible(opened):
    for quantity in ("test_accuracy", "test_loss"):
        choose(opened, "quantity", quantity)
        bands = opened.execute_script(
            "return [...document.querySelectorAll('#panels .chart')].flatMap((chart) =>"
            " chart.data.filter((t) => t.meta === 'band').flatMap((t) => t.y))"
        )
        assert bands and min(bands) >= 0 and (quantity != "test_accuracy" or max(bands) <= 100)


def test_every_control_has_a_name(opened):
    nameless = """return [...document.querySelectorAll('select, input, button')].filter((control) =>
        !(control.labels && control.labels.length) && !control.textContent.trim()
        && !control.getAttribute('aria-label')).length"""
    assert opened.execute_script(nameless) == 0


# --- take it away ----------------------------------------------------------------------------------------------------


def test_every_plot_has_a_name_its_data_and_its_files(opened, tmp_path):
    charts = opened.find_elements("css selector", ".chart.js-plotly-plot")
    assert len(charts) >= 15
    names = [chart.get_attribute("aria-label") for chart in charts]
    assert all(name.endswith("; the data are in the table below the plot") for name in names)
    without = "return [...document.querySelectorAll('.chart.js-plotly-plot')].filter((c) => !c.nextElementSibling"
    assert opened.execute_script(f"{without}.querySelector('details.behind')).length") == 0
    opened.execute_script(DOWNLOADS)
    chart = "document.querySelector('#panels .chart')"
    for button in range(3):
        opened.execute_script(f"{chart}.nextElementSibling.querySelectorAll('button')[{button}].click()")
        until(opened, f"return window.saved.length > {button}")
    (png, image), (svg, drawing), (name, content) = opened.execute_script("return window.saved")
    assert base64.b64decode(image.partition(",")[2])[:4] == b"\x89PNG" and png.endswith(".png")
    drawing = urllib.parse.unquote(drawing)
    assert "<svg" in drawing and svg.endswith(".svg")
    for said in ("test accuracy (%) over round", "fedpns, mean of 3", "fedavg, mean of 3"):  # it stands alone
        assert said in drawing
    assert "rgb(255, 255, 255)" in drawing  # dark mode's light letters would vanish on white paper
    assert name == "test-accuracy-over-round-sigma-0-25.csv"
    header, *rows = csv.reader(io.StringIO(urllib.parse.unquote(content.partition(",")[2])))
    assert header[:3] == ["round", "fedpns, mean of 3", "fedpns, mean of 3, ± 95 %"] and len(rows) == 8
    shown = opened.execute_script(f"return {chart}.data.filter((t) => t.meta === 'mean')[0].y")
    assert [float(row[1]) for row in rows] == shown
    opened.execute_script(f"{chart}.nextElementSibling.querySelector('summary').click()")
    read = f"return [...{chart}.nextElementSibling.querySelectorAll('tbody tr')].map((r) => r.cells[1].textContent)"
    assert [float(text) for text in until(opened, read)] == shown
    of_a_map = opened.execute_script("return dataOf(document.querySelector('#columns .chart'), 'node').header")
    assert of_a_map == ["node \\ round", *range(1, 9)]
    assert complaints(opened) == []


def test_the_report_card_can_be_sorted_and_taken_away(opened, study_folder):
    trials = gather([study_folder]).results.trials
    header, rows, better = report_card(trials, ["sigma", "strategy"])
    column = header.index("Gini index of draws")
    assert better[column] == "lower"
    title = header[column]
    button = next(b for b in opened.find_elements("css selector", "#card-table th button") if b.text == title)
    button.send_keys("\n")
    shown = cells(opened, "card-table", header[column])
    assert shown == sorted((row[column] for row in rows), key=lambda text: float(text.split()[0]))
    buttons = opened.find_elements("css selector", "#card .take button")
    assert [button.text for button in buttons] == ["CSV", "Copy Markdown", "Copy LaTeX"]


def test_tables_as_csv_markdown_and_latex(opened):
    opened.execute_script(DOWNLOADS)
    bar = "document.querySelector('#overview .take').querySelectorAll('button')"
    opened.execute_script(f"{bar}[0].click()")
    ((name, content),) = opened.execute_script("return window.saved")
    header, *rows = csv.reader(io.StringIO(urllib.parse.unquote(content.partition(",")[2])))
    assert name == "the-results.csv" and [row[header.index("final accuracy")] for row in rows] == cells(
        opened, "table", "final accuracy"
    )
    copied = "return document.documentElement.dataset.copied || ''"
    opened.execute_script(f"{bar}[1].click()")
    markdown = until(opened, copied).splitlines()
    assert markdown[0] == f"| {' | '.join(header)} |" and len(markdown) == 2 + len(rows)
    opened.execute_script(f"document.documentElement.dataset.copied = ''; {bar}[2].click()")
    latex = until(opened, copied)
    assert latex.startswith("\\begin{tabular}{ll") and " $\\pm$ " in latex and latex.count("\\\\") == 1 + len(rows)


def test_a_link_restores_the_view(opened, study_page):
    choose(opened, "quantity", "test_loss")
    choose(opened, "filter-sigma", "0.5")
    opened.find_element("id", "bands").send_keys(" ")
    opened.find_element("css selector", "#lines input[data-line='fedavg']").send_keys(" ")
    next(b for b in opened.find_elements("css selector", "#table th button") if b.text == "seeds").send_keys("\n")
    opened.find_element("id", "scrubber").send_keys("\ue012")  # arrow left
    opened.find_element("id", "link").send_keys("\n")
    link = until(opened, "return document.documentElement.dataset.copied || ''")
    assert link.startswith(study_page.as_uri()) and "#view?" in link
    script = """return {quantity: document.getElementById('quantity').value, titles: [...document.querySelectorAll(
        '#panels .panel-title')].map((t) => t.textContent), names: document.querySelector('#panels .chart').data.map(
        (t) => [t.name, t.meta]), rows: document.getElementById('table').innerText,
        happened: document.getElementById('happened').textContent}"""
    before = opened.execute_script(script)
    assert before["names"] == [["fedpns, mean of 3", "mean"]] and before["titles"] == ["sigma 0.5"]
    assert before["happened"].startswith("Round 7: drawn")
    opened.get("about:blank")
    opened.get(link)
    until(opened, "return document.documentElement.dataset.ready === 'true'")
    assert opened.execute_script(script) == before
    opened.get("about:blank")  # a link from elsewhere, with what this page does not have
    opened.get(f"{study_page.as_uri()}#view?quantity=nothing&hide=nobody&sort+table=1+none&filter-sigma=9")
    until(opened, "return document.documentElement.dataset.ready === 'true'")
    assert len(cells(opened, "table", "strategy")) == 4 and complaints(opened) == []


def test_a_first_click_on_a_loss_sorts_the_lowest_first(tmp_path):
    lines = Experiment(dataset="tests.small_data:Lines", nodes=4, fraction=0.5, rounds=1)
    for name in ("fedpns", "fedavg"):
        run(lines.but(strategy=name), tmp_path / name, progress=False)
    shown = page_data(gather([tmp_path]), "")["table"]
    better = dict(zip(shown["header"], shown["better"], strict=True))
    assert better["final loss"] == better["minus fedavg"] == "lower" and better["seeds"] == "higher"


def test_a_study_in_one_setting_says_which_strategy_wins(study_folder, tmp_path):
    folder = tmp_path / "one"
    shutil.copytree(study_folder, folder)
    text = (folder / "study.yaml").read_text().replace("sigma: [0.25, 0.5]", "sigma: [0.25]")
    (folder / "study.yaml").write_text(text)
    for trial in (folder / "trials").iterdir():
        if load(trial).experiment.sigma == 0.5:
            shutil.rmtree(trial)
    assert Storage(folder).names() and main(["report", str(folder), "--out", str(tmp_path / "r.html")]) == 0
    first, *_ = page_data(gather([folder]), "")["answers"]
    assert "beats" in first and "over 3 seeds" in first and "Fewer than 5 seeds say little" in first
