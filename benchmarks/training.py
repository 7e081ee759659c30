# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Measure what a bundle adds to a training step: ratios in one run, since machines differ and are shared.

Run ``python benchmarks/training.py``; ``--features 16,32,64,128,256,16`` for a quick look with a small network.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from ignite.engine import Events

from monai_iels import Training
from monai_iels.handlers import Tracking
from monai_iels.tracking import _delivery_thread

BUNDLES = Path(__file__).parents[1] / "bundles"


def main() -> None:
    """Print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", default="64,128,256,512,1024,64")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    features = [int(word) for word in options.features.split(",")]
    print(f"features {features}, {options.threads} thread(s), median of {options.epochs} epochs\n")
    print("| | ratio | goal |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ratio = bundle_over_loop(features, options.images, options.epochs, folder)
        print(f"| bundle's epoch over a bare loop's, WBC 112x112 | {ratio:.3f} | 1.15 |", flush=True)
        ratio = tracked_over_untracked(features, options.images, options.epochs, folder)
        print(f"| epoch with tracking over one without, WBC 112x112 | {ratio:.4f} | 1.02 |", flush=True)
        for name, goal, size in (("wbc", 1.01, [112, 112]), ("refuge", 1.03, [256, 256])):
            ratio = layer_over_none(name, features, size, options.epochs, folder)
            print(
                f"| step with the layer over one without, {name} {size[0]}x{size[1]} | {ratio:.4f} | {goal} |",
                flush=True,
            )


def workflow(name: str, folder: str, **overrides: Any) -> Training:
    """Return a bundle's training on its synthetic sample, without validation."""
    common = {"output_dir": f"{folder}/{name}", "epochs": 1000, "val_interval": 1000}
    run = Training(BUNDLES / name, **{**common, **overrides})
    run.initialize()
    return run


def bundle_over_loop(features: list[int], images: int, epochs: int, folder: str) -> float:
    """Return the time of a bundle's epoch over that of a plain loop with the same tensors, network and loss."""
    run = workflow("wbc", folder, features=features, sample_count=images, epochs=epochs + 1, val_interval=epochs + 1)
    trainer, network, loss, optimizer = (run[key] for key in ("train#trainer", "network", "loss", "optimizer"))
    cases = run["train#dataset"]
    image = torch.stack([case["image"].as_tensor() for case in cases])
    label = torch.stack([case["label"].as_tensor() for case in cases])
    batch = run["batch_size"]
    times: dict[str, list[float]] = {"bundle": [], "loop": []}

    def loop(engine: object) -> None:
        """Train for one more epoch by hand after each epoch of the bundle's, so that both see the same machine."""
        times["bundle"].append(ended[0] - began[0])
        start = time.perf_counter()
        network.train()
        for indices in torch.randperm(len(image)).split(batch):
            optimizer.zero_grad()
            loss(network(image[indices]), label[indices]).backward()
            optimizer.step()
        times["loop"].append(time.perf_counter() - start)

    began, ended = [0.0], [0.0]
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: ended.__setitem__(0, time.perf_counter()))
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda: began.__setitem__(0, time.perf_counter()))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, loop)
    trainer.run()
    return statistics.median(times["bundle"][1:]) / statistics.median(times["loop"][1:])


def tracked_over_untracked(features: list[int], images: int, epochs: int, folder: str) -> float:
    """Return the time of a tracked epoch over the same without what tracking took of it, in both of its threads."""
    spent = {"handler": 0.0, "delivery": 0.0}
    clock = time.perf_counter

    def timed(name: str, function: Callable[..., Any], now: Callable[[], float]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = now()
            try:
                return function(*arguments)
            finally:
                spent[name] += now() - start

        return call

    run = workflow(
        "wbc", f"{folder}/tracked", features=features, sample_count=images, epochs=epochs + 1, val_interval=1
    )
    deliver_pending = _delivery_thread.deliver_pending
    with (
        mock.patch.object(Tracking, "record", timed("handler", Tracking.record, clock)),
        mock.patch.object(_delivery_thread, "deliver_pending", timed("delivery", deliver_pending, time.thread_time)),
    ):
        trainer = run["train#trainer"]
        marks: list[tuple[float, float]] = []  # after the first epoch, which has opened the database once for all
        for epoch in (1, epochs + 1):
            trainer.add_event_handler(
                Events.EPOCH_COMPLETED(once=epoch), lambda: marks.append((clock(), sum(spent.values())))
            )
        trainer.run()
    whole, tracking = (end - start for start, end in zip(*marks, strict=True))
    return whole / (whole - tracking)


def layer_over_none(name: str, features: list[int], size: list[int], repeats: int, folder: str) -> float:
    """Return the time of a training step with the layer over that of one without, taken in turn."""
    run = workflow(name, folder, features=features, sample_count=6, image_size=size)
    network, loss, optimizer = (run[key] for key in ("network", "loss", "optimizer"))
    case = run["train#dataset"][0]
    image, label = (case[key].as_tensor()[None] for key in ("image", "label"))
    layer = network.layer
    times: dict[bool, list[float]] = {True: [], False: []}
    network.train()
    for turn in range(2 * (5 * repeats + 1)):
        network.layer = layer if turn % 2 else None
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(network(image), label).backward()
        optimizer.step()
        times[bool(turn % 2)].append(time.perf_counter() - start)
    return statistics.median(times[True][1:]) / statistics.median(times[False][1:])


if __name__ == "__main__":
    main()
