# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A data set in nnU-Net's layout, and a way to run its commands; nnU-Net itself is not imported."""

import json
import os
import subprocess

import nibabel
import numpy as np

DATASET = "Dataset001_Drawn"
LABELS = {"background": 0, "body": 1, "core": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
SMALL = {"nnUNet_n_proc_DA": "0", "nnUNet_def_n_proc": "1", "nnUNet_compile": "f", "OMP_NUM_THREADS": "1"}


def run(*words, **environment):
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **environment},
        input="\n",  # later versions of nnU-Net ask before they draw splits
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def draw(folder, count=6):
    """Write volumes with slices of 3 mm in nnU-Net's layout: a ball and its core, in noise."""
    rng = np.random.default_rng(0)
    for name in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / name).mkdir(parents=True)
    x, y, z = np.ogrid[-1:1:32j, -1:1:32j, -1:1:12j]
    for case in range(count):
        distance = np.sqrt((x - rng.uniform(-0.2, 0.2)) ** 2 + (y - rng.uniform(-0.2, 0.2)) ** 2 + z**2)
        label = (distance < 0.7).astype(np.uint8) + (distance < 0.4)
        image = (label + rng.normal(0, 0.1, label.shape)).astype(np.float32)
        affine = np.diag([1.0, 1.0, 3.0, 1.0])
        nibabel.Nifti1Image(image, affine).to_filename(folder / "imagesTr" / f"case_{case}_0000.nii.gz")
        nibabel.Nifti1Image(label, affine).to_filename(folder / "labelsTr" / f"case_{case}.nii.gz")
    description = {"channel_names": {"0": "MRI"}, "labels": LABELS, "numTraining": count, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(description))
