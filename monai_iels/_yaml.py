# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Read YAML as people mean it: ``1e-4`` is a number, and no key appears twice."""

import json
import re
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from monai_iels._terminal import first_line

_REPLACED = ("int", "float", "timestamp")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the numbers of YAML 1.2.

    YAML 1.1 reads ``1e-4`` as a word, ``010`` as 8, ``12:30`` as 750 and ``2024-01-01`` as a date. Words for yes and no
    are still truth values, but not as keys: a variant may be called ``off``.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's name for it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a dictionary, and refuse a key that appears twice."""
        keys: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"
            first = keys.setdefault(str(key.value), key)
            if first is not key and key.tag != "tag:yaml.org,2002:merge":
                problem = f"duplicate key {key.value}, first in line {first.start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float | str:
    text = node.value.lower().replace(".inf", "inf").replace(".nan", "nan")
    for read in (int, partial(int, base=0), float):
        with suppress(ValueError):
            return read(text)
    return node.value


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile("."), list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def read_value(text: str, what: str) -> Any:
    """Read one value from a text in YAML.

    Raises:
        ValueError: if it is broken, with what it should be.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{what} must be a value in YAML, but it is broken ({first_line(error)}): {text}") from None


def read_mapping(file: Path, what: str) -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Args:
        file: the file.
        what: what it should hold, for the error.

    Raises:
        ValueError: if it is missing, broken (with the line), or holds something else.
    """
    try:
        content = yaml.load(file.read_text("utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{file} must hold {what} in YAML, but it is broken{line}: {error.problem}") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{file} must hold {what} in YAML, but it cannot be read: {first_line(error)}") from None

    if not isinstance(content, dict):
        found = "an empty file" if content is None else repr(content)
        raise ValueError(f"{file} must hold keys and values ({what}), got {found}")
    for key in content:
        if not isinstance(key, str):
            raise ValueError(f"{file}: keys must be words, got {key}")
    try:
        json.dumps(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} must hold only what JSON can hold: {first_line(error)}") from None
    return content
