# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Time the layers against the direct implementations, MONAI's shape-aware losses and a training step.

Prints a Markdown table of ratios from one run; every time is the median of several, forward and backward, on the CPU.
Processor time is counted, since machines are shared; with several threads it is that of all of them.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import monai
import torch
from direct import convolution_in_the_batch, curve_motion, loop_of_convolutions, shifted_sum
from monai.losses import HausdorffDTLoss, SoftclDiceLoss
from monai.networks.nets import BasicUNet
from operations import as_on_other_devices, in_torch, operations
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from monai_iels import (
    ConvexCurveMotion,
    Evolution,
    GuidedDiffusion,
    HeatDiffusion,
    InverseEvolutionLayer,
)
from monai_iels.operators import balls

REPEATS = 5
HEAT = HeatDiffusion(spacing=2.0)
CURVE = ConvexCurveMotion(gradient="both")
DISC_AND_CUP = ConvexCurveMotion(gradient="both", regions=((1, 2), (2,)))
DIRECT = {
    "disk convolutions, masks in the batch": convolution_in_the_batch,
    "sums of shifted masks": shifted_sum,
}
NESTED = "curve motion of disc and cup"
LARGE = (4, 3, 512, 512)


def main() -> None:
    """Run every comparison and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads for torch (default: 1)")
    parser.add_argument("--output", type=Path, help="also write the table to this Markdown file")
    sections = [heat_against_the_loop, heat_over_steps, curve_against_direct, regions_that_share_a_softmax, curve_in_3d]
    sections += [losses, training_step, memory, counted_operations, other_equations]
    names = [section.__name__ for section in sections]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="only these parts (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    rows = [["what", "compared with", "time", "other", "ratio", "goal"]]
    for section in [section for section in sections if section.__name__ in arguments.only]:
        print(f"{section.__name__.replace('_', ' ')} ...", file=sys.stderr, flush=True)
        rows += section()
    threads = f"{arguments.threads} thread{'s' if arguments.threads > 1 else ''}"
    table = "\n".join(
        [
            f"Forward and backward on the CPU, {threads}, median of {REPEATS}, processor time; "
            f"torch {torch.__version__}, MONAI {monai.__version__}, Python {platform.python_version()}.",
            "",
            markdown(rows),
            "",
        ]
    )
    print(table)
    if arguments.output:
        arguments.output.write_text(table)


def heat_against_the_loop() -> list[list[str]]:
    """Compare the exact propagation with the loop of convolutions."""
    rows = []
    for shape, steps, goal in (((16, 2, 256, 256), 30, 10), (LARGE, 20, 3)):
        u = torch.randn(shape)
        ours, loop = medians(
            lambda u=u, steps=steps: through(u, lambda u: HEAT.evolve(u, -0.1, steps)),
            lambda u=u, steps=steps: through(u, lambda u: loop_of_convolutions(u, -0.1, steps, 2.0)),
        )
        rows.append(row(f"heat, {by(shape)}, {steps} steps", "loop of convolutions", ours, loop, f"at least {goal}x"))
    return rows


def heat_over_steps() -> list[list[str]]:
    """Compare many steps with few."""
    u = torch.randn(16, 2, 256, 256)
    many, few = medians(*(lambda n=n: through(u, lambda u: HEAT.evolve(u, -0.1, n)) for n in (100, 30)))
    return [["heat, 100 steps", "heat, 30 steps", ms(many), ms(few), f"{many / few:.2f} of it", "at most 1.2"]]


def curve_against_direct() -> list[list[str]]:
    """Compare curve motion with the fastest of the direct layouts, of which one step is timed."""
    u = smooth_logits(LARGE)
    each = ConvexCurveMotion(regions=((0,), (1,), (2,)), activation="sigmoid", gradient="both")
    rows = []
    for name, motion, phi in (("one region", CURVE, CURVE.level_sets(u)), ("three regions", each, u)):
        direct = {
            layout: medians(lambda f=f, p=phi: through(p, direct_step(f)), repeats=1)[0] for layout, f in DIRECT.items()
        }
        fastest = min(direct, key=lambda layout: direct[layout])
        ours, theirs = medians(
            lambda motion=motion: through(u, lambda u: motion.evolve(u, -0.1, 20)),
            lambda phi=phi, fastest=fastest: through(phi, direct_step(DIRECT[fastest])),
            repeats=3,
        )
        what = f"curve motion of {name}, {by(LARGE)}, 20 steps"
        rows.append(
            row(what, f"{fastest}, the fastest direct layout, one step x 20", ours, 20 * theirs, "at least 12x")
        )
        others = [layout for layout in direct if layout != fastest]
        rows += [row(what, f"{layout}, one step x 20", ours, 20 * direct[layout], "") for layout in others]
    return rows


def regions_that_share_a_softmax() -> list[list[str]]:
    """Compare two nested regions with one, and with what torch takes for them where numba is not installed."""
    u = smooth_logits(LARGE)
    both, one = medians(
        lambda: through(u, lambda u: DISC_AND_CUP.evolve(u, -0.1, 20)),
        lambda: through(u, lambda u: CURVE.evolve(u, -0.1, 20)),
        repeats=3,
    )
    with in_torch():
        (torch_alone,) = medians(lambda: through(u, lambda u: DISC_AND_CUP.evolve(u, -0.1, 20)), repeats=1)
    what = f"curve motion of disc and cup, {by(LARGE)}, 20 steps"
    return [
        row(what, "the same without numba", both, torch_alone, ""),
        [what, "curve motion of one region", ms(both), ms(one), f"{both / one:.1f} of it", ""],
    ]


def curve_in_3d() -> list[list[str]]:
    """Compare the two ways to count the pixels in large balls."""
    mask = smooth_logits((1, 1, 96, 96, 96)) > 0
    spacing, rows = (1.0, 1.0, 1.0), []
    for radius in (10.0, 15.0):
        ours, chords = medians(
            lambda r=radius: balls.count_within(mask, r, spacing),
            lambda r=radius: balls._count_along_chords(mask, r, spacing),
        )
        rows.append(row(f"balls of radius {radius:.0f} in 96x96x96", "sums along their chords", ours, chords, ""))
    return rows


def losses() -> list[list[str]]:
    """Compare the layers with what MONAI's shape-aware losses cost on the same logits."""
    u = smooth_logits(LARGE)
    label = torch.nn.functional.one_hot(smooth_logits(LARGE).argmax(1), 3).movedim(-1, 1).float()
    heat, curve = medians(
        lambda: through(u, lambda u: HEAT.evolve(u, -0.1, 20)),
        lambda: through(u, lambda u: CURVE.evolve(u, -0.1, 20)),
    )
    known = {"SoftclDiceLoss, 3 iterations": SoftclDiceLoss(iter_=3), "HausdorffDTLoss": HausdorffDTLoss(softmax=True)}
    if hasattr(monai.losses, "BoundaryLoss"):
        known["BoundaryLoss"] = monai.losses.BoundaryLoss()
    rows = []
    for name, loss in known.items():
        activated = isinstance(loss, HausdorffDTLoss)
        (other,) = medians(
            lambda loss=loss, activated=activated: through(u, lambda u: loss(u if activated else u.softmax(1), label)),
            repeats=3,
        )
        rows.append(row(f"heat, {by(LARGE)}, 20 steps", name, heat, other, ""))
        goal = "faster" if "DTLoss" in name or "Boundary" in name else ""
        rows.append(row(f"curve motion, {by(LARGE)}, 20 steps", name, curve, other, goal))
    return rows


