# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Prediction from file to file with MONAI alone, and the checks of files and weights that training shares with it.

``monai-iels bundle compose`` copies this file into each bundle as ``scripts/prediction.py``, so that a bundle predicts
without monai_iels. It must not import monai_iels.
"""

from __future__ import annotations

import csv
import difflib
import functools
import gzip
import math
import os
import re
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import nibabel
import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import ITKReader, MetaTensor
from monai.transforms import Compose, LoadImage, MapTransform
from PIL import Image, ImageColor
from torch.utils.data import IterableDataset
from tqdm import tqdm

_EXTENSIONS = {2: (".png", ".tif", ".tiff", ".bmp"), 3: (".nii.gz", ".nii", ".nrrd", ".mha")}
_BLOCK = 1 << 20
_UNEVEN = 0.1  # share of the distance of slices by which one may be out of place


def _follow_parsers() -> ContextVar[ConfigParser | None]:
    """Let MONAI's parser note that it is at work while it evaluates an expression.

    This is our one hook into MONAI, which hands a config neither to the functions nor to the components that it calls.
    It wraps ``ConfigParser.get_parsed_content`` once per process, whichever copy of this file comes first. Workflows
    may nest and may run one after the other: each sees its own parser.
    """
    if not hasattr(ConfigParser, "_iels_at_work"):
        at_work: ContextVar[ConfigParser | None] = ContextVar("the parser at work", default=None)
        evaluate = ConfigParser.get_parsed_content

        @functools.wraps(evaluate)
        def get_parsed_content(self: ConfigParser, id: str = "", **kwargs: Any) -> Any:
            token = at_work.set(self)
            try:
                return evaluate(self, id, **kwargs)
            finally:
                at_work.reset(token)

        ConfigParser.get_parsed_content = get_parsed_content  # type: ignore[method-assign]
        ConfigParser._iels_at_work = at_work  # type: ignore[attr-defined]
    return ConfigParser._iels_at_work  # type: ignore[attr-defined]


_AT_WORK = _follow_parsers()


def parser_at_work() -> ConfigParser | None:
    """Return the parser whose expression is being evaluated.

    It is None in the expression that has loaded this file: the parser had begun before it could take note.
    """
    return _AT_WORK.get()


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return a sentence about a key that nothing defines, with the nearest one that exists.

    Example:
        >>> unknown_key("epoch", ["epochs", "seed"])
        "unknown key 'epoch': did you mean 'epochs'?"
    """
    nearest = difflib.get_close_matches(key, sorted(known), 1, 0.0)
    return f"unknown key '{key}'" + (f": did you mean '{nearest[0]}'?" if nearest else "")


def check_volume(file: str) -> None:
    """Refuse a volume that ITK would read wrongly without a word.

    ITK fills what a truncated NIfTI file lacks, and NaN and infinite voxels, with zeros, and it looks at neither gzip's
    nor zlib's checksums. It does refuse short NRRD and MetaImage files.

    Raises:
        ValueError: with what is wrong, as the end of a sentence about the file.
    """
    name = file.lower()
    try:
        if name.endswith((".nii", ".nii.gz")):
            _check_ending(file)
            header: Any = nibabel.loadsave.load(file)
            if isinstance(header, nibabel.nifti2.Nifti2Image):
                raise ValueError("is a NIfTI-2 file, which ITK does not read; save it as NIfTI-1")
            promised = header.dataobj.offset + math.prod(header.shape) * header.dataobj.dtype.itemsize
            found = sum(map(len, _blocks(file)))
            if found < promised:
                raise ValueError(f"is truncated: {found} of {promised} bytes are there; copy it again")
            if header.get_data_dtype().kind == "f":
                _check_finite(np.asanyarray(header.dataobj))
        elif name.endswith((".mha", ".mhd")):
            _check_meta_image(Path(file))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"is truncated or damaged ({error}); copy it again") from None


