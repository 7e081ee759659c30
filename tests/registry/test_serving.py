# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The model that MLflow serves, in Python and by HTTP: what it predicts, and what it refuses."""

import base64
import io
import json
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import run
from PIL import Image
from registry.models import decoded, dice, in_base64, network_of, post, table
from scipy import ndimage

import monai_iels

PREDICT = """
import os, sys
from importlib.machinery import PathFinder
installed = list(sys.path)
class No:
    def find_spec(self, name, *rest):
        if name == "monai_iels":
            copy = PathFinder.find_spec(name, [path for path in sys.path if path not in installed])
            if copy is None: raise ImportError(name)
            return copy
sys.meta_path.insert(0, No())
sys.modules.update(dict.fromkeys(("itk", "ignite", "fire")))  # as if not installed
os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1]); mlflow.set_registry_uri(sys.argv[1])
image = np.load(sys.argv[2])
assert "monai_iels" not in sys.modules
model = mlflow.pyfunc.load_model("models:/sharp-predict@champion")
print(sys.modules["monai_iels"].__file__)
np.savez(sys.argv[3], label=model.predict(image), probabilities=model.predict(image, params={"probabilities": True}))
network = mlflow.pytorch.load_model("models:/sharp@champion")
import torch
with torch.no_grad():
    np.save(sys.argv[4], network(torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)).numpy())
"""


def test_prediction_with_the_copy_of_this_package_and_without_pickle(sharp, server, cell, tmp_path):
    out, logits, image = tmp_path / "out.npz", tmp_path / "logits.npy", tmp_path / "image.npy"
    np.save(image, np.asarray(cell.resize((70, 45))))
    words = [sys.executable, "-c", PREDICT, server.uri, image, out, logits]
    done = subprocess.run(words, check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    used = Path(done.stdout.splitlines()[-1])
    assert used.parts[-3:] == ("code", "monai_iels", "__init__.py")
    assert not used.is_relative_to(Path(monai_iels.__file__).parent)
    x = torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)
    with torch.no_grad():
        np.testing.assert_allclose(np.load(logits), network_of(sharp)(x).numpy(), rtol=0, atol=1e-5)
    found = np.load(out)
    label, probabilities = found["label"], found["probabilities"]
    assert label.shape == (45, 70)
    assert label.dtype == np.uint8
    assert set(np.unique(label)) == {0, 128, 255}
    assert probabilities.shape == (3, 45, 70)
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-5)
    Image.fromarray(np.load(image)).save(tmp_path / "image.png")
    args = json.loads((sharp / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "image.png"), "output_dir": str(tmp_path)})
    np.testing.assert_array_equal(label, np.asarray(Image.open(tmp_path / "image_label.png")))


def by_hand(output, image):
    """Segment an image without the bundle: SciPy resizes it, the network judges it, SciPy resizes the probabilities."""
    pixels = np.asarray(image, np.float32).transpose(2, 1, 0) / 255  # bundles have the first axis along the width
    with torch.no_grad():
        probabilities = network_of(output)(torch.as_tensor(zoomed(pixels, (32, 32)))[None]).softmax(1)[0].numpy()
    return np.array([0, 128, 255], np.uint8)[zoomed(probabilities, image.size).argmax(0)].T


def zoomed(channels, size):
    """Resize by linear interpolation between the centers of pixels."""
    factors = [n / m for n, m in zip(size, channels.shape[1:], strict=True)]
    return np.stack([ndimage.zoom(c, factors, order=1, mode="nearest", grid_mode=True) for c in channels])


def test_an_image_gets_the_same_labels_at_any_size(sharp, predictor, service, cell):
    native = by_hand(sharp, cell)
    assert set(np.unique(native)) == {0, 128, 255}
    for factor in (1, 2, 4):
        image = cell.resize((cell.width * factor, cell.height * factor), Image.Resampling.BICUBIC)
        _, answer = post(service, {"dataframe_records": [{"image": in_base64(image)}], "params": {"format": "file"}})
        for label in (predictor.predict(np.asarray(image)), decoded(answer["predictions"][0]["label"])):
            assert dice(label, by_hand(sharp, image)) > 0.99
            back = Image.fromarray(label).resize(cell.size, Image.Resampling.NEAREST)
            assert dice(np.asarray(back), native) > 0.97


def test_serving_takes_arrays_and_files(service, predictor, cell):
    pixels = np.asarray(cell)
    expected = predictor.predict(pixels)
    text = in_base64(cell)
    split = {"dataframe_split": {"columns": ["image"], "data": [[text], [text]]}}
    for content in ({"inputs": pixels.tolist()}, {"inputs": pixels.astype(float).tolist()}):
        status, answer = post(service, content)
        assert status == 200
        np.testing.assert_array_equal(np.array(answer["predictions"], np.uint8), expected)
    status, answer = post(service, {**split, "params": {"format": "array"}})
    assert [np.array_equal(row["label"], expected) for row in answer["predictions"]] == [True, True]
    status, answer = post(service, {**split, "params": {"format": "file"}})
    assert [np.array_equal(decoded(row["label"]), expected) for row in answer["predictions"]] == [True, True]
    status, answer = post(service, {"inputs": pixels.tolist(), "params": {"format": "file"}})
    np.testing.assert_array_equal(decoded(answer["predictions"][0]["label"]), expected)
    status, answer = post(service, {**split, "params": {"probabilities": True}})
    np.testing.assert_allclose(np.sum(answer["predictions"][1]["probabilities"], 0), 1, atol=1e-5)


