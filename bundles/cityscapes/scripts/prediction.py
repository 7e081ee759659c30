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

"""Prediction from file to file with MONAI alone, and the checks of settings, weights and files that training shares.

``monai-iels bundle compose`` copies this file into each bundle as ``scripts/prediction.py``, so that a bundle predicts
without monai_iels. It must not import monai_iels. It reads from top to bottom: the run, then its settings, the weights
and folders, finding cases, reading one, writing one.
"""

from __future__ import annotations

import csv
import difflib
import functools
import gzip
import os
import re
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple

import itk
import nibabel
import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import ITKReader, MetaTensor
from monai.transforms import Compose, LoadImage
from PIL import Image, ImageColor
from torch.utils.data import IterableDataset
from tqdm import tqdm

_EXTENSIONS = {2: (".png", ".tif", ".tiff", ".bmp"), 3: (".nii.gz", ".nii", ".nrrd", ".mha")}
_GZIP = b"\x1f\x8b"
ADDED_BY_MONAI = ("is_not_rank0", "save_execute_config")  # keys of a config that nobody wrote
_UNEVEN = 0.1  # share of the distance of slices by which one may be out of place


class RunError(SystemExit):
    """A run cannot go on; its text is one sentence that says why and what to do.

    MONAI wraps every other exception that a config raises, and prints a traceback. It lets SystemExit pass, and
    ``python -m monai.bundle`` then prints the sentence and ends with exit code 1.
    """


def run_inference() -> None:
    """Predict as the config says that calls this: check, predict, report."""
    parser = parser_at_work()
    if parser is None:
        raise RunError("this config must load scripts/prediction.py in one expression, and call it in a later one")
    get = parser.get_parsed_content
    _check_settings(parser)
    get("files")  # refuses what cannot be found
    predictions = str(get("predictions"))
    if os.path.realpath(predictions) == os.path.realpath(str(get("dataset_dir"))):
        raise RunError(f"--predictions must be another folder than that of the images, got {predictions}")
    check_weights(get("checkpoint"), get("network_def"))
    check_writable(predictions, "predictions")
    evaluator = get("evaluator")
    try:
        evaluator.run()
    except KeyboardInterrupt:
        raise RunError("Interrupted: the predictions that exist are complete; the same command starts again") from None
    _report(get("dataset"), Path(predictions))


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


def _check_settings(parser: ConfigParser) -> None:
    """Refuse a mistyped key, or a value that cannot be used, before anything is built."""
    config = ConfigParser.load_config_file(Path(__file__).parents[1] / "configs" / "inference.json")
    known = {*config, *parser.get("known_keys", ()), *ADDED_BY_MONAI}
    for key in parser.get():
        if key not in known and key != ConfigParser.meta_key:
            raise RunError(unknown_key(key, known))
    check_rules(_RULES, {key: parser.get_parsed_content(key) for key in _RULES})


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return a sentence about a key that nothing defines, with the nearest one that exists.

    Example:
        >>> unknown_key("epoch", ["epochs", "seed"])
        "unknown key 'epoch': did you mean 'epochs'?"
    """
    nearest = difflib.get_close_matches(key, sorted(known), 1, 0.0)
    return f"unknown key '{key}'" + (f": did you mean '{nearest[0]}'?" if nearest else "")


class Rule(NamedTuple):
    """What a setting must be: a condition on its value and on all settings, and the same in words."""

    holds: Callable[[Any, Mapping[str, Any]], bool]
    words: str


def check_rules(rules: Mapping[str, Rule], values: Mapping[str, Any]) -> None:
    """Refuse a value that would fail late, or go wrong without a word.

    Raises:
        RunError: for the first one.
    """
    for key, rule in rules.items():
        if not rule.holds(values[key], values):
            raise RunError(f"--{key} must be {rule.words.format(**values)}, got {values[key]!r}")


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


def check_weights(
    file: str, network: torch.nn.Module, option: str = "checkpoint", free: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Return the weights of a network; refuse a file that is not there, cannot be read, or is of another network.

    Args:
        file: the file.
        network: the network.
        option: the key that names the file.
        free: names of weights that need not fit.

    Raises:
        RunError: in one sentence.
    """
    if not os.path.isfile(file):
        raise RunError(f"{file}: there are no weights of a network; train first, or set --{option}")
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = _first_line(error)
        raise RunError(f"{file}: cannot be read as weights ({reason}); set --{option} to a sound file") from None
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    content = weights if isinstance(weights, Mapping) else {}
    found = {name: tuple(getattr(value, "shape", ())) for name, value in content.items()}
    if {"network", "optimizer", "epoch"} <= found.keys():
        raise RunError(f"{file}: this is the state of a training; set --{option} to the model.pt beside it")
    if different := {str(name) for name, _ in wanted.items() ^ found.items()}.difference(free):
        name = min(different)
        raise RunError(
            f"{file}: these are weights of another network ('{name}' is {found.get(name, 'missing')} in the file and "
            f"{wanted.get(name, 'missing')} in the network); set --features as in the training that wrote the file; "
            "its inference.json has them"
        )
    return content


