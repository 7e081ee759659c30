# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Train a bundle."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from monai.bundle import ConfigParser
from monai.config import PathLike
from monai.networks.utils import eval_mode
from monai.utils import ensure_tuple
from torch import nn

from monai_iels import registry
from monai_iels._terminal import bundle_command, first_line
from monai_iels.data import SYNTHETIC
from monai_iels.handlers import LayerPictures, Tracking, TrainingCheckpoint
from monai_iels.layers import InverseEvolutionLayer, apply_layer
from monai_iels.losses import IELLoss
from monai_iels.run_folder import RunFolder
from monai_iels.runs._error_sentences import one_sentence
from monai_iels.runs._keys import NOT_SETTINGS, check_strength, is_plain, self_contained, training_config
from monai_iels.runs._resume import CASES, check_resumed
from monai_iels.runs._run_description import cases_digest, describe_run
from monai_iels.runs._weights import load_pretrained
from monai_iels.runs._workflow import BundleRun, check_writable, warn_if_synthetic
from monai_iels.settings import RUN, TRAINING

logger = logging.getLogger(__name__)

_BUILT_ANEW = {"device", "train", "validate"}  # what evaluation and prediction build for themselves
_OF_PREDICTION = {"dataset_dir", "output_dir"}  # has its own
_PATHS = ("bundle_root", "output_dir", "dataset_dir")
_PASSED_ON = ("pictures", "track", "tracking_uri")  # from a training to its evaluation


