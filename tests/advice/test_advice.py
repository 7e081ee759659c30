# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The adviser's command, and the files that it writes."""

import shlex
from pathlib import Path

import numpy as np
import yaml
from advice.labels import disc, spoil
from helpers import BUNDLES, options, words
from monai.bundle import ConfigParser
from PIL import Image
from programs import Program

from monai_iels import CorruptLabel
from monai_iels.cli import main
from monai_iels.data import SOURCES
from monai_iels.run_folder import RunFolder
from monai_iels.study import check_overrides, read_study


def test_the_command_prints_and_writes_what_trains(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(BUNDLES.parent)
    root, out = tmp_path / "noisy", tmp_path / "out"
    SOURCES["wbc"].synthesize(root, 10, size=48)
    spoil(root, CorruptLabel(3, window=2, fraction=0.2, shared=True))
    assert main(["advise", "--root", str(root), "--bundle", "wbc", "--output_dir", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Believed: noise at the same places" in printed
    assert "<--" in printed
    assert "What this cannot tell" in printed
    assert {file.name for file in out.iterdir()} == {"labels.png", "override.yaml", "study.yaml"}

    study = read_study(out / "study.yaml")
    check_overrides(study)
    assert study.bundle == BUNDLES / "wbc"
    layers = ["U-Net + guided layer", "U-Net + heat layer"]
    assert list(study.variants) == ["U-Net", "flips", "generalized cross-entropy", *layers, "majority filter"]

    assert len(yaml.safe_load((out / "override.yaml").read_text("utf-8"))["augmentation"]) == 2
    (line,) = [line for line in printed.splitlines() if "--workflow_name monai_iels.Training" in line]
    command = shlex.split(line)[2:]  # without python -m
    small = options("wbc", out / "training", epochs=1)
    for key in ("bundle_root", "output_dir"):
        assert Path(command[command.index(f"--{key}") + 1]).resolve() == Path(small.pop(key))
    process = Program(*command, *words(small), stdout=tmp_path / "log")
    assert process.wait() == 0, (tmp_path / "log").read_text()
    trained = RunFolder(out / "training")
    parser = ConfigParser(trained.read_config())
    assert [flip.flipper.spatial_axis for flip in parser.get_parsed_content("augmentation")] == [0, 1]
    assert parser.get_parsed_content("layer").steps == 0
    assert parser["dataset_dir"] == str(root)
    assert trained.best_weights.exists()


def test_the_command_finds_labels_and_says_how_to_go_on(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["advise", "--root", str(cells), "--cases", "5"]) == 0
    printed = capsys.readouterr().out
    assert "5 labels looked at" in printed
    assert "Believed: nothing to be seen" in printed
    assert "--bundle bundles/mine" in printed
    assert (tmp_path / "advice" / "study.yaml").exists()


def refusal(capsys, *words):
    assert main(["advise", *map(str, words)]) == 1
    return capsys.readouterr().err


def test_bad_input_gets_one_sentence(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "there is no such folder" in refusal(capsys, "--root", "nowhere")
    Path("data/labels").mkdir(parents=True)
    assert "there are no label files here, it is empty" in refusal(capsys, "--root", "data")
    assert "there is no such folder" in refusal(capsys, "--root", "data", "--labels", "masks")
    assert "unknown data set 'wbd'" in refusal(capsys, "--root", "data", "--bundle", "wbd")
    assert "must not lie in the folder of the data" in refusal(capsys, "--root", "data", "--output_dir", "data/out")
    Image.fromarray(np.zeros((32, 32), np.uint8)).save("data/labels/1.png")
    assert "all labels are empty" in refusal(capsys, "--root", "data")
    assert "--cases must be at least 1, got 0" in refusal(capsys, "--root", "data", "--cases", "0")
    noise = np.random.RandomState(0).randint(0, 256, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(noise[..., 0]).save("data/labels/1.png")
    assert "different values, as an image or a mask saved as JPEG" in refusal(capsys, "--root", "data")
    Image.fromarray(noise).save("data/labels/1.png")
    assert "has colors" in refusal(capsys, "--root", "data")
    Image.fromarray(255 * disc().astype(np.uint8)).save("data/labels/1.jpg")
    Path("data/labels/1.png").unlink()
    assert "1.jpg: a JPEG has other values near outlines" in refusal(capsys, "--root", "data")
    Path("data/labels/1.jpg").unlink()
    assert not Path("advice").exists()
    Path("file").touch()
    Image.fromarray(disc().astype(np.uint8)).save("data/labels/1.png")
    found = refusal(capsys, "--root", "data", "--output_dir", "file")
    assert "or choose another folder with --output_dir." in found
    assert main(["advise", "--root", "data"]) == 0
    assert "unsure: 1 label is too few" in capsys.readouterr().out
    Path("other").mkdir()
    Path("other/readme.txt").touch()
    assert "nothing here says which files are labels, only readme.txt" in refusal(capsys, "--root", "other")
