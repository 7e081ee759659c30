# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The page of a study in a real browser, on a wide screen and on a telephone; without a browser, from its source."""

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from monai_iels.pictures import Sheet, Tile
from monai_iels.study import StudyFolder, read_results, write_report

RESULTS = Path(__file__).parents[2] / "docs" / "results"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# A window of headless Chromium is at least 500 pixels wide, so the page is shown in a frame.
FRAME = """<!doctype html>
<iframe id="page" src="report.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre id="found"></pre><script>
window.onload = () => {{
  const page = document.getElementById("page").contentDocument, root = page.documentElement;
  const inside = box => box.closest(".box") !== null;
  document.getElementById("found").textContent = JSON.stringify({{
    window: root.clientWidth,
    page: root.scrollWidth,
    pictures: [...page.images].map(image => [image.naturalWidth, image.getBoundingClientRect().width, image.alt]),
    links: [...page.links].map(link => link.getAttribute("href")),
    widest: Math.max(...[...page.body.querySelectorAll("*")].filter(each => !inside(each) || each.matches(".box"))
      .map(each => each.getBoundingClientRect().right)),
    scrolling: [...page.querySelectorAll("*")].filter(each => each.scrollWidth > each.clientWidth + 1
      && getComputedStyle(each).overflowX === "auto").map(each => each.className),
  }});
}};
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write the page of a study with rows, long names, curves and pictures of the data."""
    folder = tmp_path_factory.mktemp("page")
    results = read_results(RESULTS / "wbc-augmentation")
    generator = np.random.default_rng(0)
    for variant in results.variants:
        file = StudyFolder(folder / "study").training(variant, 0).panels
        file.parent.mkdir(parents=True)
        classes = {name: Tile(generator.integers(0, 2, (40, 40))) for name in ("truth", "noisy label", "prediction")}
        Sheet([{"image": Tile(generator.random((40, 40))), **classes}], ["background", "cell"]).save(file)
    return write_report(results, folder, folder / "study")


def shown(page, width):
    """Return what a browser of this width finds on the page."""
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(width=width))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--window-size=1400,1000", "--virtual-time-budget=10000"]
    done = subprocess.run([*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_all_of_the_page(page, width):
    found = shown(page, width)
    assert abs(found["window"] - width) <= 20  # a scroll bar
    assert found["page"] <= found["window"]
    assert found["widest"] <= found["window"]
    assert len(found["pictures"]) == 4
    for natural, drawn, alt in found["pictures"]:
        assert natural > 300
        assert drawn >= min(natural, 600)  # its text can be read: it scrolls in its own box where it is wider
        assert len(alt.split()) > 5
    for link in found["links"]:
        assert (page.parent / link).exists()
    assert set(found["scrolling"]) <= {"box"}
    if width == 390:
        assert len(found["scrolling"]) == 7  # three tables, three sheets of pictures, and the curves


def test_pictures_and_tables_of_the_page_have_boxes_of_their_own(page):
    text = page.read_text("utf-8")
    assert ".box { overflow-x: auto;" in text
    boxes = re.findall(r'<div class="box">(<img|<table)', text)
    assert len(boxes) == len(re.findall(r"<img|<table", text)) == 7
    for picture in re.findall(r'src="data:image/png;base64,([^"]+)"', text):
        assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert all(len(alt.split()) > 5 for alt in re.findall(r'alt="([^"]*)"', text))
    assert not re.findall(r"<a |<link|<script", text)
    assert max(map(len, re.findall(r"[0-9a-f]{13,}", re.sub(r'src="[^"]*"', "", text))), default=0) == 0


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/")), ids=lambda folder: folder.name)
def test_pictures_of_the_committed_reports_are_there(folder):
    text = (folder / "report.md").read_text("utf-8")
    pictures = re.findall(r"!\[([^]]*)\]\(([^)]+)\)", text)
    assert {name for _, name in pictures} == {file.name for file in folder.glob("*.png")}
    assert all(len(alt.split()) > 5 for alt, _ in pictures)