def training_step() -> list[list[str]]:
    """Compare the layers with a training step of the paper's network."""
    shape = (1, 3, 512, 512)
    u, step = smooth_logits(shape), step_of_the_network(shape)
    heat, curve, whole = medians(
        lambda: through(u, lambda u: HEAT.evolve(u, -0.1, 20)),
        lambda: through(u, lambda u: CURVE.evolve(u, -0.1, 20)),
        step,
        repeats=3,
    )
    other = f"training step of BasicUNet (64 to 1024 features), {by(shape)}"
    return [
        ["heat, 20 steps", other, ms(heat), ms(whole), f"{heat / whole:.2%} of it", "at most 1 %"],
        ["curve motion, 20 steps", other, ms(curve), ms(whole), f"{curve / whole:.2%} of it", "at most 1 %"],
    ]


def step_of_the_network(shape: tuple[int, ...]) -> Callable[[], None]:
    """Return a training step of the paper's network, after a first one."""
    network = BasicUNet(2, 3, 3, features=(64, 128, 256, 512, 1024, 64))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-4)
    image, label = torch.randn(shape), torch.randint(0, 3, (shape[0], *shape[2:]))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(image), label).backward()
        optimizer.step()

    step()
    return step


def other_equations() -> list[list[str]]:
    """Compare guided diffusion with heat, a training step and the logits."""
    u, one, steps = smooth_logits(LARGE), smooth_logits((1, 3, 512, 512)), 20
    step = step_of_the_network((1, 3, 512, 512))
    (whole,) = medians(step, repeats=3)
    bound = GuidedDiffusion(2.0).guided_by(smooth_logits(LARGE))
    small = GuidedDiffusion(2.0).guided_by(smooth_logits((1, 3, 512, 512)))
    ours, heat, loop, share = medians(
        lambda: through(u, lambda u: bound.evolve(u, -0.1, steps)),
        lambda: through(u, lambda u: HEAT.evolve(u, -0.1, steps)),
        lambda: through(u, lambda u: loop_of_convolutions(u, -0.1, steps, 2.0)),
        lambda: through(one, lambda u: small.evolve(u, -0.1, steps)),
        repeats=3,
    )
    what, logits = f"guided diffusion, {by(LARGE)}, {steps} steps", 4 * u.numel()
    peak, kept = peak_memory(u, lambda u: bound.evolve(u, -0.1, steps)), kept_memory(u, bound, steps)
    return [
        row(what, "loop of convolutions, of heat", ours, loop, ""),
        [what, "heat", ms(ours), ms(heat), f"{ours / heat:.1f} of it", ""],
        [
            f"guided diffusion, {steps} steps",
            f"training step of BasicUNet (64 to 1024 features), {by(one.shape)}",
            *(ms(share), ms(whole), f"{share / whole:.2%} of it", ""),
        ],
        [f"peak extra memory of {what}", "the logits", mb(peak), mb(logits), f"{peak / logits:.1f} of it", ""],
        [
            f"kept for the backward pass by {what}",
            "the logits",
            mb(kept),
            mb(logits),
            f"{kept / logits:.1f} of it",
            "",
        ],
    ]


