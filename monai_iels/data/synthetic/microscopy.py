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

"""The kinds of microscopy in the 2018 Data Science Bowl: what is between the nuclei, and how each kind looks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.shapes import blob, smooth_noise, soft_step

__all__ = [
    "KINDS",
    "Kind",
    "Nucleus",
    "Range",
    "Window",
    "broad_noise",
    "window_around",
    "window_position",
    "window_shape",
]

Color = tuple[float, float, float]
Range = tuple[float, float]
Window = tuple[slice, slice]


@dataclass(frozen=True)
class Nucleus:
    """One nucleus before it is painted; lengths in pixels."""

    center: np.ndarray
    radii: Range
    angle: float
    strength: float
    softness: float  # width of the edge

    @property
    def radius(self) -> float:
        """Return the radius of the circle with the same area."""
        return float(np.sqrt(self.radii[0] * self.radii[1]))


_Scenery = Callable[[np.random.Generator, tuple[int, int], float, Sequence[Nucleus]], np.ndarray]


@dataclass(frozen=True)
class Kind:
    """One kind of microscopy image; ranges are per image, spreads are deviations between nuclei (logarithmic)."""

    weight: float  # images of this kind in the original training set
    area: Range  # median nucleus area in pixels
    fraction: Range  # part of the image that nuclei are asked to cover
    ramp: tuple[Color, ...]  # colors of the scenery from value 0 to 1
    nucleus: Color  # color of a nucleus of strength 1
    scenery: _Scenery
    area_spread: float = 0.3
    fragments: float = 0.06  # share of much smaller nuclei
    elongation: float = 0.35  # deviation of the logarithm of the axis ratio
    roughness: float = 0.09
    beans: float = 0.1  # share of nuclei with a dent
    strength_spread: float = 0.25
    flashes: float = 0.0  # share of small nuclei that are much stronger than the others (dividing or dying)
    alignment: float = 0.3  # 1: all nuclei share one direction, 0: random directions
    clumping: float = 0.8  # contrast of the density of nuclei
    rows: float = 0.0  # chance that nuclei stand in rows (epithelium)
    pairing: float = 0.2  # share of nuclei that are put next to another one
    overlap: float = 0.0  # how far nuclei may reach into each other; negative keeps them apart
    dome: float = 0.5  # how much stronger the middle is than the rim; negative for a dark rim
    grain: float = 0.08  # strength of the chromatin texture
    spots: float = 0.0  # mean number of nucleoli or bright bodies per nucleus
    spot_strength: float = 0.5
    ghosts: float = 0.1  # out-of-focus nuclei per nucleus, not annotated
    ghost_strength: float = 0.2
    debris: float = 0.05  # specks per nucleus, not annotated
    blur: Range = (0.6, 1.1)
    defocus: float = 0.3  # spread of the edge width between nuclei
    haze: float = 0.04  # stray light around nuclei
    contrast_spread: float = 0.3
    ground_spread: float = 0.3  # spread of the brightness of the ground between images
    shading: Range = (0.0, 0.25)
    noise: Range = (0.2, 0.9)
    limit: float = 5.0  # the amount of stain saturates here


def broad_noise(rng: np.random.Generator, shape: Sequence[int], scale: float) -> np.ndarray:
    """Return ``smooth_noise`` with a large ``scale``, drawn on a coarse grid because wide filters are slow."""
    step = max(1, int(scale / 4))
    coarse = smooth_noise(rng, [n // step + 2 for n in shape], scale / step)
    rows, columns = np.meshgrid(*(np.arange(n, dtype=float) / step for n in shape), indexing="ij")
    return ndimage.map_coordinates(coarse, [rows, columns], order=1)


def _fibers(rng: np.random.Generator, shape: tuple[int, int], angle: float, width: float) -> np.ndarray:
    """Return wavy strands along ``angle`` (mean 0, deviation 1) that are about ``width`` pixels thick."""
    size = int(np.hypot(*shape) / width) + 8
    strands = smooth_noise(rng, (size, size // 8 + 8), (0.8, 0.8))
    rows, columns = np.meshgrid(*(np.arange(n) - n / 2 for n in shape), indexing="ij")
    wave = 4.0 * width * broad_noise(rng, shape, 12 * width)
    across = (np.cos(angle) * rows - np.sin(angle) * columns + wave) / width + size / 2
    along = (np.cos(angle) * columns + np.sin(angle) * rows) / (8 * width) + strands.shape[1] / 2
    return ndimage.map_coordinates(strands, [across, along], order=1, mode="reflect")


def window_around(center: np.ndarray, reach: float, shape: tuple[int, int]) -> Window:
    """Return the part of the image within ``reach`` pixels of ``center``; it may be empty."""
    low = [max(0, int(c - reach)) for c in center]
    return (
        slice(low[0], max(low[0], min(shape[0], int(center[0] + reach) + 2))),
        slice(low[1], max(low[1], min(shape[1], int(center[1] + reach) + 2))),
    )


def window_position(center: np.ndarray, window: Window) -> np.ndarray:
    """Return ``center`` in the coordinates of ``window``."""
    return center - (window[0].start, window[1].start)


def window_shape(window: Window) -> tuple[int, int]:
    """Return height and width of ``window``."""
    return window[0].stop - window[0].start, window[1].stop - window[1].start


def _plain_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return the dark ground of fluorescence with a little uneven glow."""
    return np.clip(0.012 * rng.uniform() * (1.0 + broad_noise(rng, shape, 0.3 * max(shape))), 0.0, 1.0)


