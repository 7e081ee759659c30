# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Damaged weights, images and volumes, full disks and processes that die: one sentence, and nothing is half-written."""

import gzip
import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

import itk
import nibabel
import numpy as np
import pytest
import torch
from dicom import write_series
from helpers import cached, options, said, tree, words
from PIL import Image
from programs import Program

WEIGHTS = {
    "missing": (lambda file, good: None, "there are no weights of a network"),
    "empty": (lambda file, good: file.write_bytes(b""), "cannot be read as weights"),
    "garbage": (lambda file, good: file.write_bytes(b"garbage" * 99), "cannot be read as weights"),
    "truncated": (lambda file, good: file.write_bytes(good[: len(good) // 2]), "cannot be read as weights"),
    "a list": (lambda file, good: torch.save([1, 2], file), "weights of another network"),
    "state of a training": (
        lambda file, good: torch.save({"network": {}, "optimizer": {}, "epoch": 1}, file),
        "this is the state of a training; set --checkpoint to the model.pt",
    ),
    "another network": (
        lambda file, good: torch.save({"a": torch.ones(2)}, file),
        "weights of another network ('a' is",
    ),
    "pickled code": (lambda file, good: torch.save({"a": Path("x")}, file), "cannot be read as weights"),
}


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("use", ["evaluate", "inference"])
def test_weights_that_cannot_be_used(kind, use, finished, tmp_path):
    write, expected = WEIGHTS[kind]
    file = tmp_path / "weights.pt"
    write(file, (finished / "wbc" / "model.pt").read_bytes())
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "image.png")
    places = {
        "evaluate": {"report_dir": str(tmp_path / "out")},
        "inference": {"dataset_dir": str(tmp_path / "image.png"), "output_dir": str(tmp_path / "out")},
    }
    args = json.loads((finished / "wbc" / f"{use}.json").read_text())
    found = said(args.pop("workflow_name"), **{**args, **places[use], "checkpoint": str(file)})
    assert found.startswith(f"{file}: ")
    assert expected in found
    assert len(found.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def predict(finished, name, dataset_dir, output, **more):
    args = json.loads((finished / name / "inference.json").read_text())
    where = {"dataset_dir": str(dataset_dir), "output_dir": str(output)}
    return said(args.pop("workflow_name"), **{**args, **where, **more})


def test_one_bad_image_does_not_stop_the_others(finished, tmp_path, capsys):
    rng = np.random.default_rng(0)
    images = tmp_path / "images"
    images.mkdir()
    for name, shape in {"good": (40, 50, 3), "pixel": (1, 1, 3), "line": (1, 30, 3), "small": (2, 2, 3)}.items():
        Image.fromarray(rng.integers(0, 255, shape, np.uint8)).save(images / f"{name}.png")
    sound = (images / "good.png").read_bytes()
    (images / "half.png").write_bytes(sound[: len(sound) // 2])
    Image.open(images / "good.png").save(images / "photo.jpg")
    photo = (images / "photo.jpg").read_bytes()
    (images / "photo.jpg").write_bytes(photo[: len(photo) // 2])
    (images / "empty.png").write_bytes(b"")
    (images / "text.png").write_text("no image")
    (images / "=1+2.png").write_text("no image")
    Image.fromarray(np.full((40, 40), 40000, np.uint16)).save(images / "wide.png")
    pages = [Image.new("RGB", (30, 30))] * 3
    pages[0].save(images / "pages.tif", save_all=True, append_images=pages[1:])
    bad = {
        "pixel.png",
        "line.png",
        "half.png",
        "photo.jpg",
        "empty.png",
        "text.png",
        "wide.png",
        "pages.tif",
        "=1+2.png",
    }
    found = predict(finished, "wbc", images, tmp_path / "out")
    assert found == f"9 of 11 were not predicted; they are listed in {tmp_path / 'out' / 'problems.csv'}"
    lines = capsys.readouterr().err.splitlines()
    assert {Path(line.split(": ")[0]).name for line in lines if line.startswith(str(images))} == bad
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert written == {f"{n}_{k}.png" for n in ("good", "small") for k in ("label", "overlay")} | {"problems.csv"}
    table = (tmp_path / "out" / "problems.csv").read_text().splitlines()
    assert len(table) == 10
    assert not [line for line in table if line.startswith("=")]
    for name in bad:
        (images / name).unlink()
    assert predict(finished, "wbc", images, tmp_path / "out") == "accepted"
    assert not (tmp_path / "out" / "problems.csv").exists()


def volumes(folder):
    """Write one sound volume, and one of each kind of damage."""
    folder.mkdir()
    values = np.random.default_rng(0).random((20, 24, 22)).astype(np.float32)

    def save(name, array):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / name)

    save("good.nii.gz", values)
    save("flat.nii.gz", values[0])
    save("four.nii.gz", np.stack([values, values], -1))
    broken = values.copy()
    broken[3, 3, :5], broken[0, 0, 0] = np.nan, np.inf
    save("nan.nii.gz", broken)
    sound = (folder / "good.nii.gz").read_bytes()
    (folder / "half.nii.gz").write_bytes(sound[: len(sound) // 2])
    (folder / "tail.nii.gz").write_bytes(sound[:-6])
    (folder / "flipped.nii.gz").write_bytes(sound[:-5] + bytes([sound[-5] ^ 255]) + sound[-4:])
    (folder / "short.nii.gz").write_bytes(gzip.compress(gzip.decompress(sound)[:-40]))
    (folder / "raw.nii").write_bytes(gzip.decompress(sound)[:-40])
    (folder / "text.nii.gz").write_text("no volume")
    nibabel.save(nibabel.Nifti2Image(values, np.eye(4)), folder / "second.nii.gz")
    (folder / "plain.nii.gz").write_bytes(gzip.decompress(sound))
    (folder / "zipped.nii").write_bytes(sound)
    image = itk.image_from_array(values)
    for name, compressed in (("m.mha", False), ("mz.mha", True), ("n.nrrd", False), ("nz.nrrd", True)):
        itk.imwrite(image, str(folder / name), compression=compressed)
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    itk.imwrite(image, str(folder / "changed.mha"), compression=True)
    content = bytearray((folder / "changed.mha").read_bytes())
    content[len(content) // 2] ^= 255
    (folder / "changed.mha").write_bytes(content)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A folder with one sound volume, and one of each kind of damage."""
    folder = tmp_path_factory.mktemp("damaged") / "VOLUMES"
    volumes(folder)
    return folder


def test_damaged_volumes_are_not_filled_with_zeros(finished, damaged, tmp_path, capfd):
    bad = {path.name for path in damaged.iterdir()} - {"good.nii.gz"}
    found = predict(finished, "hippocampus", damaged, tmp_path / "out")
    assert found.startswith(f"{len(bad)} of {len(bad) + 1} were not predicted")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith(str(damaged))]
    assert {Path(line.split(": ")[0]).name for line in lines} == bad
    assert "nan.nii.gz: has 6 NaN or infinite values; repair it" in "\n".join(lines)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"good_label.nii.gz", "problems.csv"}


@pytest.mark.parametrize("name", ["half.nii.gz", "tail.nii.gz", "short.nii.gz", "flipped.nii.gz", "nan.nii.gz"])
@pytest.mark.parametrize("use", ["train", "evaluate"])
def test_damaged_volumes_in_training_and_evaluation(name, use, finished, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(next((finished / "cache").glob("synthetic-hippocampus*")), data)
    for victim in sorted((data / "Task04_Hippocampus" / "imagesTr").iterdir()):
        label = nibabel.load(victim.parent.parent / "labelsTr" / victim.name)
        image = nibabel.Nifti1Image(
            np.resize(np.asarray(nibabel.load(victim).dataobj, np.float32), label.shape), label.affine
        )
        nibabel.save(image, victim)
        sound = victim.read_bytes()
        if name == "nan.nii.gz":
            values = np.asarray(image.dataobj).copy()
            values[0, 0, :3] = np.nan
            nibabel.save(nibabel.Nifti1Image(values, label.affine), victim)
        damaged = {
            "half.nii.gz": sound[: len(sound) // 2],
            "tail.nii.gz": sound[:-6],
            "short.nii.gz": gzip.compress(gzip.decompress(sound)[:-40]),
            "flipped.nii.gz": sound[:-5] + bytes([sound[-5] ^ 255]) + sound[-4:],
        }
        if name in damaged:
            victim.write_bytes(damaged[name])
    output = tmp_path / "out"
    shutil.copytree(finished / "hippocampus", output)
    before = tree(output)
    workflow = {"train": "Training", "evaluate": "Evaluation"}[use]
    found = said(workflow, **options("hippocampus", output, dataset_dir=str(data)))
    assert "hippocampus_0" in found.split(": ")[0]
    assert ("3 NaN or infinite values" if name == "nan.nii.gz" else "truncated") in found or name == "flipped.nii.gz"
    assert tree(output) == before


@pytest.mark.parametrize("kind", ["mirrored", "shifted"])
def test_a_label_in_another_place_than_its_volume_is_refused(kind, finished, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(next((finished / "cache").glob("synthetic-hippocampus*")), data)
    file = min((data / "Task04_Hippocampus" / "labelsTr").iterdir())
    label = nibabel.load(file)
    change = np.diag([-1.0, 1, 1, 1]) if kind == "mirrored" else np.eye(4)
    change[0, 3] = 50 * (kind == "shifted")
    nibabel.save(nibabel.Nifti1Image(np.asarray(label.dataobj), change @ label.affine), file)
    found = said("Training", **options("hippocampus", tmp_path / "out", dataset_dir=str(data)))
    assert found.startswith(f"{file}: its affine (position and axes) differs from that of {file.name}.")


def test_what_a_killed_prediction_left_is_no_prediction(finished, tmp_path):
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "image.png")
    ghost = tmp_path / "out" / ".unfinished-a1b2c3d4" / "ghost_label.png"
    ghost.parent.mkdir(parents=True)
    ghost.write_bytes(b"half")
    assert predict(finished, "wbc", tmp_path / "image.png", tmp_path / "out") == "accepted"
    assert {p.name for p in (tmp_path / "out").glob("[!.]*")} == {"image_label.png", "image_overlay.png"}


def test_predictions_do_not_go_among_the_images(finished, tmp_path):
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "image.png")
    found = predict(finished, "wbc", tmp_path, tmp_path)
    assert found == f"--output_dir must be another folder than that of the images, got {tmp_path}"


def test_an_interrupted_prediction_says_so(finished, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(300):
        Image.fromarray(np.full((200, 200, 3), number % 256, np.uint8)).save(images / f"{number}.png")
    out = tmp_path / "out"
    arguments = ["--args_file", str(finished / "wbc" / "inference.json"), "--dataset_dir", str(images)]
    log = tmp_path / "errors"
    process = Program("monai.bundle", "run", *arguments, "--output_dir", out, stderr=log)
    while process.poll() is None and not (out.exists() and len(list(out.glob("*_label.png"))) > 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 1
    errors = log.read_text().splitlines()
    assert errors[-1].startswith("Interrupted: the predictions that exist are complete")
    assert not [line for line in errors if "Traceback" in line]
    labels, overlays = ({p.name.split("_")[0] for p in out.glob(f"*_{kind}.png")} for kind in ("label", "overlay"))
    assert labels == overlays
    assert not list(out.glob(".unfinished*"))


def test_each_dicom_series_of_a_folder_is_predicted(finished, tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"7": (20, 24, 36), "8": (12, 24, 30)}
    for series, shape in shapes.items():
        write_series(itk.image_from_array(rng.integers(0, 999, shape).astype(np.int16)), tmp_path / "scan", series)
    assert predict(finished, "hippocampus", tmp_path / "scan", tmp_path / "out") == "accepted"
    uid = "1-2-826-0-1-3680043-2-1125"
    for series, shape in shapes.items():
        label = nibabel.load(tmp_path / "out" / f"scan_{uid}-{series}_label.nii.gz")
        assert label.shape == shape[::-1]
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "missing", "first"])
def test_a_dicom_series_that_lacks_a_slice(damage, finished, tmp_path, capsys):
    values = np.random.default_rng(0).integers(0, 999, (20, 24, 36)).astype(np.int16)
    files = sorted(write_series(itk.image_from_array(values), tmp_path / "scan").iterdir())
    if damage == "truncated":
        files[7].write_bytes(files[7].read_bytes()[:-100])
    elif damage == "missing":
        files[7].unlink()
    else:  # as many scanners write them, without an ending
        for file in files:
            file.rename(file.with_suffix(""))
        first = files[0].with_suffix("")
        first.write_bytes(first.read_bytes()[:400])
    assert "1 of 1 were not predicted" in predict(finished, "hippocampus", tmp_path / "scan", tmp_path / "out")
    expected = {
        "truncated": "cannot be read: 2-007.dcm",
        "missing": "uneven distances, from 1 to 2 mm",
        "first": "cannot be read: 2-000",
    }[damage]
    assert f"{tmp_path / 'scan'}: has" in (text := capsys.readouterr().err)
    assert expected in text


INFERENCE = [
    ("wbc", {"overlap": 2}, "--overlap must be at least 0 and less than 1, got 2"),
    ("wbc", {"overlap": "some"}, "--overlap must be at least 0"),
    ("wbc", {"sw_batch_size": 0}, "--sw_batch_size must be a whole number from 1, got 0"),
    ("wbc", {"extension": ".xyz"}, "of .png, .tif, .tiff, .bmp for images, got '.xyz'"),
    ("wbc", {"extension": ".jpg"}, "--extension must be one of"),
    ("wbc", {"features": [4, 4]}, "--features must be 6 whole numbers from 1 in brackets, got [4, 4]"),
    ("wbc", {"image_size": [8, 8]}, "--image_size must be 2 whole numbers from 17 in brackets"),
    ("wbc", {"image_size": "large"}, "--image_size must be 2 whole numbers"),
    (
        "wbc",
        {"label_values": [0, 1]},
        "--label_values must be one entry per class, as --num_classes 3 says, got [0, 1]",
    ),
    ("wbc", {"spatial_dims": 4}, "--spatial_dims must be 2 or 3, got 4"),
    ("wbc", {"amp": "maybe"}, "--amp must be true or false, got 'maybe'"),
    ("wbc", {"dataset_dir": 20240101}, "20240101: there is no such file or folder"),
    ("wbc", {"device": "cuda:0"}, "--device must be a device that can be used here, such as cpu, got 'cuda:0'"),
    ("wbc", {"checkpont": "x"}, "unknown key 'checkpont': did you mean 'checkpoint'?"),
    ("wbc", {"dataset_dir": "/no/such"}, "/no/such: there is no such file or folder; set --dataset_dir"),
    ("wbc", {"dataset_dir": "VOLUMES"}, "there is no image (.png,"),
    ("wbc", {"dataset_dir": "VOLUMES/good.nii.gz"}, "1 of 1 were not predicted"),
    ("wbc", {"output_dir": "/proc/out"}, "/proc/out: cannot be written to"),
    ("wbc", {"features": [8] * 6}, "set --features as in the training"),
    ("hippocampus", {"extension": ".png"}, "--extension must be one of .nii.gz, .nii, .nrrd, .mha for"),
    ("hippocampus", {"dataset_dir": "IMAGES"}, "there is no volume or DICOM series (.nii,"),
    ("hippocampus", {"dataset_dir": "IMAGES/a.png"}, "1 of 1 were not predicted"),
    ("hippocampus", {"dataset_dir": "IMAGES/*.txt"}, "there is no volume or DICOM series"),
]


@pytest.mark.parametrize(("name", "override", "expected"), INFERENCE, ids=[str(case[1]) for case in INFERENCE])
def test_mistakes_in_inference(name, override, expected, finished, damaged, tmp_path, monkeypatch):
    (tmp_path / "IMAGES").mkdir()
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "IMAGES" / "a.png")
    shutil.copytree(damaged, tmp_path / "VOLUMES")
    monkeypatch.chdir(tmp_path)
    args = json.loads((finished / name / "inference.json").read_text())
    args |= {"dataset_dir": "IMAGES" if name == "wbc" else "VOLUMES/good.nii.gz", "output_dir": str(tmp_path / "out")}
    found = said(args.pop("workflow_name"), **{**args, **override})
    assert expected in found
    assert len(found.splitlines()) == 1
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(("_label.png", "_label.nii.gz"))]


@pytest.mark.parametrize("track", [False, True])
def test_a_disk_that_is_full(track, finished, tmp_path):
    overrides = options("wbc", tmp_path / "out", **cached(finished), track=track)
    log, errors = tmp_path / "log", tmp_path / "errors"
    arguments = ["run", "--workflow_name", "monai_iels.Training", *words(overrides)]
    assert Program("monai.bundle", *arguments, stdout=log, stderr=errors, file_limit=150_000).wait() == 1
    assert "Traceback" not in log.read_text() + errors.read_text()
    sentence = "cannot be written (file too large). Make room, then repeat the command; a training continues with"
    lines = errors.read_text().splitlines()
    assert sentence in lines[-1]
    assert not list(tmp_path.rglob("*.part"))
    assert len([line for line in lines if " INFO " not in line]) < 8


def test_a_killed_loader_says_what_happened(finished, tmp_path):
    overrides = options("wbc", tmp_path / "out", **cached(finished), num_workers=1, epochs=500)
    log = tmp_path / "errors"
    arguments = ["run", "--workflow_name", "monai_iels.Training", *words(overrides)]
    process = Program("monai.bundle", *arguments, stderr=log)
    sentence = "A process that loads data ended ("
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        workers = children.read_text().split() if (tmp_path / "out" / "last.pt").exists() else []
        if workers and sentence not in log.read_text():
            os.kill(int(workers[0]), signal.SIGKILL)
            with suppress(TimeoutExpired):  # a worker that had just finished is not missed
                process.wait(3)
        time.sleep(0.01)
    errors = log.read_text().splitlines()
    assert process.returncode == 1
    assert len([line for line in errors if line.startswith(sentence)]) == 1, "\n".join(errors)
    swallowed = ("Exception ignored in", "--- Logging error")  # of a worker before, which torch tells by a signal
    chained = ("During handling of the above exception", "The above exception was the direct cause")
    ignored = [line for line in errors if line.startswith(swallowed + chained)]
    assert len([line for line in errors if "Traceback" in line]) == len(ignored), "\n".join(errors)
