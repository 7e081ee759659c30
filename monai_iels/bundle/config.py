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

"""A config of MONAI's, seen from inside: its keys, and the parser that is at work."""

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from monai.bundle import ConfigParser, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY

__all__ = ["INTERNAL", "evaluating", "ids", "is_plain", "unknown_key"]

T = TypeVar("T")

# keys that are no settings: neither recorded nor refused as unknown
INTERNAL = {ConfigParser.meta_key, "finalize", "initialize", "known_keys", "run", "train", "validate"}
INTERNAL |= {"device", "imports", "network", "is_not_rank0", "save_execute_config"}
_FREE = "run_tags"


def evaluating(kind: type[T]) -> T:
    """Return the workflow or parser whose expression is being evaluated: MONAI does not hand it to its configs."""
    return next(
        frame.frame.f_locals["self"] for frame in inspect.stack() if isinstance(frame.frame.f_locals.get("self"), kind)
    )


def ids(config: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the ids of a config down to its components, which check their arguments themselves, and to free tags."""
    for key, value in config.items():
        if key == ConfigParser.meta_key:
            continue
        place_of_key = ReferenceResolver.normalize_id(f"{place}{key.removeprefix('+')}")
        yield place_of_key
        if isinstance(value, Mapping) and "_target_" not in value and key != _FREE:
            yield from ids(value, f"{place_of_key}{ID_SEP_KEY}")


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a word, None, or a list of these: no component, expression or reference."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, bool | int | float | None) or (
        isinstance(value, str) and not value.startswith(("$", "@", "%"))
    )


def unknown_key(place: str, key: str, known: Iterable[str]) -> str:
    """Return a sentence on a key that nothing defines, with the nearest one that there is."""
    nearest = difflib.get_close_matches(key, sorted(known), 1, 0.0)
    hint = f" The nearest is '{nearest[0]}'." if nearest else ""
    return f"{place}: expected a key that a config defines, found an unknown one.{hint}"