def _process_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return the faint cell bodies and processes around fluorescent nuclei."""
    strands = np.clip(_fibers(rng, shape, direction, 3.5), 0.0, None) ** 2
    bodies = np.zeros(shape)
    for nucleus in nuclei:
        bodies[tuple(np.clip(nucleus.center.astype(int), 0, np.subtract(shape, 1)))] += nucleus.radius**2
    bodies = ndimage.gaussian_filter(bodies, 12.0, truncate=2.5)
    return rng.uniform(0.2, 2.0) * np.clip(0.03 * strands * (0.3 + 10.0 * bodies.clip(0, 0.2)) + 0.15 * bodies, 0, 0.5)


def _relief(rng: np.random.Generator, shape: tuple[int, int], angle: float, width: float) -> np.ndarray:
    """Return light and shade of transparent fibers and folds (deviation 1)."""
    height = 0.6 * _fibers(rng, shape, angle, width) + broad_noise(rng, shape, 1.5 * width)
    shade = ndimage.sobel(height, axis=int(abs(np.sin(angle)) > np.sqrt(0.5)))
    return shade / (shade.std() + 1e-12)


def _stroma_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return stained tissue: wrinkled fibers in places, fine grains and broad stain differences."""
    presence = soft_step(broad_noise(rng, shape, 0.15 * max(shape)) + rng.uniform(-1, 1), 1.5)
    wrinkles = _relief(rng, shape, direction, rng.uniform(2.0, 4.0))
    grains = smooth_noise(rng, shape, 1.2)
    return np.clip(0.5 + 0.13 * presence * wrinkles + 0.05 * grains + 0.1 * broad_noise(rng, shape, 40.0), 0.0, 1.0)


def _vessel_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return strongly stained tissue with pale gaps and, at the upper end of the ramp, red blood."""
    tissue = 0.04 * _fibers(rng, shape, direction, 4.0) - 0.07 * np.abs(broad_noise(rng, shape, 5.0))
    tissue += 0.3 + 0.09 * broad_noise(rng, shape, 18.0) + 0.015 * smooth_noise(rng, shape, 1.5)
    vessel = soft_step(_fibers(rng, shape, direction, 0.12 * max(shape)) - rng.uniform(0.6, 2.0), 0.12)
    cells = 0.06 * np.abs(broad_noise(rng, shape, 5.0)).clip(0, 2)
    return tissue.clip(0.0, 0.5) * (1.0 - vessel) + vessel * (0.8 + cells)


def _smear_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return a pale ground with the relief of unstained fibers and blood cells."""
    relief = _relief(rng, shape, direction, rng.uniform(3.0, 5.0))
    presence = soft_step(broad_noise(rng, shape, 0.2 * max(shape)), 1.0)
    broad = 0.15 * broad_noise(rng, shape, 50.0)
    return np.clip(0.45 + 0.09 * presence * relief + broad + 0.03 * smooth_noise(rng, shape, 1.0), 0.0, 1.0)