def kept_memory(u: Tensor, evolution: Evolution, steps: int) -> int:
    """Return what an evolution keeps for the backward pass in bytes, beside the result."""
    u = u.detach().requires_grad_()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        out = evolution.evolve(u, -0.1, steps)
    return sum(event.self_cpu_memory_usage for event in prof.key_averages()) - out.nbytes


def memory() -> list[list[str]]:
    """Measure the largest extra memory of the forward and backward pass, the result and its gradient included."""
    logits = 4 * torch.Size(LARGE).numel()
    rows = []
    for name, evolution, most in (("heat", HEAT, 5), ("curve motion", CURVE, 8), (NESTED, DISC_AND_CUP, None)):
        layer, u = InverseEvolutionLayer(evolution, 0.1, 20), smooth_logits(LARGE)
        peak = peak_memory(u, layer)
        what = f"peak extra memory of {name}, {by(LARGE)}, 20 steps"
        goal = f"at most {most}" if most else ""
        rows.append([what, "the logits", mb(peak), mb(logits), f"{peak / logits:.1f} of it", goal])
    return rows


def peak_memory(u: Tensor, layer: Callable[[Tensor], Tensor]) -> int:
    """Return the largest extra memory of a layer's forward and backward pass in bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        through(u, layer)
    events = [event for event in prof.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(e.nbytes() for e in sorted(events, key=lambda event: event.start_ns())))


def counted_operations() -> list[list[str]]:
    """Count what a GPU would be asked to do, forward and backward."""
    u = torch.randn(1, 3, 64, 64)
    rows = []
    with as_on_other_devices():
        for name, evolution, per, goal in (
            ("heat", HEAT, 1, 50),
            ("curve motion", CURVE, 20, 60),
            (NESTED, DISC_AND_CUP, 20, 60),
        ):
            count = operations(lambda evolution=evolution: through(u, lambda u: evolution.evolve(u, -0.1, 20)))
            what = f"operations of {name}, 20 steps" + (", for each step" if per > 1 else "")
            rows.append([what, "", f"{count / per:.0f}", "", "", f"at most {goal}"])
    return rows


def direct_step(disk_sum: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return one step of Algorithm 1 with the paper's radii."""
    return lambda phi: curve_motion(phi, -0.1, 1, (5, 10, 15), 3, disk_sum)


def smooth_logits(shape: tuple[int, ...]) -> Tensor:
    """Return logits with blobs of about 30 pixels, as a network's early outputs have them."""
    coarse = torch.randn(*shape[:2], *(max(1, size // 16) for size in shape[2:]))
    return 3 * torch.nn.functional.interpolate(
        coarse, size=shape[2:], mode="bicubic" if len(shape) == 4 else "trilinear"
    )


def through(u: Tensor, function: Callable[[Tensor], Tensor]) -> None:
    """Run ``function`` forward and backward."""
    function(u.detach().requires_grad_()).square().mean().backward()


def medians(
    *functions: Callable[[], object], repeats: int = REPEATS, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return the median seconds of each, measured in turn so that a noisy machine is noisy to all."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, seconds in zip(functions, times, strict=True):
            start = clock()
            function()
            seconds.append(clock() - start)
    return [statistics.median(seconds) for seconds in times]


def row(what: str, other: str, ours: float, theirs: float, goal: str) -> list[str]:
    """Return a row of the table that says how many times faster or slower ours is."""
    ratio = f"{theirs / ours:.3g}x faster" if theirs > ours else f"{ours / theirs:.3g}x slower"
    return [what, other, ms(ours), ms(theirs), ratio, goal]


def by(shape: tuple[int, ...]) -> str:
    """Return a shape as 4x3x512x512."""
    return "x".join(map(str, shape))


def ms(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{1000 * seconds:,.0f} ms"


def mb(size: float) -> str:
    """Return a size in megabytes."""
    return f"{size / 1e6:,.0f} MB"


def markdown(rows: list[list[str]]) -> str:
    """Return rows as a Markdown table, the first being its header."""
    header, *body = rows
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *body])


if __name__ == "__main__":
    main()
