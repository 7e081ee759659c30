# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The table of measures: what a row of it decides, and that a new row is all that a new measure needs."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers import BUNDLES, options, run
from matplotlib.figure import Figure

import monai_iels
from monai_iels.measures import MEASURES, Measure, compared, deciding_metric, how_to_read, measure_of
from monai_iels.run_folder import RunFolder
from monai_iels.study import Results, closing_words, compare_variants, read_results, write_report
from monai_iels.tracking import Journal

SURFACE_DICE = Measure("val_surface_dice", "surface Dice", per_epoch=True, in_study=True)
METRIC = {"_target_": "monai.metrics.SurfaceDiceMetric", "class_thresholds": [1.0, 1.0]}
HANDLER = {"_target_": "IgniteMetricHandler", "metric_fn": METRIC}
HANDLER["output_transform"] = "$monai.handlers.from_engine(['pred', 'label'])"


@pytest.fixture
def new_measure(monkeypatch):
    monkeypatch.setitem(MEASURES, SURFACE_DICE.name, SURFACE_DICE)


@pytest.fixture
def titles(monkeypatch):
    """Titles of the axes of every figure that is saved."""
    found, save = [], Figure.savefig

    def save_and_note(figure, *arguments, **keywords):
        found.append([axis.get_title() for axis in figure.axes])
        save(figure, *arguments, **keywords)

    monkeypatch.setattr(Figure, "savefig", save_and_note)
    return found


def study_of_one(folder):
    """Describe a study of one training, and return where that training belongs."""
    about = {"study": "s", "bundle": "wbc", "preset": "cpu", "settings": {}, "synthetic": True, "command": "c"}
    about |= {"variants": {"U-Net": {}}, "seeds": [0]}
    folder.mkdir()
    (folder / "study.json").write_text(json.dumps(about))
    return RunFolder(folder / "u-net" / "seed-0")


def finish(training):
    """Write the journal of a training that has ended."""
    journal = Journal(training.tracking)
    journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    journal.append("status", status="FINISHED")


@pytest.mark.usefixtures("new_measure")
def test_a_new_measure_is_one_row_and_one_handler(tmp_path, capsys, titles):
    """It is in the tables, in the line of each epoch, in the curves, and in the table and on the page of a study."""
    training = study_of_one(tmp_path / "study")
    bundle = shutil.copytree(BUNDLES / "wbc", tmp_path / "wbc")
    file = bundle / "configs" / "train.json"
    config = json.loads(file.read_text())
    config["validate"]["additional_metrics"][SURFACE_DICE.name] = HANDLER
    file.write_text(json.dumps(config))
    run("Training", **options("wbc", training.path, epochs=8, learning_rate=0.03) | {"bundle_root": str(bundle)})
    values = training.read_history()[SURFACE_DICE.name]
    assert values.between(0, 1).all()
    assert values.iloc[-1] > 0.1
    lines = capsys.readouterr().out.splitlines()
    for epoch, value in enumerate(values, 1):
        (line,) = (line for line in lines if line.startswith(f"epoch {epoch}/8"))
        assert f"  surface Dice {value:.3f}" in line
    (summary,) = (line for line in lines if line.startswith("surface Dice "))
    assert summary.split()[3] == f"{values.iloc[-1]:.4f}"
    assert titles.pop() == ["loss", "Dice", "roughness", "convexity", "surface Dice"]

    finish(training)
    results = read_results(tmp_path / "study")
    page = write_report(results, tmp_path / "page").read_text()
    assert titles.pop() == ["Dice", "roughness", "convexity", "surface Dice"]
    again = read_results(tmp_path / "page")
    pd.testing.assert_frame_equal(compare_variants(again), compare_variants(results))
    cases = training.read_cases().query("epoch > 5").groupby("case")[SURFACE_DICE.name].mean()
    table = pd.read_csv(tmp_path / "page" / "table.csv")
    assert table["surface_dice"].item() == pytest.approx(cases.mean(), abs=1e-5)
    assert "<th>surface Dice</th>" in page
    assert f"<td>{cases.mean():.3f}</td>\n</tr>" in page
    assert "Surface Dice is best at 1." in page
    first = next(line for line in (tmp_path / "page" / "report.md").read_text().splitlines() if "Dice |" in line)
    assert first.endswith("| roughness | convexity | surface Dice |")
    words = closing_words(results, compare_variants(results), tmp_path / "study")
    (header,) = (line for line in words.splitlines() if "surface Dice" in line and "best at" not in line)
    assert header.split()[0] == "Dice"
    assert header.rstrip().endswith(" surface Dice")
    assert "Dice and surface Dice are best at 1; roughness and " in words


def test_studies_that_lack_a_new_measure_stay_as_they_are(tmp_path, monkeypatch):
    training = study_of_one(tmp_path / "study")
    history = pd.DataFrame({"epoch": [1.0, 2.0], "val_mean_dice": [0.5, 0.7], "val_roughness": [0.2, 0.1]})
    cases = pd.concat([history.assign(case=name) for name in ("a.png", "b.png")])
    training.write_epoch(history, cases)
    finish(training)
    write_report(read_results(tmp_path / "study"), tmp_path / "before")
    monkeypatch.setitem(MEASURES, SURFACE_DICE.name, SURFACE_DICE)
    write_report(read_results(tmp_path / "study"), tmp_path / "after")
    for name in ("report.md", "table.csv"):
        assert (tmp_path / "after" / name).read_text() == (tmp_path / "before" / name).read_text()


def test_a_study_without_finished_trainings_shows_what_it_would_measure():
    about = {"study": "s", "bundle": "b", "preset": "cpu", "settings": {}, "synthetic": True, "command": ""}
    results = Results(**about, variants={"A": {}}, seeds=[0], versions={}, runs=[])
    assert [measure.title for measure in results.measures] == ["Dice", "roughness", "convexity"]


def test_the_measured_metric_of_the_first_rank_decides():
    assert deciding_metric({"val_mean_dice", "val_set_iou", "val_roughness"}) == "val_set_iou"
    assert deciding_metric({"val_mean_dice", "val_roughness"}) == deciding_metric([]) == "val_mean_dice"
    assert [measure.column for measure in compared()] == ["set_iou", "dice", "roughness", "convexity"]
    deciding = [measure for measure in MEASURES.values() if measure.decides]
    assert len({measure.decides for measure in deciding}) == len(deciding)
    assert {measure.best_at for measure in deciding} == {"1"}  # the largest value is the best everywhere


def test_a_column_belongs_to_the_measure_with_the_longest_fitting_name(monkeypatch):
    assert measure_of("roughness_of_truth") is measure_of("val_roughness") is MEASURES["val_roughness"]
    assert measure_of("hausdorff_95_mm_cup").is_distance
    assert measure_of("mine") == Measure("val_mine", "val_mine")
    monkeypatch.setitem(MEASURES, "val_rough", Measure("val_rough", "rough"))
    assert measure_of("val_roughness").title == "roughness"


def test_measures_that_are_best_at_the_same_value_share_a_clause():
    clauses = how_to_read(MEASURES[name] for name in (*[*MEASURES][:3], "val_hausdorff"))
    assert clauses == ["Dice, Dice on noisy labels and IoU are best at 1", "Hausdorff distance is best at 0"]


def test_names_of_metrics_stand_in_the_table_alone():
    home = Path(monai_iels.__file__).parent
    for file in home.rglob("*"):
        if file.suffix in (".py", ".html", ".md", ".txt") and file != home / "measures.py":
            assert not [name for name in MEASURES if name in file.read_text("utf-8")], file
