# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What one command is going to train, and what it writes to ``study.json`` before."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from monai_iels._files import read_json, write_json
from monai_iels.run_folder import RunFolder
from monai_iels.runs import check_strength, training_config
from monai_iels.study._definition import Study, presets, read_study, slug
from monai_iels.study._folder import StudyFolder
from monai_iels.study._methods import Overrides, merged
from monai_iels.tracking import Journal, choose_address

_MAY_CHANGE = {"run_tags", "synthetic", "variants", "seeds", "command"}


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
    """

    study: Study
    folder: StudyFolder
    preset: str
    shared: Overrides

    @property
    def about(self) -> dict[str, Any]:
        """What must stay the same in a folder."""
        settings = presets(self.study.bundle)[self.preset]
        return {"study": self.study.name, "bundle": self.study.bundle.name, "preset": self.preset, "settings": settings}

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


def make_plan(study: Study, output_dir: Path, preset: str, dataset_dir: str, tracking_uri: str | None) -> Plan:
    """Return the plan of a study, with absolute paths.

    Raises:
        ValueError: if the bundle has no such preset.
    """
    known = presets(study.bundle)
    if preset not in known:
        raise ValueError(f"--preset: there is no preset '{preset}'; choose from {', '.join(known)}")
    folder = StudyFolder(output_dir)
    parser = ConfigParser(ConfigParser.load_config_file(training_config(study.bundle)))
    parser.update(known[preset])
    cache = "datalists#cache_dir"
    shared = {
        **known[preset],
        "workflow_name": "monai_iels.Training",
        "bundle_root": str(study.bundle),
        "dataset_dir": dataset_dir if dataset_dir == "synthetic" else os.path.abspath(dataset_dir),
        "output_dir": str(folder.path),
        **({cache: str(folder.cache)} if cache in parser else {}),  # not where the user's own list needs none
        "tracking_uri": choose_address(tracking_uri, study.bundle, folder.path),
        "experiment_name": f"{study.bundle.name}-{study.name}",
    }
    plan = Plan(study, folder, preset, shared)
    for variant, overrides in study.variants.items():
        parser = ConfigParser(ConfigParser.load_config_file(training_config(study.bundle)))
        parser.update(merged(known[preset], overrides))
        try:
            check_strength(parser.get(), overrides)
        except ValueError as error:
            raise ValueError(f"{study.name}, '{variant}', preset {preset}: {error}") from None
    return plan


def check_unchanged(plan: Plan) -> None:
    """Check that a folder holds no other study, and no trainings with other settings.

    Raises:
        ValueError: if it does.
    """
    files = {plan.folder.summary: plan.about}
    files |= {training.folder.study_arguments: training.arguments for training in plan.trainings()}
    for file, content in files.items():
        if file.exists():
            before, now = read_json(file), json.loads(json.dumps(content))
            for key in sorted((before.keys() | now.keys()) - _MAY_CHANGE):
                if before.get(key) != now.get(key):
                    was = f"'{key}' was {before.get(key)} in this folder, got {now.get(key)}"
                    raise ValueError(f"{file}: {was}; choose another --output_dir")


def write_summary(plan: Plan) -> None:
    """Add the variants and seeds of this command to ``study.json``."""
    study, file = plan.study, plan.folder.summary
    before = read_json(file, "variants", "seeds") if file.exists() else {"variants": {}, "seeds": []}
    variants = {**before["variants"], **study.variants}
    seeds = sorted({*before["seeds"], *study.seeds})
    summary = {
        **plan.about,
        "synthetic": plan.synthetic,
        "variants": variants,
        "seeds": seeds,
        "command": _command(plan, list(variants), len(seeds)),
    }
    write_json(summary, file)


def _command(plan: Plan, variants: list[str], seeds: int) -> str:
    """Return a command that gives the same results, without the paths of one machine."""
    study = plan.study
    inside = Path(os.path.abspath(study.file)).parent == study.bundle / "studies"
    file = f"bundles/{study.bundle.name}/studies/{study.file.name}" if inside else study.file.name
    words = ["monai-iels", "study", "run", file, "--preset", plan.preset, "--seeds", str(seeds)]
    if set(variants) < set(read_study(study.file).variants):
        words += ["--variants", *variants]
    if not plan.synthetic:
        words += ["--dataset_dir", "DIR"]
    return shlex.join(words)