class Training(BundleRun):
    """Train a bundle, and say what to do next. Nothing is changed on disk before everything is checked.

    Settings and data are checked, one case is tried, and an earlier training in ``output_dir`` is moved aside. Only one
    training at a time can be in a folder. Errors that a user can repair are one sentence.

    Started by torchrun, it trains with all its processes.

    Args:
        bundle_root: folder of the bundle.
        resume: continue the training in ``output_dir`` after its last epoch.
        pretrained: file with weights to start from, such as another training's ``model.pt``.
        register_model: register the best weights in MLflow under this name.
        pictures: draw some cases; false keeps all pixels out of the results and off a tracking server.
        track: track with MLflow.
        tracking_uri: address of a tracking server; by default ``MLFLOW_TRACKING_URI``, or a database in the folder
            ``mlflow`` beside the bundle.
        experiment_name: name of the MLflow experiment.
        run_name: first part of the MLflow run's name; by default that of the data set.
        run_tags: further tags of the MLflow run.
        system_metrics: also track memory and processor time.
        known_keys: names of further keys, for configs of your own.
        config_file: configs to use in place of the bundle's.
        settings: values for keys of ``train.json``, such as ``epochs=3``.

    Raises:
        RunError: in one sentence, if the training cannot begin or stops early.

    Example:
        >>> from monai_iels import Training
        >>> Training("bundles/wbc", epochs=3).run()  # doctest: +SKIP
    """

    rules = TRAINING

    def __init__(
        self,
        bundle_root: PathLike = ".",
        *,
        resume: bool = False,
        pretrained: str | None = None,
        register_model: str | None = None,
        pictures: bool = True,
        track: bool = True,
        tracking_uri: str | None = None,
        experiment_name: str = "monai_iels",
        run_name: str | None = None,
        run_tags: Mapping[str, str] | None = None,
        system_metrics: bool = False,
        known_keys: str | Sequence[str] = (),
        config_file: PathLike | Sequence[PathLike] | None = None,
        **settings: Any,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in RUN}
        configs = ("train", "multi_gpu_train") if int(os.environ.get("WORLD_SIZE", 1)) > 1 else ("train",)
        if config_file is not None:  # in several processes the bundle's own changes for them are needed, too
            others = [os.path.join(str(bundle_root), "configs", f"{name}.json") for name in configs[1:]]
            given = [str(file) for file in ensure_tuple(config_file)]
            config_file = given + [file for file in others if Path(file).name not in map(os.path.basename, given)]
        super().__init__(configs, options, bundle_root, config_file, known_keys, **settings)

    @property
    def folder(self) -> RunFolder:
        """The folder that the training writes to."""
        return RunFolder(self["output_dir"])

    @one_sentence()
    def run(self) -> None:
        """Train, register the best weights if a name is given, and say what to do next."""
        self.ready()
        self._check_layer()
        self._check_and_warn()
        self.check_labels()
        begun = self._load_pretrained()
        self._try_one_case()
        trainer = self._trainer()
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
            self._say_what_is_next()
        if name := self.options["register_model"]:
            registry.register(self["output_dir"], name, self.options["tracking_uri"])

    def _check_and_warn(self) -> None:
        """Refuse a folder that cannot be written to; warn of synthetic data, and of a layer that hardly takes part."""
        if idist.get_rank() > 0:
            return
        check_writable(self["output_dir"], "output_dir")
        warn_if_synthetic(self["dataset_dir"])
        epochs, warmup = self["epochs"], self["iel_warmup"]
        if self["layer"].steps and warmup >= epochs:
            logger.warning(
                f"The layer warms up for {warmup} epochs, but the training has only {epochs}: it never works fully. "
                f"Lower --iel_warmup, to {epochs // 3} for example."
            )

    def _load_pretrained(self) -> str:
        """Load the weights to start from, and say so; a resumed training has its own, and says nothing."""
        file = self.options["pretrained"]
        if file is None or (self.options["resume"] and self.folder.can_resume):
            return ""
        return load_pretrained(file, self["network_def"])

    def _try_one_case(self) -> None:
        """Send one case through network, layer and loss, to refuse what cannot be trained before anything is moved."""
        network, loss, device = self["train#network"].to(self["device"]), self["train#loss"], self["device"]
        case = self["train#dataset"][0]
        image, label = (case[key].as_tensor()[None].to(device) for key in ("image", "label"))
        try:
            with eval_mode(self["network_def"]):  # batch statistics stay as they are, the layer works
                loss(network(image), label)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise ValueError(
                f"the first case does not go through the network ({first_line(error)}); check in_channels, "
                "num_classes, image_size, the network, the layer and the loss"
            ) from error

    def _check_layer(self) -> None:
        """Refuse a training without its layer, or with one that would see pixels without a label."""
        kinds = {"layer": InverseEvolutionLayer, "train#network": nn.Module, "train#loss": nn.Module}
        for key, kind in kinds.items():
            if not isinstance(self[key], kind):
                raise ValueError(f"{key} must be a component of type {kind.__name__}, with _target_, got {self[key]!r}")
        check_strength(self.parser.get(), self.typed)
        if not self["layer"].steps:
            return
        is_behind = self._has_layer("train#network")
        if is_behind == self._has_layer("train#loss"):
            found = "in both of them" if is_behind else "in neither of them"
            raise ValueError(
                f"the layer must be in train#network or in train#loss, it is {found}; choose one, or set layer#steps: 0"
            )
        if self["layer"].needs_image and not is_behind:
            raise ValueError(
                f"{type(self['layer'].evolution).__name__} needs the image, which a loss does not know; put the layer "
                "behind the network, or choose another evolution, such as monai_iels.HeatDiffusion"
            )
        if is_behind and self["ignored_values"]:
            raise ValueError(
                "with ignored_values the layer must be in the loss, which knows these pixels; set train#network to "
                "'@network_def' and train#loss to monai_iels.IELLoss, as in bundles/cityscapes/dataset.yaml"
            )

    def _has_layer(self, key: str) -> bool:
        return any(module is self["layer"] for module in self[key].modules())

    def _trainer(self) -> Any:
        """Return the trainer, whose handlers know what this run is asked for."""
        trainer, options = self["train#trainer"], self.options
        self.handler("train#handlers", TrainingCheckpoint).resume = options["resume"]
        tracking = self.handler("train#handlers", Tracking)
        tracking.enabled = options["track"]
        tracking.resume = options["resume"]
        tracking.bundle_root = str(self["bundle_root"])
        tracking.tracking_uri = options["tracking_uri"] or tracking.tracking_uri
        tracking.experiment_name = options["experiment_name"]
        if options["run_name"]:
            tracking.run_name = options["run_name"] + ("-synthetic" if self["dataset_dir"] == SYNTHETIC else "")
        tracking.system_metrics = options["system_metrics"]
        if options["track"] and idist.get_rank() == 0:
            metadata = self.parser.get(ConfigParser.meta_key, {})
            settings = {**self.recorded_settings(), "pretrained": options["pretrained"]}
            found = describe_run(settings, metadata, self["layer"], self["network_def"], self["datalists"])
            tracking.description = replace(found, tags={**found.tags, **(options["run_tags"] or {})})
        if options["pictures"]:
            self._pictures().attach(trainer)
        return trainer

    def _pictures(self) -> LayerPictures:
        layer, loss = self["layer"], self["train#loss"]

        def behind(logits: torch.Tensor, label: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
            return apply_layer(layer, logits, image)

        return LayerPictures(
            self["output_dir"],
            network=self["validate#network"],
            layer=layer,
            evolved=loss.evolved if isinstance(loss, IELLoss) else behind,
            inferer=self["validate#inferer"],
            training=self["train#dataset"],
            validation=self["validate#dataset"],
            postprocessing=self["validate#postprocessing"],
            classes=self["classes"],
            colors=self["colors"],
        )

    def _prepare_folder(self) -> None:
        """Move an earlier run aside unless it is resumed, and write the configs of this one."""
        folder = self.folder
        begun = {"pretrained": self.options["pretrained"], CASES: cases_digest(self["datalists"])}
        config = {**self.parser.get(), **begun}
        resumed = self.options["resume"] and folder.can_resume
        if resumed:
            check_resumed(folder, config)
        folder.move_aside(resumed)
        settings = _without_backbone_weights(self.recorded_settings())
        own = {"known_keys": self.known_keys} if self.known_keys else {}
        passed_on = {key: self.options[key] for key in _PASSED_ON}
        folder.write_configs(
            config=config,
            evaluate={"workflow_name": "monai_iels.Evaluation", **own, **passed_on, **settings},
            inference={"workflow_name": "monai_iels.Inference", **own, **self._settings_of_inference(settings)},
        )

    def recorded_settings(self) -> dict[str, Any]:
        """Return what it takes to repeat this run: plain values, and every component that an override has changed."""
        config = self.parser.get()
        original = ConfigParser(ConfigParser.load_config_file(training_config(Path(str(self["bundle_root"])))))
        original.parse()
        settings = {}
        for key in config.keys() - NOT_SETTINGS - _BUILT_ANEW:
            if is_plain(config[key]) or config[key] != original.get(key):
                settings[key] = config[key]
        for key in _PATHS:
            value = str(self[key])
            settings[key] = value if value == SYNTHETIC else os.path.abspath(value)
        return dict(sorted(settings.items()))

    def _settings_of_inference(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the results are, and those keys of the bundle's inference that this training has changed."""
        file = training_config(Path(settings["bundle_root"])).with_name("inference.json")
        config, bundle = {**self.parser.get(), **settings}, ConfigParser.load_config_file(file)
        places = {"bundle_root": settings["bundle_root"], "checkpoint": str(self.folder.best_weights)}
        changed = {
            key: self_contained(config[key], config, bundle)
            for key in (bundle.keys() & config.keys()) - NOT_SETTINGS - _BUILT_ANEW - _OF_PREDICTION
            if is_plain(config[key]) or config[key] != bundle[key]
        }
        return {**dict(sorted(changed.items())), **places, "output_dir": str(self.folder.predictions)}

    @idist.one_rank_only()
    def _say_what_is_next(self) -> None:
        logger.info(
            f"Next, evaluate it case by case: {bundle_command(self.folder.evaluate_arguments)}\n"
            f"Or predict: {bundle_command(self.folder.inference_arguments)} --dataset_dir YOUR_IMAGES"
        )


def _without_backbone_weights(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for evaluation and prediction, which load a checkpoint and need no file of a backbone."""
    network = settings.get("network_def")
    if not isinstance(network, Mapping) or not network.get("weights"):
        return dict(settings)
    return {**settings, "network_def": {**network, "weights": None}}
