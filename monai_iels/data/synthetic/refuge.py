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

"""Drawings in place of REFUGE: fundus photographs with the optic disc and its cup, crossed by vessels."""

import math
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.shapes import blob, soft_step
from monai_iels.data.synthetic.vessels import (
    Eye,
    Vessel,
    absorb,
    add_vessels,
    grow_vessels,
    illumination,
    paint_fundus,
    texture,
)

__all__ = ["draw_refuge"]

_FIELD_WIDTH = 0.97  # diameter of the field of view relative to the image
_DISC_RADIUS = 0.152  # relative to the radius of the field of view
_WOBBLE = 0.012  # far below what would dent an ellipse

_FUNDUS = (0.80, 0.37, 0.17)
_RIM = (1.03, 0.57, 0.28)
_CUP = (1.14, 0.84, 0.60)
_ATROPHY = (0.98, 0.58, 0.32)
_VEIN = (0.46, 0.90, 0.84)  # absorption in nepers: blood takes mostly green light
_BLEEDING = (0.55, 1.15, 1.0)
_ARTERY = (0.30, 0.74, 0.68)
_HIDDEN = 0.5  # of the green light: what is darker, a tool that traces by brightness leaves out


class _Head(NamedTuple):
    """The optic nerve head: signed distances in pixels, positive inside."""

    disc: np.ndarray
    cup: np.ndarray


