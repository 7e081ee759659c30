# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What the tests of data share: the readers, small synthetic sets, and ways to damage files."""

import multiprocessing
import operator
import os
import re
import resource
import signal
import struct
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from monai.data import NibabelReader, PILReader
from monai.transforms import Compose
from PIL import Image

from monai_iels import cli
from monai_iels.data import SOURCES, LabelValuesd, LoadFiled, as_mask, check_source, paired_datalists

READERS = {name: source.read for name, source in SOURCES.items()}
read_wbc, read_dsb2018, read_drive, read_refuge, read_hippocampus, read_cityscapes = READERS.values()
SMALL = {"wbc": (10, 48), "dsb2018": (10, 48), "drive": (4, 64), "refuge": (6, 64), "hippocampus": (5, 30)}
SMALL["cityscapes"] = (6, 32)
RGB = PILReader(converter=operator.methodcaller("convert", "RGB"))
GREY = PILReader(converter=as_mask)
DAMAGED = {
    "wbc image.bmp": ("wbc", "Dataset 1/002.bmp"),
    "wbc label.png": ("wbc", "Dataset 1/002.png"),
    "dsb2018 image.png": ("dsb2018", "stage1_train/*/images/*.png"),
    "dsb2018 label.png": ("dsb2018", "stage1_train/*/masks/*.png"),
    "drive image.tif": ("drive", "training/images/21_training.tif"),
    "drive label.gif": ("drive", "training/1st_manual/21_manual1.gif"),
    "refuge image.jpg": ("refuge", "REFUGE-Validation400/V0002.jpg"),
    "refuge label.bmp": ("refuge", "REFUGE-Validation400-GT/Disc_Cup_Masks/V0002.bmp"),
    "hippocampus image.nii.gz": ("hippocampus", "Task04_Hippocampus/imagesTr/hippocampus_002.nii.gz"),
    "hippocampus label.nii.gz": ("hippocampus", "Task04_Hippocampus/labelsTr/hippocampus_002.nii.gz"),
    "cityscapes image.png": ("cityscapes", "leftImg8bit/train/drawn3/*_leftImg8bit.png"),
    "cityscapes label.png": ("cityscapes", "gtFine/train/drawn3/*_gtFine_labelIds.png"),
}
"""A file of each kind: the data set that it is in, and its place there."""


def main(arguments):
    return cli.main(["data", *arguments])


def in_another_process(arguments):
    """Run a command in a fork of this process, which ends with the command's exit code."""
    process = multiprocessing.get_context("fork").Process(target=_exit_with_main, args=(arguments,))
    process.start()
    return process


def _exit_with_main(arguments):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(arguments))


def real(name):
    folder = Path(os.environ.get("MONAI_IELS_DATA", "")) / name
    if "MONAI_IELS_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"set MONAI_IELS_DATA to a folder that has {name}")
    return folder


def labels(values, ignored=(), reader=GREY, key="label"):
    """Return how a training loads labels."""
    return [LoadFiled(key, reader), LabelValuesd(key, values, ignored)]


def loading_of(name):
    """Return how a training loads the cases of a data set."""
    if name == "hippocampus":
        return Compose([LoadFiled(["image", "label"], NibabelReader())])
    return Compose([LoadFiled("image", RGB), *labels(SOURCES[name].values, SOURCES[name].ignored)])


def snapshot(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def only_problem(name, root, tmp_path):
    """Check a damaged set, and see that its one problem is found and that nothing was touched."""
    before = snapshot(root)
    report = check_source(SOURCES[name], root, tmp_path / "cache")
    assert snapshot(root) == before
    (problem,) = report.problems
    assert str(report).splitlines()[0] == str(problem)
    assert re.fullmatch(r"[^\n]+: [^\n]+\. [^\n]+\.", str(problem))
    return problem


def write_labels(folder, values):
    """Write images and labels with these values, and return their datalists."""
    for name, stray in values.items():
        for kind in ("images", "labels"):
            pixels = np.zeros((8, 9), np.uint8)
            pixels[0, : len(stray)] = stray
            (folder / kind).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / kind / name)
    return paired_datalists(folder, validation=0.3)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def empty(path):
    path.write_bytes(b"")


def web_page(path):
    path.write_text("<!DOCTYPE html><html><body>Please log in</body></html>")


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


@contextmanager
def files_of_at_most(limit):
    """Let no file grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def zip_of(file, *members, size=None):
    """Write a zip of ``(name, content, mode)``; all members declare ``size``, if given."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as stream:
        for name, content, mode in members:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            stream.writestr(entry, content, zipfile.ZIP_DEFLATED)
    if size is not None:
        head, *entries = file.read_bytes().split(b"PK\x01\x02")
        changed = [entry[:20] + struct.pack("<I", size) + entry[24:] for entry in entries]
        file.write_bytes(b"PK\x01\x02".join([head, *changed]))
