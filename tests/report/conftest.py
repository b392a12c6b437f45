"""Real run folders, small and made on the spot, and a real Chromium to look at their page."""

import shutil
from pathlib import Path

import pytest

from fedpns_ray.terminal.command_line import main
from tests.conftest import missing

STUDY = """
title: "Small <b>study</b> & <img src=x onerror=alert(1)>"
base: {dataset: synthetic, nodes: 12, fraction: 0.5, samples_per_node: 60, epochs: 2, rounds: 8}
axes:
  sigma: [0.25, 0.5]
  strategy: [fedpns, fedavg]
seeds: 1-3
targets: [0.1, 0.2]
claims: [{better: fedpns, than: fedavg}]
"""


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory) -> Path:
    """A study as `fedpns study` leaves it: 12 trials of 8 rounds, run in this process."""
    from fedpns_ray import run
    from fedpns_ray.study.study_file import read_study

    folder = tmp_path_factory.mktemp("report") / "small"
    folder.mkdir()
    (folder / "study.yaml").write_text(STUDY)
    for trial in read_study(folder / "study.yaml").trials:
        run(trial.experiment, folder / "trials" / trial.name)
    return folder


@pytest.fixture(scope="session")
def study_page(study_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(study_folder), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A headless Chromium of its own, with a fresh profile, that keeps its console and its network for us."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        missing("chromium and chromedriver are not installed (apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking",
        "no-first-run", f"user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    window.set_script_timeout(60)
    yield window
    window.quit()
