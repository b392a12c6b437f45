"""Make the pictures of the gallery from real studies: python docs/gallery.py runs/fig1 runs/fig3 runs/fig6

Needs chromium and chromedriver for the pictures of the page.
"""

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.figures import write_figures
from fedpns_ray.reporting.page import write_page

OUT = Path(__file__).parent / "gallery"
WIDTH = 1100


def main(folders: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as place:
        for folder in folders:
            gathered = gather([folder])
            write_figures(gathered, Path(place) / folder.name)
            write_page(gathered, Path(place) / f"{folder.name}.html", "fedpns report")
        for picture in sorted(Path(place).glob("*/figure*.png")):
            save(Image.open(picture), picture.stem)
        first, last = (Path(place) / f"{folders[k].name}.html" for k in (1, -1))
        window = browser()
        try:
            photograph(window, first, "curves", "page-curves", WIDTH, "light")
            photograph(window, last, "selection", "page-selection", WIDTH, "light")
            photograph(window, last, "selection", "page-phone", 390, "dark")
            photograph(window, last, "theory", "page-theory", WIDTH, "dark")
        finally:
            window.quit()


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


def photograph(window: webdriver.Chrome, page: Path, section: str, name: str, width: int, scheme: str) -> None:
    """Photograph one section of the page, in a window so tall that nothing scrolls."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    metrics = {"width": width, "height": 9000, "deviceScaleFactor": 1, "mobile": width < 600}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    window.get(page.as_uri())
    place = window.execute_script(
        "return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", section
    )
    clip = {"x": 0, "y": place["y"] - 24, "width": width, "height": min(place["height"] + 30, 1000), "scale": 1}
    shot = window.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    save(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), name)


def save(image: Image.Image, name: str) -> None:
    """Save a small file: at most WIDTH pixels wide, with few colours unless a colour scale needs more."""
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    image = image.convert("RGB")
    if name not in ("page-selection", "page-phone"):
        image = image.quantize(200, dither=Image.Dither.NONE)
    image.save(OUT / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
