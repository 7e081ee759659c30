# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Measure the layer's share of an nnU-Net iteration: forward, loss with deep supervision, backward.

Run ``python benchmarks/nnunet.py`` where nnU-Net is installed. It counts the processor time of one thread, since
machines are shared.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from torch import nn

from monai_iels import ConvexCurveMotion, Evolution, GuidedDiffusion, HeatDiffusion, InverseEvolutionLayer

PATCHES = {"2d, 128x128, 4 cases": (4, 128, 128), "3d, 32x32x32, 2 cases": (2, 32, 32, 32)}
CLASSES = 3
REPEATS = 2


def main() -> None:
    """Print a table of shares."""
    torch.set_num_threads(1)
    print("| patch | guided, gain 15 | heat, gain 15 | curve motion, reach 6, one region | two regions |")
    print("|---|---|---|---|---|")
    for name, (batch, *patch) in PATCHES.items():
        network = unet(len(patch))
        image = torch.randn(batch, 1, *patch)
        heads = [head.detach().requires_grad_() for head in network(image)]
        targets = [torch.randint(0, CLASSES, (batch, 1, *head.shape[2:])) for head in heads]
        loss = DeepSupervisionWrapper(
            DC_and_CE_loss(
                {"batch_dice": True, "do_bg": False, "ddp": False}, {}, dice_class=MemoryEfficientSoftDiceLoss
            ),
            [0.5**scale for scale in range(len(heads))],
        )
        iteration = seconds(lambda: loss(network(image), targets).backward())  # noqa: B023 (called at once)
        shares = []
        for evolution, strength in (
            (GuidedDiffusion, {"gain": 15}),
            (HeatDiffusion, {"gain": 15}),
            (ConvexCurveMotion, {"reach": 6}),
            (curves, {"reach": 6}),
        ):
            layers = [
                InverseEvolutionLayer(evolution(spacing=float(2**scale)), **strength, spatial_dims=len(patch))
                for scale in range(len(heads))
            ]
            alone = seconds(lambda: evolve(layers, heads, image))  # noqa: B023 (called at once)
            shares.append(f"{100 * alone / (iteration + alone):.1f} %")
        print(f"| {name} | {' | '.join(shares)} |", flush=True)


def unet(spatial_dims: int) -> nn.Module:
    """Return the network that nnU-Net plans for such patches."""
    stages = 6 if spatial_dims == 2 else 5
    features = [min(32 * 2**stage, 512 if spatial_dims == 2 else 320) for stage in range(stages)]
    conv, norm = {2: (nn.Conv2d, nn.InstanceNorm2d), 3: (nn.Conv3d, nn.InstanceNorm3d)}[spatial_dims]
    return PlainConvUNet(
        1, stages, features, conv, 3, [1] + [2] * (stages - 1), 2, CLASSES, 2, True, norm, {"affine": True},
        nonlin=nn.LeakyReLU, nonlin_kwargs={"inplace": True}, deep_supervision=True,
    )  # fmt: skip


def curves(spacing: float) -> Evolution:
    """Return curve motion for two labels, each a region."""
    return ConvexCurveMotion(regions=((1,), (2,)), spacing=spacing)


def evolve(layers: Sequence[nn.Module], heads: Sequence[torch.Tensor], image: torch.Tensor) -> None:
    """Apply each layer to its head, and differentiate it."""
    for layer, head in zip(layers, heads, strict=True):
        evolved = layer(head, image)
        evolved.backward(torch.ones_like(evolved))


def seconds(function: Callable[[], None]) -> float:
    """Return the median processor time of some calls, after a first one."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
