# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Photographs of fundi, modeled on REFUGE: the optic disc and its cup, crossed by vessels."""

import numpy as np
from scipy import ndimage

from monai_iels.drawings import _fundus as fundus
from monai_iels.drawings._fundus import Eye, Vessel
from monai_iels.drawings._shapes import Array, Rng, blend, polar, ridge, soft_step, to_bytes

_DISC_RADIUS = 0.152
_FUNDUS, _RIM, _CUP, _ATROPHY = (0.80, 0.37, 0.17), (1.01, 0.54, 0.26), (1.10, 0.75, 0.51), (0.98, 0.58, 0.32)
# Absorption in nepers: blood takes mostly green light.
_VEIN, _ARTERY, _BLEEDING = (0.46, 0.90, 0.84), (0.30, 0.74, 0.68), (0.55, 1.15, 1.0)


def draw_refuge(rng: Rng, shape: tuple[int, int], glaucoma: bool, traced: bool) -> tuple[Array, Array]:
    """Draw a photograph of a fundus like those of REFUGE.

    Disc and cup are convex, yet thick vessels and bleedings hide parts of both outlines, and atrophy imitates the disc.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width; the geometry scales with it.
        glaucoma: whether the cup is enlarged, as glaucoma does.
        traced: whether the label was traced by brightness, so that it leaves out the darkest vessels.

    Returns:
        The RGB photograph of shape (H, W, 3) and the label of shape (H, W), both uint8; the label is 0 in the
        background, 1 in the rim of the disc and 2 in the cup.
    """
    side = float(rng.choice([-1.0, 1.0]))
    fovea = np.array([rng.normal(0.03, 0.03), side * rng.normal(-0.1, 0.04)])
    place = fovea + np.array([-rng.uniform(0.0, 0.12), side * rng.uniform(0.62, 0.72)])
    eye = Eye(rng, shape, 0.97 * min(shape) / 2, np.subtract(shape, 1) / 2, disc=place, fovea=fovea, temporal=-side)
    disc, cup = _nerve_head(eye, rng.uniform(0.6, 0.83) if glaucoma else rng.uniform(0.32, 0.58))
    vessels = fundus.grow_vessels(eye, rng.uniform(1.0, 1.2), 0.85)
    vessels += [_rim_vessel(eye) for _ in range(rng.integers(1, 3))]

    # Layer by layer from the back of the eye to the camera.
    image = fundus.paint_fundus(eye, _FUNDUS * rng.normal(1.0, (0.03, 0.06, 0.12)), 0.08, rng.uniform(0.7, 1.1))
    if rng.random() < (0.85 if glaucoma else 0.6):
        image = _add_atrophy(eye, disc, image)
    image = _add_bleedings(eye, _add_head(eye, disc, cup, image))
    covered = fundus.add_vessels(eye, image, vessels, (_VEIN, _ARTERY), reflex=0.55)
    label = np.where(cup > 0.0, 2, disc > 0.0)
    if traced:
        # A tool that traces by brightness leaves out where vessels take half of the green light.
        label[covered[..., 1] < 0.5 * image[..., 1]] = 0
    field = soft_step(1.0 - np.hypot(*eye.offsets()), 2.0 / float(eye.unit))[..., None]
    exposed = field * fundus.expose(eye, covered, rng.uniform(0.8, 0.97))
    grain = 0.006 + 0.008 * rng.standard_normal(shape)[..., None]
    return to_bytes(255.0 * (exposed + grain)), label.astype(np.uint8)


def _nerve_head(eye: Eye, ratio: float) -> tuple[Array, Array]:
    """Return upright ellipses for the disc and, well within it, the cup whose height is a ``ratio`` of the disc's."""
    rng = eye.rng
    radii = _DISC_RADIUS * rng.uniform(0.8, 1.2) * np.array([1.0, rng.uniform(0.78, 0.98)])
    slack = (1.0 - ratio) * radii  # how far the cup may move before it leaves the disc
    shift = slack * [rng.uniform(-0.2, 0.3), eye.temporal * rng.uniform(0.0, 0.4)]
    angle = rng.normal(0.0, 0.35)
    disc = eye.blob(eye.disc, radii, angle, 0.012)
    cup = eye.blob(eye.disc + shift, ratio * radii * [1.0, rng.uniform(0.9, 1.04)], angle, 0.012)
    return disc, np.minimum(cup, disc)