def _squamous_scenery(
    rng: np.random.Generator, shape: tuple[int, int], direction: float, nuclei: Sequence[Nucleus]
) -> np.ndarray:
    """Return thin flat cells that lie over each other on a white slide, one around each nucleus."""
    grain = smooth_noise(rng, shape, 1.0)
    clouds = broad_noise(rng, shape, 4.0)
    folds = _fibers(rng, shape, direction, 8.0)
    passed = np.ones(shape)
    for nucleus in nuclei:
        reach = float(np.clip(nucleus.radius * rng.uniform(5.0, 8.0), 12.0, 70.0))
        center = nucleus.center + rng.normal(0.0, 0.15 * reach, 2)
        window = window_around(center, 1.3 * reach, shape)
        field = _flat_cell(rng, window_shape(window), window_position(center, window), reach)
        field += 1.5 * clouds[window]
        rim = 0.15 * np.exp(-((field - 1.0) ** 2) / 2.0)
        body = 1.0 + 0.06 * grain[window] + 0.1 * clouds[window] + 0.25 * folds[window] + rim
        passed[window] *= 1.0 - rng.uniform(0.06, 0.4) * soft_step(field, 1.5) * body.clip(0.0)
    return np.clip(1.0 - passed + 0.006 * grain, 0.0, 1.0)


def _flat_cell(rng: np.random.Generator, shape: tuple[int, int], center: np.ndarray, reach: float) -> np.ndarray:
    """Return the signed distance to an angular cell: a round one with some sides cut straight."""
    field = blob(rng, shape, center, (reach, reach * rng.uniform(0.7, 1.0)), rng.uniform(0, np.pi), 0.12)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    for turn in rng.uniform(0.0, 2 * np.pi, rng.integers(2, 6)):
        side = rng.uniform(0.55, 0.9) * reach
        field = np.minimum(field, side - np.sin(turn) * (rows - center[0]) - np.cos(turn) * (columns - center[1]))
    return field


def _gray(level: float) -> Color:
    """Return a color without hue."""
    return (level, level, level)