def check_writable(folder: str, option: str) -> None:
    """Refuse a folder that cannot be created or written to; nothing is created.

    Raises:
        RunError: with the option that chooses another folder.
    """
    path = Path(folder).absolute()
    try:
        nearest = next(place for place in (path, *path.parents) if place.exists())
        with tempfile.TemporaryFile(dir=nearest) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise RunError(f"{folder}: cannot be written to ({error.strerror}); set --{option} to another folder") from None


def find_cases(dataset_dir: str, suffixes: Sequence[str], spatial_dims: int) -> list[dict[str, str]]:
    """List what is to be predicted: a file, a folder of files, a pattern, or a folder of DICOM series."""
    place = str(dataset_dir)
    if os.path.isfile(place):
        return [{"image": place}]
    found = sorted(glob(f"{escape(place)}/*" if os.path.isdir(place) else place))
    cases = [{"image": file} for file in found if file.lower().endswith(tuple(suffixes)) and os.path.isfile(file)]
    if not cases and spatial_dims == 3:
        cases = [case for folder in filter(os.path.isdir, [place, *found]) for case in _find_series(folder)]
    if not cases and not found and not os.path.isdir(place) and place == escape(place):
        raise RunError(f"{place}: there is no such file or folder; set --dataset_dir to your images")
    if not cases:
        kind = "image" if spatial_dims == 2 else "volume or DICOM series"
        raise RunError(f"{place}: there is no {kind} ({', '.join(suffixes)}); set --dataset_dir to a file or a folder")
    names: dict[str, str] = {}
    for case in cases:
        other = names.setdefault(_stem(case), case["image"])
        if other != case["image"]:
            raise RunError(
                f"{other} and {case['image']}: their predictions would have the same name; rename or move one of them"
            )
    return cases


def _stem(case: Mapping[str, str]) -> str:
    """Return what the prediction of a case is called: MONAI cuts a name at its last dot, and at .gz before that."""
    name = os.path.basename(os.path.abspath(case["image"]))
    if "series" in case:
        return f"{name}_{case['uid']}".rstrip("_").replace(".", "-")
    return os.path.splitext(name.removesuffix(".gz"))[0]


def _find_series(folder: str) -> list[dict[str, str]]:
    """List the DICOM series of a folder; several are told apart by their UIDs."""
    files = _series_files(folder)
    uids = [str(dict(itk.imread(names[0]))["0020|000e"]).strip("\0 ") for names in files.values()]
    if len(set(uids)) < len(uids):
        uids = list(files)  # MONAI's keys tell parts of a series apart
    shown = uids if len(uids) > 1 else [""]
    return [{"image": folder, "series": key, "uid": uid} for key, uid in zip(files, shown, strict=False)]


