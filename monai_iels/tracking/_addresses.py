# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The address of a tracking server, and the user name and password in it, which stay in this process's memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

logger = logging.getLogger(__name__)

_VARIABLE = "MLFLOW_TRACKING_URI"
_DATABASE = "sqlite:///"
_FILES = (_DATABASE, "file:")  # an @ in these is part of a file's name
_SECRET_QUERY = re.compile(r"[?&;]\w*(pass|pwd|token|secret|odbc_connect)\w*=(.*)", re.IGNORECASE | re.DOTALL)
_SECRETS: dict[str, str] = {}  # whole addresses, by the address without secrets; never written anywhere


class TrackingError(RuntimeError):
    """A tracking server could not be used; its text has no user name and no password."""


def local_database(folder: str | os.PathLike[str]) -> str:
    """Return the address of the database in a folder."""
    return remember_secrets(f"{_DATABASE}{Path(folder) / 'mlflow.db'}")


def database_file(address: str) -> Path | None:
    """Return the file of an embedded database; None for a server."""
    return Path(os.path.abspath(address.removeprefix(_DATABASE))) if address.startswith(_DATABASE) else None


def first_address(typed: str | None, known: str | None) -> str:
    """Return the first of what the user typed, ``MLFLOW_TRACKING_URI`` and what is known; empty if there is none."""
    return remember_secrets(typed or os.environ.get(_VARIABLE) or known or "")


def choose_address(
    tracking_uri: str | None,
    bundle_root: str | os.PathLike[str] | None,
    output_dir: str | os.PathLike[str],
    before: str | None = None,
) -> str:
    """Return where to track: the given address, ``MLFLOW_TRACKING_URI``, or the database beside the bundles.

    All trainings of a checkout or a project share this database. If it cannot be written to, there is a warning, and
    ``output_dir`` gets a database of its own. The result has no user name and no password; :func:`signed_in` knows
    them.

    Args:
        tracking_uri: the address that the user typed, if any.
        bundle_root: folder of the bundle; if None, the database is in ``output_dir``.
        output_dir: folder of the run.
        before: where a resumed run was tracked so far; it goes before the database.
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


def without_secrets(uri: str) -> str:
    """Return an address without user name and password, which are everything before its last @.

    A database's user stays if there is no password. A query stays unless it names a password.

    Examples:
        >>> without_secrets("http://me:p@ss/word@host:5000/mlflow")
        'http://host:5000/mlflow'
        >>> without_secrets("postgresql://tracker@host/runs?password=secret")
        'postgresql://tracker@host/runs'
    """
    scheme, secrets, rest = _split(uri)
    keeps_user = scheme.endswith("//") and re.fullmatch(r"[\w.+-]+", secrets) and "http" not in scheme.lower()
    return scheme + (f"{secrets}@" if keeps_user else "") + rest


def _split(uri: str) -> tuple[str, str, str]:
    """Return the scheme with its slashes, what is before the last @, and the rest without a query that has secrets."""
    found = re.match(r"([^/@:]*:/*)", uri)
    if found is None or uri.startswith(_FILES):
        return "", "", uri
    secrets, _, rest = _SECRET_QUERY.sub("", uri[found.end() :]).rpartition("@")
    return found[1], secrets, rest


def remember_secrets(uri: str) -> str:
    """Return an address without secrets, and absolute; this process remembers the secrets for :func:`signed_in`."""
    if file := database_file(uri):
        return f"{_DATABASE}{file}"
    address = without_secrets(uri)
    if address != uri:
        _SECRETS[address] = uri
    return address


def with_secrets(address: str) -> str:
    """Return the address with the user name and password that this process knows, quoted as URLs want them."""
    known = (_SECRETS.get(address), os.environ.get(_VARIABLE))
    uri = next((uri for uri in known if uri and without_secrets(uri) == address), address)
    scheme, secrets, rest = _split(uri)
    user, colon, password = secrets.partition(":")
    if "http" not in scheme.lower() or not user:
        return uri
    return f"{scheme}{quote(unquote(user), safe='')}{colon}{quote(unquote(password), safe='')}@{rest}"


@contextmanager
def secrets_hidden(address: str) -> Iterator[str]:
    """Yield the address with user name and password; an error that shows them becomes a TrackingError without them."""
    uri = with_secrets(address)
    try:
        yield uri
    except Exception as error:
        text = _hide_secrets(str(error), uri)
        if text == str(error):
            raise
        raise TrackingError(text) from None


def _hide_secrets(text: str, uri: str) -> str:
    """Return a text without the secrets of an address, in whatever form they stand there."""
    scheme, secrets, _ = _split(uri)
    user, _, password = secrets.partition(":")
    secret = password or (user if "http" in scheme.lower() else "")
    query = _SECRET_QUERY.search(uri)
    text = text.replace(uri, without_secrets(uri))
    if secrets:
        text = text.replace(f"{secrets}@", "")
    for form in {secret, unquote(secret), quote(unquote(secret), safe=""), query[2] if query else ""} - {""}:
        text = text.replace(form, "***")
    return text


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


def environment_for(address: str) -> dict[str, str]:
    """Return the environment variables of another process that tracks at an address."""
    return {_VARIABLE: with_secrets(address)}