def draw_refuge(
    rng: np.random.Generator, shape: tuple[int, int] = (512, 512), glaucoma: bool = False, traced: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a photograph of a fundus like those of REFUGE.

    Disc and cup are convex, yet thick vessels and bleedings hide parts of both outlines, and atrophy imitates the disc.

    Args:
        rng: draws everything.
        shape: height and width; the geometry scales with it.
        glaucoma: whether the cup is enlarged, as glaucoma does.
        traced: whether the label was traced by brightness, so that it leaves out the darkest vessels.

    Returns:
        The RGB photograph of shape (H, W, 3) and the label of shape (H, W), both uint8; the label is 0 in the
        background, 1 in the rim of the disc and 2 in the cup.
    """
    eye = _place(rng, shape)
    head = _nerve_head(rng, eye, glaucoma)
    vessels = grow_vessels(rng, eye, rng.uniform(1.0, 1.2), 0.85) + _rim_vessels(rng, eye)
    photograph, hidden = _photograph(rng, eye, head, vessels, glaucoma)
    label = np.where(head.cup > 0.0, 2, head.disc > 0.0)
    if traced:
        label = np.where(hidden, 0, label)
    return photograph, label.astype(np.uint8)


def _place(rng: np.random.Generator, shape: tuple[int, int]) -> Eye:
    """Place the macula near the center and the disc to its left or right."""
    side = float(rng.choice([-1.0, 1.0]))
    radius = _FIELD_WIDTH * min(shape) / 2
    fovea = (rng.normal(0.03, 0.03), side * rng.normal(-0.1, 0.04))
    disc = (fovea[0] - rng.uniform(0.0, 0.12), fovea[1] + side * rng.uniform(0.62, 0.72))
    return Eye(shape, ((shape[0] - 1) / 2, (shape[1] - 1) / 2), radius, disc, fovea)


def _nerve_head(rng: np.random.Generator, eye: Eye, glaucoma: bool) -> _Head:
    """Return upright ellipses for disc and cup, with the cup well within the disc."""
    ratio = rng.uniform(0.6, 0.83) if glaucoma else rng.uniform(0.32, 0.58)
    height = _DISC_RADIUS * eye.radius * rng.uniform(0.8, 1.2)
    width = height * rng.uniform(0.78, 0.98)
    center = np.array(eye.center) + np.array(eye.disc) * eye.radius
    slack = (1.0 - ratio) * np.array([height, width])  # how far the cup may move before it leaves the disc
    temporal = -math.copysign(1.0, eye.disc[1])
    shift = slack * [rng.uniform(-0.2, 0.3), temporal * rng.uniform(0.0, 0.4)]
    angle = rng.normal(0.0, 0.35)
    disc = blob(rng, eye.shape, center, (height, width), angle, _WOBBLE)
    radii = (ratio * height, ratio * width * rng.uniform(0.9, 1.04))
    cup = blob(rng, eye.shape, center + shift, radii, angle, _WOBBLE)
    return _Head(disc.astype(np.float32), np.minimum(cup, disc).astype(np.float32))


def _rim_vessels(rng: np.random.Generator, eye: Eye) -> list[Vessel]:
    """Return vessels that rise from the cup, run along the outline of the disc for a while and so hide it."""
    vessels = []
    along = np.linspace(0.0, 1.0, 30)
    for _ in range(rng.integers(1, 3)):
        turn = rng.choice([-1.0, 1.0])
        angle = turn * (0.5 * np.pi + rng.normal(0.0, 0.4))  # upward or downward first
        angle = angle + rng.choice([-1.0, 1.0]) * rng.uniform(0.9, 1.6) * np.maximum(0.0, along - 0.2)
        distance = np.minimum(along / 0.3, rng.uniform(0.9, 1.08)) + 1.5 * np.maximum(0.0, along - 0.7)
        offsets = _DISC_RADIUS * distance[:, None] * np.stack([np.sin(angle), np.cos(angle)], axis=1)
        points = np.array(eye.disc) + ndimage.gaussian_filter1d(offsets, 2.0, axis=0, mode="nearest")
        widths = rng.uniform(0.014, 0.024) * (1.0 - 0.5 * along)
        vessels.append(Vessel(points, widths, bool(rng.random() < 0.5)))
    return vessels


def _photograph(
    rng: np.random.Generator, eye: Eye, head: _Head, vessels: list[Vessel], glaucoma: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the RGB photograph, layer by layer from the back of the eye to the camera, and where vessels hide it."""
    tint = np.array(_FUNDUS) * rng.normal(1.0, (0.03, 0.06, 0.12))
    image = paint_fundus(rng, eye, tint, 0.08, rng.uniform(0.7, 1.1))
    if rng.random() < (0.85 if glaucoma else 0.6):
        image = _add_atrophy(rng, eye, head, image)
    image = _add_head(rng, eye, head, image)
    clear = _add_bleedings(rng, eye, image)
    image = add_vessels(rng, eye, clear, vessels, (_VEIN, _ARTERY), reflex=0.55)
    hidden = image[..., 1] < _HIDDEN * clear[..., 1]
    image = image * illumination(rng, eye)[..., None]
    return _expose(rng, eye, image), hidden


def _add_atrophy(rng: np.random.Generator, eye: Eye, head: _Head, image: np.ndarray) -> np.ndarray:
    """Blend in a bright crescent beside the disc, with a dark line of pigment at its outer edge."""
    temporal = -math.copysign(1.0, eye.disc[1])
    size = _DISC_RADIUS * rng.uniform(1.05, 1.3)
    away = rng.normal(0.0, 0.6)  # direction, mostly temporal
    move = _DISC_RADIUS * rng.uniform(0.12, 0.3)
    y, x = eye.grid((eye.disc[0] + move * np.sin(away), eye.disc[1] + temporal * move * np.cos(away)))
    edge = size - np.hypot(y, x) + 0.012 * texture(rng, eye, 0.05)
    patches = np.clip(0.75 + 0.25 * texture(rng, eye, 0.025), 0.0, 1.0)
    cover = (rng.uniform(0.45, 0.9) * soft_step(edge, 0.03) * patches)[..., None]
    image = image * (1.0 - cover) + np.array(_ATROPHY, np.float32) * cover
    pigment = rng.uniform(0.0, 0.35) * np.exp(-((edge / 0.014) ** 2)) * (head.disc < 0)
    return absorb(image, pigment, (0.6, 0.8, 0.6))


def _add_head(rng: np.random.Generator, eye: Eye, head: _Head, image: np.ndarray) -> np.ndarray:
    """Blend in the disc and the paler cup; both outlines fade on a side of their own."""
    soft = 0.02 * eye.radius
    rim = (np.array(_RIM) * rng.normal(1.0, (0.02, 0.04, 0.08))).astype(np.float32)
    pale = (np.array(_CUP) * rng.normal(1.0, (0.02, 0.04, 0.06))).astype(np.float32)
    y, x = (distance / _DISC_RADIUS for distance in eye.grid(eye.disc))
    halo = np.exp(-0.5 * (np.hypot(y, x) / 1.8) ** 2)[..., None]
    image = image * (1.0 + 0.12 * halo)
    disc = soft_step(head.disc, max(1.2, 1.1 * soft)) * _fade(rng, y, x, 0.85)
    cup = soft_step(head.cup, max(1.2, 1.5 * soft)) * _fade(rng, y, x, 0.7)
    fibers = 1.0 + 0.04 * texture(rng, eye, 0.025)[..., None]
    image = image + (rim * fibers - image) * disc[..., None]
    return image + (pale - image) * cup[..., None] * rng.uniform(0.75, 1.0)


def _add_bleedings(rng: np.random.Generator, eye: Eye, image: np.ndarray) -> np.ndarray:
    """Add dark bleedings at the rim of the disc, which hide its outline, and a few elsewhere, which tell nothing."""
    spots = [(rng.uniform(0, 2 * np.pi), _DISC_RADIUS * rng.normal(0.95, 0.1)) for _ in range(rng.integers(2, 5))]
    centers = [(eye.disc[0] + r * math.sin(a), eye.disc[1] + r * math.cos(a)) for a, r in spots]
    centers += [tuple(rng.uniform(-0.6, 0.6, 2)) for _ in range(rng.integers(1, 4))]
    for row, column in centers:
        center = np.array(eye.center) + np.array([row, column]) * eye.radius
        radius = _DISC_RADIUS * eye.radius * rng.uniform(0.25, 0.6)
        shape = blob(rng, eye.shape, center, (radius, radius * rng.uniform(0.6, 1.0)), rng.uniform(0, np.pi), 0.25)
        image = absorb(image, rng.uniform(0.7, 1.0) * soft_step(shape, max(1.0, 0.3 * radius)), _BLEEDING)
    return image


def _fade(rng: np.random.Generator, y: np.ndarray, x: np.ndarray, most: float) -> np.ndarray:
    """Return an opacity that falls from 1 to less toward a random side, by up to ``most`` at the disc's outline."""
    angle = rng.uniform(0.0, 2.0 * np.pi)
    toward = np.clip(math.sin(angle) * y + math.cos(angle) * x, 0.0, 1.0)
    return 1.0 - rng.uniform(0.3, 1.0) * most * toward


def _expose(rng: np.random.Generator, eye: Eye, image: np.ndarray) -> np.ndarray:
    """Return 8-bit colors, black outside the field of view."""
    y, x = eye.grid()
    field = soft_step(1.0 - np.hypot(y, x), 2.0 / eye.radius)[..., None]
    grain = 0.008 * rng.standard_normal(eye.shape, np.float32)[..., None]
    exposed = 1.0 - np.exp(-2.2 * (rng.uniform(0.82, 1.0) * image) ** 1.35)  # saturates softly, as red does
    return np.clip(255.0 * (exposed * field + grain + 0.006), 0, 255).astype(np.uint8)
