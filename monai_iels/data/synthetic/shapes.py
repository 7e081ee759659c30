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

"""Shapes and textures that the synthetic data sets are drawn from; every function is deterministic in its ``rng``."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

__all__ = ["blob", "smooth_noise", "soft_step"]


def smooth_noise(rng: np.random.Generator, shape: Sequence[int], scale: float | Sequence[float]) -> np.ndarray:
    """Return a random field of ``shape`` with mean 0, deviation 1 and details of about ``scale`` pixels."""
    field = ndimage.gaussian_filter(rng.standard_normal(tuple(shape)), scale, mode="reflect")
    return (field - field.mean()) / (field.std() + 1e-12)


def soft_step(field: np.ndarray, width: float = 1.0) -> np.ndarray:
    """Return a smooth step from 0 (far negative) to 1 (far positive) that rises over about ``width``."""
    return 1.0 / (1.0 + np.exp(-np.clip(4.0 * field / width, -60.0, 60.0)))


def blob(
    rng: np.random.Generator,
    shape: Sequence[int],
    center: Sequence[float] | np.ndarray,
    radii: Sequence[float] | np.ndarray,
    angle: float = 0.0,
    roughness: float = 0.1,
) -> np.ndarray:
    """Return a wobbly ellipse as an approximate signed distance in pixels, positive inside.

    Args:
        rng: draws the wobble of the outline.
        shape: height and width of the field.
        center: row and column of the center.
        radii: the two half axes in pixels.
        angle: rotation in radians.
        roughness: size of the wobble relative to the radius.
    """
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    y, x = rows - center[0], columns - center[1]
    u = (np.cos(angle) * y + np.sin(angle) * x) / radii[0]
    v = (np.cos(angle) * x - np.sin(angle) * y) / radii[1]
    theta = np.arctan2(v, u)
    outline = np.ones_like(theta)
    for k in range(2, 6):
        outline += roughness * rng.standard_normal() / k * np.cos(k * theta + rng.uniform(0, 2 * np.pi))
    return (outline - np.hypot(u, v)) * float(min(radii))
