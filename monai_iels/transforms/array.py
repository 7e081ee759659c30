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
import operator
import re
from functools import reduce
from os import PathLike

import numpy as np
from monai.config import NdarrayOrTensor
from monai.data import MetaTensor, get_track_meta
from monai.transforms import Transform
from monai.utils import ImageMetaKey, TransformBackends, convert_to_dst_type, convert_to_numpy, convert_to_tensor

from monai_iels.evolutions.base import Evolution, check_evolution
from monai_iels.grid import check_dt, check_spacing, check_steps

__all__ = ["CorruptLabel", "Evolve"]


class Evolve(Transform):
    """Run an evolution on an image or a one-hot label: forward if ``dt`` > 0, backward if ``dt`` < 0.

    Integers and half precision are computed and returned in float32.

    Args:
        evolution: the equation, such as ``HeatDiffusion()``.
        dt: time step; its sign is the direction of time.
        steps: number of steps; 0 changes nothing.
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
        >>> torch.equal(clean_prediction(4 * torch.cat([1 - noisy, noisy])), label)
        True
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(self, evolution: Evolution, dt: float, steps: int, use_pixdim: bool = False) -> None:
        self.evolution = check_evolution(evolution)
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
        evolution.spacing = check_spacing(img.pixdim.tolist())
        return evolution


class CorruptLabel(Transform):
    """Replace windows of a label by random classes: the paper's label noise, the same for a label every time.

    Windows tile the image. They are drawn until they cover ``fraction`` of it, as nearly as whole windows can, and each
    gets one class, drawn uniformly for each image. All of it follows from the arguments and from what the label is, the
    name of its file and its values, never from the order of calls, the worker, the process or the folder. It may
    therefore stand before a cache. A label that has lost its meta data on the way has other noise, as it has no name.

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
        >>> CorruptLabel(num_classes=5, window=2, fraction=0.5, seed=1)(torch.zeros(1, 2, 8))
        tensor([[[1., 1., 0., 0., 2., 2., 0., 0.],
                 [1., 1., 0., 0., 2., 2., 0., 0.]]])
    """

    backend = [TransformBackends.NUMPY]  # noqa: RUF012

    def __init__(
        self, num_classes: int, window: int = 2, fraction: float = 0.1, seed: int = 0, shared: bool = True
    ) -> None:
        try:
            num_classes, window, seed = map(operator.index, (num_classes, window, seed))
        except TypeError:
            raise ValueError(
                f"Expected whole numbers, got num_classes={num_classes!r}, window={window!r} and seed={seed!r}."
            ) from None
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
        identity = self._identity(values, name)
        window_of = [np.arange(size) // self.window for size in values.shape]
        areas = reduce(np.multiply.outer, [np.bincount(windows) for windows in window_of])
        chosen = self._draw(areas.ravel(), "" if self.shared else identity)
        classes = np.full(areas.size, -1)
        classes[chosen] = self._random("classes", identity).randint(self.num_classes, size=len(chosen))
        noise = classes.reshape(areas.shape)[np.ix_(*window_of)]
        like = label.as_tensor() if isinstance(label, MetaTensor) and not get_track_meta() else label
        return convert_to_dst_type(np.where(noise < 0, values, noise), like)[0]

    def _check(self, values: np.ndarray, name: object) -> None:
        where = f" in {name}" if name else ""
        if values.ndim < 2 or values.shape[0] != 1 or not values.size:
            raise ValueError(f"Expected a label of shape (1, *spatial) with class numbers, got {values.shape}{where}.")
        if np.array(self.num_classes - 1).astype(values.dtype) != self.num_classes - 1:
            raise ValueError(
                f"Expected a label of a type that holds {self.num_classes} classes, got {values.dtype}{where}. "
                "Convert it first, for example to uint8."
            )
        found = np.unique(values)
        if not ((found >= 0) & (found < self.num_classes) & (found == np.floor(found))).all():
            shown = ", ".join(f"{value:g}" for value in found[:8]) + (", ..." if len(found) > 8 else "")
            raise ValueError(
                f"Expected a label with the classes 0 to {self.num_classes - 1}, got the values {shown}{where}. "
                "Map them to classes first, or correct `num_classes`."
            )

    def _identity(self, values: np.ndarray, name: object) -> str:
        """Return what tells a label from others: its file's name, as folders may move, and a checksum of its values."""
        file = re.split(r"[/\\]", str(name))[-1] if isinstance(name, (str, PathLike)) else ""
        smallest = values.astype(np.min_scalar_type(self.num_classes - 1))
        return f"{file} {hashlib.sha256(smallest.tobytes()).hexdigest()}"

    def _draw(self, areas: np.ndarray, identity: str) -> np.ndarray:
        """Draw windows until they cover the fraction, as nearly as they can."""
        order = self._random("windows", identity).permutation(len(areas))
        covered = np.concatenate([[0], np.cumsum(areas[order])])
        return order[: np.abs(covered - self.fraction * areas.sum()).argmin()]

    def _random(self, purpose: str, identity: str) -> np.random.RandomState:
        # RandomState's stream is frozen for good, that of numpy's newer generators is not.
        digest = hashlib.sha256(f"{self.seed} {purpose} {identity}".encode()).digest()
        return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
