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

"""Synthetic MRI crops around the hippocampus, modeled on the T1 weighted crops of the Medical Segmentation Decathlon.

The anatomy is drawn in a box of ``_BOX`` millimeters with axes left to right (toward the middle of the brain),
posterior to anterior and inferior to superior, which is stretched to the shape asked for.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.shapes import soft_step

__all__ = ["draw_hippocampus"]

_BOX = (35.0, 50.0, 35.0)

# Brightness of the tissues relative to the median of a crop.
_WHITE, _THALAMUS, _GRAY, _FLUID = 1.74, 1.28, 0.74, 0.08

# Experts draw their outline this far (in mm) outside of where half of the gray is reached.
_MARGIN = 0.25

# Course of the hippocampus: position along the box, center (across, up), half axes (across, up) and tilt in radians.
_COURSE = np.array(
    [
        [4.0, 18.6, 25.2, 3.4, 2.4, 0.40],
        [6.0, 18.2, 24.4, 5.0, 3.3, 0.40],
        [9.0, 16.7, 23.0, 6.5, 4.0, 0.42],
        [12.0, 14.5, 20.3, 6.6, 4.0, 0.22],
        [15.0, 13.2, 18.4, 6.6, 3.8, 0.10],
        [18.0, 12.4, 17.0, 6.5, 3.7, 0.05],
        [21.0, 11.9, 15.8, 6.4, 3.7, 0.00],
        [24.0, 11.9, 14.7, 6.5, 3.9, -0.03],
        [27.0, 12.5, 13.7, 7.1, 4.1, -0.05],
        [30.0, 13.7, 12.8, 8.1, 4.6, 0.03],
        [33.0, 15.0, 12.0, 8.5, 5.0, 0.10],
        [36.0, 16.3, 11.1, 8.6, 5.0, 0.17],
        [39.0, 17.8, 10.0, 8.0, 4.3, 0.22],
        [42.0, 19.3, 8.8, 5.6, 3.0, 0.33],
        [45.0, 20.5, 7.8, 3.0, 1.8, 0.40],
    ]
)


class _Space(NamedTuple):
    """Coordinates in millimeters of every voxel, bent at random so that no two brains are alike."""

    across: np.ndarray
    along: np.ndarray
    up: np.ndarray


class _Anatomy(NamedTuple):
    """The crop seen from the hippocampus: offsets to its middle line and signed distances (positive inside), in mm."""

    space: _Space
    medial: np.ndarray
    above: np.ndarray
    hippocampus: np.ndarray
    lobe: np.ndarray


def draw_hippocampus(
    rng: np.random.Generator, shape: tuple[int, int, int] = (35, 50, 35)
) -> tuple[np.ndarray, np.ndarray]:
    """Draw an MRI crop around one hippocampus.

    Args:
        rng: draws everything that varies; the same state gives the same crop.
        shape: number of voxels to the right, to the front and up.

    Returns:
        The ``float32`` volume in an arbitrary unit of brightness and its ``uint8`` label with 0 background, 1 anterior
        and 2 posterior hippocampus.
    """
    space = _draw_space(rng, shape)
    anatomy = _draw_anatomy(rng, space)
    volume = _WHITE + 0.06 * _texture(rng, space, 2.5)
    _paint_deep_nuclei(rng, volume, anatomy)
    _paint_folds(rng, volume, anatomy)
    _paint_temporal_lobe(rng, volume, anatomy)
    _paint_cisterns(rng, volume, anatomy)
    _paint_cerebellum(rng, volume, anatomy)
    _paint_amygdala(rng, volume, anatomy)
    _paint_ventricle(rng, volume, anatomy)
    _paint_hippocampus(rng, volume, anatomy)
    return _scan(rng, volume), _label(rng, anatomy)


def _draw_space(rng: np.random.Generator, shape: tuple[int, int, int]) -> _Space:
    """Return the coordinates of the voxels, shifted, stretched and bent at random."""
    axes = _axes(shape)
    across, along, up = np.meshgrid(*axes, indexing="ij", sparse=True)
    bent = []
    for axis, length, spread in ((across, _BOX[0], 1.2), (up, _BOX[2], 0.8)):
        bend = 0.7 * _waves(rng, axes, 7.0) + 0.5 * _waves(rng, axes, 3.0, along=2.0)
        stretched = length / 2 + rng.normal(1.0, 0.05) * (axis - length / 2)
        bent.append(stretched + rng.normal(0.0, spread) + bend)
    return _Space(bent[0], np.broadcast_to(along, shape), bent[1])


def _axes(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return the coordinates of the voxels' centers along each axis in millimeters."""
    return [
        ((np.arange(count) + 0.5) / count * length).astype(np.float32)
        for count, length in zip(shape, _BOX, strict=True)
    ]


