# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Outlines and sheets of pictures."""

import numpy as np
import torch
from PIL import Image, ImageColor

from monai_iels.pictures import Sheet, color_of, outline, tiles


def test_overlays_outline_each_class_in_its_color():
    classes = torch.zeros(1, 12, 12)
    classes[:, 2:10, :9] = 1  # reaches the border of the image, which is no outline
    classes[:, 4:7, 4:7] = 2
    drawn = (255 * outline(torch.full((1, 12, 12), 0.2), classes)).round().int()
    for place, number in (((2, 2), 1), ((9, 8), 1), ((4, 4), 2), ((6, 5), 2)):
        assert tuple(drawn[(slice(None), *place)].tolist()) == ImageColor.getrgb(color_of(number))
    for place in ((5, 5), (8, 0), (0, 0), (11, 11)):
        assert drawn[(slice(None), *place)].tolist() == [51, 51, 51]
    assert len({color_of(number) for number in range(1, 6)}) == 5
    assert color_of(6) == color_of(1)


def test_a_sheet_of_volumes_shows_the_top_above_and_has_no_gaps(tmp_path):
    truth = np.zeros((6, 40, 20), dtype=np.uint8)  # right, anterior, superior
    truth[3, :, 15:] = 1
    row = tiles(truth[None].astype(np.float32), {"truth": truth})
    assert row["truth"].pixels[:5].all()
    assert not row["truth"].pixels[5:].any()
    Sheet([row] * 4, ["background", "organ"]).draw("volumes", tmp_path / "sheet.png")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png").convert("L"))
    assert (pixels.min(axis=1) == 255).mean() < 0.2  # rows of the picture that are white
