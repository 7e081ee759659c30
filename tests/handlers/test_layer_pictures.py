# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Pictures of a training: what they show, and what happens if they cannot be drawn."""

from helpers import options, run

from monai_iels.pictures import Sheet
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import Journal


def test_the_saved_panels_have_the_numbers_of_the_tables(straight):
    """The validation cases of the last epoch: the Dice and roughness on the sheet are those of ``cases.csv``."""
    sheet, cases = Sheet.load(RunFolder(straight).panels), RunFolder(straight).read_cases()
    last = cases[cases["epoch"] == cases["epoch"].max()].head(len(sheet.rows))
    assert list(sheet.classes) == ["background", "cytoplasm", "nucleus"]
    for row, case in zip(sheet.rows, last.itertuples(), strict=True):
        assert {"image", "truth", "noisy label", "prediction"} <= set(row)
        assert row["prediction"].note == f"Dice {case.val_mean_dice:.3f}, roughness {case.val_roughness:.3f}"
        assert row["truth"].note == f"roughness {case.val_roughness_of_truth:.3f}"
        assert row["truth"].pixels.shape == row["image"].pixels.shape[:2] == (32, 32)


def test_a_training_whose_pictures_fail_says_so_and_ends_as_usual(tmp_path, monkeypatch):
    monkeypatch.setattr("monai_iels.handlers._layer_pictures.tiles", [])
    run("Training", **options("wbc", tmp_path, pictures=True, track=True, epochs=1, **{"datalists#count": 6}))
    folder = RunFolder(tmp_path)
    lines = folder.log.read_text().splitlines()
    for file in (folder.last_picture, folder.panels):
        (line,) = [line for line in lines if f"{file} could not be drawn: " in line]
        assert line.endswith("'list' object is not callable. Everything else goes on.")
        assert not file.exists()
    assert [line for line in lines if line.startswith("Best weights (epoch 1): ")]
    assert [line for line in lines if line == f"Pictures: {folder.curves}"]
    assert Journal(folder.tracking).status() == "FINISHED"
