# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""``monai-iels nnunet export|train``."""

import argparse
import importlib.util
import multiprocessing
import os
import shlex
import signal
import sys
from pathlib import Path
from threading import Thread

from monai_iels.torchvision_operators import make_importable

_VARIABLE = "nnUNet_extTrainer"


def _folders() -> str:
    """Return the folders that nnU-Net should look for trainers in: those of the user, and ours."""
    ours = str(Path(__file__).parents[1] / "nnunet" / "trainers")
    theirs = [folder for folder in os.environ.get(_VARIABLE, "").split(os.pathsep) if folder not in ("", ours)]
    return os.pathsep.join([*theirs, ours])


def export(options: argparse.Namespace) -> None:
    """Print the line that lets nnU-Net find our trainers."""
    print(f"export {_VARIABLE}={shlex.quote(_folders())}")


def train(options: argparse.Namespace) -> None:
    """Run nnU-Net's own command with our trainers."""
    if importlib.util.find_spec("nnunetv2") is None:
        raise ValueError("nnU-Net is not installed: install it with pip install 'monai_iels[nnunet]'")
    os.environ[_VARIABLE] = _folders()
    make_importable()
    from nnunetv2.run.run_training import run_training_entry

    sys.argv = ["nnUNetv2_train", *options.arguments]
    if os.name == "posix":
        _end_at_sigterm()
    run_training_entry()


def _end_at_sigterm() -> None:
    """End at SIGTERM at once, together with the processes that load data, which nnU-Net's own command leaves behind.

    A thread does it, since Python runs no handler while its main thread waits for torch. The processes keep the
    system's way, so that they do not write into our pipe.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writing)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    Thread(target=_end_all, args=(reading,), daemon=True).start()


def _end_all(reading: int) -> None:
    while os.read(reading, 1) != bytes([signal.SIGTERM]):
        pass
    for process in multiprocessing.active_children():
        process.kill()
    print("Ended by SIGTERM; --c continues from the last checkpoint.", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGTERM)
