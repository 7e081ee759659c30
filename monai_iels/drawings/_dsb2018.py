# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Micrographs of cell nuclei, modeled on the kinds of microscopy in stage 1 of the 2018 Data Science Bowl."""

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Rng, polar, soft_step, to_bytes

# Kinds of microscopy: share of all images; range of the median area of a nucleus in pixels; range of the share of the
# image that nuclei are asked to cover; colors of ground, tissue and nuclei (RGB or one level of gray); presence of the
# tissue, from -2 (hardly any) to 2 (nearly everywhere); how much stronger the middle of a nucleus is than its rim;
# stray light. Fluorescence of small, of crowded and of large nuclei; tissue in lilac, smears, bright field.
_KINDS: list[tuple] = [
    (0.4, (60, 250), (0.02, 0.12), (5,), (14,), (75,), -1.5, 0.6, 0.1),
    (0.2, (250, 800), (0.1, 0.4), (5,), (12,), (42,), -1.5, 0.4, 0.25),
    (0.2, (1000, 2800), (0.15, 0.45), (6,), (11,), (36,), -1.5, 0.3, 0.1),
    (0.1, (150, 1500), (0.1, 0.4), (196, 176, 212), (166, 138, 200), (110, 58, 188), 0.3, -0.3, 0.08),
    (0.06, (310, 560), (0.13, 0.4), (228, 227, 226), (204, 190, 206), (122, 52, 160), -0.8, 0.0, 0.08),
    (0.04, (180, 340), (0.01, 0.03), (228,), (165,), (80,), -0.8, 0.3, 0.0),
]


def draw_dsb2018(rng: Rng, shape: tuple[int, int] = (256, 256)) -> tuple[Array, Array]:
    """Draw a microscopy image of cell nuclei and its instances.

    The kinds of the original data set occur with about their proportions: fluorescence of several magnifications and
    densities, stained tissue and bright field.

    Args:
        rng: draws everything that varies; the same state gives the same image.
        shape: height and width of the image. Nuclei shrink moderately in images of less than 256 pixels.

    Returns:
        The RGB image (height, width, 3) as uint8 and the instances (height, width) as int32: 0 is background,
        1 to n are the nuclei.
    """
    canvas = Canvas(rng, shape)
    kind = _KINDS[rng.choice(len(_KINDS), p=[share for share, *_ in _KINDS])]
    _, area, covered, bare, tissue, color, presence, dome, stray = kind
    radius = np.clip(np.sqrt(min(shape) / 256), 0.5, 1.0) * np.sqrt(np.exp(rng.uniform(*np.log(area))) / np.pi)
    count = round(np.exp(rng.uniform(*np.log(covered))) * shape[0] * shape[1] / (np.pi * radius**2))
    stain, instances = _paint_nuclei(canvas, _scatter(canvas, radius, max(3, count)), dome)
    # Nobody annotates specks.
    stain += 0.7 * canvas.spots(rng.uniform(0.0, shape, (rng.poisson(0.3 * count), 2)), 1.2, 1.0)
    sharp = ndimage.gaussian_filter(stain, rng.uniform(0.6, 1.4))
    haze = stray * rng.uniform(0.3, 1.7) * ndimage.gaussian_filter(stain, 7.0, truncate=2.5)
    strength = np.exp(0.25 * rng.standard_normal()) * (sharp + haze)[..., None]
    patches = 0.5 * canvas.noise(2.0) + canvas.noise(12.0) + canvas.noise(40.0) + presence
    ground = bare + soft_step(patches, 4.0)[..., None] * np.subtract(tissue, bare)
    picture = ground + 1.8 * np.tanh(strength / 1.8) * (np.ones(3) * color - ground)
    light = np.exp(0.1 * rng.standard_normal() + rng.uniform(0.0, 0.06) * canvas.noise(0.4 * max(shape)))[..., None]
    noise = rng.uniform(0.2, 1.3) * rng.standard_normal(shape)[..., None]
    return to_bytes(picture * light + noise), instances


def _scatter(canvas: Canvas, radius: float, count: int) -> Array:
    """Return center and radius of up to ``count`` nuclei (n, 3); they touch but hardly cover each other."""
    rng, nuclei = canvas.rng, np.empty((0, 3))
    for attempt in range(20 * count):
        # The fewer places are left, the smaller are the nuclei that are tried.
        size = max(2.5, radius * np.exp(0.2 * rng.standard_normal()) * 0.5 ** (attempt / (20 * count)))
        center = rng.uniform(0.0, canvas.shape)
        if len(nuclei) and rng.random() < 0.3:  # in a cluster
            *neighbor, other = nuclei[rng.integers(len(nuclei))]
            center = polar(neighbor, size + other, rng.uniform(0.0, 2 * np.pi))
        inside = np.all(center > 0) and np.all(center < canvas.shape)
        apart = np.hypot(*(nuclei[:, :2] - center).T) > 0.95 * (size + nuclei[:, 2])
        if len(nuclei) < count and inside and apart.all():
            nuclei = np.vstack([nuclei, [*center, size]])
    return nuclei


def _paint_nuclei(canvas: Canvas, nuclei: Array, dome: float) -> tuple[Array, Array]:
    """Return the stain and the numbers of all nuclei; a pixel in several nuclei belongs to the one it is deepest in."""
    rng = canvas.rng
    stain, depth, instances = np.zeros(canvas.shape), np.zeros(canvas.shape), np.zeros(canvas.shape, np.int32)
    texture = 0.12 * canvas.noise(1.2) + 0.06 * canvas.noise(3.0)
    for number, (*center, size) in enumerate(nuclei, start=1):
        window, stretch = canvas.window(center, 2.0 * size + 9.0), np.exp(0.15 * abs(rng.standard_normal()))
        field = canvas.blob(center, (size * stretch, size / stretch), rng.uniform(0.0, np.pi), 0.1, window)
        tone = 1.0 + dome * (np.sqrt(np.clip(field / size, 0.0, 1.0)) - 0.6) + texture[window]
        amount = np.exp(0.25 * rng.standard_normal()) * soft_step(field, rng.uniform(1.5, 2.5)) * tone.clip(0.1)
        stain[window] = np.maximum(stain[window], amount)
        instances[window] = np.where(field > depth[window], number, instances[window])
        depth[window] = np.maximum(field, depth[window])
    # A visible scrap of a covered nucleus below this many pixels is not annotated.
    kept = np.bincount(instances.ravel()) >= 12
    kept[0] = False
    return stain, np.where(kept, np.cumsum(kept), 0)[instances].astype(np.int32)
