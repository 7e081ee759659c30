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

"""The address of a tracking server, and the user name and password in it, which stay in this process's memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = [
    "artifact_location",
    "default_tracking_uri",
    "embedded",
    "environment",
    "public",
    "remember",
    "signed_in",
    "variables",
]

_VARIABLE = "MLFLOW_TRACKING_URI"
_CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_FILES = ("sqlite:///", "file:")  # an @ in these is part of a file's name
_SECRET_QUERY = re.compile(r"[?&;]\w*(pass|pwd|token|secret|odbc_connect)\w*=(.*)", re.IGNORECASE | re.DOTALL)
_SECRETS: dict[str, str] = {}  # whole addresses, by the address without secrets; never written anywhere


def embedded(output_dir: str | os.PathLike[str]) -> str:
    """Return the address of the database that a run or a study keeps in its own folder."""
    return f"sqlite:///{os.path.abspath(Path(output_dir) / 'mlflow.db')}"


def default_tracking_uri(output_dir: str | os.PathLike[str], tracking_uri: str | None = None) -> str:
    """Return where to track: ``MLFLOW_TRACKING_URI``, the given address, or a database below ``output_dir``.

    The result has no user name and no password; :func:`signed_in` knows them.
    """
    return remember(os.environ.get(_VARIABLE) or tracking_uri or embedded(output_dir))


def artifact_location(address: str) -> str | None:
    """Return a folder beside an embedded database; a server knows by itself where artifacts go."""
    if not address.startswith("sqlite:///"):
        return None
    return (Path(os.path.abspath(address.removeprefix("sqlite:///"))).parent / "mlartifacts").as_uri()


def public(uri: str) -> str:
    """Return an address without user name and password: all before its last @ is taken for these.

    A database's user without a password stays, and so does a query that names no password.

    Examples:
        >>> public("http://me:p@ss/word@host:5000/mlflow")
        'http://host:5000/mlflow'
        >>> public("postgresql://tracker@host/runs?password=secret")
        'postgresql://tracker@host/runs'
    """
    scheme, secrets, rest = _split(uri)
    keeps_user = scheme.endswith("//") and re.fullmatch(r"[\w.+-]+", secrets) and not _is_http(scheme)
    return scheme + (f"{secrets}@" if keeps_user else "") + rest


def _split(uri: str) -> tuple[str, str, str]:
    """Return the scheme with its slashes, what is before the last @, and the rest, without a query with a password."""
    found = re.match(r"([^/@:]*:/*)", uri)
    if found is None or uri.startswith(_FILES):
        return "", "", uri
    secrets, _, rest = _SECRET_QUERY.sub("", uri[found.end() :]).rpartition("@")
    return found[1], secrets, rest


def _is_http(scheme: str) -> bool:
    return "http" in scheme.lower()


def remember(uri: str) -> str:
    """Return an address without secrets, and absolute; this process remembers the secrets for :func:`signed_in`."""
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(uri.removeprefix('sqlite:///'))}"
    address = public(uri)
    if address != uri:
        _SECRETS[address] = uri
    return address


@contextmanager
def signed_in(address: str) -> Iterator[str]:
    """Yield the address to give to MLflow, with what this process knows of user name and password.

    MLflow reads those of a server from the environment, where they are while this lasts; a database's are in its
    address. An error that would tell a secret is raised anew without it.
    """
    from mlflow.exceptions import MlflowException

    known = (_SECRETS.get(address), os.environ.get(_VARIABLE))
    uri = next((uri for uri in known if uri and public(uri) == address), address)
    scheme, secrets, rest = _split(uri)
    user, _, password = secrets.partition(":")
    by_environment = _is_http(scheme) and user and password
    credentials = dict(zip(_CREDENTIALS, (unquote(user), unquote(password)), strict=True))
    silence = {} if uri == address else {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
    try:
        with environment(credentials if by_environment else silence):
            yield scheme + rest if by_environment else uri
    except Exception as error:
        told = _without(str(error), uri, user if _is_http(scheme) and not password else password)
        if told == str(error):
            raise
        raise MlflowException(told) from None


def _without(text: str, uri: str, secret: str) -> str:
    """Return a text without an address and the secret in it, in whatever form."""
    text = text.replace(uri, public(uri))
    query = _SECRET_QUERY.search(uri)
    for form in {secret, unquote(secret), quote(unquote(secret), safe=""), query[2] if query else ""} - {""}:
        text = text.replace(form, "***")
    return text


def variables(address: str) -> dict[str, str]:
    """Return the environment of another process that tracks at an address."""
    with signed_in(address) as reachable:
        known = {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
        return {**known, _VARIABLE: reachable}


@contextmanager
def environment(chosen: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
