# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What one command is going to train, and what it writes to ``study.json`` before."""

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from monai_iels._files import read_json, write_json
from monai_iels.run_folder import RunFolder
from monai_iels.runs import training_config
from monai_iels.study._definition import Study, presets, read_study, slug
from monai_iels.study._folder import StudyFolder, StudySummary
from monai_iels.study._methods import Overrides, merged
from monai_iels.tracking import Journal, choose_address, without_secrets


@dataclass(frozen=True)
class Training:
    """One training of a study.

    Args:
        variant: its variant.
        seed: its seed.
        folder: where it writes.
        arguments: of ``monai.bundle run``.
    """

    variant: str
    seed: int
    folder: RunFolder
    arguments: Overrides

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def journal(self) -> Journal:
        """What the training has recorded."""
        return Journal(self.folder.tracking)


@dataclass(frozen=True)
class Plan:
    """A study with everything that one command has chosen for it.

    Args:
        study: what to train.
        folder: where to write.
        preset: name of the settings that all variants share.
        shared: arguments of ``monai.bundle run`` that all trainings have in common.
        processes: how many processes share each training.
    """

    study: Study
    folder: StudyFolder
    preset: str
    shared: Overrides
    processes: int = 1

    @property
    def synthetic(self) -> bool:
        """Whether the images are synthetic."""
        return self.shared["dataset_dir"] == "synthetic"

    def trainings(self, parent: str = "") -> list[Training]:
        """Return all trainings, seed by seed, nested under the tracked run with the id ``parent``."""
        return [self._training(variant, seed, parent) for seed in self.study.seeds for variant in self.study.variants]

    def _training(self, variant: str, seed: int, parent: str) -> Training:
        folder = self.folder.training(variant, seed)
        own = {
            "output_dir": str(folder.path),
            "seed": seed,
            "run_name": f"{slug(variant)}-seed-{seed}",
            "run_tags": {"mlflow.parentRunId": parent, "study.variant": variant, "study.seed": str(seed)},
        }
        return Training(variant, seed, folder, merged(self.shared, self.study.variants[variant], own))


def make_plan(
    study: Study, output_dir: Path, preset: str, dataset_dir: str, tracking_uri: str | None, processes: int = 1
) -> Plan:
    """Return the plan of a study, with absolute paths.

    Raises:
        ValueError: if the bundle has no such preset.
    """
    known = presets(study.bundle)
    if preset not in known:
        raise ValueError(f"--preset: there is no preset '{preset}'; choose from {', '.join(known)}")
    folder = StudyFolder(output_dir)
    config = training_config(study.bundle)
    parser = ConfigParser(ConfigParser.load_config_file(config))
    parser.update(known[preset])
    cache = "datalists#cache_dir"
    several = {} if processes == 1 else {"config_file": [str(config), str(config.with_stem("multi_gpu_train"))]}
    shared = {
        **known[preset],
        **several,  # tells the trainings of one process apart from those of several
        "workflow_name": "monai_iels.Training",
        "bundle_root": str(study.bundle),
        "dataset_dir": dataset_dir if dataset_dir == "synthetic" else os.path.abspath(dataset_dir),
        "output_dir": str(folder.path),
        **({cache: str(folder.cache)} if cache in parser else {}),  # not where the user's own list needs none
        "tracking_uri": choose_address(tracking_uri, study.bundle, folder.path),
        "experiment_name": f"{study.bundle.name}-{study.name}",
    }
    return Plan(study, folder, preset, shared, processes)


def check_unchanged(plan: Plan) -> None:
    """Check that a folder holds no other study, and no trainings with other settings.

    Raises:
        ValueError: if it does.
    """
    file = plan.folder.summary
    if not file.exists():
        return
    now = {"study": plan.study.name, "bundle": plan.study.bundle.name, "preset": plan.preset}
    _check_same(file, read_json(file, *now), now, now)
    for training in plan.trainings():
        file = training.folder.study_arguments
        if file.exists():
            before, arguments = read_json(file, "tracking_uri"), json.loads(json.dumps(training.arguments))
            before["tracking_uri"] = without_secrets(before["tracking_uri"])
            _check_same(file, before, arguments, (before.keys() | arguments.keys()) - {"run_tags"})


def _check_same(file: Path, before: Mapping[str, Any], now: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in sorted(keys):
        if before.get(key) != now.get(key):
            raise ValueError(
                f"{file}: '{key}' was {before.get(key)} in this folder, got {now.get(key)}; choose another --output_dir"
            )


def write_summary(plan: Plan) -> None:
    """Add the variants and seeds of this command to ``study.json``."""
    study, file = plan.study, plan.folder.summary
    variants, seeds = study.variants, set(study.seeds)
    if file.exists():
        before = StudySummary.read(file)
        variants, seeds = {**before.variants, **variants}, seeds.union(before.seeds)
    summary = StudySummary(
        study=study.name,
        bundle=study.bundle.name,
        preset=plan.preset,
        settings=presets(study.bundle)[plan.preset],
        synthetic=plan.synthetic,
        variants=variants,
        seeds=sorted(seeds),
        command=_command(plan, list(variants), len(seeds)),
    )
    write_json(asdict(summary), file)


def _command(plan: Plan, variants: list[str], seeds: int) -> str:
    """Return a command that gives the same results, without the paths of one machine."""
    study = plan.study
    inside = Path(os.path.abspath(study.file)).parent == study.bundle / "studies"
    file = f"bundles/{study.bundle.name}/studies/{study.file.name}" if inside else study.file.name
    words = ["monai-iels", "study", "run", file, "--preset", plan.preset, "--seeds", str(seeds)]
    if set(variants) < set(read_study(study.file).variants):
        words += ["--variants", *variants]
    if plan.processes > 1:
        words += ["--processes", str(plan.processes)]
    if not plan.synthetic:
        words += ["--dataset_dir", "DIR"]
    return shlex.join(words)
