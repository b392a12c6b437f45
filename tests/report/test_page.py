"""The page in a real headless Chromium: it loads alone, shows what is true, and answers its controls."""

import base64
import hashlib
import json
import re
import shutil
import time

import numpy as np
import pytest

from fedpns_ray import load
from fedpns_ray.terminal.command_line import main

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


def browse(window, path, size="desktop", scheme="light"):
    """Open a page; what it logged and asked for since is then in the logs alone."""
    width, height = SIZES[size]
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    window.get("about:blank")
    for kind in ("browser", "performance"):
        window.get_log(kind)
    window.get(path.as_uri())
    until(window, "return document.documentElement.dataset.ready === 'true'")


def until(window, script, patience=90.0):
    deadline = time.monotonic() + patience
    while not (value := window.execute_script(script)):
        assert time.monotonic() < deadline, script
        time.sleep(0.05)
    return value


def complaints(window):
    return [entry["message"] for entry in window.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(window):
    events = [json.loads(entry["message"])["message"] for entry in window.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


def choose(window, id, value):
    window.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "if (s.value !== arguments[1]) throw new Error('no such option');"
        "s.dispatchEvent(new Event('change', {bubbles: true}))",
        id,
        value,
    )


def traces(window, kind="mean"):
    """Of every panel of curves: title → {name: y}."""
    script = """return Object.fromEntries([...document.querySelectorAll('#panels > div')].map((panel) => [
        panel.querySelector('.panel-title').textContent,
        Object.fromEntries(panel.querySelector('.chart').data.filter((t) => t.meta === arguments[0])
            .map((t) => [t.name, {x: t.x, y: t.y}]))]))"""
    return window.execute_script(script, kind)


def cells(window, table, column):
    script = """const heads = [...document.querySelectorAll(`#${arguments[0]} th`)].map((h) => h.textContent);
        const k = heads.indexOf(arguments[1]);
        return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map((row) => row.cells[k].textContent)"""
    return window.execute_script(script, table, column)


def test_it_loads_alone_and_names_stay_text(chromium, study_page):
    browse(chromium, study_page)
    assert complaints(chromium) == []
    assert requests(chromium) == [study_page.as_uri()]
    assert chromium.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    title = "Small <b>study</b> & <img src=x onerror=alert(1)>"
    assert chromium.title == title and chromium.find_element("id", "title").text == title
    assert chromium.execute_script("return document.querySelectorAll('img, h1 b').length") == 0
    assert chromium.find_element("id", "summary").text == "12 runs, 12 finished; 4 settings."


def test_the_answer_comes_first(chromium, study_page):
    browse(chromium, study_page)
    verdict, *claims = [line.text for line in chromium.find_elements("css selector", "#answers li")]
    assert re.match(r"[012] of 2 settings (is|are) above the baseline \(fedavg\), ", verdict)
    assert [line.partition(":")[0] in ("kept", "refuted", "undecided") for line in claims] == [True, True]
    assert "fedpns is better than fedavg (sigma 0.25)" in claims[0] and "(sigma 0.5)" in claims[1]
    answers, table = (chromium.find_element("id", name).location["y"] for name in ("answers", "overview"))
    assert answers < table


def test_the_curves_are_the_means_of_the_runs(chromium, study_page, study_folder):
    browse(chromium, study_page)
    runs = [load(path) for path in (study_folder / "trials").iterdir()]
    shown = traces(chromium)
    assert list(shown) == ["sigma 0.25", "sigma 0.5"]
    for sigma, strategy in ((0.25, "fedpns"), (0.5, "fedavg")):
        group = [
            r.rounds["test_accuracy"] for r in runs if (r.experiment.sigma, r.experiment.strategy) == (sigma, strategy)
        ]
        assert len(group) == 3
        line = shown[f"sigma {sigma:g}"][f"{strategy}, mean of 3"]
        assert line["x"] == list(range(1, 9))
        assert line["y"] == pytest.approx(100 * np.mean(group, axis=0), rel=1e-3)
    assert chromium.execute_script("return document.querySelectorAll('#panels .scatterlayer .trace path').length") >= 8


def test_lines_bands_quantities_and_the_axis_can_be_chosen(chromium, study_page):
    browse(chromium, study_page)
    assert all(len(panel) == 1 for panel in traces(chromium, "band").values())  # bands have no name
    box = chromium.find_element("css selector", "#lines input[data-line='fedavg']")
    box.send_keys(" ")  # by keyboard
    assert [list(panel) for panel in traces(chromium).values()] == [["fedpns, mean of 3"]] * 2
    box.click()
    assert all(len(panel) == 2 for panel in traces(chromium).values())
    chromium.find_element("id", "bands").click()
    assert not any(traces(chromium, "band").values())
    chromium.find_element("id", "singles").click()
    singles = "return document.querySelector('#panels .chart').data.filter((t) => t.meta === 'single').length"
    assert chromium.execute_script(singles) == 6
    accuracy = traces(chromium)["sigma 0.25"]["fedpns, mean of 3"]["y"]
    choose(chromium, "quantity", "test_loss")
    assert traces(chromium)["sigma 0.25"]["fedpns, mean of 3"]["y"] != accuracy
    ticks = "return [...document.querySelectorAll('#panels .xtick')].map((t) => t.textContent)"
    assert all(text.isdigit() for text in chromium.execute_script(ticks))  # there is no round 1.5
    assert chromium.find_element("id", "singles").is_enabled()
    choose(chromium, "over", "megabytes")
    assert not chromium.find_element("id", "singles").is_enabled()  # single runs are drawn over rounds
    sent = traces(chromium)["sigma 0.25"]["fedavg, mean of 3"]["x"]
    parameters = 60 * 10 + 10  # of MLR on the paper's synthetic data
    assert sent == pytest.approx([12 * 4e-6 * parameters * t for t in range(1, 9)], rel=1e-3)  # 6 down, 6 up
    choose(chromium, "over", "seconds")
    titles = "return [...document.querySelectorAll('#panels .xtitle, #panels .ytitle')].map((t) => t.textContent)"
    assert set(chromium.execute_script(titles)) == {"run time (s)", "test loss"}
    assert complaints(chromium) == []


def test_the_table_sorts_and_filters(chromium, study_page, study_folder):
    browse(chromium, study_page)
    assert len(cells(chromium, "table", "strategy")) == 4
    choose(chromium, "rows", "runs")
    assert chromium.find_element("id", "count").text == "12 of 12 rows"
    head = next(b for b in chromium.find_elements("css selector", "#table th button") if b.text == "final accuracy")
    head.click()  # best first
    finals = sorted(f"{100 * load(path).summary['final_accuracy']:.2f}" for path in (study_folder / "trials").iterdir())
    assert cells(chromium, "table", "final accuracy") == sorted(finals, key=float, reverse=True)
    chromium.switch_to.active_element.send_keys("\n")  # the focus stayed on the column
    assert cells(chromium, "table", "final accuracy") == sorted(finals, key=float)
    head = next(b for b in chromium.find_elements("css selector", "#table th button") if b.text == "last loss")
    head.click()
    losses = [float(text) for text in cells(chromium, "table", "last loss")]
    assert losses == sorted(losses)
    choose(chromium, "filter-sigma", "0.5")
    assert (
        set(cells(chromium, "table", "sigma")) == {"0.5"}
        and chromium.find_element("id", "count").text == "6 of 12 rows"
    )
    assert list(traces(chromium)) == ["sigma 0.5"]
    choose(chromium, "filter-strategy", "fedavg")
    assert list(traces(chromium)["sigma 0.5"]) == ["fedavg, mean of 3"]


def test_the_selection_is_what_was_recorded_at_every_round(chromium, study_page, study_folder):
    browse(chromium, study_page)
    name = chromium.execute_script(
        "const data = JSON.parse(document.getElementById('report-data').textContent);"
        "return data.selection[document.getElementById('run').value].name"
    )
    result = load(study_folder / "trials" / name)
    assert result.experiment.strategy == "fedpns"
    heat = chromium.execute_script("return document.getElementById('heat').data[0].z")
    recorded = np.array(result.rounds["probability"].tolist())
    assert np.abs(np.array(heat) - recorded).max() <= recorded.max() / 255
    script = (
        "const s = document.getElementById('scrubber'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
    )
    for t in (3, 8):
        chromium.execute_script(script, t)
        record = result.records[t - 1]
        text = "; ".join(
            f"{fate} {' '.join(map(str, record[fate])) or 'none'}" for fate in ("drawn", "labelled", "excluded")
        )
        assert chromium.find_element("id", "happened").text == f"Round {t}: {text}."
        bars = chromium.execute_script("return document.getElementById('triples').data.map((bar) => bar.y)")
        for bar, fate in zip(bars, ("drawn", "labelled", "excluded"), strict=True):
            assert bar == [sum(node in r[fate] for r in result.records[:t]) for node in range(12)]
    chromium.find_element("id", "scrubber").send_keys("\ue012")  # arrow left
    assert chromium.find_element("id", "round").text == "7 of 8"
    chromium.find_element("id", "scrubber").send_keys("\ue010")  # end, and from there play begins anew
    chromium.find_element("id", "play").send_keys("\n")
    assert chromium.find_element("id", "play").text == "Pause"
    until(
        chromium,
        "return document.getElementById('round').textContent === '8 of 8'"
        " && document.getElementById('play').textContent === 'Play'",
    )
    share = chromium.execute_script(
        "return document.getElementById('share').data.find((t) => t.name === 'of the probability').y"
    )
    assert share == pytest.approx(result.rounds["iid_probability"], rel=1e-3)
    assert complaints(chromium) == []


def test_data_theory_statistics_and_reproduction_are_there(chromium, study_page, study_folder):
    from fedpns_ray.data import build_population

    browse(chromium, study_page)
    name = chromium.execute_script(
        "const data = JSON.parse(document.getElementById('report-data').textContent);"
        "return data.selection[document.getElementById('run').value].name"
    )
    held = chromium.execute_script("return document.getElementById('histogram').data[0].z")
    assert np.array_equal(np.array(held).T, build_population(load(study_folder / "trials" / name).experiment).histogram)
    distance = chromium.execute_script("return document.getElementById('distance').data.map((t) => [t.name, t.x])")
    assert distance == [["i.i.d. nodes", list(range(3))], ["other nodes", list(range(3, 12))]]  # each colour has a name
    for chart in ("delta", "gamma", "norms", "expectation"):
        assert chromium.execute_script(f"return document.getElementById('theory-{chart}').data.length") >= 2, chart
    assert cells(chromium, "pairs", "better in") and all(
        text.endswith("of 3") for text in cells(chromium, "pairs", "better in")
    )
    text = chromium.find_element("id", "reproduce").text
    assert f"fedpns study {study_folder}/study.yaml --out {study_folder}" in text
    assert f"fedpns report {study_folder} --out {study_page}" in text
    assert "torch" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_pictures_at_both_widths_and_in_both_schemes(chromium, study_page, tmp_path, size, scheme):
    browse(chromium, study_page, size, scheme)
    width = SIZES[size][0]
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
    paper = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}[scheme]
    ink = chromium.execute_script("return document.querySelector('#panels .xtitle').style.fill")
    assert ink == {"light": "rgb(28, 36, 48)", "dark": "rgb(228, 233, 239)"}[scheme]
    height = chromium.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = chromium.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    picture = tmp_path / f"{size}-{scheme}.png"
    picture.write_bytes(base64.b64decode(shot["data"]))
    from matplotlib.image import imread

    assert imread(picture).std() > 0.05  # not an empty page
    assert complaints(chromium) == []