def _rim_vessel(eye: Eye) -> Vessel:
    """Return a vessel that rises from the cup, runs along the outline of the disc for a while and so hides it."""
    rng, along = eye.rng, np.linspace(0.0, 1.0, 30)
    angle = rng.choice([-1.0, 1.0]) * (0.5 * np.pi + rng.normal(0.0, 0.4))  # upward or downward first
    angles = angle + rng.choice([-1.0, 1.0]) * rng.uniform(0.9, 1.6) * np.maximum(0.0, along - 0.2)
    distance = np.minimum(along / 0.3, rng.uniform(0.9, 1.08)) + 1.5 * np.maximum(0.0, along - 0.7)
    offsets = _DISC_RADIUS * distance[:, None] * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    points = eye.disc + ndimage.gaussian_filter1d(offsets, 2.0, axis=0, mode="nearest")
    return Vessel(points, rng.uniform(0.014, 0.024) * (1.0 - 0.5 * along), bool(rng.random() < 0.5))


def _add_atrophy(eye: Eye, disc: Array, image: Array) -> Array:
    """Return the image with a bright crescent beside the disc, and a dark line of pigment at its outer edge."""
    rng, noise = eye.rng, eye.noise
    away = rng.normal(0.0, 0.6)  # direction, mostly temporal
    shift = _DISC_RADIUS * rng.uniform(0.12, 0.3) * np.array([np.sin(away), eye.temporal * np.cos(away)])
    distance = np.hypot(*eye.offsets(eye.disc + shift))
    edge = _DISC_RADIUS * rng.uniform(1.05, 1.3) - distance + 0.012 * noise(0.05)
    patches = np.clip(0.75 + 0.25 * noise(0.025), 0.0, 1.0)
    blend(image, _ATROPHY, rng.uniform(0.45, 0.9) * soft_step(edge, 0.03) * patches)
    return fundus.absorb(image, rng.uniform(0.0, 0.35) * ridge(edge, 0.014) * (disc < 0), (0.6, 0.8, 0.6))


def _add_head(eye: Eye, disc: Array, cup: Array, image: Array) -> Array:
    """Return the image with the disc and the paler cup; both outlines fade on a side of their own."""
    y, x = (offset / _DISC_RADIUS for offset in eye.offsets(eye.disc))
    image = image * (1.0 + 0.12 * np.exp(-0.5 * (np.hypot(y, x) / 1.8) ** 2))[..., None]
    texture = 1.0 + 0.04 * eye.noise(0.025)
    for field, color, softness, fading in ((disc, _RIM, 0.022, 0.85), (cup, _CUP, 0.03, 0.7)):
        row, column = polar((0.0, 0.0), eye.rng.uniform(0.3, 1.0) * fading, eye.rng.uniform(0.0, 2.0 * np.pi))
        opacity = soft_step(field, max(softness, 1.2 / float(eye.unit)))
        opacity *= 1.0 - np.clip(row * y + column * x, 0.0, fading)
        blend(image, np.multiply.outer(texture, color * eye.rng.normal(1.0, (0.02, 0.04, 0.07))), opacity)
    return image


def _add_bleedings(eye: Eye, image: Array) -> Array:
    """Return the image with bleedings: some hide the outline of the disc, a few elsewhere tell nothing."""
    rng = eye.rng
    places = rng.uniform(-0.6, 0.6, (rng.integers(3, 7), 2))
    for place in places[: rng.integers(2, 5)]:
        place[:] = polar(eye.disc, _DISC_RADIUS * rng.normal(0.95, 0.1), rng.uniform(0, 2 * np.pi))
    sizes = _DISC_RADIUS * rng.uniform(0.25, 0.6, len(places))
    return fundus.absorb(image, eye.spots(places, sizes, 0.02), _BLEEDING)