def _check_ending(file: str) -> None:
    with open(file, "rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    if zipped != file.lower().endswith(".gz"):
        raise ValueError(
            f"is {'' if zipped else 'not '}compressed; give it the ending {'.nii.gz' if zipped else '.nii'}"
        )


def _blocks(file: str) -> Iterator[bytes]:
    """Yield the contents of a file, unzipped if it is zipped; gzip's checksum is compared at the end."""
    with gzip.open(file) if file.lower().endswith(".gz") else open(file, "rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


def _check_meta_image(file: Path) -> None:
    """Compare zlib's checksum of a compressed MetaImage, which ITK does not look at."""
    header, _, rest = file.read_bytes().partition(b"ElementDataFile")
    fields = dict(re.findall(r"(?m)^(\w+)\s*=\s*(.*?)\s*$", header.decode("latin-1")))
    if fields.get("CompressedData") == "True":
        name, _, data = rest.partition(b"\n")
        place = name.strip(b" =\r").decode()
        if place != "LOCAL":
            data = (file.parent / place).read_bytes()
        zlib.decompress(data)


def read_finite(file: Any, reader: Any) -> MetaTensor:
    """Read an image or volume, channel first, by one reader, and refuse one that is damaged or not finite.

    Raises:
        ValueError: with what is wrong, as the end of a sentence about the file; the reader raises other errors, too.
    """
    if isinstance(file, str) and os.path.isfile(file):
        check_volume(file)
    image = LoadImage(image_only=True, ensure_channel_first=True)(file, reader)
    _check_finite(image.numpy())
    return image


def _check_finite(values: np.ndarray) -> None:
    if bad := np.count_nonzero(~np.isfinite(values)):
        raise ValueError(f"has {bad} NaN or infinite values; repair it")


def as_rgb(image: Image.Image) -> Image.Image:
    """Return an image in 8 bits of red, green and blue.

    Raises:
        ValueError: for more bits, which would be cut off, and for more pages, of which all but one would be ignored.
    """
    if image.mode[0] in "IF":
        raise ValueError(f"has the mode {image.mode}; save it with 8 bits per channel")
    pages = getattr(image, "n_frames", 1) if image.format != "MPO" else 1  # MPO: a photograph with a preview
    if pages > 1:
        raise ValueError(f"has {pages} pages; save each as a file of its own")
    return image.convert("RGB")


def check_weights(file: str, network: torch.nn.Module) -> None:
    """Refuse a checkpoint that is not there, cannot be read, or belongs to another network.

    Raises:
        ValueError: in one sentence.
    """
    if not os.path.isfile(file):
        raise ValueError(f"{file}: there are no weights of a network; train first, or set --checkpoint")
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = _first_line(error)
        raise ValueError(f"{file}: cannot be read as weights ({reason}); set --checkpoint to a sound file") from None
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    content = weights if isinstance(weights, Mapping) else {}
    found = {name: tuple(getattr(value, "shape", ())) for name, value in content.items()}
    if {"network", "optimizer", "epoch"} <= found.keys():
        raise ValueError(f"{file}: this is the state of a training; set --checkpoint to the model.pt beside it")
    if wanted != found:
        name = min(str(name) for name, _ in wanted.items() ^ found.items())
        raise ValueError(
            f"{file}: these are weights of another network ('{name}' is {found.get(name, 'missing')} in the file and "
            f"{wanted.get(name, 'missing')} in the network); set --features as in the training, or use the "
            "inference.json that it wrote"
        )


def find_cases(dataset_dir: str, suffixes: Sequence[str], spatial_dims: int) -> list[dict[str, str]]:
    """List what is to be predicted: a file, a folder of files, a pattern, or a folder of DICOM series."""
    dataset_dir = str(dataset_dir)
    if os.path.isfile(dataset_dir):
        return [{"image": dataset_dir}]
    listed = sorted(glob(f"{escape(dataset_dir)}/*" if os.path.isdir(dataset_dir) else dataset_dir))
    cases = [{"image": file} for file in listed if file.lower().endswith(tuple(suffixes)) and os.path.isfile(file)]
    if not cases and spatial_dims == 3:
        folders = [dataset_dir, *listed] if os.path.isdir(dataset_dir) else listed
        cases = [case for folder in folders if os.path.isdir(folder) for case in _series(folder)]
    if not cases:
        kind = "image" if spatial_dims == 2 else "volume or DICOM series"
        _refuse(f"{dataset_dir}: there is no {kind} ({', '.join(suffixes)}); set --dataset_dir to a file or a folder")
    stems = [_stem(case) for case in cases]
    if twice := [case["image"] for case, stem in zip(cases, stems, strict=True) if stems.count(stem) > 1]:
        shown = " and ".join(twice[:4]) + (f" and {len(twice) - 4} more" if len(twice) > 4 else "")
        _refuse(f"{shown}: their predictions would have the same name; rename or move one of them")
    return cases


def _stem(case: Mapping[str, str]) -> str:
    name = case.get("name") or os.path.basename(case["image"])
    stem, extension = os.path.splitext(name)
    return os.path.splitext(stem)[0] if extension == ".gz" else stem


def _series(folder: str) -> list[dict[str, str]]:
    """List the DICOM series of a folder; several are named by their UIDs, with hyphens instead of dots."""
    names = _series_names(folder)
    stem = os.path.basename(os.path.abspath(folder)).replace(".", "-")
    if len(names) < 2:
        given = {"name": stem} if "." in os.path.basename(os.path.abspath(folder)) else {}  # MONAI would cut it there
        return [{"image": folder, "series": key, **given} for key in names]
    uids = [_tag(files[0], "0020|000e") for files in names.values()]
    shown = uids if len(set(uids)) == len(uids) else list(names)  # MONAI's keys tell parts of a series apart
    return [
        {"image": folder, "series": key, "name": f"{stem}_{uid.replace('.', '-')}"}
        for key, uid in zip(names, shown, strict=True)
    ]


def _tag(file: str, tag: str) -> str:
    """Return a tag of a DICOM file."""
    import itk

    return str(dict(itk.imread(file))[tag]).strip("\0 ")


def _series_names(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of each DICOM series in a folder, grouped as MONAI's reader groups them."""
    import itk

    generator = itk.GDCMSeriesFileNames.New()
    generator.SetUseSeriesDetails(True)
    generator.AddSeriesRestriction("0008|0021")
    generator.SetGlobalWarningDisplay(False)
    generator.SetDirectory(folder)
    return {uid: tuple(generator.GetFileNames(uid)) for uid in generator.GetSeriesUIDs()}


def _check_series(folder: str, series: str) -> None:
    """Refuse a series with a slice that is damaged or missing; ITK would move the other slices together."""
    import itk

    names = _series_names(folder)
    readable = {os.path.basename(file) for files in names.values() for file in files}
    damaged = sorted(file for file in set(os.listdir(folder)) - readable if _looks_like_dicom(Path(folder, file)))
    if damaged:
        raise ValueError(f"has DICOM files that cannot be read: {', '.join(damaged[:5])}; copy them again")
    places = []
    for file in names[series]:
        codec = itk.GDCMImageIO.New()
        codec.SetFileName(file)
        codec.ReadImageInformation()
        normal = np.cross(codec.GetDirection(0), codec.GetDirection(1))
        places.append(float(np.dot(normal, [codec.GetOrigin(axis) for axis in range(3)])))
    gaps = np.diff(sorted(places))
    if gaps.size and np.ptp(gaps) > _UNEVEN * np.median(gaps):
        raise ValueError(
            f"has slices at uneven distances, from {gaps.min():g} to {gaps.max():g} mm: one is missing or twice there"
        )


def _looks_like_dicom(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return file.suffix.lower() == ".dcm" or stream.read(132)[128:] == b"DICM"


class ReadImaged(MapTransform):
    """Read the image of a case, and refuse one that the network cannot be given.

    Args:
        reader: an image reader of MONAI's.
        spatial_dims: axes of an image.
        in_channels: its channels.
    """

    def __init__(self, reader: Any, spatial_dims: int, in_channels: int) -> None:
        super().__init__("image")
        self.reader = reader
        self.shape = (in_channels, spatial_dims)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with its file replaced by its contents."""
        case = dict(data)
        if "series" in case:
            _check_series(case["image"], case["series"])
            with warnings.catch_warnings():  # MONAI notes that there are several series; all are predicted
                warnings.simplefilter("ignore")
                image = read_finite(case["image"], ITKReader(series_name=case["series"]))
        else:
            image = read_finite(case["image"], self.reader)
        if (image.shape[0], image.ndim - 1) != self.shape:
            channels, dims = self.shape
            found = f"{image.ndim - 1}-D, {image.shape[0]} channel(s)"
            raise ValueError(f"is of another kind ({found}) than the network takes ({dims}-D, {channels} channel(s))")
        if min(image.shape[1:]) < 2:
            raise ValueError(f"has only {' x '.join(map(str, image.shape[1:]))} pixels; at least 2 per axis are needed")
        if "name" in case:
            image.meta["filename_or_obj"] = os.path.join(case["image"], case["name"])
        return {"image": image}


class Images(IterableDataset):
    """The cases that can be read, one after the other; why the others cannot is collected in ``problems``.

    Args:
        data: the cases.
        transform: reads and prepares one.
    """

    def __init__(self, data: Sequence[Mapping[str, str]], transform: Callable[[Any], Any]) -> None:
        self.data = data
        self.transform = transform
        self.problems: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Any]:
        """Yield each case, and show how many are done where a person looks on."""
        self.problems.clear()
        for case in tqdm(self.data, desc="Predicting", unit="image", disable=None):
            try:
                prepared = self.transform(case)
            except Exception as error:
                self.problems.append((os.path.join(case["image"], case.get("name", "")).rstrip("/"), _why(case, error)))
            else:
                yield prepared


def _why(case: Mapping[str, str], error: BaseException) -> str:
    """Say in the end of a sentence why a case could not be read, from the innermost error."""
    error = _innermost(error)
    file = case["image"]
    if os.path.isfile(file) and not os.path.getsize(file):
        return "is empty; copy it again"
    if isinstance(error, ValueError) and str(error).startswith(("has ", "is ")):
        return str(error)
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "needs more memory than there is; cut it into parts, or save it smaller"
    if isinstance(error, KeyError):
        return f"cannot be prepared: the transforms of the training need {error}, which a new image has not"
    return f"cannot be read ({_first_line(error).replace(file, os.path.basename(file))}); copy it again"


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    """Return the first line of an error that is no place in ITK's sources."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not re.match(r".*\.(hxx|cxx|h):\d+:$", line)), type(error).__name__)


def run_inference() -> None:
    """Predict as the config says that calls this: check, predict, report."""
    parser = parser_at_work()
    if parser is None:
        _refuse("this config must load scripts/prediction.py in one expression, and call it in a later one")
    get = parser.get_parsed_content
    _check_settings(parser)
    files, predictions, network = get("files"), str(get("predictions")), get("network_def")
    _check_places(str(get("dataset_dir")), files, predictions, get("checkpoint"), network)
    evaluator, dataset = get("evaluator"), get("dataset")
    try:
        evaluator.run()
    except KeyboardInterrupt:
        _refuse("Interrupted: the predictions that exist are complete; the same command starts again")
    _report(dataset, predictions)


def _check_settings(parser: ConfigParser) -> None:
    """Refuse a mistyped key, or a value that cannot be used, before anything is built."""
    values = {key: parser.get_parsed_content(key) for key in _RULES}
    known = ConfigParser.load_config_file(Path(__file__).parents[1] / "configs" / "inference.json").keys()
    for key in parser.get():
        if key not in known and key != ConfigParser.meta_key:
            _refuse(unknown_key(key, known))
    try:
        check_rules(_RULES, values)
    except ValueError as error:
        _refuse(str(error))


class Rule(NamedTuple):
    """What a setting must be: a condition on its value and on all settings, and the same in words."""

    holds: Callable[[Any, Mapping[str, Any]], bool]
    words: str


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is a whole number that is large enough; true and false are not numbers."""
    return type(value) is int and value >= least


def whole_number(least: int) -> Rule:
    """Return the rule of a whole number."""
    return Rule(lambda value, _: is_whole(value, least), f"a whole number from {least}")


def _are_whole(values: Any, count: int, least: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(is_whole(value, least) for value in values)


def _is_device(value: Any, _: Mapping[str, Any]) -> bool:
    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError, TypeError):
        return False
    return True


NETWORK_RULES: dict[str, Rule] = {
    "spatial_dims": Rule(lambda value, _: value in (2, 3), "2 or 3"),
    "features": Rule(lambda value, _: _are_whole(value, 6, 1), "6 whole numbers from 1 in brackets"),
    "image_size": Rule(
        lambda value, all_: _are_whole(value, all_["spatial_dims"], 17),
        "{spatial_dims} whole numbers from 17 in brackets, since the network has 5 levels",
    ),
    "num_classes": whole_number(2),
    "label_values": Rule(
        lambda value, all_: isinstance(value, list) and len(value) == all_["num_classes"],
        "one entry per class, as --num_classes {num_classes} says",
    ),
    "device": Rule(_is_device, "a device that can be used here, such as cpu"),
}
"""Rules of the settings that training and prediction share."""

_RULES = NETWORK_RULES | {
    "overlap": Rule(lambda value, _: type(value) in (int, float) and 0 <= value < 1, "at least 0 and less than 1"),
    "sw_batch_size": whole_number(1),
    "amp": Rule(lambda value, _: str(value).lower() in ("true", "false"), "true or false"),
    "extension": Rule(
        lambda value, all_: value in _EXTENSIONS[all_["spatial_dims"]],
        "one of .nii.gz, .nii, .nrrd, .mha for volumes and of .png, .tif, .tiff, .bmp for images",
    ),
}


def check_rules(rules: Mapping[str, Rule], values: Mapping[str, Any]) -> None:
    """Refuse a value that would fail late, or go wrong without a word.

    Raises:
        ValueError: for the first one.
    """
    for key, rule in rules.items():
        if not rule.holds(values[key], values):
            raise ValueError(f"--{key} must be {rule.words.format(**values)}, got {values[key]!r}")


def _check_places(
    dataset_dir: str, files: Sequence[Mapping[str, str]], predictions: str, checkpoint: str, network: Any
) -> None:
    """Refuse weights that do not fit, and a folder that cannot be written to."""
    own = os.path.realpath(os.path.dirname(files[0]["image"])) == os.path.realpath(predictions)
    if own and os.path.isdir(dataset_dir):
        _refuse(f"--predictions must be another folder than that of the images, got {predictions}")
    try:
        check_weights(checkpoint, network)
        os.makedirs(predictions, exist_ok=True)
        with tempfile.TemporaryFile(dir=predictions) as probe:
            probe.write(bytes(4096))
    except ValueError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{predictions}: cannot be written to ({error.strerror}); set --predictions to another folder")


_COLORS = ("deepskyblue", "gold", "tomato", "limegreen", "orchid")


def color_of(number: int) -> str:
    """Return the color of a class in all pictures; after five classes the colors begin again."""
    return _COLORS[(number - 1) % len(_COLORS)]


def outline(image: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Draw the outline of each class on an image in the color of the class.

    Args:
        image: gray or RGB from 0 to 1, ``(C, H, W)``.
        classes: ``(1, H, W)``.

    Returns:
        RGB from 0 to 1, ``(3, H, W)``.
    """
    drawn = (image[:3] if len(image) >= 3 else image[:1].repeat(3, 1, 1)).clone()
    width = max(1, round(min(drawn.shape[1:]) / 250))
    for number in torch.unique(classes[classes > 0]).int().tolist():
        inside = (classes == number).float().cpu()
        core = -torch.nn.functional.max_pool2d(-inside, 2 * width + 1, stride=1, padding=width)
        color = torch.tensor(ImageColor.getrgb(color_of(number)), dtype=drawn.dtype) / 255
        drawn[:, (inside > core)[0]] = color[:, None]
    return drawn


class Save:
    """Write what is known of a case under temporary names, then move all of it to its place, or nothing.

    Args:
        transforms: write files below ``unfinished``.
        unfinished: folder for the temporary names.
        predictions: the place.
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], unfinished: str, predictions: str) -> None:
        self.transforms = Compose(transforms)
        self.unfinished = unfinished
        self.predictions = predictions

    def __call__(self, case: Any) -> Any:
        """Write the files of one case; end with one sentence if that fails."""
        shutil.rmtree(self.unfinished, ignore_errors=True)  # of a prediction that was killed
        try:
            saved = self.transforms(case)
            for name in sorted(os.listdir(self.unfinished)):
                os.replace(os.path.join(self.unfinished, name), os.path.join(self.predictions, name))
        except Exception as error:
            _refuse(f"{self.predictions}: a prediction cannot be written ({_first_line(_innermost(error))})")
        finally:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        return saved


def _report(dataset: Images, predictions: str) -> None:
    """Say where the predictions are, and which files could not be read: also in ``problems.csv``, and exit with 1."""
    count = len(dataset.data) - len(dataset.problems)
    print(f"{count} prediction{'' if count == 1 else 's'} in {predictions}")
    table = Path(predictions) / "problems.csv"
    table.unlink(missing_ok=True)
    if dataset.problems:
        with table.open("w", newline="", encoding="utf-8") as stream:
            rows = [("'" + file if file[0] in "=+-@" else file, problem) for file, problem in dataset.problems]
            csv.writer(stream).writerows([("file", "problem"), *rows])  # no name is a spreadsheet's formula
        for file, problem in dataset.problems:
            print(f"{file}: {problem}", file=sys.stderr)
        _refuse(f"{len(dataset.problems)} of {len(dataset.data)} were not predicted; they are listed in {table}")


def _refuse(sentence: str) -> NoReturn:
    """End with one sentence; MONAI's command line prints it without a traceback, and the exit code is 1."""
    raise SystemExit(sentence if sentence.endswith("?") else f"{sentence}.")
