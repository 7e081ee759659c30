# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Label errors and Evolve give the same in every kind of data set, worker, order and process."""

import hashlib

import numpy as np
import pytest
import torch
from monai.data import CacheDataset, DataLoader, Dataset, MetaTensor, PersistentDataset
from monai.transforms import Compose, EnsureChannelFirstd, EnsureTyped, Lambdad, LoadImaged
from PIL import Image
from programs import Program

from monai_iels import BiteLabeld, CorruptLabel, CorruptLabeld, Evolved, HeatDiffusion


def checksum(label):
    return hashlib.sha256(np.asarray(label).astype(np.uint8).tobytes()).hexdigest()[:16]


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    items = []
    for i in range(6):
        Image.fromarray(rng.integers(0, 3, (32, 40), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        items.append({"label": str(tmp_path / f"{i}.png")})
    return items


def pipeline(shared):
    return Compose(
        [
            LoadImaged("label"),
            EnsureChannelFirstd("label"),
            CorruptLabeld("label", num_classes=3, shared=shared),
            BiteLabeld("label", count=2, radius=1.5),
            Lambdad("label", _same, overwrite="copy"),
            EnsureTyped(["label", "copy"], dtype=torch.float32),
            Evolved("copy", HeatDiffusion(2.0), dt=-0.1, steps=2),
        ]
    )


def _same(label):
    return label


@pytest.mark.parametrize("shared", [True, False])
def test_the_same_in_every_data_set_worker_and_order(files, tmp_path, shared):
    def collect(dataset, **kwargs):
        out = {}
        for batch in DataLoader(dataset, batch_size=2, **kwargs):
            names = batch["label"].meta["filename_or_obj"]
            out.update(zip(names, zip(batch["label"].as_tensor(), batch["copy"].as_tensor(), strict=True), strict=True))
        return out

    expected = collect(Dataset(files, pipeline(shared)))
    assert len(expected) == 6
    persistent = PersistentDataset(
        files, pipeline(shared), cache_dir=tmp_path / "cache", track_meta=True, weights_only=False
    )
    for other in (
        collect(Dataset(files[::-1], pipeline(shared)), num_workers=2),
        collect(CacheDataset(files, pipeline(shared), progress=False)),
        collect(CacheDataset(files, pipeline(shared), progress=False, num_workers=2), num_workers=2, shuffle=True),
        collect(persistent),
        collect(persistent),
    ):
        assert other.keys() == expected.keys()
        for name, (label, copy) in expected.items():
            assert torch.equal(other[name][0], label)
            assert torch.equal(other[name][1], copy)


def test_the_same_in_another_process(files, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys, hashlib; import numpy as np; from PIL import Image; from monai.data import MetaTensor;"
        "from monai_iels import CorruptLabel;"
        "label = MetaTensor(np.array(Image.open(sys.argv[1]))[None], meta={'filename_or_obj': sys.argv[1]});"
        "noisy = CorruptLabel(3, shared=False)(label);"
        "print(hashlib.sha256(np.asarray(noisy).astype(np.uint8).tobytes()).hexdigest()[:16])"
    )
    assert Program(tmp_path / "program.py", files[0]["label"], stdout=tmp_path / "log").wait() == 0
    there = (tmp_path / "log").read_text().split()[-1]
    image = np.array(Image.open(files[0]["label"]))[None]
    here = CorruptLabel(3, shared=False)(MetaTensor(image, meta={"filename_or_obj": files[0]["label"]}))
    assert there == checksum(here)
