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

"""Transforms of one channel-first image or label, ``(C, *spatial)``."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import numpy as np
from monai.config import NdarrayOrTensor
from monai.data import MetaTensor, get_track_meta
from monai.transforms import Transform
from monai.utils import ImageMetaKey, TransformBackends, convert_to_dst_type, convert_to_numpy, convert_to_tensor

from monai_iels.evolutions.base import Evolution
from monai_iels.grid import check_dt, check_spacing, check_steps

__all__ = ["CorruptLabel", "Evolve"]


class Evolve(Transform):
    """Run an evolution on an image or a one-hot label: forward if ``dt`` > 0, backward if ``dt`` < 0.

    Integers and half precision are computed and returned in float32.

    Args:
        evolution: the equation, such as ``HeatDiffusion()``.
        dt: time step; its sign is the direction of time.
        steps: number of steps; 0 returns the input.
        use_pixdim: take the spacing from the input, which must then be a MetaTensor, and not from the evolution.

    Example:
        The paper's label pre-processing smooths the one-hot label, and its post-processing the predicted
        probabilities; both then take the largest class.

        >>> import torch
        >>> from monai.transforms import Activations, AsDiscrete, Compose
        >>> from monai_iels import Evolve, HeatDiffusion
        >>> smooth = Evolve(HeatDiffusion(spacing=2.0), dt=0.1, steps=100)
        >>> clean_label = Compose([AsDiscrete(to_onehot=2), smooth, AsDiscrete(argmax=True)])
        >>> clean_prediction = Compose([Activations(softmax=True), smooth, AsDiscrete(argmax=True)])
        >>> label = torch.zeros(1, 16, 16)
        >>> label[:, :, 8:] = 1
        >>> noisy = label.clone()
        >>> noisy[:, 4, 4] = 1
        >>> torch.equal(clean_label(noisy), label)
        True
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(self, evolution: Evolution, dt: float, steps: int, use_pixdim: bool = False) -> None:
        if not isinstance(evolution, Evolution):
            raise TypeError(f"Expected an Evolution such as HeatDiffusion(spacing=2.0), got {evolution!r}.")
        self.evolution = evolution
        self.dt = check_dt(dt)
        self.steps = check_steps(steps)
        self.use_pixdim = use_pixdim

    def __call__(self, img: NdarrayOrTensor) -> NdarrayOrTensor:
        """Return the evolved image, of the type and shape of ``img``."""
        tensor = convert_to_tensor(img, track_meta=get_track_meta())
        evolution = self._with_pixdim_of(img) if self.use_pixdim else self.evolution
        field = tensor if tensor.is_floating_point() else tensor.float()
        out = evolution.evolve(field.unsqueeze(0), self.dt, self.steps).squeeze(0)
        return convert_to_dst_type(out, img, dtype=out.dtype)[0]

    def _with_pixdim_of(self, img: NdarrayOrTensor) -> Evolution:
        if not isinstance(img, MetaTensor):
            raise TypeError(
                f"Expected a MetaTensor to take the spacing from, got {type(img).__name__}. Set `use_pixdim=False`."
            )
        evolution = copy.copy(self.evolution)
        evolution.spacing = check_spacing(img.pixdim[: img.ndim - 1].tolist())
        return evolution


class CorruptLabel(Transform):
    """Replace windows of a label by random classes: the paper's label noise, the same for a label every time.

    Windows tile the image. So many of them are drawn that they cover ``fraction`` of it, and each gets one class, drawn
    uniformly for each image. All of it follows from ``seed`` and from what the label is (the name of its file, or else
    its values), never from the order of calls, the worker or the process. It may therefore stand before a cache.

    In the released code the locations of the windows are the same for all images (on WBC and DRIVE), and a network then
    overfits to them within 20 epochs; with locations of its own for each image, as the text can be read, it does not.
    A result must say which of the two it used.

    Args:
        num_classes: number of classes, the background included.
        window: side of a window in pixels.
        fraction: share of the area to replace, from 0 to 1.
        seed: another seed gives other noise.
        shared: whether all images of a size have their windows at the same places.

    Raises:
        ValueError: if an argument is out of its range, or a label has a class outside of 0 to ``num_classes - 1``.

    Example:
        >>> import torch
        >>> from monai_iels import CorruptLabel
        >>> CorruptLabel(num_classes=5, window=2, fraction=0.5)(torch.zeros(1, 2, 8))
        tensor([[[0., 0., 3., 3., 0., 0., 1., 1.],
                 [0., 0., 3., 3., 0., 0., 1., 1.]]])
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012

    def __init__(
        self, num_classes: int, window: int = 2, fraction: float = 0.1, seed: int = 0, shared: bool = True
    ) -> None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"Expected `fraction` from 0 to 1, got {fraction}.")
        if num_classes < 2 or window < 1:
            raise ValueError(f"Expected `num_classes` >= 2 and `window` >= 1, got {num_classes} and {window}.")
        self.num_classes = num_classes
        self.window = window
        self.fraction = fraction
        self.seed = seed
        self.shared = shared

    def __call__(self, label: NdarrayOrTensor) -> NdarrayOrTensor:
        """Return the noisy label, of the type, shape and dtype of ``label``, which is ``(1, *spatial)``."""
        values = convert_to_numpy(label)
        name = label.meta.get(ImageMetaKey.FILENAME_OR_OBJ) if isinstance(label, MetaTensor) else None
        self._check(values, name)
        tiles = self._tiles(values.shape)
        identity = Path(name).name if name else hashlib.sha256(values.astype(np.int64).tobytes()).hexdigest()
        chosen = self._windows(tiles, "" if self.shared else identity)
        classes = np.full(tiles.max() + 1, -1)
        classes[chosen] = self._random("classes", identity).randint(self.num_classes, size=len(chosen))
        noise = classes[tiles]
        return convert_to_dst_type(np.where(noise < 0, values, noise), label)[0]

    def _check(self, values: np.ndarray, name: str | None) -> None:
        where = f" in {name}" if name else ""
        if values.ndim < 2 or values.shape[0] != 1:
            raise ValueError(f"Expected a label of shape (1, *spatial) with class numbers, got {values.shape}{where}.")
        found = np.unique(values)
        if not np.isin(found, np.arange(self.num_classes)).all():
            shown = ", ".join(f"{value:g}" for value in found[:8]) + (", ..." if len(found) > 8 else "")
            raise ValueError(
                f"Expected a label with the classes 0 to {self.num_classes - 1}, got the values {shown}{where}. "
                "Map them to classes first, or correct `num_classes`."
            )

    def _tiles(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the number of the window that each pixel belongs to."""
        grid = [np.arange(size) // self.window for size in shape]
        counts = [axis[-1] + 1 for axis in grid]
        return np.ravel_multi_index(np.meshgrid(*grid, indexing="ij"), counts)

    def _windows(self, tiles: np.ndarray, identity: str) -> np.ndarray:
        """Draw windows until they cover the fraction, as nearly as they can."""
        order = self._random("windows", identity).permutation(tiles.max() + 1)
        covered = np.concatenate([[0], np.cumsum(np.bincount(tiles.ravel())[order])])
        return order[: np.abs(covered - self.fraction * tiles.size).argmin()]

    def _random(self, purpose: str, identity: str) -> np.random.RandomState:
        # RandomState's stream is frozen for good, that of numpy's newer generators is not.
        digest = hashlib.sha256(f"{self.seed} {purpose} {identity}".encode()).digest()
        return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
