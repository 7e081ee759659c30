# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The repository stays light: what is committed, what the studies keep, and the figures of the pages."""

import subprocess
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES = ROOT / "docs" / "results", ROOT / "docs" / "figures"
PICTURES = [*FIGURES.iterdir(), *RESULTS.glob("*/*.png")]


def megabytes(files):
    return sum(file.stat().st_size for file in files) / 1e6


def test_the_tree_is_at_most_12_megabytes():
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a clone")
    assert megabytes(file for name in listed.split("\0") if (file := ROOT / name).is_file()) <= 12


def test_the_numbers_of_all_studies_are_at_most_one_and_a_half_megabytes():
    assert megabytes(file for file in RESULTS.rglob("*") if file.is_file() and file.suffix != ".png") <= 1.5
    for folder in RESULTS.iterdir():
        assert len(list(folder.glob("*.png"))) <= 1


def test_all_figures_are_at_most_3_megabytes():
    assert megabytes(FIGURES.iterdir()) <= 3


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: str(file.relative_to(ROOT / "docs")))
def test_a_figure_has_a_palette_and_less_than_150_kilobytes(file):
    assert file.stat().st_size < 150_000
    with Image.open(file) as picture:
        assert picture.mode == "P"


def test_the_pages_stay_short():
    """Reports of studies do not count."""
    docs = [file for file in (ROOT / "docs").rglob("*.md") if "_build" not in file.parts and file.name != "report.md"]
    pages = [*docs, *ROOT.glob("bundles/*/docs/README.md"), *ROOT.glob("[CR]*.md")]
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= 30_000
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
    assert len((RESULTS / "index.md").read_text("utf-8").split()) <= 1_800