def _ellipsoid(space: _Space, center: tuple[float, float, float], radii: tuple[float, float, float]) -> np.ndarray:
    """Return an ellipsoid as an approximate signed distance in millimeters, positive inside."""
    offsets = ((axis - c) / radius for axis, c, radius in zip(space, center, radii, strict=True))
    return (1.0 - np.sqrt(sum(offset**2 for offset in offsets))) * min(radii)


def _waves(
    rng: np.random.Generator, axes: list[np.ndarray], scale: float, along: float = 1.0, terms: int = 16
) -> np.ndarray:
    """Return a smooth random field of deviation 1: a sum of plane waves, far cheaper than filtered noise.

    Args:
        rng: draws the direction and phase of every wave.
        axes: coordinates along each axis.
        scale: size of the details in the unit of the axes.
        along: factor by which details are longer from back to front.
        terms: number of waves.
    """
    vectors = rng.standard_normal((3, terms), dtype=np.float32)
    vectors /= np.float32(scale) * np.array([[1.0], [along], [1.0]], np.float32)
    x, y, z = (np.exp(1j * np.outer(k, axis)) for k, axis in zip(vectors, axes, strict=True))
    x *= np.exp(2j * math.pi * rng.random((terms, 1), dtype=np.float32))
    planes = x[:, :, None] * y[:, None, :]
    field = np.tensordot(planes.real, z.real, (0, 0)) - np.tensordot(planes.imag, z.imag, (0, 0))
    return field * np.float32(math.sqrt(2 / terms))


def _texture(rng: np.random.Generator, space: _Space, scale: float, along: float = 1.0) -> np.ndarray:
    """Return a smooth random field over the crop with details of ``scale`` millimeters."""
    return _waves(rng, _axes(space.across.shape), scale, along)


def _draw_anatomy(rng: np.random.Generator, space: _Space) -> _Anatomy:
    """Place the hippocampus and the temporal lobe that carries it."""
    along = space.along[:1, :, :1] + rng.normal(0, 0.8)
    center_across, center_up, half_across, half_up, tilt = (
        np.interp(along, _COURSE[:, 0], column).astype(np.float32) for column in _COURSE.T[1:]
    )
    size, aspect = rng.normal(0.98, 0.05), rng.normal(1.08, 0.08)
    half_across, half_up = half_across * size * aspect, half_up * size / aspect
    x, z = space.across - center_across, space.up - center_up
    tilt = tilt + rng.normal(0, 0.1)
    medial, above = np.cos(tilt) * x + np.sin(tilt) * z, np.cos(tilt) * z - np.sin(tilt) * x
    # The medial half thins out to the subiculum, and the whole section is curved.
    thickness = half_up * (1.0 - rng.uniform(0.15, 0.4) * np.clip(medial / half_across, -1, 1))
    curved = above - rng.normal(0.008, 0.02) * (medial**2 - half_across**2 / 3)
    hippocampus = (1.0 - np.hypot(medial / half_across, curved / thickness)) * half_up
    ends = np.minimum(along - float(_COURSE[0, 0]), float(_COURSE[-1, 0]) - along)
    hippocampus = np.minimum(hippocampus, ends)
    reach, depth = rng.normal(11.5, 0.8), rng.normal(7.5, 0.8)
    lobe = (1.0 - np.hypot((x - 1.0) / reach, (z + 4.0) / depth)) * depth
    return _Anatomy(space, medial, above, hippocampus, lobe)


def _label(rng: np.random.Generator, anatomy: _Anatomy) -> np.ndarray:
    """Return the label; a coronal plane parts the anterior from the posterior hippocampus, as experts part them."""
    plane = rng.normal(27.0, 0.8)
    part = np.where(anatomy.space.along > plane, 1, 2)
    return np.where(anatomy.hippocampus > 0, part, 0).astype(np.uint8)


