# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The picture of the rooms shows what the rooms import."""

import ast
import re

from helpers import ROOT

HOME = ROOT / "monai_iels"


def room_of(file):
    return file.relative_to(HOME).parts[0].removesuffix(".py")


def floors():
    """Return the rooms of each line of the picture, from the top."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    picture = re.search(r"```text\nwhat people type.*?```", page, re.DOTALL)[0]
    lines = [line[24:].split() for line in picture.splitlines()[1:-1] if "─" not in line]
    return [line for line in lines if line]


def test_the_picture_shows_every_room_once():
    shown = [room for floor in floors() for room in floor]
    files = [file for file in HOME.rglob("*.py") if file.parent != HOME or not file.name.startswith("__")]
    assert sorted(shown) == sorted({room_of(file) for file in files})


def test_rooms_import_only_from_floors_below():
    level = {room: number for number, floor in enumerate(floors()) for room in floor}
    for file in HOME.rglob("*.py"):
        if room_of(file).startswith("__"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("monai_iels."):
                other = node.module.split(".")[1]
                assert other == room_of(file) or level[other] > level[room_of(file)], (file, other)
