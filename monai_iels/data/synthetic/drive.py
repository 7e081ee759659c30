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

"""Drawings in place of DRIVE: retinal photographs with the vessels that two observers traced in them."""

import math

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.shapes import soft_step
from monai_iels.data.synthetic.vessels import (
    Eye,
    Vessel,
    absorb,
    add_vessels,
    grow_vessels,
    illumination,
    paint_fundus,
    paint_vessels,
    texture,
)

__all__ = ["draw_drive"]

_FIELD_WIDTH = 540 / 565  # diameter of the field of view relative to the width of the image
_UNTRACED = 0.4  # vessels thinner than this many pixels are left out, or small images would fill up with them
_THIN = 0.0078  # width below which an observer may overlook a vessel, two pixels in DRIVE
_DISC_RADIUS = 0.15

_FUNDUS = (0.80, 0.42, 0.22)
_DISC = (1.15, 0.63, 0.35)
_VEIN = (0.34, 0.66, 0.42)  # absorption in nepers: blood takes mostly green light
_ARTERY = (0.24, 0.52, 0.34)
_EXUDATE = (1.08, 0.72, 0.42)


def draw_drive(
    rng: np.random.Generator, shape: tuple[int, int] = (584, 565)
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw a photograph of a retina like those of DRIVE.

    Args:
        rng: draws everything.
        shape: height and width; the geometry scales with it.

    Returns:
        The RGB photograph of shape (H, W, 3), and three masks of shape (H, W) with values 0 and 1, all uint8: the
        vessels, the field of view, and the vessels as a second observer traced them.
    """
    eye = _place(rng, shape)
    rows, columns = eye.grid()
    field = rows**2 + columns**2 < 1.0
    vessels = grow_vessels(rng, eye, rng.uniform(0.9, 1.05), rng.uniform(0.95, 1.2))
    photograph = _photograph(rng, eye, vessels, field)
    first = _trace(_overlook(rng, vessels, 0.1), eye) & field
    second = _trace(_redraw(rng, _overlook(rng, vessels, 0.35)), eye) & field
    return photograph, first.astype(np.uint8), field.astype(np.uint8), second.astype(np.uint8)


def _place(rng: np.random.Generator, shape: tuple[int, int]) -> Eye:
    """Place the field of view, and the disc in its left or right part."""
    side = float(rng.choice([-1.0, 1.0]))
    radius = min(_FIELD_WIDTH * shape[1], 0.98 * shape[0]) / 2
    center = ((shape[0] - 1) / 2, (shape[1] - 1) / 2)
    disc = (rng.normal(-0.02, 0.05), side * rng.uniform(0.6, 0.76))
    fovea = (disc[0] + rng.normal(0.06, 0.03), disc[1] - side * rng.uniform(0.68, 0.75))
    return Eye(shape, center, radius, disc, fovea)


def _trace(vessels: list[Vessel], eye: Eye) -> np.ndarray:
    """Return the mask of the vessels."""
    return paint_vessels(vessels, eye, _UNTRACED).depth > 0.0


def _overlook(rng: np.random.Generator, vessels: list[Vessel], share: float) -> list[Vessel]:
    """Return the vessels without a ``share`` of the thin ones."""
    return [vessel for vessel in vessels if vessel.widths.mean() > _THIN or rng.random() > share]


def _redraw(rng: np.random.Generator, vessels: list[Vessel]) -> list[Vessel]:
    """Return the vessels as another hand draws them: shifted by part of a pixel, some thicker, some thinner."""
    habit = rng.normal(0.97, 0.06)
    redrawn = []
    for vessel in vessels:
        drift = ndimage.gaussian_filter1d(rng.standard_normal(vessel.points.shape), 2.0, axis=0)
        points = vessel.points + 0.0044 * drift + rng.normal(0.0, 0.001, 2)
        redrawn.append(Vessel(points, vessel.widths * habit * rng.uniform(0.85, 1.15), vessel.artery))
    return redrawn


def _photograph(rng: np.random.Generator, eye: Eye, vessels: list[Vessel], field: np.ndarray) -> np.ndarray:
    """Return the RGB photograph, layer by layer from the back of the eye to the camera."""
    tint = np.array(_FUNDUS) * rng.normal(1.0, (0.03, 0.035, 0.09))
    image = paint_fundus(rng, eye, tint, 0.11, rng.uniform(0.6, 1.0))
    image = _add_disc(rng, eye, image)
    if rng.random() < 0.2:
        image = _add_lesions(rng, eye, image)
    image = add_vessels(rng, eye, image, vessels, (_VEIN, _ARTERY))
    image = image * illumination(rng, eye)[..., None]
    return _expose(rng, eye, image, field)


def _add_disc(rng: np.random.Generator, eye: Eye, image: np.ndarray) -> np.ndarray:
    """Blend in the bright optic disc with its pale cup, a glow around it and a darker temporal rim."""
    radius = _DISC_RADIUS * rng.uniform(0.92, 1.08)
    y, x = (distance / radius for distance in eye.grid(eye.disc))
    wobble = 0.05 * texture(rng, eye, 0.07)
    distance = np.hypot(y, x) + wobble
    temporal = -math.copysign(1.0, eye.disc[1])
    inside = soft_step(1.0 - distance, 0.24)[..., None]
    cup = soft_step(rng.uniform(0.3, 0.5) - np.hypot(y, x - 0.15 * temporal), 0.4)[..., None]
    rim = (np.array(_DISC) * rng.normal(1.0, (0.02, 0.025, 0.06))).astype(np.float32)
    nasal = 1.0 - 0.1 * np.clip(-temporal * x, -1.0, 1.0)[..., None]
    disc = rim * nasal * (0.98 + 0.05 * texture(rng, eye, 0.03)[..., None])
    disc = disc + cup * np.array([0.1, 0.22, 0.2], np.float32)
    halo = np.exp(-0.5 * (distance / 1.9) ** 2)[..., None]
    return image * (1.0 - inside) * (1.0 + 0.2 * halo) + disc * inside


def _add_lesions(rng: np.random.Generator, eye: Eye, image: np.ndarray) -> np.ndarray:
    """Add a cluster of bright exudates and some dark hemorrhages, both with ragged outlines."""
    focus = np.array(eye.fovea) + rng.normal(0.0, 0.22, 2)
    ragged = 0.004 * texture(rng, eye, 0.01)
    exudates = np.zeros(eye.shape, np.float32)
    for _ in range(rng.integers(8, 36)):
        _add_spot(rng, eye, exudates, focus + rng.normal(0.0, 0.1, 2), 0.018 * rng.power(0.6), ragged)
    blood = np.zeros(eye.shape, np.float32)
    for _ in range(rng.integers(3, 12)):
        _add_spot(rng, eye, blood, rng.uniform(-0.65, 0.65, 2), rng.uniform(0.006, 0.028), ragged)
    image = image + (np.array(_EXUDATE, np.float32) - image) * exudates[..., None]
    return absorb(image, blood, _VEIN)


def _add_spot(
    rng: np.random.Generator, eye: Eye, cover: np.ndarray, place: np.ndarray, size: float, ragged: np.ndarray
) -> None:
    """Add one lesion to ``cover`` in place, within a window around it."""
    row, column = np.rint(place * eye.radius + eye.center).astype(int).tolist()
    reach = math.ceil(0.06 * eye.radius) + 1
    window = np.s_[max(0, row - reach) : max(0, row + reach), max(0, column - reach) : max(0, column + reach)]
    y, x = eye.grid(place)
    distance = np.hypot(y[window[0]] * rng.uniform(0.7, 1.4), x[:, window[1]])
    spot = rng.uniform(0.5, 1.0) * soft_step(size - distance + ragged[window], 0.012)
    cover[window] = np.maximum(cover[window], spot)


def _expose(rng: np.random.Generator, eye: Eye, image: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return 8-bit colors with the noise of an old camera, black outside the field of view."""
    brightness = rng.uniform(0.8, 1.0)
    grain = rng.standard_normal(eye.shape, np.float32)[..., None] * np.array([0.012, 0.014, 0.016], np.float32)
    blotches = 0.012 * texture(rng, eye, 0.006)[..., None]
    exposed = 1.0 - np.exp(-2.3 * (brightness * image) ** 1.35)  # saturates softly, as the red channel does
    exposed = np.where(field[..., None], exposed + grain + blotches, 0.008 + 0.3 * grain)
    return np.clip(255.0 * exposed, 0, 255).astype(np.uint8)
