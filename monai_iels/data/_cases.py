# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Cases, the files that belong together: found by the part of their names that they share, split into datalists."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

from monai.data import partition_dataset
from monai.utils import ensure_tuple

from monai_iels.data._problems import Problems
from monai_iels.data._search import contents, listing

Case = dict[str, str | list[str]]
"""To each key, such as ``image``, its file; or several files, such as one mask per nucleus."""

Datalists = dict[str, list[Case]]
"""To each section, such as ``training``, its cases, as MONAI's data sets take them."""


def all_cases(datalists: Datalists) -> list[Case]:
    """Return the cases of all sections."""
    return list(chain.from_iterable(datalists.values()))


def cases_of(datalists: Datalists, section: str) -> list[Case]:
    """Return the cases of one section.

    Raises:
        ValueError: for a section that has no cases.
    """
    if not datalists.get(section):
        sections = ", ".join(name for name, cases in datalists.items() if cases)
        raise ValueError(f"--section must be one of {sections}, got '{section}'")
    return datalists[section]


def case_files(case: Case, keys: Collection[str] | None = None) -> list[str]:
    """Return the files of a case, of all keys or only of ``keys``."""
    chosen = [ensure_tuple(files) for key, files in case.items() if keys is None or key in keys]
    return list(chain.from_iterable(chosen))


def all_files(datalists: Datalists, keys: Collection[str] | None = None) -> list[str]:
    """Return the files of all cases, each once."""
    files = chain.from_iterable(case_files(case, keys) for case in all_cases(datalists))
    return list(dict.fromkeys(files))


def split(
    cases: Sequence[Case], validation: float, seed: int, test: float = 0.0, groups: Sequence[str] | None = None
) -> Datalists:
    """Shuffle ``cases`` by ``seed`` and divide them into sections, each of which is sorted again.

    Args:
        cases: the cases.
        validation: fraction of the cases for validation, at least one.
        seed: seed of the order.
        test: fraction of the cases for testing; there is no such section for 0.
        groups: the group of each case, such as its patient; no group is divided. By default each case is alone.

    Example:
        >>> sections = split([{"image": f"{i:03}.bmp"} for i in range(300)], 0.1, seed=0)
        >>> {name: len(cases) for name, cases in sections.items()}
        {'training': 270, 'validation': 30}
    """
    members: dict[str, list[Case]] = {}
    for case, group in zip(cases, groups or map(str, range(len(cases))), strict=True):
        members.setdefault(group, []).append(case)
    (rest,) = partition_dataset(list(members.values()), ratios=[1], shuffle=True, seed=seed)
    taken = {"validation": _take(rest, max(1, round(len(cases) * validation)))}
    if test:
        taken["test"] = _take(rest, max(1, round(len(cases) * test)))
    sections = {"training": list(chain(*rest)), **taken}
    return {name: sorted(section, key=lambda case: case["image"]) for name, section in sections.items()}


def _take(groups: list[list[Case]], count: int) -> list[Case]:
    """Remove groups, from the end on, with about ``count`` cases together; at least one group, if there is one."""
    taken: list[list[Case]] = []
    for group in reversed(groups):
        missing = count - sum(map(len, taken))
        if abs(missing - len(group)) < missing:
            taken.append(group)
    taken = taken or sorted(groups, key=len)[:1]
    for group in taken:
        groups.remove(group)
    return list(chain(*taken))


def complete(found: Mapping[str, Mapping[str, str]], names: Mapping[str, str], problems: Problems) -> list[Case]:
    """Return the cases of which every file was found, sorted by id.

    Args:
        found: to each key of a case, the file of each id.
        names: to each key, what its files are called, with ``{id}`` for the id.
        problems: gets a problem for each file that lacks a partner, unless there is no file of this kind at all.
    """
    cases: list[Case] = []
    for identity in sorted(set().union(*found.values())):
        case: Case = {key: files[identity] for key, files in found.items() if identity in files}
        for key, files in found.items():
            if files and key not in case:
                name = names[key].replace("{id}", identity)
                problems.add("unmatched", str(next(iter(case.values()))), f"its {key} {name} is missing")
        if len(case) == len(found):
            cases.append(case)
    return cases


def pair(folder: Path, patterns: Mapping[str, str], problems: Problems) -> list[Case]:
    """Match the files of a folder by what ``{id}`` stands for in their names.

    Args:
        folder: the folder that the patterns are relative to.
        patterns: to each key of a case, the relative path of its file, such as ``"images/{id}_training.tif"``.
        problems: gets a problem for each file that lacks a partner, and for each that fits no pattern.

    Returns:
        the complete cases, sorted by id.
    """
    found: dict[str, dict[str, str]] = {key: {} for key in patterns}
    paths = {key: folder / pattern for key, pattern in patterns.items()}
    for directory in sorted({path.parent for path in paths.values()}):
        names = {key: path.name for key, path in paths.items() if path.parent == directory}
        shown = " and ".join(name.replace("{id}", "<id>") for name in names.values())
        for path in listing(directory):
            identity, key = _match(path.name, names) or ("", "")
            if not key:
                problems.add("extra", path, f"unexpected file: only {shown} belong here")
            elif first := found[key].get(identity):
                problems.add("extra", path, f"it has the same id as {first}")
            else:
                found[key][identity] = str(path)
    for key, path in paths.items():
        if not found[key] and path.parent.is_dir():
            problems.add("missing", path.parent, f"there are no files named {path.name.replace('{id}', '<id>')}")
        elif not found[key]:
            problems.add("missing", path.parent, f"there is no such folder here, {contents(folder)}")
    return complete(found, patterns, problems)


def _match(name: str, patterns: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the id and the key of a file; the longest pattern goes first: ``{id}_mask.png`` before ``{id}.png``."""
    for key, pattern in sorted(patterns.items(), key=lambda item: len(item[1]), reverse=True):
        before, after = (re.escape(part) for part in pattern.split("{id}"))
        if match := re.fullmatch(f"{before}(.+){after}", name, re.IGNORECASE):
            return match[1], key
    return None
