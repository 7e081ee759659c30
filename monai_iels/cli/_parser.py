# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""All commands and their options. What runs a command is imported when it runs, so that ``--help`` is quick."""

import argparse
import importlib
from functools import partial
from pathlib import Path
from typing import Any

import monai_iels

_PRESETS = "paper, full (the bundle as it is), or cpu, which is smaller (default: cpu; with a GPU paper, or else full)"
_SETS = sorted(file.stem for file in Path(monai_iels.__file__).parent.glob("data/*.yaml"))
_SERVER = "address of the server (default: MLFLOW_TRACKING_URI, or the database in which trainings are tracked)"
_CACHE = "where archives are unpacked (default: your cache folder)"


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="monai-iels", description=monai_iels.__doc__)
    parser.add_argument("--version", action="version", version=f"monai-iels {monai_iels.__version__}")
    groups = parser.add_subparsers(required=True, title="commands, and groups of commands", metavar="COMMAND")
    for name, words, add_commands in (
        ("data", "download, check or synthesize a data set", _add_data),
        ("bundle", "compose the configs of the bundles", _add_bundle),
        ("study", "compare variants of a training", _add_study),
        ("registry", "look after registered models", _add_registry),
        ("tracking", "deliver what was tracked while a server was away", _add_tracking),
        ("nnunet", "train with nnU-Net and a layer", _add_nnunet),
    ):
        group = _add(groups, name, words)
        add_commands(group.add_subparsers(required=True, title="commands", metavar="COMMAND"))
    _add_advise(groups)
    return parser


def _add(commands: Any, name: str, words: str, run: str = "", writes: str = "") -> argparse.ArgumentParser:
    """Add a command or a group of them.

    Args:
        commands: where to add it.
        name: its name.
        words: what it does.
        run: the module and the function that run it.
        writes: the option that chooses the folder that it writes into.
    """
    description = f"{words[0].upper()}{words[1:]}."
    command: argparse.ArgumentParser = commands.add_parser(name, help=words, description=description)
    command.set_defaults(run=partial(_run, run), writes=writes)
    return command


def _run(place: str, options: argparse.Namespace) -> int | None:
    """Run a command, and return its exit code, or None if all is well."""
    module, function = place.split(".")
    code: int | None = getattr(importlib.import_module(f"monai_iels.cli.{module}"), function)(options)
    return code


def _add_advise(groups: Any) -> None:
    words = "look at labels, say what seems to be wrong with them, and what to try"
    command = _add(groups, "advise", words, "_advise.advise", "--output_dir")
    command.add_argument("--root", required=True, type=Path, metavar="DIR", help="folder of the data")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--bundle", help=f"{', '.join(_SETS)}, or the folder of a bundle (default: what DIR looks like)")
    which.add_argument("--labels", metavar="FOLDER", help="folder of the labels below DIR, if there is no bundle")
    command.add_argument("--cases", type=int, default=100, help="largest number of labels to look at (default: 100)")
    command.add_argument("--output_dir", type=Path, default=Path("advice"), help="where to write (default: advice)")
    command.add_argument("--cache_dir", help=_CACHE)


def _add_data(commands: Any) -> None:
    downloading = _add(commands, "download", "download a data set from its source", "_data.download_set", "--root")
    downloading.add_argument("--url", help="a mirror, or the file:// address of an archive you already have")
    checking = _add(commands, "check", "open every file and report what is broken", "_data.check_set", "--cache_dir")
    checking.add_argument("--json", action="store_true", help="print the report as JSON")
    checking.add_argument("--cache_dir", help=_CACHE)
    making = _add(commands, "synthesize", "draw a small set in the official layout", "_data.synthesize_set", "--root")
    making.add_argument("--count", type=int, default=60, help="number of images over all sections (default: 60)")
    making.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (default: 0)")
    making.add_argument("--size", type=int, help="height of the images (default: about that of the originals)")
    names = ", ".join(_SETS)
    for command, name, root in (
        (downloading, names, "folder where the data set is written"),
        (checking, f"{names}, or the folder of a bundle of your own", "folder of the data set"),
        (making, names, "folder where the images are written; it must be empty or new"),
    ):
        command.add_argument("name", help=name)
        command.add_argument("--root", required=True, metavar="DIR", help=root)


def _add_bundle(commands: Any) -> None:
    composing = _add(commands, "compose", "write the configs and pages of all bundles", "_bundle.compose")
    checking = _add(commands, "check", "name the files that differ from what compose writes", "_bundle.check")
    for command in (composing, checking):
        command.add_argument("bundles", type=Path, help="the folder with 'shared' and the bundles")


def _add_study(commands: Any) -> None:
    run = _add(commands, "run", "train what is missing, and write the page", "_study.train_and_report")
    run.add_argument("study", type=Path, help="bundles/NAME/studies/STUDY.yaml")
    run.add_argument("--dataset_dir", default="synthetic", help="folder of the data set (default: synthetic images)")
    run.add_argument("--output_dir", type=Path, help="where to write (default: eval/STUDY-PRESET in the bundle)")
    run.add_argument("--seeds", type=int, help="how many seeds (default: as many as the study says)")
    run.add_argument("--variants", nargs="+", metavar="NAME", help="only these, and the baselines of their groups")
    run.add_argument("--jobs", type=int, help="how many trainings at the same time (default: 1 with a GPU, else 2)")
    run.add_argument("--preset", help=_PRESETS)
    run.add_argument("--tracking_uri", help=_SERVER)
    report = _add(commands, "report", "write the page again", "_study.report")
    report.add_argument("folder", type=Path, help="output folder of a study, or a folder with its results.json.gz")
    report.add_argument("--output_dir", type=Path, help="where to write (default: the folder itself)")
    report.add_argument("--without_images", action="store_true", help="no pictures of the data, which may be secret")


def _add_registry(commands: Any) -> None:
    adding = _add(commands, "register", "register the best weights of a training", "_servers.register")
    moving = _add(commands, "promote", "move an alias to a version", "_servers.promote")
    writing = _add(commands, "export", "write a version back as a checkpoint", "_servers.export")
    for command in (adding, moving, writing):
        command.add_argument("name", help="name of the registered model, such as cells")
        command.add_argument("--root", default=".", metavar="DIR", help="output folder of a training (default: .)")
        command.add_argument("--tracking_uri", help=_SERVER)
    for command in (moving, writing):
        command.add_argument("version", help="number of the version, such as 1")
    moving.add_argument("--alias", default="champion", help="name of the alias (default: champion)")
    writing.add_argument("file", type=Path, help="checkpoint to write, such as cells.pt")


def _add_tracking(commands: Any) -> None:
    command = _add(commands, "replay", "deliver what a tracking server has missed", "_servers.replay")
    command.add_argument("folder", type=Path, metavar="DIR", help="output folder of a training, or one above several")
    command.add_argument("--tracking_uri", help=_SERVER)


def _add_nnunet(commands: Any) -> None:
    words = 'print the line that sets nnUNet_extTrainer: eval "$(monai-iels nnunet export)"'
    _add(commands, "export", words, "_nnunet.export")
    words = "run nnUNetv2_train with our trainers: nnUNetTrainerIEL and nnUNetTrainerConvex"
    training = _add(commands, "train", words, "_nnunet.train")
    training.add_argument("arguments", nargs=argparse.REMAINDER, help="what nnUNetv2_train takes, such as 4 2d 0")