def _series_files(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of each DICOM series in a folder, grouped as MONAI's reader groups them."""
    generator = itk.GDCMSeriesFileNames.New()
    generator.SetUseSeriesDetails(True)
    generator.AddSeriesRestriction("0008|0021")
    generator.SetGlobalWarningDisplay(False)
    generator.SetDirectory(folder)
    return {key: tuple(generator.GetFileNames(key)) for key in generator.GetSeriesUIDs()}


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
                shown = " ".join(filter(None, (case["image"], case.get("uid"))))
                self.problems.append((shown, _why(case["image"], _innermost(error))))
            else:
                yield prepared


def _why(file: str, error: BaseException) -> str:
    """Say in the end of a sentence why a case could not be read."""
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


@dataclass
class ReadImaged:
    """Read the image of a case, and refuse one that the network cannot be given.

    Args:
        reader: an image reader of MONAI's.
        spatial_dims: axes of an image.
        in_channels: its channels.
    """

    reader: Any
    spatial_dims: int
    in_channels: int

    def __call__(self, case: Mapping[str, str]) -> dict[str, MetaTensor]:
        """Return the case with its file replaced by its contents."""
        image = _read_series(case) if "series" in case else read_finite(case["image"], self.reader)
        found = f"{image.ndim - 1}-D, {image.shape[0]} channel(s)"
        taken = f"{self.spatial_dims}-D, {self.in_channels} channel(s)"
        if found != taken:
            raise ValueError(f"is of another kind ({found}) than the network takes ({taken})")
        if min(image.shape[1:]) < 2:
            raise ValueError(f"has only {' x '.join(map(str, image.shape[1:]))} pixels; at least 2 per axis are needed")
        return {"image": image}


def _read_series(case: Mapping[str, str]) -> MetaTensor:
    """Read a DICOM series; its prediction is named after the folder, and after the series if there are several."""
    _check_series(case["image"], case["series"])
    with warnings.catch_warnings():  # MONAI notes that there are several series; all are predicted
        warnings.simplefilter("ignore")
        image = read_finite(case["image"], ITKReader(series_name=case["series"]))
    image.meta["filename_or_obj"] = os.path.join(case["image"], _stem(case))
    return image


def _check_series(folder: str, series: str) -> None:
    """Refuse a series with a slice that is damaged or missing; ITK would move the other slices together."""
    files = _series_files(folder)
    unread = set(Path(folder).glob("[!.]*")).difference(*(map(Path, names) for names in files.values()))
    damaged = sorted(file.name for file in unread if file.is_file() and _looks_like_dicom(file))
    if damaged:
        raise ValueError(f"has DICOM files that cannot be read: {', '.join(damaged[:5])}; copy them again")
    places = []
    for file in files[series]:
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
    return file.suffix.lower() == ".dcm" or file.read_bytes()[128:132] == b"DICM"


def read_finite(file: Any, reader: Any) -> MetaTensor:
    """Read an image or volume, channel first, by one reader, and refuse one that is damaged or not finite.

    ITK fills what a truncated NIfTI file lacks, and NaN and infinite voxels, with zeros, and it looks at neither gzip's
    nor zlib's checksums. It does refuse short NRRD and MetaImage files.

    Raises:
        ValueError: with what is wrong, as the end of a sentence about the file; the reader raises other errors, too.
    """
    name = str(file).lower()
    if name.endswith((".nii", ".nii.gz")):
        _check_nifti(Path(file))
    elif name.endswith((".mha", ".mhd")):
        _check_meta_image(Path(file))
    image = LoadImage(image_only=True, ensure_channel_first=True)(file, reader)
    _check_finite(image.numpy())
    return image


def _check_nifti(file: Path) -> None:
    """Compare the length of a NIfTI file and gzip's checksum with what its headers promise, and look for NaN."""
    content = file.read_bytes()
    is_zipped = content.startswith(_GZIP)
    if content and is_zipped != (file.suffix.lower() == ".gz"):
        kind, ending = ("compressed", ".nii.gz") if is_zipped else ("not compressed", ".nii")
        raise ValueError(f"is {kind}; give it the ending {ending}")
    try:
        content = gzip.decompress(content) if is_zipped else content
        if nibabel.nifti2.Nifti2Header.may_contain_header(content):
            raise ValueError("is a NIfTI-2 file, which ITK does not read; save it as NIfTI-1")
        volume: Any = nibabel.nifti1.Nifti1Image.from_bytes(content)
        values = volume.dataobj.get_unscaled()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"is truncated or damaged ({_first_line(error)}); copy it again") from None
    _check_finite(values)


