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

"""Finding files: folders below a root, or in its archives, and the pairs of image and label that belong together."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from monai.config import PathLike

from monai_iels.data.archives import is_archive, unpack
from monai_iels.data.problems import DataError, Problem

__all__ = [
    "Case",
    "Datalists",
    "archives",
    "folder_below",
    "listing",
    "not_found",
    "pair",
    "places",
    "walk",
]

Case = dict[str, str | list[str]]
Datalists = dict[str, list[Case]]

_LITTER = {"thumbs.db", "desktop.ini", "__macosx"}


def listing(folder: Path) -> list[Path]:
    """Return what is in ``folder``, sorted, without what operating systems leave behind.

    Raises:
        DataError: if the folder cannot be read.
    """
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name.lower() not in _LITTER)
    except OSError as error:
        found = f"'{(error.strerror or str(error)).lower()}'"
        raise DataError([Problem("unreadable", str(folder), "a folder", found, "Check its rights.")]) from None


def walk(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Yield every file below ``folder``, sorted; links are followed, and one that leads back to its parent is named."""
    above = {os.path.realpath(folder)}

    def below(directory: Path, above: set[str]) -> Iterator[Path]:
        for path in listing(directory):
            if not path.is_dir():
                yield path
            elif (real := os.path.realpath(path)) in above:
                problems.append(_loop(path))
            else:
                yield from below(path, above | {real})

    yield from below(folder, above)


def _loop(path: Path) -> Problem:
    return Problem("unreadable", str(path), "a folder", "a link that leads back to itself", "Remove the link.")


def places(root: PathLike, expected: str, cache_dir: PathLike | None) -> Iterator[Path]:
    """Yield the folders to look for a data set in: ``root``, then, only if asked on, what its archives hold.

    Raises:
        DataError: where ``root`` is not there or cannot be opened, with what was ``expected``.
    """
    root = Path(os.path.abspath(Path(root).expanduser()))
    try:
        contents = archives(root)
        if root.is_dir():
            yield root
        elif not contents:
            root.stat()
            raise DataError([Problem("missing", str(root), expected, "a file", "Pass the folder that holds it.")])
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        problem = Problem("missing", str(root), expected, f"'{reason}'", "Check the path for a typo.")
        raise DataError([problem]) from None
    broken: list[Problem] = []
    for archive in contents:
        try:
            yield unpack(archive, cache_dir)
        except DataError as error:
            broken.extend(error.problems)
    if broken:
        raise DataError(broken)


def folder_below(root: PathLike, name: str, inside: str, cache_dir: PathLike | None = None) -> Path:
    """Return the folder that holds a data set: ``root/name``, ``root`` itself, or ``name`` up to two levels below.

    Args:
        root: the folder that the user points at; where it holds only archives, they are unpacked.
        name: name of the official folder.
        inside: glob pattern of what the folder holds.
        cache_dir: where archives are unpacked.

    Raises:
        DataError: where there is none, with what was found instead.
    """
    root = Path(root).expanduser()
    expected = f"a folder '{name}' that has {inside}"
    for place in places(root, expected, cache_dir):
        for folder in (place / name, place, *sorted(place.glob(f"*/{name}")), *sorted(place.glob(f"*/*/{name}"))):
            if folder.is_dir() and next(folder.glob(_any_case(inside)), None) is not None:
                return folder
    raise DataError([not_found(root, expected)])


def _any_case(pattern: str) -> str:
    """Return a glob pattern that matches upper and lower case alike."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in pattern)


def not_found(root: Path, expected: str) -> Problem:
    """Say what is in ``root`` instead of what was expected."""
    names = [path.name for path in listing(root)] if root.is_dir() else [root.name]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "an empty folder"
    return Problem("missing", str(root), expected, shown, "Pass the folder that the data set was unpacked into.")


def pair(
    folder: Path, patterns: Mapping[str, str], problems: list[Problem], optional: Sequence[str] = ()
) -> list[Case]:
    """Match the files of a folder by what ``{id}`` stands for in their names.

    Args:
        folder: the folder that the patterns are relative to.
        patterns: to each key of a case, the relative path of its file, such as ``"images/{id}_training.tif"``.
        problems: gets a :class:`Problem` for each file that misses its partners, and for each that fits no pattern.
        optional: keys that a case may lack.

    Returns:
        the complete cases, sorted by id.
    """
    found: dict[str, dict[str, Path]] = {key: {} for key in patterns}
    for name in sorted({os.path.dirname(pattern) for pattern in patterns.values()}):
        here = {key: os.path.basename(p) for key, p in patterns.items() if os.path.dirname(p) == name}
        directory = folder / name
        names = " or ".join(p.format(id="<id>") for p in here.values())
        for path in listing(directory) if directory.is_dir() else []:
            if not _match(path, here, found):
                problems.append(Problem("extra", str(path), f"only {names}", "it", "Move the file elsewhere."))
        for key in here:
            if not found[key] and key not in optional:
                state = "none" if directory.is_dir() else "no such folder"
                expected = f"files named {here[key].format(id='<id>')}"
                problems.append(Problem("missing", str(directory), expected, state, "Unpack the data set again."))
    return _complete(folder, patterns, found, problems, optional)


def _match(path: Path, patterns: Mapping[str, str], found: dict[str, dict[str, Path]]) -> bool:
    """Note which pattern a file fits, the longest one first: ``{id}_mask.png`` before ``{id}.png``."""
    for key, pattern in sorted(patterns.items(), key=lambda item: len(item[1]), reverse=True):
        before, after = (re.escape(part) for part in pattern.split("{id}"))
        if match := re.fullmatch(f"{before}(.+){after}", path.name, re.IGNORECASE):
            return found[key].setdefault(match[1], path) is path
    return False


def _complete(
    folder: Path,
    patterns: Mapping[str, str],
    found: Mapping[str, Mapping[str, Path]],
    problems: list[Problem],
    optional: Sequence[str],
) -> list[Case]:
    cases: list[Case] = []
    for identity in sorted({i for files in found.values() for i in files}):
        case: Case = {key: str(files[identity]) for key, files in found.items() if identity in files}
        missing = [key for key in patterns if key not in case and key not in optional and found[key]]
        if missing:
            expected = " and ".join(str(folder / patterns[key].format(id=identity)) for key in missing)
            remedy = "Copy the missing file from the source, or move this one elsewhere."
            problems.append(Problem("unmatched", str(next(iter(case.values()))), f"{expected} with it", "none", remedy))
        elif all(key in case or key in optional for key in patterns):
            cases.append(case)
    return cases


def archives(root: Path) -> list[Path]:
    """Return the zip and tar files of ``root``, or ``root`` itself if it is one."""
    paths = [root] if root.is_file() else listing(root) if root.is_dir() else []
    return [path for path in paths if is_archive(path) and not path.is_dir()]
