"""Renew the pictures of the gallery: python docs/gallery.py

Runs a small study in this process (minutes; what runs/gallery already holds is not run again), builds its page and its
figures, and photographs them. Needs chromium and chromedriver.
"""

import base64
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from selenium import webdriver

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from fedpns_ray import run  # noqa: E402
from fedpns_ray.reporting.collecting import gather  # noqa: E402
from fedpns_ray.reporting.figures import write_figures  # noqa: E402
from fedpns_ray.reporting.page import write_page  # noqa: E402
from fedpns_ray.study.study_file import read_study  # noqa: E402

OUT, RUNS = ROOT / "docs" / "gallery", ROOT / "runs" / "gallery"
WIDTH, PHONE = 1100, 390
STUDY = """
title: Three ways to draw ten of fifty nodes
base: {dataset: synthetic, model: mlr, sigma: 0.2, samples_per_node: 400, rounds: 60}
axes: {strategy: [fedpns, fedavg, oort]}
seeds: 1-5
targets: [0.5, 0.6]
claims: [{better: fedpns, than: fedavg, margin_points: 1}]
"""
SHOTS = (
    ("page-curves", "overview", WIDTH, "light"),
    ("page-selection", "selection", WIDTH, "light"),
    ("page-theory", "theory", WIDTH, "dark"),
    ("page-phone", "overview", PHONE, "dark"),
)
"""Name, section, width and colour scheme of the pictures of the page; the overview begins with the page's head."""


def main() -> None:
    if sys.argv[1:]:
        sys.exit("docs/gallery.py takes no argument: its study is its own")
    study_runs(RUNS)
    gathered = gather([RUNS])
    with tempfile.TemporaryDirectory() as place:
        write_figures(gathered, Path(place) / "figures")
        for name in ("curves", "rounds-to-target"):
            save(Image.open(Path(place) / "figures" / f"{name}.png"), f"figure-{name}")
        page = Path(place) / "report.html"
        write_page(gathered, page, "fedpns report runs/gallery --out report.html")
        with browser() as window:
            for shot in SHOTS:
                photograph(window, page, *shot)


def study_runs(folder: Path, text: str = STUDY) -> None:
    """A study as `fedpns study` leaves it, without Ray: anyone can run it anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(text)
    for trial in read_study(folder / "study.yaml").trials:
        run(trial.experiment, folder / "trials" / trial.name)


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            "headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking",
            "no-first-run", f"user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(f"--{flag}")
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        window = webdriver.Chrome(options=options, service=service)
        try:
            yield window
        finally:
            window.quit()


def photograph(window: webdriver.Chrome, page: Path, name: str, section: str, width: int, scheme: str) -> None:
    """Photograph one section of the page, in a window so tall that nothing scrolls."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    metrics = {"width": width, "height": 12000, "deviceScaleFactor": 1, "mobile": width < 600}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    window.get(page.as_uri())
    find = "return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()"
    place = window.execute_script(find, section)
    top = 0 if section == "overview" else place["y"] - 8
    height = 1000 if section == "overview" else min(place["height"] + 8, 1000)
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    shot = window.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    save(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), name)


def save(image: Image.Image, name: str) -> None:
    """Save a small file: at most WIDTH pixels wide, with 250 colours."""
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    OUT.mkdir(exist_ok=True)
    image.convert("RGB").quantize(250, dither=Image.Dither.NONE).save(OUT / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