def _check_meta_image(file: Path) -> None:
    """Compare zlib's checksum of a compressed MetaImage."""
    header, _, rest = file.read_bytes().partition(b"ElementDataFile")
    if re.search(rb"CompressedData\s*=\s*True", header):
        name, _, data = rest.partition(b"\n")
        place = name.strip(b" =\r").decode()
        try:
            zlib.decompress(data if place == "LOCAL" else (file.parent / place).read_bytes())
        except zlib.error as error:
            raise ValueError(f"is truncated or damaged ({error}); copy it again") from None


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


IGNORED = 255
"""The number that stands for no class in a label: pixels to leave out."""

_COLORS = ("deepskyblue", "gold", "tomato", "limegreen", "orchid")


def color_of(number: int) -> str:
    """Return the color of a class in all pictures; after five classes the colors begin again."""
    return _COLORS[(number - 1) % len(_COLORS)]


def outline(image: torch.Tensor, classes: torch.Tensor, colors: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
    """Draw the outline of each class on an image in the color of the class; with colors of their own, fill them.

    Args:
        image: gray or RGB from 0 to 1, ``(C, H, W)``.
        classes: ``(1, H, W)``.
        colors: red, green and blue of each class; by default the first class is background and has none.

    Returns:
        RGB from 0 to 1, ``(3, H, W)``.
    """
    drawn = (image[:3] if len(image) >= 3 else image[:1].repeat(3, 1, 1)).clone()
    if colors is not None:
        return (drawn + torch.tensor(colors, dtype=drawn.dtype)[classes[0].long().cpu()].movedim(-1, 0) / 255) / 2
    width = max(1, round(min(drawn.shape[1:]) / 250))
    for number in torch.unique(classes[classes > 0]).int().tolist():
        inside = (classes == number).float().cpu()
        core = -torch.nn.functional.max_pool2d(-inside, 2 * width + 1, stride=1, padding=width)
        color = torch.tensor(ImageColor.getrgb(color_of(number)), dtype=drawn.dtype) / 255
        drawn[:, (inside > core)[0]] = color[:, None]
    return drawn


@dataclass
class Save:
    """Write what is known of a case under temporary names, then move all of it to its place, or nothing.

    Args:
        transforms: write files below ``unfinished``.
        unfinished: folder for the temporary names.
        predictions: the place.
    """

    transforms: Sequence[Callable[[Any], Any]]
    unfinished: str
    predictions: str

    def __call__(self, case: Any) -> Any:
        """Write the files of one case; end with one sentence if that fails."""
        shutil.rmtree(self.unfinished, ignore_errors=True)  # of a prediction that was killed
        try:
            saved = Compose(self.transforms)(case)
            for name in sorted(os.listdir(self.unfinished)):
                os.replace(os.path.join(self.unfinished, name), os.path.join(self.predictions, name))
        except Exception as error:
            reason = _first_line(_innermost(error))
            raise RunError(f"{self.predictions}: a prediction cannot be written ({reason})") from None
        finally:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        return saved


def _report(dataset: Images, predictions: Path) -> None:
    """Say where the predictions are, and which files could not be read: also in ``problems.csv``, and exit with 1."""
    count = len(dataset.data) - len(dataset.problems)
    print(f"{count} prediction{'' if count == 1 else 's'} in {predictions}")
    table = predictions / "problems.csv"
    table.unlink(missing_ok=True)
    if dataset.problems:
        predictions.mkdir(parents=True, exist_ok=True)
        with table.open("w", newline="", encoding="utf-8") as stream:
            rows = [("'" + file if file[0] in "=+-@" else file, problem) for file, problem in dataset.problems]
            csv.writer(stream).writerows([("file", "problem"), *rows])  # no name is a spreadsheet's formula
        for file, problem in dataset.problems:
            print(f"{file}: {problem}", file=sys.stderr)
        raise RunError(f"{len(dataset.problems)} of {len(dataset.data)} were not predicted; they are listed in {table}")
