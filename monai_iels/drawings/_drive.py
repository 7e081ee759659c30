# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Photographs of retinas, modeled on DRIVE: the vessels of an eye as an observer traces them."""

import numpy as np

from monai_iels.drawings import _fundus as fundus
from monai_iels.drawings._fundus import Eye, Vessel
from monai_iels.drawings._shapes import Array, Rng, blend, soft_step, to_bytes

_FUNDUS, _DISC, _EXUDATE = (0.80, 0.42, 0.22), (1.15, 0.63, 0.35), (1.08, 0.72, 0.42)
_VEIN, _ARTERY = (0.34, 0.66, 0.42), (0.24, 0.52, 0.34)  # absorption in nepers: blood takes mostly green light


def draw_drive(rng: Rng, shape: tuple[int, int] = (584, 565)) -> tuple[Array, Array, Array]:
    """Draw a photograph of a retina like those of DRIVE.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width; the geometry scales with it.

    Returns:
        The RGB photograph of shape (H, W, 3), and two masks of shape (H, W) with values 0 and 1, all uint8: the
        vessels and the field of view.
    """
    side = float(rng.choice([-1.0, 1.0]))
    disc = np.array([rng.normal(-0.02, 0.05), side * rng.uniform(0.6, 0.76)])
    fovea = disc + np.array([rng.normal(0.06, 0.03), -side * rng.uniform(0.68, 0.75)])
    radius = min(540 / 565 * shape[1], 0.98 * shape[0]) / 2  # of the field of view
    eye = Eye(rng, shape, radius, (np.array(shape) - 1) / 2, disc=disc, fovea=fovea, temporal=-side)
    field = np.hypot(*eye.offsets()) < 1.0
    vessels = fundus.grow_vessels(eye, rng.uniform(0.9, 1.05), rng.uniform(0.95, 1.2))
    photograph = _photograph(eye, vessels, field)
    # The observer overlooks a tenth of the thin vessels, those below two pixels in DRIVE, and cannot see finer ones.
    seen = [vessel for vessel in vessels if vessel.widths.mean() > 0.0078 or rng.random() > 0.1]
    traced = (fundus.paint_vessels(eye, seen, finest=0.4, evenly=True) > 0.4) & field
    return photograph, traced.astype(np.uint8), field.astype(np.uint8)


def _photograph(eye: Eye, vessels: list[Vessel], field: Array) -> Array:
    """Return the RGB photograph, layer by layer from the back of the eye to the camera."""
    rng = eye.rng
    image = fundus.paint_fundus(eye, _FUNDUS * rng.normal(1.0, (0.03, 0.035, 0.09)), 0.11, rng.uniform(0.6, 1.0))
    image = _add_disc(eye, image)
    if rng.random() < 0.2:  # bright exudates in a cluster and dark bleedings anywhere
        exudates = eye.fovea + rng.normal(0.0, 0.22, 2) + rng.normal(0.0, 0.1, (rng.integers(8, 36), 2))
        blend(image, _EXUDATE, eye.spots(exudates, 0.018 * rng.power(0.6, len(exudates)), 0.012))
        bleedings = rng.uniform(-0.65, 0.65, (rng.integers(3, 12), 2))
        cover = eye.spots(bleedings, rng.uniform(0.006, 0.028, len(bleedings)), 0.012)
        image = fundus.absorb(image, cover, _VEIN)
    image = fundus.add_vessels(eye, image, vessels, (_VEIN, _ARTERY), reflex=1.0)
    exposed = fundus.expose(eye, image, rng.uniform(0.8, 1.0))
    grain = np.multiply.outer(rng.standard_normal(eye.shape), (0.012, 0.014, 0.016))
    blotches = 0.012 * eye.noise(0.006)[..., None]
    return to_bytes(255.0 * np.where(field[..., None], exposed + grain + blotches, 0.008 + 0.3 * grain))


def _add_disc(eye: Eye, image: Array) -> Array:
    """Return the image with the bright optic disc, its pale cup, a glow around it and a darker temporal side."""
    rng, noise = eye.rng, eye.noise
    radius = 0.15 * rng.uniform(0.92, 1.08)
    y, x = (offset / radius for offset in eye.offsets(eye.disc))
    distance = np.hypot(y, x) + 0.05 * noise(0.07)
    image = image * (1.0 + 0.2 * np.exp(-0.5 * (distance / 1.9) ** 2))[..., None]
    tone = (1.0 - 0.1 * np.clip(-eye.temporal * x, -1.0, 1.0)) * (0.98 + 0.05 * noise(0.03))
    cup = soft_step(rng.uniform(0.3, 0.5) - np.hypot(y, x - 0.15 * eye.temporal), 0.4)
    disc = np.multiply.outer(tone, _DISC * rng.normal(1.0, (0.02, 0.025, 0.06)))
    blend(image, disc + np.multiply.outer(cup, (0.1, 0.22, 0.2)), soft_step(1.0 - distance, 0.24))
    return image
