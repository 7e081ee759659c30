# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How variants are compared and reported: exact numbers, sentences, and the committed studies again."""

import gzip
import html
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from monai_iels._files import write_json
from monai_iels.cli import main
from monai_iels.pictures import Sheet, Tile, study_curves
from monai_iels.study import (
    Results,
    RunResult,
    StudyFolder,
    closing_words,
    compare_variants,
    main_finding,
    make_tables,
    paired_difference,
    read_results,
    write_report,
)
from monai_iels.tracking import Journal

RESULTS = Path(__file__).parents[2] / "docs" / "results"
COMMITTED = sorted(file.parent.name for file in RESULTS.glob("*/results.json.gz"))


def exact_interval(paired, seeds=True, cases=True, level=95):
    """Enumerate all resamples of seeds and cases, which are equally likely, and return percentiles of their means."""
    rows, columns = paired.shape
    drawn_seeds = itertools.product(range(rows), repeat=rows) if seeds else [range(rows)]
    means = []
    for some_seeds in drawn_seeds:
        drawn_cases = itertools.product(range(columns), repeat=columns) if cases else [range(columns)]
        means += [paired[np.ix_(some_seeds, some_cases)].mean() for some_cases in drawn_cases]
    return np.percentile(means, (50 - level / 2, 50 + level / 2))


PAIRED = np.array([[0.31, 0.02, 0.17, 0.05], [0.64, 0.40, 0.77, 0.58], [0.11, 0.26, 0.03, 0.36]])


def test_an_interval_is_that_of_all_resamples():
    baseline = np.random.default_rng(1).random(PAIRED.shape)
    exact = exact_interval(PAIRED)
    mean, low, high = paired_difference(baseline + PAIRED, baseline)
    assert mean == pytest.approx(PAIRED.mean())
    tolerance = 0.015
    np.testing.assert_allclose((low, high), exact, atol=tolerance)
    for other in ({"level": 80}, {"level": 90}, {"level": 99}, {"seeds": False}, {"cases": False}):
        assert np.abs(exact_interval(PAIRED, **other) - exact).max() > 2 * tolerance, (
            other
        )  # the test can tell them apart


def test_an_interval_of_one_seed_is_over_cases():
    paired = np.array([[0.1, 0.2, 0.6, -0.3, 0.05]])
    _, low, high = paired_difference(paired, np.zeros_like(paired))
    np.testing.assert_allclose((low, high), exact_interval(paired), atol=0.03)


def test_a_constant_difference_has_no_interval():
    cases = np.linspace(0, 1, 30)
    baseline = np.stack([cases, cases + 0.1, cases - 0.2])
    assert paired_difference(baseline + 0.05, baseline) == pytest.approx((0.05, 0.05, 0.05))


def run_result(variant, seed, dice, status="FINISHED", stopped="", early=None):
    """Make a training; ``dice`` and ``early``, which is when it would be stopped early, hold one value per case."""
    if status != "FINISHED":
        return RunResult(variant, seed, status, stopped)
    cases = pd.DataFrame({"dice": dice, "roughness": 0.1, "convexity": 0.9}, ["a", "b", "c"][: len(dice)])
    cases["dice_stopped_early"] = cases["dice"] - 0.1 if early is None else early
    history = pd.DataFrame({"val_mean_dice": [0.5, 0.6], "val_roughness": [0.2, 0.1], "val_convexity": [0.8, 0.9]})
    history = history.assign(val_roughness_of_truth=[0.02, 0.01]).set_axis([5, 10])
    return RunResult(variant, seed, status, "", history, cases.round(5))


def results_of(runs, **changes):
    about = {"study": "s", "bundle": "b", "preset": "paper", "settings": {}, "synthetic": False, "command": ""}
    variants = {run.variant: {} for run in runs}
    about |= {"variants": variants, "seeds": sorted({run.seed for run in runs}), "versions": {}, "runs": runs}
    return Results(**{**about, **changes})


