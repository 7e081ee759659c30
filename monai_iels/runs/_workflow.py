# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What all runs of bundles share."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from monai.bundle import ConfigWorkflow
from monai.config import PathLike
from monai.utils import ensure_tuple

from monai_iels.data import SYNTHETIC, check_labels
from monai_iels.runs._error_sentences import one_sentence
from monai_iels.runs._keys import check_keys, keys_of
from monai_iels.settings import RUN, Rule, as_typed, check_rules, is_text
from monai_iels.tracking import plain_address

logger = logging.getLogger(__name__)
Handler = TypeVar("Handler")

_ARGUMENTS = {"args_file", "bundle_root", "config_file", "known_keys", "logging_file", "meta_file", "workflow_name"}
_OF_CONFIGS_ALONE = ("init_id", "run_id", "final_id", "run", "tracking")


class BundleRun(ConfigWorkflow):
    """A run of a bundle: MONAI's workflow, which is told what is wrong before anything is touched.

    Args:
        configs: names of the bundle's configs, in the order in which they are merged.
        options: parameters of this run that are no keys of the configs.
        bundle_root: folder of the bundle.
        config_file: other configs.
        known_keys: names of further keys, for configs of your own.
        settings: values for keys of the configs, and MONAI's ``meta_file`` and ``logging_file``.
    """

    rules: ClassVar[Mapping[str, Rule]]
    kind: ClassVar[str] = "train"
    configs: ClassVar[Sequence[str]] = ("train", "multi_gpu_train")

    @one_sentence()
    def __init__(
        self,
        configs: Sequence[str],
        options: Mapping[str, Any],
        bundle_root: PathLike,
        config_file: PathLike | Sequence[PathLike] | None,
        known_keys: str | Sequence[str],
        **settings: Any,
    ) -> None:
        settings = {key: as_typed(value) for key, value in {**_unset_by_typing_none(), **settings}.items()}
        if settings.get("tracking") == "mlflow":  # what a training does anyway
            del settings["tracking"]
        for key in _OF_CONFIGS_ALONE:
            if key in settings:
                raise ValueError(f"--{key} is for --config_file without --workflow_name; leave it out")
        options = {key: as_typed(value) for key, value in options.items()}
        if is_text(options.get("tracking_uri")):
            options["tracking_uri"] = plain_address(options["tracking_uri"])
        check_rules({key: RUN[key] for key in options}, options)
        folder = Path(str(bundle_root)) / "configs"
        files = [folder / f"{name}.json" for name in configs]
        if not all(file.is_file() for file in files):
            wanted = " and ".join(f"configs/{file.name}" for file in files)
            raise ValueError(f"--bundle_root must be the folder of a bundle, with {wanted} in it, got '{bundle_root}'")
        given = [str(file) for file in (files if config_file is None else ensure_tuple(config_file))]
        for file in given:
            if not Path(file).is_file():
                raise ValueError(f"--config_file must be a file, or a list of files, got '{file}'")
        try:
            super().__init__(given, workflow_type=self.kind, bundle_root=str(bundle_root), **settings)
        except (IndexError, KeyError, TypeError, ValueError):
            for key, value in settings.items():
                try:
                    self.parser[key] = value
                except (IndexError, KeyError, TypeError, ValueError):
                    raise ValueError(f"--{key}: the config has no such part; set the key as a whole") from None
            raise
        self.options, self.typed = options, set(settings)
        self.known_keys = ensure_tuple(known_keys)
        self.has_run = False
        refuse_secrets(self.parser.get())
        logging.getLogger("monai.bundle.scripts").addFilter(_is_without_address)

    def __getitem__(self, key: str) -> Any:
        """Return what the config holds or builds under a key."""
        return self.parser.get_parsed_content(key)

    @one_sentence()
    def initialize(self) -> Any:
        """Refuse mistyped keys and impossible values; then do what the config's ``initialize`` says."""
        self.parser.parse(reset=True)
        known = keys_of(Path(str(self["bundle_root"])), self.configs)
        check_keys(self.parser.get(), {*known, *self.known_keys}, self.options)
        check_rules(self.rules, {key: self[key] for key in self.rules if key in self.parser})
        return super().initialize()  # what was evaluated for the checks, such as the device, is evaluated again

    def ready(self) -> None:
        """Initialize the run where its user did not, and anew where it has run before."""
        if self.has_run or not self._is_initialized:
            self.initialize()
        self.has_run = True

    def check_labels(self) -> None:
        """Read every label, and name all that have values of no class."""
        check_labels(self["datalists"], self["loading"])

    def handler(self, handlers: str, kind: type[Handler]) -> Handler:
        """Return the handler of a kind among those of the config."""
        found = next((one for one in self[handlers] if isinstance(one, kind)), None)
        if found is None:
            raise ValueError(f"{handlers} has no {kind.__name__}, which {type(self).__name__} needs; add it")
        return found


def _unset_by_typing_none() -> dict[str, None]:
    """Return the keys that were typed as ``--KEY None``: MONAI drops these, as if they had their defaults."""
    if Path(sys.argv[0]).parts[-3:] != ("monai", "bundle", "__main__.py"):
        return {}
    words = [word for argument in sys.argv[1:] for word in argument.split("=", 1)]
    typed = {name[2:] for name, value in pairwise(words) if name.startswith("--") and value == "None"}
    return dict.fromkeys(typed - RUN.keys() - _ARGUMENTS)


def check_writable(folder: str, option: str) -> None:
    """Refuse a folder that cannot be created or written to; nothing is created.

    Raises:
        ValueError: with the option that chooses another folder.
    """
    path = Path(folder).absolute()
    try:
        nearest = next(place for place in (path, *path.parents) if place.exists())
        with tempfile.TemporaryFile(dir=nearest) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise ValueError(
            f"{folder}: cannot be written to ({error.strerror}); set --{option} to another folder"
        ) from None


def warn_if_synthetic(dataset_dir: str) -> None:
    """Say loudly that images are not real."""
    if dataset_dir == SYNTHETIC:
        logger.warning("=== SYNTHETIC IMAGES, not real ones. Set --dataset_dir to the folder of the real data set. ===")


def _is_without_address(record: logging.LogRecord) -> bool:
    """Filter MONAI's summary of the arguments: it would print the address with its password."""
    return "tracking_uri" not in str(record.msg)


def refuse_secrets(config: Any) -> None:
    """Refuse user names and passwords in addresses that components of a config are given directly.

    Raises:
        ValueError: for the first one.
    """
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if key == "tracking_uri" and isinstance(value, str) and not value.startswith(("$", "@", "%")):
            plain_address(value)
        elif isinstance(value, dict | list):
            refuse_secrets(value)
