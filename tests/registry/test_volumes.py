# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Registered models of volumes: their own shape, their own space, and what is refused."""

import base64
import gzip
import json

import mlflow
import nibabel
import numpy as np
import pytest
import torch
from helpers import run
from PIL import Image
from registry.models import in_base64, network_of, table

from monai_iels.registry import server_in_use


def test_volumes_are_predicted_in_their_own_shape(volumes, server):
    model, output = volumes
    volume = np.random.default_rng(0).random((21, 37, 29)).astype(np.float32)
    assert model.predict(volume).shape == volume.shape
    with server_in_use(server.uri):
        network = mlflow.pytorch.load_model("models:/hippo@candidate")
    x = torch.rand(1, 1, 32, 48, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(x), network_of(output)(x), rtol=0, atol=1e-5)


def test_a_volume_that_may_name_other_files_is_refused(volumes):
    model, _ = volumes
    header = b"ObjectType = Image\nNDims = 3\nDimSize = 4 4 4\nElementType = MET_UCHAR\nElementDataFile = /etc/passwd\n"
    with pytest.raises(mlflow.exceptions.MlflowException, match="Image 1 is no readable NIfTI file") as caught:
        model.predict(table(base64.b64encode(header).decode()))
    assert caught.value.get_http_status_code() == 400


def turned(file):
    """Return a volume of the sample as another scanner might store it: other axes, spacing and origin."""
    image = nibabel.load(file)
    values = np.asanyarray(image.dataobj)[::-1, :, ::2].transpose(1, 0, 2)
    affine = np.array([[0, -1.0, 0, 90], [1.0, 0, 0, -30], [0, 0, 2.0, 12], [0, 0, 0, 1]])
    return nibabel.Nifti1Image(values, affine)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_nifti_file_is_predicted_in_its_own_space(ending, volumes, tmp_path):
    model, output = volumes
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / f"case{ending}"
    nibabel.save(turned(min((output / "cache").rglob("images*/*.nii.gz"))), file)
    request = table(base64.b64encode(file.read_bytes()).decode())
    (answer,) = model.predict(request, params={"format": "file"})["label"]
    label = nibabel.Nifti1Image.from_bytes(gzip.decompress(base64.b64decode(answer)))
    args = json.loads((output / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(file), "output_dir": str(tmp_path / "out")})
    expected = nibabel.load(tmp_path / "out" / "case_label.nii.gz")
    np.testing.assert_allclose(label.affine, expected.affine, atol=1e-5)
    assert label.get_data_dtype() == np.uint8
    assert len(np.unique(expected.dataobj)) > 1
    assert np.mean(np.asarray(label.dataobj) != np.asarray(expected.dataobj)) < 0.001
    np.testing.assert_array_equal(model.predict(request)["label"][0], np.asarray(label.dataobj))


def test_a_volume_that_is_damaged_or_too_large_is_refused(volumes):
    model, _ = volumes
    sound = nibabel.Nifti1Image(np.random.default_rng(0).random((16, 16, 16)).astype(np.float32), np.eye(4))
    data = gzip.compress(sound.to_bytes())
    holes = np.ones((8, 8, 8), np.float32)
    holes[0, 0, :3] = np.nan, np.inf, -np.inf
    huge = sound.header.copy()
    huge.set_data_shape((5000, 5000, 5000))
    flat = sound.header.copy()
    flat.set_sform(np.diag([1.0, 1, 0, 1]), code=1)
    wide = nibabel.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.diag([100.0, 100, 100, 1]))
    cases = {
        data[: len(data) // 2]: "Image 1 is truncated or damaged",
        data[:-8] + bytes(8): "Image 1 is truncated or damaged .CRC check failed",
        data[:200]: "Image 1 is",
        b"no volume": "Image 1 is no readable NIfTI file",
        base64.b64decode(in_base64(Image.new("RGB", (8, 8)))): "Image 1 is no readable NIfTI file",
        nibabel.Nifti1Image(holes, np.eye(4)).to_bytes(): "Image 1 has 3 NaN or infinite values",
        nibabel.Nifti1Image(np.zeros((4, 4, 4, 2)), np.eye(4)).to_bytes(): "Image 1 is of another kind",
        gzip.compress(huge.binaryblock + bytes(4)): "has 125000000000 values",
        wide.to_bytes(): "has 512000000 values .8 x 8 x 8., but at most 64000000 are allowed",
        flat.binaryblock + bytes(4): "Image 1 has an affine that cannot be inverted",
    }
    for content, sentence in cases.items():
        with pytest.raises(mlflow.exceptions.MlflowException, match=sentence) as caught:
            model.predict(table(base64.b64encode(content).decode()))
        assert caught.value.get_http_status_code() == 400
