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
"""A run of a bundle as an object: what MONAI's config calls from its first check to its last line."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from monai.bundle import ConfigParser
from monai.networks import eval_mode
from torch import nn

from monai_iels import registry
from monai_iels._prediction import RunError, check_rules, check_weights, check_writable, parser_at_work
from monai_iels._terminal import first_line
from monai_iels.data import SYNTHETIC, Datalists, check_labels
from monai_iels.layers import InverseEvolutionLayer
from monai_iels.losses import apply_loss
from monai_iels.run_folder import RunFolder
from monai_iels.runs._error_sentences import one_sentence
from monai_iels.runs._keys import NOT_SETTINGS, check_keys, is_plain, training_config
from monai_iels.runs._pretrained import load_pretrained
from monai_iels.runs._resume import CASES, check_resumed
from monai_iels.runs._rules import RULES
from monai_iels.runs._run_description import cases_digest, describe_run
from monai_iels.runs._secrets import hide_secrets
from monai_iels.tracking import RunDescription

logger = logging.getLogger(__name__)

_SWITCHES = ("amp", "hull_components", "noise_shared", "pictures", "resume", "system_metrics", "track")
_WORDS = {"true": True, "false": False}
_BUILT_ANEW = {"device", "network", "train", "validate"}  # what evaluation and prediction build for themselves
_PATHS = ("bundle_root", "output_dir", "dataset_dir", "cache_dir")
_BOTH_CONFIGS = (
    "this config only changes a training's: give both, --config_file \"['configs/train.json', "
    "'configs/evaluate.json']\", or use the evaluate.json that a training wrote"
)


class Run:
    """One training or evaluation of a bundle.

    Args:
        parser: MONAI's parser of the run's config.
    """

    def __init__(self, parser: ConfigParser) -> None:
        self.parser = parser

    def __getitem__(self, key: str) -> Any:
        """Return what the config holds or builds under a key."""
        return self.parser.get_parsed_content(key)

    @property
    def folder(self) -> RunFolder:
        """The folder that the run writes to."""
        return RunFolder(self["output_dir"])

    @property
    def _training_config(self) -> Path:
        return training_config(Path(str(self["bundle_root"])))

    @one_sentence()
    def check(self) -> None:
        """Refuse mistyped keys and impossible values before anything is built, read or written.

        Raises:
            RunError: for the first one.
        """
        if not {"train", "validate", "datalists"} <= self.parser.get().keys():
            raise ValueError(_BOTH_CONFIGS)
        hide_secrets(self.parser)
        self._track_once()
        if self._training_config.is_file():  # MONAI may load a bundle from anywhere; only a run needs its folder
            check_keys(self.parser.get(), self._training_config.parents[1])
        self._read_switches()
        self.parser.parse(reset=True)
        check_rules(RULES, {key: self[key] for key in (*RULES, "track")})
        self.parser.parse(reset=True)  # what was evaluated for the checks, such as the device, is evaluated again

    def _track_once(self) -> None:
        """Remove the handlers that MONAI's ``--tracking mlflow`` adds: the bundle tracks by itself."""
        for section in ("train", "validate"):
            handlers = self.parser.get(section)["handlers"]
            if isinstance(handlers, list):
                added = [h for h in handlers if isinstance(h, dict) and h.get("_target_") == "MLFlowHandler"]
                handlers[:] = [handler for handler in handlers if handler not in added]

    def _read_switches(self) -> None:
        """Read ``true`` and ``false``, which arrive as text."""
        config = self.parser.get()
        for key in _SWITCHES:
            word = str(config[key]).lower()
            if word not in _WORDS:
                raise ValueError(f"--{key} must be true or false, got '{config[key]}'")
            config[key] = _WORDS[word]

    @one_sentence()
    def start(self) -> None:
        """See that the output folder can be written to; warn of synthetic data, and of a layer that hardly takes part.

        Raises:
            RunError: if it cannot be written to.
        """
        if idist.get_rank() > 0:
            return
        check_writable(self["output_dir"], "output_dir")
        if self["dataset_dir"] == SYNTHETIC:
            logger.warning(
                "=== SYNTHETIC IMAGES, not real ones. Set --dataset_dir to the folder of the real data set. ==="
            )
        epochs, warmup = self["epochs"], self["iel_warmup"]
        if self["iel_steps"] and warmup >= epochs:
            logger.warning(
                f"The layer warms up for {warmup} epochs, but the training has only {epochs}: it never works fully. "
                f"Lower --iel_warmup, to {epochs // 3} for example."
            )

    @one_sentence()
    def train(self) -> None:
        """Train, and register the best weights if a name is given. Nothing is moved before everything is checked.

        Raises:
            RunError: if the training cannot begin, or stops early.
        """
        self._check_places_and_labels()
        begun = self._load_pretrained()
        try_one_case(self["network_def"].to(self["device"]), self["train#loss"], self["train#dataset"], self["device"])
        trainer = self["train#trainer"]
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", FutureWarning)  # of MONAI and Ignite about themselves
            if idist.get_rank() == 0:
                stack.enter_context(self.folder.locked())
                self._prepare_folder()
                stack.enter_context(self.folder.logged())
                if begun:
                    logger.info(begun)
            trainer.run()
        if self["register_model"]:
            registry.register(self["output_dir"], self["register_model"], self["tracking_uri"])

    def _load_pretrained(self) -> str:
        """Load the weights to start from, and say so; a resumed training has its own, and says nothing."""
        if self["pretrained"] is None or (self["resume"] and self.folder.can_resume):
            return ""
        return load_pretrained(self["pretrained"], self["network_def"])

    @one_sentence()
    def evaluate(self) -> None:
        """Evaluate a checkpoint case by case.

        Raises:
            RunError: if labels or weights cannot be used.
        """
        self.check()  # again: evaluate.json alone has no `initialize` that does it
        self._check_places_and_labels()
        check_weights(self["checkpoint"], self["network_def"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of MONAI about itself
            warnings.filterwarnings("ignore", "the (prediction|ground truth) of class")  # the report counts these
            self["validate#evaluator"].run()

    def _check_places_and_labels(self) -> None:
        if not self._training_config.is_file():
            root = self["bundle_root"]
            raise ValueError(
                f"--bundle_root must be the folder of a bundle, with configs/train.json in it, got '{root}'"
            )
        readers = self["label_keys"], self["label_reader"], self["label_values"]
        check_labels(self["datalists"], *readers, ignored=self["ignored_values"])

    def _prepare_folder(self) -> None:
        """Move an earlier run aside unless it is resumed, and write the configs of this one."""
        folder = self.folder
        config = {**self.parser.get(), CASES: cases_digest(self["datalists"])}
        resumed = self["resume"] and folder.can_resume
        if resumed:
            check_resumed(folder, config)
        folder.move_aside(resumed)
        settings = _without_backbone_weights(self.recorded_settings())
        configs = Path(settings["bundle_root"]) / "configs"
        handed_over = ConfigParser.load_config_file(configs / "inference.json")["from_training"]
        inference = {key: settings[key] for key in handed_over if key in settings}
        overlays = [str(configs / f"{name}.json") for name in ("train", "evaluate")]
        folder.write_configs(
            config=config,
            evaluate={"config_file": overlays, "known_keys": self["known_keys"], **settings},
            inference={"config_file": str(configs / "inference.json"), **inference},
        )

    def recorded_settings(self) -> dict[str, Any]:
        """Return what it takes to repeat this run: plain values, and every component that an override has changed."""
        config = self.parser.get()
        original = ConfigParser(ConfigParser.load_config_file(self._training_config))
        original.parse()
        settings = {}
        for key in config.keys() - NOT_SETTINGS - _BUILT_ANEW:
            if is_plain(config[key]) or config[key] != original.get(key):
                settings[key] = config[key]
        for key in _PATHS:
            value = str(self[key])
            settings[key] = value if value == SYNTHETIC else os.path.abspath(value)
        return dict(sorted(settings.items()))

    def description(self, layer: InverseEvolutionLayer, network: nn.Module, datalists: Datalists) -> RunDescription:
        """Return what a tracked run tells about itself: settings, physics, network, data and versions."""
        metadata = self.parser.get(ConfigParser.meta_key, {})
        found = describe_run(self.recorded_settings(), metadata, layer, network, datalists)
        return replace(found, tags={**found.tags, **self["run_tags"]})


def _without_backbone_weights(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for evaluation and prediction, which load a checkpoint and need no file of a backbone."""
    network = settings.get("network_def")
    if not isinstance(network, Mapping) or not network.get("weights"):
        return dict(settings)
    return {**settings, "network_def": {**network, "weights": None}}


def this_run() -> Run:
    """Return the run whose config calls this function.

    Raises:
        RunError: if a config calls it that has not been through a training's ``initialize``.
    """
    parser = parser_at_work()
    if parser is None:
        raise RunError(_BOTH_CONFIGS)
    return Run(parser)


def batch_size_per_process(batch_size: int) -> int:
    """Return the part of a batch that each process gets.

    Raises:
        ValueError: if the batch cannot be divided evenly.
    """
    processes = idist.get_world_size()
    if batch_size % processes:
        raise ValueError(f"--batch_size must be a multiple of the {processes} processes, got {batch_size}")
    return batch_size // processes


def averaged_over_processes(loss: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a loss, whose gradients are from now on averaged over all processes.

    A network in several processes has this by ``DistributedDataParallel``, which refuses losses without parameters.
    """
    parameters = list(loss.parameters())
    for parameter in parameters:
        parameter.register_hook(lambda gradient: idist.all_reduce(gradient.clone()) / idist.get_world_size())
    return parameters


def try_one_case(network: nn.Module, loss: Any, dataset: Any, device: Any) -> None:
    """Send one case through network, layer and loss, to refuse what cannot be trained before anything is moved.

    Raises:
        ValueError: with what went wrong.
    """
    case = dataset[0]
    image, label = (case[key].as_tensor()[None].to(device) for key in ("image", "label"))
    try:
        with eval_mode(network):  # batch statistics stay as they are
            apply_loss(loss, network(image), label, image)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"the first case does not go through the network ({first_line(error)}); check in_channels, num_classes, "
            "image_size, the network, the layer and the loss"
        ) from error