def _blend(volume: np.ndarray, value: float | np.ndarray, opacity: np.ndarray) -> None:
    """Lay tissue of brightness ``value`` over ``volume`` in place."""
    volume += (value - volume) * opacity


def _paint_deep_nuclei(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the gray matter above the hippocampus in place: thalamus, lentiform nucleus and insula."""
    space = anatomy.space
    wobble = 1.5 * _texture(rng, space, 5.0)
    volume -= soft_step(anatomy.above - 7.0, 4.0) * (0.16 + 0.08 * _texture(rng, space, 4.0))
    _blend(volume, _THALAMUS, 0.9 * soft_step(_ellipsoid(space, (22, 21, 32), (12, 14, 11)) + wobble, 3.0))
    _blend(volume, 1.02, soft_step(_ellipsoid(space, (6, 42, 33), (9, 17, 11)) + wobble, 3.0))
    _blend(volume, 0.6, soft_step(_ellipsoid(space, (0, 36, 27), (6, 13, 9)) + wobble, 1.2))
    # Perforating vessels and small nuclei fleck the white matter.
    flecks = soft_step(_texture(rng, space, 2.0) - 1.2, 1.0) * soft_step(anatomy.above - 5.0, 3.0)
    _blend(volume, 1.0, rng.uniform(0.3, 0.8) * flecks)


def _paint_folds(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the cortex below the hippocampus in place: ribbons of gray with sulci, which follow its course."""
    depth = -anatomy.above - rng.uniform(0.0, 0.4) * anatomy.medial
    field = np.cos(2 * math.pi * (depth - rng.uniform(8.0, 11.0)) / rng.uniform(8.0, 12.0))
    field += 0.9 * _texture(rng, anatomy.space, 2.5, along=3.0)
    region = soft_step(depth - rng.uniform(4.8, 6.2) - 0.6 * _texture(rng, anatomy.space, 4.0), 1.0)
    gray = _GRAY + 0.09 * _texture(rng, anatomy.space, 1.5)
    _blend(volume, gray, region * soft_step(field + 0.7, 0.5))
    _blend(volume, 0.2, region * soft_step(field - 1.0, 0.4))


def _paint_temporal_lobe(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the parahippocampal gyrus in place: white matter below the hippocampus, wrapped in a gray ribbon."""
    ribbon = rng.uniform(3.2, 5.2) + 0.8 * _texture(rng, anatomy.space, 3.0)
    inside = soft_step(anatomy.lobe, 0.8) * soft_step(anatomy.medial - 1.6 * anatomy.above - 3.0, 4.0)
    core = soft_step(anatomy.lobe - ribbon, 0.8)
    _blend(volume, 0.8 + 0.09 * _texture(rng, anatomy.space, 1.5), inside)
    _blend(volume, _WHITE, inside * core)


def _paint_cerebellum(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the finely striped cerebellum in place, in the lower middle behind the tentorium."""
    across, along, up = anatomy.space
    border = 0.6 * (across - 15.0) - (up - 1.0) - 0.3 * (along - 16.0) + _texture(rng, anatomy.space, 6.0)
    outside = soft_step(-anatomy.lobe - 1.5, 1.0)
    angle = rng.uniform(0.5, 1.2)
    phase = math.cos(angle) * across + math.sin(angle) * up + 0.3 * along + _texture(rng, anatomy.space, 4.0)
    folia = 0.72 + 0.3 * (np.cos(2 * math.pi / 3.6 * phase) + 0.8 * _texture(rng, anatomy.space, 1.5))
    _blend(volume, 0.1, outside * soft_step(border + 1.5, 0.8))
    _blend(volume, folia, outside * soft_step(border, 0.8))


def _paint_cisterns(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the fluid between the temporal lobe and the brain stem in place, with bright vessels in it."""
    space = anatomy.space
    stem = _ellipsoid(space, (37, 26, 10), (9.5, 12, 22)) + 0.5 * _texture(rng, space, 5.0)
    top = rng.uniform(2.0, 6.0) + _texture(rng, space, 4.0)
    cistern = soft_step(-anatomy.lobe - 0.5, 1.0) * soft_step(anatomy.medial - 5.0, 3.0)
    cistern *= soft_step(-stem, 1.2) * soft_step(top - anatomy.above, 2.0)
    # Pulsation, membranes and vessels keep the cisterns from being evenly dark.
    _blend(volume, 0.2 + 0.15 * _texture(rng, space, 1.5), cistern)
    _blend(volume, _FLUID, soft_step(_ellipsoid(space, (34, 3, 27), (7, 7, 6)), 1.5))
    for _ in range(rng.integers(1, 5)):
        center = (rng.uniform(22, 33), rng.uniform(30, 49), rng.uniform(6, 16))
        vessel = _ellipsoid(space, center, (1.1, rng.uniform(1.1, 3.0), 1.1))
        _blend(volume, rng.uniform(2.0, 7.0), soft_step(vessel, 1.0))


def _paint_ventricle(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the fluid on the hippocampus in place: temporal horn, choroid fissure and the ventricle behind the tail."""
    across, along, up = anatomy.space
    wobble = _texture(rng, anatomy.space, 3.0, along=2.0)
    gap = rng.uniform(0.6, 1.8)
    horn = np.exp(-(((anatomy.hippocampus + gap) / (0.9 * gap)) ** 2))
    roof = soft_step(anatomy.above - 0.35 * anatomy.medial - rng.uniform(-1.0, 1.5), 2.5)
    _blend(volume, _FLUID, np.clip(horn * roof * (0.7 + 0.7 * wobble), 0, 1))
    height = up - 29.0
    radius = np.sqrt((1.4 * (across - 13.0 - 0.5 * height)) ** 2 + (0.8 * along) ** 2 + (0.6 * height) ** 2)
    _blend(volume, _FLUID, soft_step(rng.normal(5.0, 1.2) - radius, 1.0))


def _paint_amygdala(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the amygdala in place: gray matter above and before the head, which makes the head's border faint."""
    field = _ellipsoid(anatomy.space, (19, 47, 13), (9, 9, 8)) + 0.8 * _texture(rng, anatomy.space, 3.0)
    _blend(volume, 0.9 + 0.08 * _texture(rng, anatomy.space, 2.0), soft_step(field, 1.5))


def _paint_hippocampus(rng: np.random.Generator, volume: np.ndarray, anatomy: _Anatomy) -> None:
    """Paint the hippocampus in place: gray layers, a dark sulcus within and white matter (the alveus) upon it."""
    depth = anatomy.hippocampus
    layers = rng.uniform(0.05, 0.15) * np.cos(rng.uniform(1.5, 2.5) * depth + rng.uniform(0, 2 * math.pi))
    gray = _GRAY + layers + 0.1 * _texture(rng, anatomy.space, 1.5, along=2.0)
    _blend(volume, gray, soft_step(depth - _MARGIN, 0.6))
    slit = anatomy.above - 0.5 - 0.4 * _texture(rng, anatomy.space, 4.0)
    sulcus = np.exp(-((slit / 0.6) ** 2)) * soft_step(depth - 0.5, 1.0)
    _blend(volume, 0.35, rng.uniform(0.1, 0.6) * sulcus)
    alveus = np.exp(-((depth / 0.6) ** 2)) * soft_step(anatomy.above, 2.0)
    _blend(volume, 1.3, rng.uniform(0.1, 0.6) * alveus)


def _scan(rng: np.random.Generator, volume: np.ndarray) -> np.ndarray:
    """Return the volume as a scanner shows it: blurred voxels, uneven sensitivity, noise and an arbitrary unit."""
    grain = 0.08 * rng.standard_normal(volume.shape, dtype=np.float32)
    signal = ndimage.gaussian_filter(volume + grain, rng.uniform(0.3, 0.55), truncate=3.0)
    signal *= 1 + rng.uniform(0.02, 0.07) * _waves(rng, _axes(volume.shape), 25.0)
    sigma = rng.uniform(0.02, 0.09)
    noise = sigma * rng.standard_normal((2, *volume.shape), dtype=np.float32)
    # The magnitude of a complex signal is what makes noise in fluid one-sided.
    signal = np.hypot(signal + noise[0], noise[1])
    signal = (signal - signal.min()) / (signal.max() - signal.min())
    return np.rint(signal * _draw_maximum(rng)).astype(np.float32)


def _draw_maximum(rng: np.random.Generator) -> float:
    """Draw the largest brightness of a volume: 8 bits, the scanner's own unit or, rarely, one near a million."""
    low, high = ((139, 255), (900, 4700), (400_000, 1_450_000))[rng.choice(3, p=(0.22, 0.67, 0.11))]
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
