# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Ask the adviser about labels whose errors are known, and count how often it is right.

Run ``MONAI_IELS_DATA=DIR python benchmarks/advice.py``, where DIR has the folders ``wbc``, ``dsb2018`` and
``hippocampus``; without it, with synthetic labels. The limits of the rules were chosen on the even labels; what is
counted here are sets of the odd ones, with other seeds of the errors.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from monai.data import MetaTensor
from monai.transforms import ResizeWithPadOrCrop
from tqdm import tqdm

from monai_iels import (
    BiteLabel,
    CocoLabel,
    CorruptLabel,
    CutLabel,
    GrowLabel,
    MarkovLabel,
    MixAnnotators,
    OmitObjects,
    PolygonLabel,
    WobbleLabel,
)
from monai_iels.advice._diagnosis import (
    ANSWERS,
    BITTEN,
    CLEAN,
    POLYGONS,
    RAGGED,
    SCATTERED,
    SHARED,
    SLICES,
    diagnose,
)
from monai_iels.advice._reading import Label, labels_of_source
from monai_iels.advice._signs import Repeats, measure, specks_of
from monai_iels.data import SOURCES

CASES = 40  # labels of each half
DRAWN = 30  # labels of one set that the adviser is asked about
DRAWS = 5  # sets of each data set and error
SIZE_OF_VOLUMES = (48, 64, 48)  # as in the bundle: noise at the same places needs labels of one size
SCALES = {"wbc": 2.0, "dsb2018": 1.0, "hippocampus": 0.8}  # strength of the errors, as large as the objects
CLASSES = {"wbc": 3, "dsb2018": 2, "hippocampus": 3}


def errors(name: str, seed: int) -> dict[str, tuple[str, object]]:
    """Return for each error the answer that is right, and the transform."""
    scale, is_volume = SCALES[name], name == "hippocampus"
    noise = functools.partial(CorruptLabel, CLASSES[name], seed=seed, fraction=0.2 if is_volume else 0.1)
    steps = 40 if is_volume else round(50 * scale)
    table: dict[str, tuple[str, object]] = {
        "clean": (CLEAN, None),
        "grown": (CLEAN, GrowLabel(scale)),
        "shrunk": (CLEAN, GrowLabel(-scale)),
        "shifted": (CLEAN, WobbleLabel(2 * scale, math.inf, seed=seed)),
        "wobble, long waves": (CLEAN, WobbleLabel(1.5 * scale, 15 * scale, seed=seed)),
        "objects left out": (CLEAN, OmitObjects(0.3, seed=seed)),
        "two annotators": (CLEAN, MixAnnotators([GrowLabel(scale), GrowLabel(-scale)], seed=seed)),
        "noise at the same places": (SHARED, noise(window=2, shared=True)),
        "3x3 at the same places": (SHARED, noise(window=3, shared=True)),
        "noise of each image": (SCATTERED, noise(window=2, shared=False)),
        "1x1 of each image": (SCATTERED, noise(window=1, shared=False)),
        "Markov, growing": (RAGGED, MarkovLabel(steps, 0.8, 0.05, smoothing=1.0 if is_volume else 2.0, seed=seed)),
        "Markov, both ways": (RAGGED, MarkovLabel(steps, 0.5, 0.05, smoothing=0.5 if is_volume else 1.0, seed=seed)),
        "wobble, short waves": (RAGGED, WobbleLabel(max(1.5, 1.5 * scale), max(2.5, 2 * scale), seed=seed)),
        "polygons": (POLYGONS, PolygonLabel(round(13 * scale), seed=seed)),
        "COCO-N, medium": (POLYGONS, CocoLabel("medium", scale=0.25 * scale, seed=seed)),
        "bites": (BITTEN, BiteLabel(2, 4 * scale, seed=seed)),
        "strips left out": (BITTEN, CutLabel(1, 2 * scale if not is_volume else 4.0, seed=seed)),
    }
    if is_volume:
        table["slices shifted"] = (SLICES, WobbleLabel(1.0, math.inf, slices=-1, seed=seed))
        table["slices shifted, other axis"] = (SLICES, WobbleLabel(1.0, math.inf, slices=1, seed=seed))
        table["slices wobble"] = (SLICES, WobbleLabel(1.5, 5.0, slices=-1, seed=seed))
    return table


