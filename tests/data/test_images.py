# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""One image, mask or volume of a case: how it is read, and what is said if it cannot be."""

import operator

import nibabel
import numpy as np
import pytest
import torch
from data_sets import DAMAGED, GREY, READERS, RGB, loading_of, read_hippocampus, read_wbc, truncate
from monai.data import NibabelReader, PILReader
from monai.transforms import Compose, SaveImage, ScaleIntensityRanged
from PIL import Image

from monai_iels.data import DataError, LoadFiled, checked_datalists


@pytest.mark.parametrize("file", [file for file in DAMAGED if file != "dsb2018 label.png"])  # which is merged
def test_a_training_names_the_file_that_it_cannot_read(file, copy, tmp_path):
    name, pattern = DAMAGED[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    key = "image" if "image" in file else "label"
    cases = [c for s in READERS[name](root, cache_dir=tmp_path).values() for c in s if c[key] == str(path)]
    load = loading_of(name)
    load(cases[0])
    truncate(path)
    with pytest.raises(RuntimeError) as caught:
        load(cases[0])
    assert isinstance(caught.value.__cause__, DataError)
    assert str(path) in str(caught.value.__cause__)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_a_gray_mask_in_several_channels_is_read_as_one_in_gray(mode, copy):
    root = copy("wbc")
    case = read_wbc(root)["training"][0]
    expected = loading_of("wbc")(case)["label"]
    Image.open(case["label"]).convert(mode).save(case["label"])
    torch.testing.assert_close(loading_of("wbc")(case)["label"].as_tensor(), expected.as_tensor())


@pytest.mark.parametrize("palette", [[0, 0, 0, 128, 0, 0, 0, 128, 0], [0, 0, 0, 128, 128, 128, 255, 255, 255]])
def test_a_palette_with_colors_gives_its_indices_and_a_gray_one_its_grays(palette, tmp_path):
    classes = np.array([[0, 1], [2, 1]], np.uint8)
    mask = Image.fromarray(classes)
    mask.putpalette(palette)
    mask.save(tmp_path / "mask.png")
    assert Image.open(tmp_path / "mask.png").mode == "P"
    is_gray = palette[3] == palette[4]
    expected = np.array(palette[::3])[classes] if is_gray else classes
    read = LoadFiled("label", GREY)({"label": str(tmp_path / "mask.png")})["label"][0].numpy().T  # the width is first
    np.testing.assert_array_equal(read, expected)


def test_an_image_arrives_with_the_axes_and_metadata_of_monai(tmp_path):
    image = np.zeros((20, 30, 4), np.uint8)
    image[..., 0], image[..., 3] = np.arange(30), 255
    image[5, 7] = (200, 100, 50, 128)
    Image.fromarray(image).save(tmp_path / "a.png")
    load = Compose([LoadFiled("image", RGB), ScaleIntensityRanged("image", 0, 255, 0, 1)])
    loaded = load({"image": str(tmp_path / "a.png")})["image"]
    assert loaded.shape == (3, 30, 20)
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(loaded[:, 7, 5].as_tensor() * 255, torch.tensor([200.0, 100.0, 50.0]))
    assert loaded.meta["filename_or_obj"] == str(tmp_path / "a.png")
    assert tuple(loaded.meta["spatial_shape"]) == (30, 20)


def test_a_mistake_in_a_program_is_not_blamed_on_a_file(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "a.png")
    reader = PILReader(converter=operator.methodcaller("no_such_method"))
    with pytest.raises(AttributeError, match="no_such_method"):
        LoadFiled("image", reader)({"image": str(tmp_path / "a.png")})


def test_a_label_is_written_back_in_the_geometry_of_its_file(drawn, tmp_path):
    for name, reader in (("wbc", GREY), ("hippocampus", NibabelReader())):
        case = READERS[name](drawn / name)["training"][0]
        label = LoadFiled("label", reader)(case)["label"]
        suffix = ".png" if name == "wbc" else ".nii.gz"
        save = SaveImage(tmp_path, output_ext=suffix, separate_folder=False, output_dtype=np.uint8, print_log=False)
        save(label)
        (written,) = tmp_path.glob(f"*{suffix}")
        if name == "wbc":
            np.testing.assert_array_equal(np.asarray(Image.open(written)), np.asarray(Image.open(case["label"])))
        else:
            a, b = nibabel.load(written), nibabel.load(case["label"])
            np.testing.assert_array_equal(a.dataobj, b.dataobj)
            np.testing.assert_allclose(a.affine, b.affine)


@pytest.mark.parametrize("shape", [(4, 5, 0), (4, 5), (4, 5, 6, 2)])
def test_a_file_that_is_not_one_volume_is_named(shape, copy):
    root = copy("hippocampus")
    file = read_hippocampus(root)["training"][0]["image"]
    nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.uint8), np.eye(4)), file)
    with pytest.raises(DataError, match=r"the volume has the shape [x0-9 ]+\. Save") as caught:
        checked_datalists("hippocampus", root)
    assert caught.value.problems[0].file == file
