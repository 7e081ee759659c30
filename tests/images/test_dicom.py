# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""DICOM series: one or several in a folder, complete or refused."""

import itk
import numpy as np
import pytest
from dicom import write_series
from monai.data import ITKReader

from monai_iels import images


def series_in(folder, *names, slices=7):
    values = np.random.default_rng(0).integers(0, 1000, (slices, 9, 11)).astype(np.int16)
    volume = itk.image_from_array(values)
    volume.SetSpacing((0.8, 1.2, 2.5))
    volume.SetOrigin((-10.0, 20.0, 30.0))
    for name in names:
        write_series(volume, folder, name)
    return values.transpose()


def test_a_series_is_read_with_its_header(tmp_path):
    values = series_in(tmp_path / "one", "2")
    header, image = images.header(tmp_path / "one"), images.read(tmp_path / "one", ITKReader())
    np.testing.assert_array_equal(image[0].numpy(), values)
    assert header.shape == values.shape
    np.testing.assert_allclose(header.affine, image.affine.numpy(), atol=1e-5)
    (found,) = images.find_series(str(tmp_path / "one"))
    assert (found["image"], found["uid"]) == (str(tmp_path / "one"), "")
    np.testing.assert_array_equal(images.read_series(found["image"], found["series"])[0].numpy(), values)


def test_several_series_of_a_folder_are_told_apart(tmp_path):
    values = series_in(tmp_path / "two", "2", "3")
    found = images.find_series(str(tmp_path / "two"))
    assert [case["uid"][-2:] for case in found] == [".2", ".3"]
    for case in found:
        np.testing.assert_array_equal(images.read_series(case["image"], case["series"])[0].numpy(), values)


@pytest.mark.parametrize("damage", ["truncated", "missing", "empty"])
def test_a_damaged_an_incomplete_and_an_empty_series_are_refused(damage, tmp_path):
    folder = tmp_path / "one"
    series_in(folder, "2")
    (series,) = images.find_series(str(folder))
    files = sorted(folder.iterdir())
    if damage == "truncated":
        files[3].write_bytes(files[3].read_bytes()[:-50])
    for file in {"missing": files[3:4], "empty": files}.get(damage, []):
        file.unlink()
    sentence = {
        "truncated": "^has DICOM files that cannot be read: 2-003.dcm; copy them again$",
        "missing": "^has slices at uneven distances, from 2.5 to 5 mm: one is missing$",
        "empty": "^has no DICOM series; give a file, or the folder of a series$",
    }[damage]
    with pytest.raises(ValueError, match=sentence):
        images.read(folder, ITKReader())
    if damage != "empty":
        with pytest.raises(ValueError, match=sentence):
            images.read_series(str(folder), series["series"])