def labels_of(name: str, data: Path, cache: Path, half: int) -> list[Label]:
    """Return every second label of a data set, some of them, evenly chosen; volumes in one size."""
    files = labels_of_source(name, data / name, cache)
    halved = type(files)(files.files[half::2], files.read)
    fit = ResizeWithPadOrCrop(SIZE_OF_VOLUMES)
    return [
        label
        if label.classes.ndim == 2
        else Label(
            label.name, np.asarray(fit(torch.from_numpy(label.classes[None])))[0].astype(np.int16), label.spacing
        )
        for label in halved.labels(CASES)
    ]


def changed(label: Label, error: object) -> np.ndarray:
    """Return a label with an error; its file name and its values decide what is drawn."""
    if not callable(error):
        return label.classes
    affine = torch.diag(torch.tensor([*label.spacing, *[1.0] * (4 - len(label.spacing))]))
    tensor = MetaTensor(
        torch.from_numpy(label.classes.copy())[None], affine=affine, meta={"filename_or_obj": label.name}
    )
    return np.asarray(error(tensor))[0].astype(np.int16)


def ask(labels: Sequence[Label], error: object, draws: int, seed: int) -> Iterator[dict[str, object]]:
    """Ask about sets of labels with an error, drawn from all of them."""
    with_errors = [changed(label, error) for label in labels]
    specks = [specks_of(each) for each in with_errors]
    signs = [measure(*each) for each in zip(with_errors, [label.spacing for label in labels], specks, strict=True)]
    random = np.random.RandomState(seed)
    for _ in range(draws):
        chosen = random.permutation(len(labels))[:DRAWN]
        repeats = Repeats()
        for index in chosen:
            repeats.add(specks[index])
        found = diagnose([signs[index] for index in chosen], repeats.correlation())
        yield {"answer": found.answer, "share": found.share, **found.signs}


def run(data: Path, cache: Path, halves: Sequence[int]) -> list[dict[str, object]]:
    """Return one row for each set that the adviser was asked about."""
    rows = []
    for half in halves:
        for name in SCALES:
            labels = labels_of(name, data, cache, half)
            for error, (right, transform) in tqdm(errors(name, half).items(), desc=name, disable=None):
                for draw, found in enumerate(ask(labels, transform, DRAWS, half)):
                    rows.append({"half": half, "data": name, "error": error, "right": right, "draw": draw, **found})
    return rows


