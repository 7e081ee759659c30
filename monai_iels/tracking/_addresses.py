# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The address of a tracking server. An address is written to files and logs, so it never has a password in it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

_VARIABLE = "MLFLOW_TRACKING_URI"
_DATABASE = "sqlite:///"
_IN_QUERY = re.compile(r"[?&;]\w*(pass|pwd|token|secret|odbc_connect)\w*=", re.IGNORECASE)


def plain_address(uri: str) -> str:
    """Return an address, with an absolute path if it is a file's.

    Raises:
        ValueError: if it has a user name and password in it. A database's user alone may stay.

    Examples:
        >>> plain_address("http://me:p@ss/word@host:5000")
        Traceback (most recent call last):
        ...
        ValueError: the address of a tracking server must not contain a user name and password: set \
MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (for PostgreSQL PGPASSWORD) instead
    """
    if file := database_file(uri):
        return f"{_DATABASE}{file}"
    scheme, _, rest = uri.partition(":")
    user = rest.rpartition("@")[0]
    is_file = "/" in scheme or scheme in ("sqlite", "file")  # an @ is part of the file's name
    is_secret = user and ("http" in scheme.lower() or not re.fullmatch(r"//[\w.+-]+", user))
    if not is_file and (is_secret or _IN_QUERY.search(rest)):
        raise ValueError(
            "the address of a tracking server must not contain a user name and password: set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (for PostgreSQL PGPASSWORD) instead"
        )
    return uri


def local_database(folder: str | os.PathLike[str]) -> str:
    """Return the address of the database in a folder."""
    return plain_address(f"{_DATABASE}{Path(folder) / 'mlflow.db'}")


def database_file(address: str) -> Path | None:
    """Return the file of an embedded database; None for a server."""
    return Path(os.path.abspath(address.removeprefix(_DATABASE))) if address.startswith(_DATABASE) else None


def first_address(typed: str | None, known: str | None) -> str:
    """Return the first of what the user typed, ``MLFLOW_TRACKING_URI`` and what is known; empty if there is none."""
    return plain_address(typed or os.environ.get(_VARIABLE) or known or "")


def choose_address(
    tracking_uri: str | None,
    bundle_root: str | os.PathLike[str] | None,
    output_dir: str | os.PathLike[str],
    before: str | None = None,
) -> str:
    """Return where to track: the given address, ``MLFLOW_TRACKING_URI``, or the database beside the bundles.

    All trainings of a checkout or a project share this database. If it cannot be written to, there is a warning, and
    ``output_dir`` gets a database of its own.

    Args:
        tracking_uri: the address that the user typed, if any.
        bundle_root: folder of the bundle; if None, the database is in ``output_dir``.
        output_dir: folder of the run.
        before: where a resumed run was tracked so far; it goes before the database.

    Raises:
        ValueError: for an address with a user name and password in it.
    """
    if given := first_address(tracking_uri, before):
        return given
    if bundle_root is None:
        return local_database(output_dir)
    shared = Path(os.path.abspath(bundle_root)).parent / "mlflow"
    nearest = next((path for path in (shared / "mlflow.db", shared, shared.parent) if path.exists()), shared)
    if shared.is_file() or not os.access(nearest, os.W_OK):
        logger.warning(f"{shared} cannot be written to: this run is tracked in {output_dir} instead.")
        return local_database(output_dir)
    return local_database(shared)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; afterwards they are as before, whoever changed them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