KINDS = (
    # Small nuclei of spread-out cells, faint processes (256 x 256 in the original).
    Kind(
        weight=150,
        area=(110, 250),
        fraction=(0.014, 0.1),
        ramp=(_gray(4), _gray(60)),
        nucleus=_gray(57),
        scenery=_process_scenery,
        elongation=0.35,
        flashes=0.03,
        alignment=0.6,
        clumping=0.5,
        pairing=0.08,
        overlap=-0.05,
        dome=0.7,
        blur=(0.8, 1.4),
        haze=0.08,
    ),
    # Small bright cells, many of them dying: bright bodies, clumps, a lifted ground.
    Kind(
        weight=95,
        area=(55, 110),
        fraction=(0.015, 0.14),
        ramp=(_gray(13), _gray(130)),
        nucleus=_gray(108),
        scenery=_plain_scenery,
        area_spread=0.55,
        elongation=0.25,
        strength_spread=0.4,
        flashes=0.12,
        clumping=1.3,
        pairing=0.35,
        overlap=0.08,
        spots=2.5,
        spot_strength=1.0,
        debris=0.1,
        blur=(0.5, 0.8),
        contrast_spread=0.35,
        ground_spread=0.05,
    ),
    # Round nuclei with several bright bodies, often crowded and partly out of focus.
    Kind(
        weight=65,
        area=(250, 430),
        fraction=(0.08, 0.36),
        ramp=(_gray(4), _gray(60)),
        nucleus=_gray(31),
        scenery=_plain_scenery,
        elongation=0.15,
        clumping=1.2,
        pairing=0.15,
        overlap=0.05,
        dome=0.7,
        grain=0.18,
        spots=6.0,
        spot_strength=0.6,
        ghosts=0.12,
        ghost_strength=0.4,
        blur=(0.9, 1.6),
        defocus=0.6,
        haze=0.25,
    ),
    # Large dim nuclei (360 x 360 in the original).
    Kind(
        weight=91,
        area=(1800, 2800),
        fraction=(0.3, 0.5),
        ramp=(_gray(5.5), _gray(40)),
        nucleus=_gray(25),
        scenery=_plain_scenery,
        area_spread=0.25,
        fragments=0.14,
        elongation=0.35,
        beans=0.3,
        strength_spread=0.18,
        flashes=0.03,
        clumping=0.6,
        pairing=0.12,
        overlap=0.05,
        dome=0.25,
        grain=0.07,
        spots=2.0,
        spot_strength=-0.15,
        debris=0.12,
        blur=(0.9, 1.5),
        contrast_spread=0.15,
        ground_spread=0.15,
        noise=(0.2, 0.5),
    ),
    # Dense cultures of medium nuclei (520 x 696 in the original).
    Kind(
        weight=70,
        area=(480, 820),
        fraction=(0.13, 0.45),
        ramp=(_gray(5), _gray(70)),
        nucleus=_gray(41),
        scenery=_plain_scenery,
        elongation=0.4,
        strength_spread=0.3,
        flashes=0.04,
        clumping=0.6,
        pairing=0.2,
        overlap=0.08,
        dome=0.35,
        grain=0.12,
        spots=1.5,
        spot_strength=-0.15,
        blur=(0.7, 1.8),
        defocus=0.4,
        haze=0.12,
        contrast_spread=0.45,
        ground_spread=0.7,
        shading=(0.0, 0.35),
    ),
    # High magnification: few large bright nuclei with visible chromatin.
    Kind(
        weight=28,
        area=(1800, 2700),
        fraction=(0.06, 0.22),
        ramp=(_gray(13), _gray(120)),
        nucleus=_gray(66),
        scenery=_plain_scenery,
        strength_spread=0.3,
        flashes=0.05,
        pairing=0.1,
        overlap=0.02,
        dome=0.35,
        grain=0.09,
        spots=8.0,
        spot_strength=0.18,
        haze=0.12,
        contrast_spread=0.25,
        ground_spread=0.12,
    ),
    # Large round nuclei in several depths, dark and noisy (512 x 640 in the original).
    Kind(
        weight=14,
        area=(1000, 2400),
        fraction=(0.09, 0.24),
        ramp=(_gray(0.8), _gray(60)),
        nucleus=_gray(24),
        scenery=_plain_scenery,
        fragments=0.15,
        elongation=0.22,
        beans=0.05,
        strength_spread=0.45,
        flashes=0.03,
        clumping=1.2,
        overlap=0.05,
        dome=0.5,
        grain=0.15,
        spots=3.0,
        spot_strength=0.3,
        debris=0.15,
        blur=(1.0, 2.2),
        defocus=0.6,
        haze=0.1,
        contrast_spread=0.25,
        ground_spread=0.8,
        noise=(0.8, 1.6),
    ),
    # Thick fluorescent tissue: crowded, uneven, much stray light.
    Kind(
        weight=18,
        area=(120, 220),
        fraction=(0.09, 0.22),
        ramp=(_gray(23), _gray(120)),
        nucleus=_gray(98),
        scenery=_process_scenery,
        area_spread=0.45,
        elongation=0.4,
        roughness=0.2,
        strength_spread=0.4,
        flashes=0.08,
        clumping=0.6,
        pairing=0.35,
        overlap=0.05,
        spots=1.0,
        ghosts=0.4,
        ghost_strength=0.35,
        debris=0.25,
        haze=0.25,
        ground_spread=0.2,
        shading=(0.2, 0.5),
        noise=(1.0, 2.2),
    ),
    # Histology in lilac and violet, small nuclei.
    Kind(
        weight=42,
        area=(150, 370),
        fraction=(0.06, 0.42),
        ramp=((166, 144, 202), (179, 160, 206), (190, 174, 209)),
        nucleus=(116, 66, 192),
        scenery=_stroma_scenery,
        area_spread=0.4,
        elongation=0.6,
        roughness=0.14,
        beans=0.15,
        strength_spread=0.28,
        alignment=0.75,
        clumping=1.2,
        rows=0.5,
        pairing=0.25,
        overlap=0.05,
        dome=-0.25,
        grain=0.14,
        spots=1.0,
        spot_strength=0.3,
        ghosts=0.15,
        ghost_strength=0.5,
        defocus=0.6,
        contrast_spread=0.12,
        ground_spread=0.02,
        shading=(0.0, 0.03),
        limit=1.9,
    ),
    # The same stain at high magnification.
    Kind(
        weight=26,
        area=(700, 2200),
        fraction=(0.15, 0.55),
        ramp=((168, 142, 200), (182, 162, 204), (196, 178, 206)),
        nucleus=(100, 48, 186),
        scenery=_stroma_scenery,
        area_spread=0.4,
        elongation=0.55,
        roughness=0.12,
        beans=0.2,
        strength_spread=0.3,
        alignment=0.6,
        clumping=1.1,
        rows=0.5,
        pairing=0.25,
        overlap=0.1,
        dome=-0.35,
        grain=0.2,
        spots=2.0,
        spot_strength=0.35,
        ghosts=0.25,
        ghost_strength=0.6,
        blur=(0.8, 1.4),
        defocus=0.8,
        contrast_spread=0.15,
        ground_spread=0.02,
        shading=(0.0, 0.04),
        limit=1.8,
    ),
    # Smears and tissue on a nearly white ground.
    Kind(
        weight=38,
        area=(310, 560),
        fraction=(0.13, 0.42),
        ramp=((198, 199, 196), (212, 214, 215), (232, 230, 230)),
        nucleus=(118, 46, 158),
        scenery=_smear_scenery,
        area_spread=0.5,
        fragments=0.12,
        elongation=0.25,
        roughness=0.14,
        beans=0.25,
        strength_spread=0.28,
        clumping=1.1,
        pairing=0.25,
        overlap=0.03,
        dome=0.0,
        grain=0.14,
        spots=1.0,
        spot_strength=0.3,
        ghosts=0.2,
        ghost_strength=0.3,
        blur=(0.9, 1.6),
        defocus=0.6,
        contrast_spread=0.12,
        ground_spread=0.02,
        shading=(0.0, 0.05),
        limit=1.8,
    ),
    # Pink and red histology at high magnification.
    Kind(
        weight=9,
        area=(800, 1500),
        fraction=(0.12, 0.22),
        ramp=((240, 206, 232), (207, 128, 194), (196, 96, 176), (214, 30, 72), (226, 50, 90)),
        nucleus=(150, 58, 164),
        scenery=_vessel_scenery,
        elongation=0.4,
        roughness=0.15,
        beans=0.15,
        pairing=0.1,
        overlap=0.05,
        dome=-0.4,
        grain=0.2,
        spots=2.0,
        spot_strength=0.4,
        ghosts=0.2,
        blur=(0.9, 1.4),
        defocus=0.8,
        contrast_spread=0.12,
        ground_spread=0.02,
        shading=(0.0, 0.05),
        limit=1.8,
    ),
    # Bright field: flat gray cells with small dark nuclei.
    Kind(
        weight=16,
        area=(180, 340),
        fraction=(0.008, 0.022),
        ramp=(_gray(229), _gray(60)),
        nucleus=_gray(78),
        scenery=_squamous_scenery,
        area_spread=0.5,
        elongation=0.25,
        clumping=0.9,
        pairing=0.0,
        overlap=-1.5,
        dome=0.15,
        grain=0.12,
        ghosts=0.0,
        debris=0.4,
        haze=0.0,
        contrast_spread=0.1,
        ground_spread=0.02,
        shading=(0.0, 0.03),
        noise=(1.5, 2.2),
        limit=1.8,
    ),
)