@pytest.fixture
def groups():
    scores = {"clean / A": 0.9, "clean / B": 0.8, "noisy / A": 0.5, "noisy / B": 0.7}
    return results_of(
        [run_result(name, seed, [dice + seed / 50] * 2) for name, dice in scores.items() for seed in (0, 1)]
    )


def rows_of(results):
    table = compare_variants(results)
    return table.set_index(table["group"] + " / " + table["variant"])


def test_groups_are_compared_within_themselves(groups, tmp_path):
    table = rows_of(groups)
    assert table["dice_gain"].tolist() == pytest.approx([np.nan, -0.1, np.nan, 0.2], nan_ok=True)
    assert table["dice"].tolist() == pytest.approx([0.91, 0.81, 0.51, 0.71])
    assert table["dice_deviation"].tolist() == pytest.approx([0.02 / np.sqrt(2)] * 4)
    assert table["dice_stopped_early"].tolist() == pytest.approx([0.81, 0.71, 0.41, 0.61])
    assert table["dice_best"].tolist() == [0.6] * 4
    assert table["roughness_of_truth"].tolist() == [0.01] * 4
    page = write_report(groups, tmp_path).read_text()
    assert page.index("<h2>clean") < page.index("<h2>noisy")
    assert "means over the last three validated epochs, ±" in page