def test_a_page_follows_the_colour_scheme_while_it_is_open(chromium, study_page):
    browse(chromium, study_page)
    media = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    until(chromium, "return document.querySelector('#panels .xtitle').style.fill === 'rgb(228, 233, 239)'")


def test_what_real_folders_hold(chromium, study_folder, tmp_path, capsys):
    """Unfinished, torn, without a round, one round, a loss that is not finite, a missing seed, a broken config."""
    folder = tmp_path / "odd"
    shutil.copytree(study_folder, folder)
    trials = sorted((folder / "trials").iterdir())
    for trial in trials[:2]:
        (trial / "summary.json").unlink()
    lines = (trials[0] / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (trials[0] / "rounds.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:40])  # torn
    (trials[1] / "rounds.jsonl").unlink()
    shutil.rmtree(trials[2])
    records = [json.loads(line) | {"test_loss": None, "train_loss": None} for line in lines]
    for record in records:
        del record["chain"]  # as before there were chains
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    (trials[3] / "rounds.jsonl").write_bytes(content)
    summary = json.loads((trials[3] / "summary.json").read_text())
    own = {"records_sha256": hashlib.sha256(content).hexdigest()}
    del summary["summary_sha256"]
    (trials[3] / "summary.json").write_text(json.dumps(summary | own))
    (trials[4] / "config.yaml").write_text("strategy: <script>alert(1)</script>\n")
    out = tmp_path / "odd.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert "2 of 10 runs are not finished" in " ".join(capsys.readouterr().out.split())
    browse(chromium, out)
    assert complaints(chromium) == [] and requests(chromium) == [out.as_uri()]
    notes = chromium.find_element("id", "notes").text
    assert "not finished" in notes and f"{trials[4].name} was left out" in notes and "have not run yet" in notes
    choose(chromium, "rows", "runs")
    assert sorted(cells(chromium, "table", "rounds"))[:2] == ["0 of 8", "3 of 8"]
    for quantity in ("test_loss", "train_loss"):
        choose(chromium, "quantity", quantity)
    assert complaints(chromium) == []


def test_one_run_of_one_round_and_one_that_has_not_begun(chromium, tmp_path):
    from fedpns_ray import Experiment, run

    run(Experiment(strategy="fedavg", nodes=10, samples_per_node=50, epochs=1, rounds=1), tmp_path / "one")
    out = tmp_path / "one.html"
    assert main(["report", str(tmp_path / "one"), "--out", str(out)]) == 0
    browse(chromium, out)
    assert chromium.execute_script("return document.querySelector('#panels .chart').data.at(-1).mode") == "markers"
    assert not chromium.find_element("id", "bands").is_displayed()  # one seed has none
    assert not chromium.find_element("id", "theory-panel").is_displayed()  # there is nothing to choose
    assert chromium.find_element("id", "warning").text.startswith("The setting has 1 seed: ")
    assert complaints(chromium) == []
    for name in ("summary.json", "rounds.jsonl", "weights.safetensors", "checkpoint.npz"):
        (tmp_path / "one" / name).unlink(missing_ok=True)
    assert main(["report", str(tmp_path / "one"), "--out", str(out)]) == 0
    browse(chromium, out)
    assert "No run has completed a round yet." in chromium.find_element("id", "selection").text
    assert complaints(chromium) == []


def test_without_the_data_set_the_page_says_so(chromium, study_folder, tmp_path, monkeypatch):
    """A run on a data set that is not on this machine."""
    trial = tmp_path / "run"
    shutil.copytree(next(path for path in (study_folder / "trials").iterdir() if "fedpns" in path.name), trial)
    from fedpns_ray import Experiment

    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path / "empty"))
    experiment = Experiment(strategy="fedpns", dataset="fashion-mnist", nodes=12, fraction=0.5, rounds=8)
    (trial / "config.yaml").write_text(experiment.to_yaml())
    (trial / "summary.json").unlink()  # where the labels are recorded
    out = tmp_path / "report.html"
    assert main(["report", str(trial), "--out", str(out)]) == 0
    browse(chromium, out)
    assert "fashion-mnist are not shown" in chromium.find_element("id", "notes").text
    assert chromium.find_element("id", "histogram").size["height"] < 100  # no blank where nothing is drawn
    assert "the notes at the top say why" in chromium.find_element("id", "data-hint").text
    assert complaints(chromium) == []


@pytest.mark.parametrize("what", ["absent", "empty", "file"])
def test_a_folder_that_is_no_run_is_one_line(tmp_path, capsys, what):
    place = tmp_path / what
    if what == "empty":
        place.mkdir()
    if what == "file":
        place.write_text("no run")
    out = tmp_path / "report.html"
    assert main(["report", str(place), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(place) in error and not out.exists()
