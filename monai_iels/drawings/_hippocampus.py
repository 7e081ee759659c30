# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""MRI crops around the hippocampus, modeled on the T1 weighted crops of the Medical Segmentation Decathlon.

The anatomy is drawn in a box of ``_BOX`` millimeters with axes left to right (toward the middle of the brain),
posterior to anterior and inferior to superior, which is stretched to the shape asked for.
"""

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Numbers, Rng, blend, ridge, soft_step

_BOX = np.array([35.0, 50.0, 35.0])

# Brightness of the tissues relative to the median of a crop.
_WHITE, _THALAMUS, _GRAY, _FLUID = 1.74, 1.28, 0.74, 0.08

# Experts draw their outline this far (in mm) outside of where half of the gray is reached.
_MARGIN = 0.25

# Course of the hippocampus: stations along the box; center and half axes there (across, up) and tilt in radians.
_ALONG = (4, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45)
_COURSE = (
    (18.6, 18.2, 16.7, 14.5, 13.2, 12.4, 11.9, 11.9, 12.5, 13.7, 15.0, 16.3, 17.8, 19.3, 20.5),
    (25.2, 24.4, 23.0, 20.3, 18.4, 17.0, 15.8, 14.7, 13.7, 12.8, 12.0, 11.1, 10.0, 8.8, 7.8),
    (3.4, 5.0, 6.5, 6.6, 6.6, 6.5, 6.4, 6.5, 7.1, 8.1, 8.5, 8.6, 8.0, 5.6, 3.0),
    (2.4, 3.3, 4.0, 4.0, 3.8, 3.7, 3.7, 3.9, 4.1, 4.6, 5.0, 5.0, 4.3, 3.0, 1.8),
    (0.40, 0.40, 0.42, 0.22, 0.10, 0.05, 0.00, -0.03, -0.05, 0.03, 0.10, 0.17, 0.22, 0.33, 0.40),
)


def draw_hippocampus(rng: Rng, shape: tuple[int, int, int] = (35, 50, 35)) -> tuple[Array, Array]:
    """Draw an MRI crop around one hippocampus.

    Args:
        rng: draws everything that varies; the same state gives the same crop.
        shape: number of voxels to the right, to the front and up.

    Returns:
        The ``float32`` volume in an arbitrary unit of brightness and its ``uint8`` label with 0 background, 1 anterior
        and 2 posterior hippocampus.
    """
    brain = _Brain(Canvas(rng, shape, np.array(shape) / _BOX, -0.5))
    volume = _WHITE + 0.06 * brain.noise(2.5)
    _paint_above(brain, volume)
    _paint_below(brain, volume)
    _paint_cisterns(brain, volume)
    _paint_hippocampus(brain, volume)
    # Experts part the anterior from the posterior hippocampus at a coronal plane.
    part = np.where(brain.along > rng.normal(27.0, 0.8), 1, 2)
    return _scan(brain, volume), np.where(brain.hippocampus > 0, part, 0).astype(np.uint8)


class _Brain:
    """The crop seen from the hippocampus: bent coordinates and signed distances (positive inside) in millimeters."""

    def __init__(self, canvas: Canvas) -> None:
        self.rng = rng = canvas.rng
        self.canvas = canvas
        across, along, up = canvas.offsets()
        self.across, self.along, self.up = self._bend(across, 0, 1.2), along, self._bend(up, 2, 0.8)
        station = along + rng.normal(0, 0.8)
        center_across, center_up, half_across, half_up, tilt = (np.interp(station, _ALONG, row) for row in _COURSE)
        size, aspect = rng.normal(0.98, 0.05), rng.normal(1.08, 0.08)
        half_across, half_up = half_across * size * aspect, half_up * size / aspect
        x, z, tilt = self.across - center_across, self.up - center_up, tilt + rng.normal(0, 0.1)
        # How far each voxel lies to the middle and above, seen from the middle line of the hippocampus.
        self.medial, self.above = np.cos(tilt) * x + np.sin(tilt) * z, np.cos(tilt) * z - np.sin(tilt) * x
        # The medial half thins out to the subiculum, and the whole section is curved.
        thickness = half_up * (1.0 - rng.uniform(0.15, 0.4) * np.clip(self.medial / half_across, -1, 1))
        curved = self.above - rng.normal(0.008, 0.02) * (self.medial**2 - half_across**2 / 3)
        section = (1.0 - np.hypot(self.medial / half_across, curved / thickness)) * half_up
        self.hippocampus = np.minimum(section, np.minimum(station - _ALONG[0], _ALONG[-1] - station))
        reach, depth = rng.normal(11.5, 0.8), rng.normal(7.5, 0.8)
        self.lobe = (1.0 - np.hypot((x - 1.0) / reach, (z + 4.0) / depth)) * depth

    def _bend(self, axis: Array, number: int, shift: float) -> Array:
        """Return coordinates shifted, stretched and bent at random, so that no two brains are alike."""
        middle = _BOX[number] / 2
        stretched = middle + self.rng.normal(1.0, 0.05) * (axis - middle) + self.rng.normal(0.0, shift)
        return stretched + 0.7 * self.noise(7.0) + 0.5 * self.noise(3.0, 2.0)

    def noise(self, scale: float, along: float = 1.0) -> Array:
        """Return a smooth random field with details of ``scale`` millimeters, ``along`` times longer to the front."""
        return self.canvas.noise(0.7 * scale * np.array([1.0, along, 1.0]))

    def ellipsoid(self, center: Numbers, radii: Numbers) -> Array:
        """Return an ellipsoid as an approximate signed distance, positive inside."""
        axes = (self.across, self.along, self.up)
        offsets = [(axis - place) / radius for axis, place, radius in zip(axes, center, radii, strict=True)]
        return (1.0 - np.sqrt(sum(offset**2 for offset in offsets))) * min(radii)


def _paint_above(brain: _Brain, volume: Array) -> None:
    """Paint what lies above in place: thalamus, lentiform nucleus, insula and flecked white matter."""
    wobble = 1.5 * brain.noise(5.0)
    volume -= soft_step(brain.above - 7.0, 4.0) * (0.16 + 0.08 * brain.noise(4.0))
    blend(volume, _THALAMUS, 0.9 * soft_step(brain.ellipsoid((22, 21, 32), (12, 14, 11)) + wobble, 3.0))
    blend(volume, 1.02, soft_step(brain.ellipsoid((6, 42, 33), (9, 17, 11)) + wobble, 3.0))
    blend(volume, 0.6, soft_step(brain.ellipsoid((0, 36, 27), (6, 13, 9)) + wobble, 1.2))
    # Perforating vessels and small nuclei fleck the white matter.
    flecks = soft_step(brain.noise(2.0) - 1.2, 1.0) * soft_step(brain.above - 5.0, 3.0)
    blend(volume, 1.0, brain.rng.uniform(0.3, 0.8) * flecks)


def _paint_below(brain: _Brain, volume: Array) -> None:
    """Paint what lies below in place: folds of cortex along the hippocampus and the gyrus that carries it."""
    rng = brain.rng
    depth = -brain.above - rng.uniform(0.0, 0.4) * brain.medial
    folds = np.cos(2 * np.pi * (depth - rng.uniform(8.0, 11.0)) / rng.uniform(8.0, 12.0)) + 0.9 * brain.noise(2.5, 3.0)
    region = soft_step(depth - rng.uniform(4.8, 6.2) - 0.6 * brain.noise(4.0), 1.0)
    gray = _GRAY + 0.09 * brain.noise(1.5)
    blend(volume, gray, region * soft_step(folds + 0.7, 0.5))
    blend(volume, 0.2, region * soft_step(folds - 1.0, 0.4))
    gyrus = soft_step(brain.lobe, 0.8) * soft_step(brain.medial - 1.6 * brain.above - 3.0, 4.0)
    ribbon = rng.uniform(3.2, 5.2) + 0.8 * brain.noise(3.0)
    blend(volume, gray, gyrus)
    blend(volume, _WHITE, gyrus * soft_step(brain.lobe - ribbon, 0.8))


def _paint_cisterns(brain: _Brain, volume: Array) -> None:
    """Paint the middle in place: fluid between temporal lobe and brain stem, bright vessels, the striped cerebellum."""
    rng = brain.rng
    outside = soft_step(-brain.lobe - 0.5, 1.0)
    stem = brain.ellipsoid((37, 26, 10), (9.5, 12, 22)) + 0.5 * brain.noise(5.0)
    top = rng.uniform(2.0, 6.0) + brain.noise(4.0)
    cistern = outside * soft_step(brain.medial - 5.0, 3.0) * soft_step(-stem, 1.2) * soft_step(top - brain.above, 2.0)
    # Pulsation, membranes and vessels keep the cisterns from being evenly dark.
    blend(volume, 0.2 + 0.15 * brain.noise(1.5), cistern)
    blend(volume, _FLUID, soft_step(brain.ellipsoid((34, 3, 27), (7, 7, 6)), 1.5))
    for _ in range(rng.integers(1, 5)):
        place = (rng.uniform(22, 33), rng.uniform(30, 49), rng.uniform(6, 16))
        vessel = brain.ellipsoid(place, (1.1, rng.uniform(1.1, 3.0), 1.1))
        blend(volume, rng.uniform(2.0, 7.0), soft_step(vessel, 1.0))
    border = 0.6 * (brain.across - 15) - (brain.up - 1) - 0.3 * (brain.along - 16) + brain.noise(6.0)
    stripes = np.cos(1.75 * (0.6 * brain.across + 0.8 * brain.up + 0.3 * brain.along + brain.noise(4.0)))
    blend(volume, 0.1, outside * soft_step(border + 1.5, 0.8))
    blend(volume, 0.72 + 0.3 * stripes + 0.24 * brain.noise(1.5), outside * soft_step(border, 0.8))


def _paint_hippocampus(brain: _Brain, volume: Array) -> None:
    """Paint the hippocampus and what touches it in place: amygdala, ventricle, gray layers, sulcus and alveus."""
    rng, depth = brain.rng, brain.hippocampus
    # The amygdala is as gray as the head, which makes the head's border faint.
    amygdala = brain.ellipsoid((19, 47, 13), (9, 9, 8)) + 0.8 * brain.noise(3.0)
    blend(volume, 0.9 + 0.08 * brain.noise(2.0), soft_step(amygdala, 1.5))
    gap = rng.uniform(0.6, 1.8)
    roof = soft_step(brain.above - 0.35 * brain.medial - rng.uniform(-1.0, 1.5), 2.5)
    horn = ridge(depth + gap, 0.9 * gap) * roof * (0.7 + 0.7 * brain.noise(3.0, 2.0))
    blend(volume, _FLUID, np.clip(horn, 0, 1))
    height = brain.up - 29.0
    behind = np.sqrt((1.4 * (brain.across - 13.0 - 0.5 * height)) ** 2 + (0.8 * brain.along) ** 2 + (0.6 * height) ** 2)
    blend(volume, _FLUID, soft_step(rng.normal(5.0, 1.2) - behind, 1.0))
    layers = rng.uniform(0.05, 0.15) * np.cos(rng.uniform(1.5, 2.5) * depth + rng.uniform(0, 2 * np.pi))
    blend(volume, _GRAY + layers + 0.1 * brain.noise(1.5, 2.0), soft_step(depth - _MARGIN, 0.6))
    sulcus = ridge(brain.above - 0.5 - 0.4 * brain.noise(4.0), 0.6) * soft_step(depth - 0.5, 1.0)
    blend(volume, 0.35, rng.uniform(0.1, 0.6) * sulcus)
    alveus = ridge(depth, 0.6) * soft_step(brain.above, 2.0)
    blend(volume, 1.3, rng.uniform(0.1, 0.6) * alveus)


def _scan(brain: _Brain, volume: Array) -> Array:
    """Return the volume as a scanner shows it: blurred voxels, uneven sensitivity, noise and an arbitrary unit."""
    rng = brain.rng
    signal = ndimage.gaussian_filter(volume + 0.08 * rng.standard_normal(volume.shape), rng.uniform(0.3, 0.55))
    signal *= 1 + rng.uniform(0.02, 0.07) * brain.noise(25.0)
    # The magnitude of a complex signal is what makes noise in fluid one-sided.
    real, imaginary = rng.uniform(0.02, 0.09) * rng.standard_normal((2, *volume.shape))
    signal = np.hypot(signal + real, imaginary)
    # The brightest voxel has 8 bits, the scanner's own unit or, rarely, one near a million.
    brightest = ((139, 255), (900, 4700), (400_000, 1_450_000))[rng.choice(3, p=(0.22, 0.67, 0.11))]
    signal = (signal - signal.min()) / (signal.max() - signal.min())
    return np.rint(signal * np.exp(rng.uniform(*np.log(brightest)))).astype(np.float32)