def test_results_survive_their_file(groups, tmp_path):
    groups.runs[0].history.loc[5, "val_convexity"] = np.nan  # an epoch that was not validated
    groups.runs.append(run_result("noisy / B", 2, [], "KILLED", "why"))
    write_report(groups, tmp_path)
    again = read_results(tmp_path)
    for run, before in zip(again.runs, groups.runs, strict=True):
        for name in ("variant", "seed", "status", "stopped"):
            assert getattr(run, name) == getattr(before, name)
        for name in ("history", "cases"):
            pd.testing.assert_frame_equal(
                getattr(run, name), getattr(before, name), check_index_type=False, check_column_type=False
            )
    write_report(again, tmp_path / "again")
    for name in ("results.json.gz", "table.csv", "report.md", "report.html"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()


def write_training(folder, status, tags):
    """Write the folder of a training of eight epochs, of which every second was validated, with two cases."""
    journal = Journal(folder.tracking)
    journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    journal.append("tags", values=tags)
    if status:
        journal.append("status", status=status)
    history = pd.DataFrame({"epoch": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "loss": 0.5, "seconds": 2.0})
    history = history.assign(val_roughness=0.1, val_convexity=0.9)
    history["val_mean_dice"] = [np.nan, 0.5, np.nan, 0.6, np.nan, 0.7, np.nan, 0.8]
    history["val_dice_on_noisy_labels"] = [np.nan, 0.4, np.nan, 0.9, np.nan, 0.6, np.nan, 0.5]
    cases = [
        {"epoch": epoch, "case": name, "val_mean_dice": epoch / 10 + shift, "val_roughness": 0.1, "val_convexity": 0.9}
        for epoch in (2.0, 4.0, 6.0, 8.0)
        for name, shift in (("b", 0.01), ("a", 0.0))
    ]
    folder.write_epoch(history, pd.DataFrame(cases))


def test_results_are_those_of_the_trainings(tmp_path):
    files = StudyFolder(tmp_path)
    runs = [run_result("A", seed, []) for seed in range(5)]
    about = vars(results_of(runs))
    write_json({name: about[name] for name in about if name not in ("versions", "runs")}, files.summary)
    with pytest.raises(FileNotFoundError, match="neither trainings nor results"):
        read_results(tmp_path)
    write_training(files.training("A", 0), "FINISHED", {"version.torch": "2", "git_revision": "abc" * 13, "other": "x"})
    write_training(files.training("A", 1), "FAILED", {"version.torch": "1", "stopped": "why"})
    write_training(files.training("A", 2), None, {"version.torch": ""})
    files.training("A", 3).path.mkdir(parents=True)
    results = read_results(tmp_path)
    assert [run.ending for run in results.runs] == ["FINISHED", "FAILED (why)", "RUNNING", "MISSING", "MISSING"]
    assert results.versions == {"git_revision": "abcabcabcabcabcabcab", "version.torch": "1, 2"}
    run = results.runs[0]
    assert run.cases["dice"].to_dict() == pytest.approx({"a": 0.6, "b": 0.61})  # epochs 4, 6 and 8
    # Epoch 4 has the best Dice on noisy labels.
    assert run.cases["dice_stopped_early"].to_dict() == pytest.approx({"a": 0.4, "b": 0.41})
    assert run.history.index.tolist() == [2, 4, 6, 8]
    write_report(results, tmp_path / "page")
    pd.testing.assert_frame_equal(read_results(tmp_path / "page").runs[0].history, run.history, check_names=False)


def test_panels_are_those_of_finished_trainings(tmp_path, monkeypatch):
    results = results_of([run_result("A", 0, [0.5]), run_result("B", 0, [], "FAILED"), run_result("C", 0, [0.5])])
    results = replace(results, runs=[*results.runs, run_result("D", 0, [0.5])], variants={**results.variants, "D": {}})
    for name in ("A", "B", "D"):
        file = StudyFolder(tmp_path).training(name, 0).panels
        file.parent.mkdir(parents=True)
        parts = ("image", "truth", "noisy label", "training label", "prediction")
        Sheet([{part: Tile(np.zeros((4, 4)), f"{part} of {name}") for part in parts}], ["none", "cell"]).save(file)
    drawn = []
    monkeypatch.setattr(Sheet, "draw", lambda sheet, title, file: (drawn.append(sheet), file.touch()))
    page = write_report(results, tmp_path / "page", tmp_path).read_text()
    (sheet,) = drawn
    assert [list(row) for row in sheet.rows] == [["image", "truth", "noisy label", "A", "D"]]
    assert [tile.note for tile in sheet.rows[0].values()][3:] == ["prediction of A", "prediction of D"]
    assert sheet.classes == ["none", "cell"]
    assert 'alt="Validation images: the image, the truth, and what each variant predicts"' in page
    assert "](panels.png)" in (tmp_path / "page" / "report.md").read_text()
    write_report(results, tmp_path / "page")
    assert not (tmp_path / "page" / "panels.png").exists()


def test_a_sheet_with_many_columns_is_wrapped(tmp_path):
    """Ten tiles per case are drawn in two lines of five, so that text stays readable on a page."""
    sizes = {}
    for count in (5, 10):
        row = {"image": Tile(np.zeros((8, 8)))}
        row |= {str(number): Tile(np.eye(8, dtype=int), "note") for number in range(count - 1)}
        Sheet([row] * 2, ["background", "cell"]).draw("title", tmp_path / "sheet.png")
        sizes[count] = Image.open(tmp_path / "sheet.png").size
    assert sizes[10][0] == sizes[5][0]
    assert sizes[10][1] > 1.8 * sizes[5][1]


def test_only_common_seeds_and_cases_are_paired():
    runs = [run_result("A", 0, [0.5, 0.6]), run_result("A", 1, [0.5, 0.6]), run_result("B", 0, [0.7, 0.9, 0.1])]
    runs += [run_result("B", 2, [0.0, 0.0])]
    assert rows_of(results_of(runs)).loc[" / B", "dice_gain"] == pytest.approx(0.25)
    runs[0].cases.loc["a", "dice"] = np.nan  # a class that the truth does not have
    assert rows_of(results_of(runs)).loc[" / B", "dice_gain"] == pytest.approx(0.3)
    nothing = [run_result("A", 0, [0.5]), run_result("B", 1, [0.5])]
    assert np.isnan(rows_of(results_of(nothing)).loc[" / B", "dice_gain"])


def test_trainings_that_did_not_finish_are_counted(tmp_path):
    runs = [run_result("A", 0, [0.5]), run_result("A", 1, [0.6]), run_result("B", 0, [0.7])]
    runs += [run_result("B", 1, [], "FAILED", "no memory")]
    runs += [run_result("C", 0, [], "KILLED"), run_result("C", 1, [], "MISSING")]
    results = results_of(runs)
    table = compare_variants(results)
    assert table["seeds"].tolist() == [2, 1, 0]
    assert table["not_finished"].tolist() == ["", "FAILED", "KILLED, MISSING"]
    write_report(results, tmp_path)
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "Not finished: B, seed 1: FAILED (no memory)." in lines
    assert "Not finished: C, seed 0, 1: KILLED; MISSING." in lines
    gain = "(+0.200, +0.200 to +0.200)"
    assert [line for line in lines if line.startswith("| ")][1:] == [
        "| A | 0.550 ± 0.071 | 0.450 ± 0.071 | 0.600 ± 0.000 | 0.100 ± 0.000 | 0.900 ± 0.000 |",
        f"| B (1 of 2 seeds) | 0.700 {gain} | 0.600 {gain} | 0.600 | 0.100 | 0.900 |",
        "| C (0 of 2 seeds) |  |  |  |  |  |",
        "| truth |  |  |  | 0.010 |  |",
    ]


def test_settings_that_variants_change_are_not_claimed(tmp_path):
    variants = {"a": {"epochs": 15, "loss": {"a": 1}, "seed": 0}, "b": {"epochs": 30, "loss": {"a": 1}}}
    results = results_of([], settings={"epochs": 10, "features": [8]}, variants=variants)
    page = write_report(results, tmp_path).read_text()
    assert "Preset paper: features [8], its own loss." in page


@pytest.mark.parametrize("name", [r"$\frac$", "_hidden", "", "a\nb", "<script>", "a | b"])
def test_a_name_is_drawn_as_it_is(name, tmp_path):
    history = run_result("A", 0, [0.5]).history
    study_curves({name: {name: [history], "b": [history]}}, tmp_path / "curves.png")
    row = {"image": Tile(np.zeros((8, 8))), f"x{name}": Tile(np.eye(8, dtype=int), name)}
    Sheet([row], ["background", name]).draw(name, tmp_path / "panels.png", [name])
    assert (tmp_path / "curves.png").exists()
    page = write_report(results_of([run_result(f"{name} / {name}x", 0, [], "FAILED", name)]), tmp_path).read_text()
    assert "<script>" not in page + (tmp_path / "report.md").read_text()


def numbers(*gains, base=0.5, seeds=3):
    """Return results of a baseline A, and of B, C ... that differ from it by ``gains``, in each of two cases."""
    names = "ABCDEF"[: len(gains) + 1]
    scores = dict(zip(names, (0.0, *gains), strict=True))
    return [
        run_result(name, seed, [base + gain + seed / 50] * 2) for name, gain in scores.items() for seed in range(seeds)
    ]


def finding(runs):
    return main_finding(compare_variants(results_of(runs)))


def test_the_first_sentence_is_what_was_found():
    same = "; stopped early, it is 0.175 higher (0.175 to 0.175)."
    assert finding(numbers(0.175)) == f"Dice is 0.175 higher (0.175 to 0.175) with B than with A{same}"
    (*_, b0, b1, b2) = runs = numbers(0.0)
    for run, shift in ((b0, 0.1), (b1, -0.1), (b2, 0.01)):
        run.cases["dice"] += shift
    unsure = r"not surely different \([-+]0.\d+ to \+0.\d+\)"
    assert re.fullmatch(rf"Dice is {unsure} with B than with A; stopped early, it is {unsure}\.", finding(runs))
    best, worst = (f"Dice is {gain} ({gain[:5]} to {gain[:5]}) with " for gain in ("0.200 higher", "0.100 lower"))
    assert finding(numbers(0.1, 0.2, -0.1)) == (
        "The largest gain: " + best + "C than with A; stopped early, it is "
        "0.200 higher (0.200 to 0.200). The largest loss: " + worst + "D than with A; stopped early, it is 0.100 lower "
        "(0.100 to 0.100). Better: C, B; worse: D."
    )


def test_an_interval_of_one_seed_is_not_in_the_sentence():
    text = finding(numbers(0.1, -0.1, seeds=1))
    assert text.startswith(
        "The largest gain: Dice is 0.100 higher with B than with A; stopped early, it is 0.100 higher."
    )
    assert text.endswith("Better: B; worse: C.")


def test_nothing_found_is_said():
    text = finding(numbers(-0.1, -0.2))
    assert text.startswith("The largest loss: Dice is 0.200 lower (0.200 to 0.200) with C than with A; stopped early")
    assert text.endswith("Better: none; worse: B, C.")
    runs = numbers(0.0, 0.0)
    for run, shift in zip(runs[3:], (0.1, -0.1, 0.01, 0.1, -0.1, 0.02), strict=True):
        run.cases["dice"] += shift
    assert finding(runs).startswith("No variant is surely better or worse. Dice is not surely different (")
    nothing = "No variant has finished that can be compared with the first one."
    assert finding([run_result("A", 0, [0.5]), run_result("B", 0, [], "FAILED")]) == nothing
    assert finding([run_result("A", 0, [0.5])]) == nothing


def test_several_rows_are_summed_up(groups):
    assert main_finding(compare_variants(groups)) == (
        "The largest gain: Dice is 0.200 higher (0.200 to 0.200) with B than with A for 'noisy'; stopped early, it is "
        "0.200 higher (0.200 to 0.200). The largest loss: Dice is 0.100 lower (0.100 to 0.100) with B than with A for "
        "'clean'; stopped early, it is 0.100 lower (0.100 to 0.100). Better: B; worse: B."
    )


def test_all_formats_show_the_same_table(groups, tmp_path):
    comparison = compare_variants(groups)
    page = html.unescape(write_report(groups, tmp_path).read_text())
    text, words = (tmp_path / "report.md").read_text(), closing_words(groups, comparison, tmp_path)
    assert text.splitlines()[2] == main_finding(comparison)
    assert main_finding(comparison) in " ".join(words.split())
    for table in make_tables(groups, comparison):
        assert f"<p>{table.finding}</p>" in page
        assert table.finding in text.replace("\\", "")
        for row in table.rows:
            assert "\n".join(f"<td>{cell}</td>" for cell in row) in page
            assert f"| {' | '.join(cell.replace(chr(10), ' ') for cell in row)} |" in text.replace("|  |", "|  |")
            assert " ".join(cell.split("\n")[0] for cell in row if cell) in " ".join(words.split())


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_study_comes_out_the_same(name, tmp_path, monkeypatch):
    """Its numbers and its page; of one study the curves are drawn, too, which takes most of the time."""
    folder = RESULTS / name
    if name != "wbc-wider_network":
        monkeypatch.setattr("monai_iels.study._report.study_curves", lambda _, file: file.touch())
    assert main(["study", "report", str(folder), "--output_dir", str(tmp_path)]) == 0
    again, before = (json.loads(gzip.decompress((x / "results.json.gz").read_bytes())) for x in (tmp_path, folder))
    assert again == before
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text()
    again, before = (pd.read_csv(place / "table.csv") for place in (tmp_path, folder))
    pd.testing.assert_frame_equal(again, before, rtol=1e-9)
    assert "monai-iels study run" in (tmp_path / "report.html").read_text()
    assert {file.name for file in folder.iterdir()} == {"report.md", "table.csv", "curves.png", "results.json.gz"}