def in_words(rows: Sequence[dict[str, object]], kind: str) -> str:
    """Return the page: how many answers are right, and what was answered for each error."""
    right = [row["answer"] == row["right"] for row in rows]
    clean = [row for row in rows if row["error"] == "clean"]
    is_seen = [row["right"] != CLEAN for row in rows]
    seen = [hit for hit, shown in zip(right, is_seen, strict=True) if shown]
    names = list(dict.fromkeys(str(row["data"]) for row in rows))
    lines = [
        "# The adviser on labels whose errors are known\n",
        f"{kind}. {DRAWN} labels per set, {DRAWS} sets per data set and error, drawn from {CASES} labels that no limit",
        "was chosen on. `python benchmarks/advice.py` makes this page and its figure.\n",
        "| | right |",
        "|---|---|",
        f"| all | {_share(right)} |",
        f"| errors that labels can show | {_share(seen)} |",
        *(
            f"| {n} | {_share([hit for hit, row in zip(right, rows, strict=True) if row['data'] == n])} |"
            for n in names
        ),
        f"| clean labels called clean | {_share([row['answer'] == CLEAN for row in clean])} |\n",
        "Right means: *nothing to be seen* for clean labels and for errors that labels alone cannot show (grown,",
        "shrunk, shifted, long waves, objects left out, two annotators); one answer for Markov noise and short waves;",
        "one for polygons of both kinds; one for bites and strips. Rows are errors, columns answers, numbers are sets.",
        "The sets of one row and data set overlap, so they are no independent trials.\n",
        f"| error | right answer | {' | '.join(ANSWERS)} | right |",
        "|---" * (len(ANSWERS) + 3) + "|",
    ]
    for error in dict.fromkeys(str(row["error"]) for row in rows):
        own = [row for row in rows if row["error"] == error]
        counts = [sum(row["answer"] == answer for row in own) for answer in ANSWERS]
        hits = [row["answer"] == row["right"] for row in own]
        cells = " | ".join(str(count or "") for count in counts)
        lines.append(f"| {error} | {own[0]['right']} | {cells} | {_share(hits)} |")
    lines += ["", "By data set, where not all are right:\n", "| data | error | answers |", "|---|---|---|"]
    for name in names:
        for error in dict.fromkeys(str(row["error"]) for row in rows):
            own = [row for row in rows if row["error"] == error and row["data"] == name]
            if any(row["answer"] != row["right"] for row in own):
                given = ", ".join(
                    f"{sum(r['answer'] == a for r in own)} {a}" for a in ANSWERS if any(r["answer"] == a for r in own)
                )
                lines.append(f"| {name} | {error} | {given} |")
    return "\n".join(lines) + "\n"


def _share(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)} ({100 * sum(hits) / max(1, len(hits)):.0f} %)"


def draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    """Draw the confusion matrix: the share of sets of each error that got each answer."""
    names = list(dict.fromkeys((str(row["error"]), str(row["right"])) for row in rows))
    names.sort(key=lambda pair: ANSWERS.index(pair[1]))
    shares = np.array(
        [
            [np.mean([row["answer"] == answer for row in rows if row["error"] == error]) for answer in ANSWERS]
            for error, _ in names
        ]
    )
    figure = Figure(figsize=(8.6, 0.34 * len(names) + 2.2), layout="constrained")
    axis = figure.subplots()
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(len(ANSWERS)), [textwrap.fill(answer, 11) for answer in ANSWERS], fontsize=9)
    axis.set_yticks(range(len(names)), [_row_name(*name) for name in names], fontsize=9)
    axis.xaxis.tick_top()
    for y, (_, right) in enumerate(names):
        x = ANSWERS.index(right)
        axis.add_patch(_frame(x, y))
        for column, share in enumerate(shares[y]):
            if share:
                axis.text(column, y, f"{100 * share:.0f} %", ha="center", va="center", fontsize=9,
                          color="white" if share > 0.5 else "black")  # fmt: skip
    axis.set_title("What the adviser answered (columns) to each error (rows). Framed: right", fontsize=10)
    figure.supxlabel("* labels alone cannot show this error: right is to see nothing", fontsize=9)
    figure.savefig(file, dpi=110)


def _row_name(error: str, right: str) -> str:
    return f"{error} *" if right == CLEAN and error != "clean" else error


def _frame(x: int, y: int) -> Rectangle:
    return Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#d95f02", linewidth=1.6)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and the figure."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, default=here / "advice.md")
    parser.add_argument("--figure", type=Path, default=here.parent / "docs" / "figures" / "advice.png")
    parser.add_argument("--rows", type=Path, help="also write one row per set, with its signs, as JSON")
    parser.add_argument("--halves", type=int, nargs="+", default=[1], help="0: the labels that limits were chosen on")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data, kind = Path(os.environ.get("MONAI_IELS_DATA", folder)), "Real labels"
        if "MONAI_IELS_DATA" not in os.environ:
            kind = "Synthetic labels"
            for name in SCALES:
                SOURCES[name].synthesize(data / name, 2 * CASES)
        rows = run(data, Path(folder, "cache"), options.halves)
    if options.rows:
        options.rows.write_text(json.dumps(rows))
    options.output.write_text(in_words(rows, kind))
    draw(rows, options.figure)


if __name__ == "__main__":
    main()