def test_sixteen_clients_at_once_and_a_large_image(service, predictor, cell):
    images = [cell.resize((60 + 9 * number, 400)) for number in range(15)] + [cell.resize((2000, 2000))]

    def ask(image):
        return post(service, {"dataframe_records": [{"image": in_base64(image)}], "params": {"format": "file"}})

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, images))
    assert [status for status, _ in found] == [200] * 16
    for image, (_, answer) in zip(images, found, strict=True):
        expected = predictor.predict(np.asarray(image))
        np.testing.assert_array_equal(decoded(answer["predictions"][0]["label"]), expected)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP"])
def test_a_file_is_read_as_the_bundle_reads_it(form, predictor, cell):
    image = Image.open(io.BytesIO(base64.b64decode(in_base64(cell, form)))).convert("RGB")
    found = predictor.predict(table(in_base64(cell, form), in_base64(cell.convert("L"))))["label"]
    np.testing.assert_array_equal(found[0], predictor.predict(np.asarray(image)))
    assert found[1].shape == found[0].shape


def test_a_model_says_its_parameters_and_its_limit(predictor):
    params = {param.name: param.default for param in predictor.metadata.signature.params}
    assert params == {"probabilities": False, "format": "array"}
    assert predictor.model_config["max_values"] == 64_000_000


def bomb(side):
    """Return the PNG of a large black image, whose header says another size."""
    data = bytearray(base64.b64decode(in_base64(Image.new("1", (64, 64)))))
    data[16:24] = side.to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return base64.b64encode(data).decode()


def test_what_cannot_be_segmented_gets_status_400_and_one_sentence(predictor, cell):
    text = in_base64(cell)
    gray = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    pixels = np.asarray(cell).astype(float)
    pixels[0, 0] = np.nan, np.inf, 0
    cases = [
        (np.broadcast_to(np.uint8(0), (8000, 8000, 3)), {}, "has 192000000 values .8000 x 8000 x 3., but at most"),
        (table(bomb(5000)), {}, "has 75000000 values .5000 x 5000 x 3., but at most 64000000"),
        (table(bomb(20000)), {}, "Image 1 is no readable .* file: Image size .* exceeds limit"),
        (table(*[bomb(3000)] * 3), {}, "has 81000000 values"),
        (pixels, {}, "The array has 2 values that are NaN or infinite"),
        (table(text[:-7]), {}, "Image 1 is no base64"),
        (table(text, "?" * 40), {}, "Image 2 is no base64"),
        (table(text[: len(text) // 8 * 4]), {}, "Image 1 is damaged"),
        (table(base64.b64encode(b"no image").decode()), {}, "Image 1 is no readable PNG, JPEG, TIFF, BMP, GIF file"),
        (table(3.0), {}, "Image 1 must be the text of a file in base64, got float"),
        (table(in_base64(gray)), {}, "Image 1 has the mode I;16; save it with 8 bits per channel"),
        (pd.DataFrame({"picture": [text]}), {}, "needs one column 'image'"),
        (table(), {}, "a row per file, got 0 rows"),
        (table(text), {"format": "png"}, "Format must be 'array' or 'file', got 'png'"),
        (table(text), {"format": "file", "probabilities": True}, "Probabilities come as an array only"),
        (np.zeros((8, 8)), {}, "must have the shape .height, width, 3., got .8, 8."),
        (np.array([["a"]]), {}, "must have the shape"),
    ]
    for request, params, sentence in cases:
        with pytest.raises(mlflow.exceptions.MlflowException, match=sentence) as caught:
            predictor.predict(request, params=params)
        assert caught.value.get_http_status_code() == 400
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"inputs": np.zeros((8, 8), int).tolist()}, "must have the shape (height, width, 3), got (8, 8)"),
        ({"inputs": np.zeros((8, 8, 4), int).tolist()}, "got (8, 8, 4)"),
        ({"inputs": np.full((8, 8, 3), 0.5).tolist()}, "whole numbers from 0 to 255 (uint8), got float64 from 0.5 to"),
        ({"inputs": np.full((8, 8, 3), 300).tolist()}, "got int64 from 300 to 300"),
        ({"inputs": np.full((8, 8, 3), -1).tolist()}, "got int64 from -1 to -1"),
        ({"inputs": np.full((8, 8, 3), np.nan).tolist()}, "192 values that are NaN or infinite"),
        ({"inputs": np.zeros((0, 8, 3), int).tolist()}, "must have the shape"),
        ({"inputs": [[["a", "b", "c"]]]}, "array of numbers must have the shape (height, width, 3), got (1, 1, 3)"),
        ({"inputs": [[[1, 2, 3]], [[1, 2]]]}, ""),
        ({"inputs": "cell.png"}, "a file goes into the column 'image'"),
        ({"dataframe_records": [{"image": "c2VsbA=="}]}, "Image 1 is no readable PNG"),
        ({"dataframe_records": [{"image": bomb(5000)}]}, "at most 64000000 are allowed"),
    ],
)
def test_a_wrong_request_gets_a_clear_answer(content, sentence, service):
    status, answer = post(service, content)
    assert status == 400
    assert sentence in answer["message"]
