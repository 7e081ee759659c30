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

"""A bundle's files, from what all bundles share and what its ``dataset.yaml`` changes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from monai_iels import prediction
from monai_iels.bundle.config import ids, unknown_key
from monai_iels.bundle.reading import read_mapping
from monai_iels.data import SOURCES

__all__ = ["compose"]

_CONFIGS = ("train", "evaluate", "inference", "multi_gpu_train")
_OWN = ("datalists", "classes")  # what data that this package does not know have to bring
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "source": (lambda value: isinstance(value, str), "a word"),
    "metadata": (lambda value: isinstance(value, dict), "keys and values"),
    "quality": (lambda value: isinstance(value, str), "text"),
    "spatial_dims": (lambda value: value in (2, 3), "2 or 3"),
    "classes": (
        lambda value: (
            str(value).startswith(("$", "@")) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
        ),
        "a list of words (yes, no, on and off only in quotes)",
    ),
}
_GEOMETRY = {
    2: "an image is resized to what the network saw in training, the probabilities are resized back, and the most\n"
    "probable class is taken. Distances are in pixels of the resized image",
    3: "a volume is turned and resampled as in training and predicted window by window, the probabilities are brought\n"
    "back, and the most probable class is taken. Each DICOM series of a folder is predicted, and named by\n"
    "its series. Distances are in voxels of training",
}


def compose(folder: Path, shared: Path) -> dict[str, str]:
    """Merge the shared files with what a bundle's ``dataset.yaml`` changes.

    Args:
        folder: the bundle.
        shared: the folder of shared configs.

    Returns:
        the text of each file of the bundle, by its path.

    Raises:
        ValueError: for a key that no shared config has, with the nearest one.
    """
    file = folder / "dataset.yaml"
    changes = read_mapping(file, "the keys of a bundle")
    configs = {name: read_mapping(shared / f"{name}.yaml", "shared keys") for name in (*_CONFIGS, "metadata")}
    known = {key for name in _CONFIGS for key in configs[name]} | {"metadata", "quality"}
    for key in changes:
        if key not in known:
            raise ValueError(unknown_key(f"{file}: '{key}'", key, known))
        fits, form = _FORMS.get(key, (lambda value: True, ""))
        if not fits(changes[key]):
            raise ValueError(f"{file}: '{key}' must be {form}, got {changes[key]}.")
    metadata, quality = configs.pop("metadata"), changes.pop("quality", "")
    _merge(metadata, changes.pop("metadata", {}), f"{file}: 'metadata")
    for config in configs.values():
        parser = ConfigParser(config)
        parser.update({key: value for key, value in changes.items() if key in config})
        config.update({key: value for key, value in parser.get().items() if key != ConfigParser.meta_key})
    for name, config in configs.items():
        base = configs["inference" if name == "inference" else "train"]
        config["known_keys"] = sorted({"known_keys", *ids(base), *ids(config)})
    data = _data(file, configs["train"], changes, metadata)
    resolver = ConfigParser({**configs["train"], "classes": data["classes"], "metadata": metadata})
    configs["metadata"] = resolver.get_parsed_content("metadata")
    texts = {f"configs/{name}.json": json.dumps(config, indent=4) + "\n" for name, config in configs.items()}
    texts["configs/logging.conf"] = (shared / "logging.conf").read_text("utf-8")
    texts["docs/README.md"] = (
        (shared / "README.md")
        .read_text("utf-8")
        .format(
            **data,
            name=folder.name,
            metadata=configs["metadata"],
            quality=quality.strip() or "Nothing was measured.",
            config=configs["train"],
            geometry=_GEOMETRY[configs["train"]["spatial_dims"]],
        )
    )
    texts["docs/data_license.txt"] = f"{data['title']}\n\n{data['terms']}\n\nThe data are not part of this bundle.\n"
    texts["scripts/prediction.py"] = Path(prediction.__file__).read_text("utf-8")
    texts["LICENSE"] = (shared / "LICENSE").read_text("utf-8")
    return texts


def _data(
    file: Path, config: Mapping[str, Any], changes: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a bundle says about its data: one of the data sets that this package knows, or your own."""
    missing = [f"metadata#{key}" for key, value in metadata.items() if value is None]
    name = config["source"]
    if name in SOURCES:
        source = SOURCES[name]
        sample = "Without `dataset_dir` the bundle draws its embedded sample and says so."
        data = {"title": source.title, "terms": source.terms, "layout": source.layout, "sample": sample}
        classes: Any = list(source.classes)
    else:
        missing += [f"{key}, since '{name}' is none of {', '.join(SOURCES)}" for key in _OWN if key not in changes]
        layout = json.dumps(changes.get("datalists"), indent=1)
        sample = "There is no embedded sample: set `dataset_dir`."
        data = {"title": metadata["name"], "terms": metadata["data_source"], "layout": layout, "sample": sample}
        classes = changes.get("classes")
    if missing:
        raise ValueError(f"{file}: expected {missing[0]}; found nothing. Add it.")
    return {**data, "classes": classes}


def _merge(config: dict[str, Any], changes: Mapping[str, Any], place: str) -> None:
    for key, value in changes.items():
        if key not in config:
            raise ValueError(unknown_key(f"{place}#{key}'", key, config))
        if isinstance(value, Mapping) and isinstance(config[key], dict):
            _merge(config[key], value, f"{place}#{key}")
        else:
            config[key] = value
