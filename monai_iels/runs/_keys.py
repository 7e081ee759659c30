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
"""The keys of a config: which there are, and which values are plain."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY
from monai.utils import ensure_tuple

from monai_iels._prediction import ADDED_BY_MONAI, unknown_key

NOT_SETTINGS = {ConfigParser.meta_key, "finalize", "imports", "initialize", "known_keys", "run"}
"""Keys that say how MONAI runs a config, not what is trained."""
_OVERLAYS = ("train", "evaluate", "multi_gpu_train")
_FREE_FORM = "run_tags"


def training_config(bundle: Path) -> Path:
    """Return the file of a bundle's training config."""
    return bundle / "configs" / "train.json"


def key_paths(config: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    """Yield all keys of a config, nested ones as ``train::trainer``; components check their arguments themselves."""
    for key, value in config.items():
        if key == ConfigParser.meta_key:
            continue
        path = ReferenceResolver.normalize_id(f"{parent}{key.removeprefix('+')}")
        yield path
        if isinstance(value, Mapping) and "_target_" not in value and key != _FREE_FORM:
            yield from key_paths(value, f"{path}{ID_SEP_KEY}")


def known_keys(bundle: Path) -> set[str]:
    """Return all keys that a bundle's training, evaluation and distributed training know."""
    keys = set(ADDED_BY_MONAI)
    for name in _OVERLAYS:
        file = bundle / "configs" / f"{name}.json"
        if file.is_file():
            keys.update(key_paths(ConfigParser.load_config_file(file)))
    return keys


def check_keys(config: Mapping[str, Any], bundle: Path) -> None:
    """Refuse a key that nothing defines: MONAI would add a mistyped override and train with the default.

    Args:
        config: the config of a run; ``known_keys`` in it lists further keys, for configs of your own.
        bundle: folder of the bundle.

    Raises:
        ValueError: for the first unknown key, with the nearest known one.
    """
    own = ensure_tuple(config.get("known_keys", ()))
    known = known_keys(bundle) | {ReferenceResolver.normalize_id(key) for key in own}
    for key in key_paths(config):
        if key not in known:
            raise ValueError(unknown_key(key, known))


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a list of these: no component, expression or reference."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return not value.startswith(("$", "@", "%"))
    return isinstance(value, bool | int | float | None)
