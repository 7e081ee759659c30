# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Every file format: its header without pixels, what is damaged, what is not finite, what is written and read back."""

import gzip
import subprocess
import sys

import itk
import numpy as np
import pytest
from monai.data import ITKReader, MetaTensor, NibabelReader, NumpyReader, PILReader
from PIL import Image

from monai_iels import images
from monai_iels.data import DataError, LabelValuesd, LoadFiled, check_files, paired_datalists
from monai_iels.images import Format, Header

FILES = [*images.suffixes(2), *images.suffixes(3)]


VOLUMES = [suffix for suffix in images.suffixes(3) if suffix != ".mhd"]  # its values are in a second file


AFFINE = np.diag([-0.8, 1.2, 2.5, 1.0])
AFFINE[:3, 3] = 10, 20, 30


def values_of(suffix):
    """Random pixels in MONAI's axes."""
    shape = (96, 80) if suffix in images.suffixes(2) else (11, 9, 17)
    return np.random.default_rng(0).integers(0, 200, shape).astype(np.uint8)


def make(file):
    """Write a file of any format, and return its pixels."""
    values = values_of(file.suffix)
    if file.suffix in (".jpg", ".jpeg", ".gif"):
        Image.fromarray(values.T).save(file)
    elif file.suffix == ".mhd":
        volume = itk.image_from_array(np.ascontiguousarray(values.transpose()))
        volume.SetSpacing((0.8, 1.2, 2.5))
        volume.SetOrigin((-10.0, -20.0, 30.0))
        volume.SetDirection(itk.matrix_from_array(np.diag([1.0, -1.0, 1.0])))
        itk.imwrite(volume, str(file))
    else:
        images.format_of(file).write(values, MetaTensor(values, affine=AFFINE), file)
    return values


def reader_of(file):
    return images.format_of(file).reader(images.as_mask)


