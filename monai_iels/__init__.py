# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Inverse Evolution Layers for MONAI: train against what a network must not produce."""

# Names are loaded when they are used (PEP 562), so that `import monai_iels` itself needs neither torch nor MONAI.
# `__init__.pyi` lists them.

import ast
import importlib
import importlib.util
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# Rooms that need packages of an extra: their names are public where these are installed.
_NEEDS: dict[str, tuple[str, ...]] = {"monai_iels.runs": ("ignite", "mlflow")}


def _read_stub() -> dict[str, str]:
    """Return the room of each public name."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _is_installed(room: str) -> bool:
    return all(importlib.util.find_spec(package) for package in _NEEDS.get(room, ()))


_ROOM_OF = _read_stub()
_ROOMS = {room.split(".")[1] for room in _ROOM_OF.values()}

__all__ = sorted(name for name, room in _ROOM_OF.items() if _is_installed(room))


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_ROOM_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