def test_formats_are_known_by_their_endings():
    assert images.suffixes(2) == (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")
    assert images.suffixes(3) == (".nii", ".nii.gz", ".nrrd", ".mha", ".mhd")
    assert images.writable(2) == (".png", ".tif", ".tiff", ".bmp")
    assert images.writable(3) == (".nii.gz", ".nii", ".nrrd", ".mha")
    assert [one.name for one in map(images.format_of, ("a.PNG", "b.nii.GZ", "c.dcm", "d.webp"))] == [
        "PNG",
        "NIfTI",
        "DICOM",
        "picture",
    ]


@pytest.mark.parametrize("suffix", FILES)
def test_a_file_is_read_with_its_header(suffix, tmp_path):
    file = tmp_path / f"a{suffix}"
    values = make(file)
    header, image = images.header(file), images.read(file, reader_of(file))
    assert header.shape == values.shape == tuple(image.shape[1:])
    if not images.format_of(file).is_lossy:
        np.testing.assert_array_equal(image[0].numpy(), values)
    if values.ndim == 3:
        np.testing.assert_allclose(header.affine, AFFINE, atol=1e-5)
        np.testing.assert_allclose(image.affine.numpy(), AFFINE, atol=1e-5)
    else:
        np.testing.assert_array_equal(header.affine, np.eye(4))


@pytest.mark.parametrize("suffix", [*images.suffixes(2), *VOLUMES])
def test_half_a_file_has_a_header_and_is_refused(suffix, tmp_path):
    file = tmp_path / f"a{suffix}"
    values = make(file)
    content = file.read_bytes()
    file.write_bytes(content[: 3 * len(content) // 4])
    assert images.header(file).shape == values.shape
    with pytest.raises((EOFError, OSError, RuntimeError, SyntaxError, ValueError)):
        images.read(file, reader_of(file))


@pytest.mark.parametrize("suffix", [".png", ".nii.gz", ".nrrd", ".mha"])
def test_a_wrong_checksum_is_refused(suffix, tmp_path):
    file = tmp_path / f"a{suffix}"
    make(file)
    content = bytearray(file.read_bytes())
    content[-6 if suffix != ".png" else -14] ^= 255
    file.write_bytes(content)
    with pytest.raises((ValueError, SyntaxError), match=r"is truncated or damaged .*; copy it again|broken PNG"):
        images.read(file, reader_of(file))


@pytest.mark.parametrize("suffix", [".tif", *VOLUMES])
def test_values_that_are_not_finite_are_refused(suffix, tmp_path):
    file = tmp_path / f"a{suffix}"
    values = values_of(suffix).astype(np.float32)
    values.flat[:3] = np.nan, np.inf, -np.inf
    images.format_of(file).write(values, MetaTensor(values, affine=AFFINE), file)
    with pytest.raises(ValueError, match=r"^has 3 NaN or infinite values; repair it$"):
        images.read(file, PILReader() if suffix == ".tif" else ITKReader())


@pytest.mark.parametrize("suffix", FILES)
def test_content_alone_tells_the_ending_unless_it_may_name_another_file(suffix, tmp_path):
    file = tmp_path / f"a{suffix}"
    make(file)
    found = images.suffix_of(file.read_bytes(), images.format_of(file).spatial_dims)
    assert found == {".jpeg": ".jpg", ".tiff": ".tif", ".nrrd": "", ".mha": "", ".mhd": ""}.get(suffix, suffix)
    assert images.suffix_of(file.read_bytes(), 5 - images.format_of(file).spatial_dims) == ""


PICTURE = """
import sys
sys.modules.update(dict.fromkeys(("itk", "nibabel", "ignite", "mlflow", "pandas", "tqdm")))  # as if not installed
from monai.data import PILReader
from monai_iels import images
print(images.read(sys.argv[1], PILReader(converter=lambda image: image.convert("RGB"))).shape)
assert not [name for name in sys.modules if name.startswith(("monai_iels.data", "monai_iels.handlers"))]
"""


def test_a_picture_needs_neither_itk_nor_nibabel(tmp_path):
    make(tmp_path / "a.png")
    words = [sys.executable, "-c", PICTURE, str(tmp_path / "a.png")]
    assert "[3, 96, 80]" in subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Toy(Format):
    """NumPy's arrays, with a last word."""

    name = "toy"
    suffixes = writable = (".toy",)

    def header(self, file):
        return Header(np.load(file, mmap_mode="r").shape, np.eye(4))

    def check(self, file):
        with open(file, "rb") as stream:
            if not stream.read().endswith(b"end"):
                raise ValueError("is truncated; copy it again")

    def reader(self, converter):
        return NumpyReader()

    def write(self, labels, affine, file):
        with open(file, "wb") as stream:
            np.save(stream, labels)
            stream.write(b"end")


@pytest.fixture
def _toys_are_known():
    images.FORMATS.append(Toy())
    yield
    images.FORMATS.pop()


@pytest.mark.usefixtures("_toys_are_known")
def test_a_new_format_is_one_class(tmp_path):
    assert images.suffixes(3)[-1] == images.writable(3)[-1] == ".toy"
    for number in range(4):
        for kind in ("images", "labels"):
            (tmp_path / kind).mkdir(exist_ok=True)
            file = tmp_path / kind / f"{number}.toy"
            images.format_of(file).write(np.full((4, 5, 6), number % 2, np.uint8), MetaTensor(np.eye(4)), file)
    assert images.header(file).shape == (4, 5, 6)
    cases = paired_datalists(tmp_path, "images/{id}.toy", "labels/{id}.toy")
    reader = reader_of(file)
    loading = [LoadFiled(["image", "label"], reader), LabelValuesd("label", [0, 1])]
    assert not check_files(cases, loading)
    assert LabelValuesd("label", [0, 1])({"label": images.read(file, reader)})["label"].unique().tolist() == [1]
    file.write_bytes(file.read_bytes()[:-3])
    (problem,) = check_files(cases, loading)
    assert str(problem) == f"{file}: the file is truncated. Copy it again."
    file.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        paired_datalists(tmp_path, "images/{id}.toy", "labels/{id}.toy")


def test_a_nifti_file_has_the_ending_of_its_content(tmp_path):
    make(tmp_path / "a.nii")
    content = (tmp_path / "a.nii").read_bytes()
    for name, data, reason in (
        ("b.nii.gz", content, "Not a gzipped file"),
        ("b.nii", gzip.compress(content), "ending is wrong"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=reason):
            images.read(tmp_path / name, NibabelReader())


def test_several_pages_and_16_bits_are_refused(tmp_path):
    pages = [Image.new("RGB", (9, 8))] * 2
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"^has 2 pages; save each as a file of its own$"):
        images.header(tmp_path / "a.tif")
    Image.new("I;16", (9, 8)).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"^has the mode I;16; save it with 8 bits per channel$"):
        images.read(tmp_path / "b.png", PILReader(converter=lambda image: image.convert("RGB")))
