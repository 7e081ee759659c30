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
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

_VARIABLE = "MLFLOW_TRACKING_URI"
_FILES = ("sqlite:///", "file:")  # an @ in these is part of a file's name
_SECRET_QUERY = re.compile(r"[?&;]\w*(pass|pwd|token|secret|odbc_connect)\w*=(.*)", re.IGNORECASE | re.DOTALL)
_SECRETS: dict[str, str] = {}  # whole addresses, by the address without secrets; never written anywhere


def local_database(output_dir: str | os.PathLike[str]) -> str:
    """Return the address of the database that a run or a study keeps in its own folder."""
    return f"sqlite:///{os.path.abspath(Path(output_dir) / 'mlflow.db')}"


def choose_address(output_dir: str | os.PathLike[str], tracking_uri: str | None = None) -> str:
    """Return where to track: ``MLFLOW_TRACKING_URI``, the given address, or a database below ``output_dir``.

    The result has no user name and no password; :func:`signed_in` knows them.
    """
    return remember_secrets(os.environ.get(_VARIABLE) or tracking_uri or local_database(output_dir))


def artifact_location(address: str) -> str | None:
    """Return a folder beside an embedded database; None for a server, which has its own place for artifacts."""
    if not address.startswith("sqlite:///"):
        return None
    return (Path(os.path.abspath(address.removeprefix("sqlite:///"))).parent / "mlartifacts").as_uri()


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
    keeps_user = scheme.endswith("//") and re.fullmatch(r"[\w.+-]+", secrets) and not _is_http(scheme)
    return scheme + (f"{secrets}@" if keeps_user else "") + rest


def _split(uri: str) -> tuple[str, str, str]:
    """Return the scheme with its slashes, what is before the last @, and the rest without a query that has secrets."""
    found = re.match(r"([^/@:]*:/*)", uri)
    if found is None or uri.startswith(_FILES):
        return "", "", uri
    secrets, _, rest = _SECRET_QUERY.sub("", uri[found.end() :]).rpartition("@")
    return found[1], secrets, rest


def _is_http(scheme: str) -> bool:
    return "http" in scheme.lower()


def remember_secrets(uri: str) -> str:
    """Return an address without secrets, and absolute; this process remembers the secrets for :func:`signed_in`."""
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(uri.removeprefix('sqlite:///'))}"
    address = without_secrets(uri)
    if address != uri:
        _SECRETS[address] = uri
    return address


def _with_secrets(address: str) -> str:
    """Return the address with the user name and password that this process knows, quoted as URLs want them."""
    known = (_SECRETS.get(address), os.environ.get(_VARIABLE))
    uri = next((uri for uri in known if uri and without_secrets(uri) == address), address)
    scheme, secrets, rest = _split(uri)
    user, colon, password = secrets.partition(":")
    if not (_is_http(scheme) and user):
        return uri
    return f"{scheme}{quote(unquote(user), safe='')}{colon}{quote(unquote(password), safe='')}@{rest}"


@contextmanager
def secrets_hidden(address: str) -> Iterator[str]:
    """Yield the address to give to MLflow, with user name and password; raise errors without these.

    The HTTP library below MLflow takes user name and password from the address, so no environment variable is needed.
    """
    from mlflow.exceptions import MlflowException

    uri = _with_secrets(address)
    try:
        yield uri
    except Exception as error:
        text = _hide_secrets(str(error), uri)
        if text == str(error):
            raise
        raise MlflowException(text) from None


def _hide_secrets(text: str, uri: str) -> str:
    """Return a text without the secrets of an address, in whatever form they stand there."""
    scheme, secrets, _ = _split(uri)
    user, _, password = secrets.partition(":")
    secret = user if _is_http(scheme) and not password else password
    query = _SECRET_QUERY.search(uri)
    text = text.replace(uri, without_secrets(uri))
    if secrets:
        text = text.replace(f"{secrets}@", "")
    for form in {secret, unquote(secret), quote(unquote(secret), safe=""), query[2] if query else ""} - {""}:
        text = text.replace(form, "***")
    return text


@contextmanager
def mlflow_settings(address: str, fail_soon: bool = False) -> Iterator[None]:
    """Set for a while what MLflow reads only from the environment: never print secrets, and give up a request soon.

    MLflow takes neither for one client (its issues 8584 and 12520 ask for it), so this changes ``os.environ``.
    Call it in the thread that owns the run, never in the courier's: a change while another thread reads
    the environment can break that thread. Limits that the user has set stay.

    Args:
        address: where MLflow is going to track.
        fail_soon: whether requests give up after one try of ten seconds, because the caller tries again.
    """
    chosen = {}
    if fail_soon:
        limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
        chosen = {name: value for name, value in limits.items() if name not in os.environ}
    if _with_secrets(address) != address:
        chosen["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def signed_in(address: str) -> Iterator[str]:
    """Yield the address to give to MLflow, with user name and password, which MLflow then neither prints nor raises."""
    with mlflow_settings(address), secrets_hidden(address) as uri:
        yield uri


def view_command(address: str, experiment_id: str = "", run_id: str = "") -> str:
    """Return what to type to look at what was tracked; for a server, the address of its page.

    Args:
        address: where it was tracked, without secrets.
        experiment_id: the experiment whose runs a server's page shows; by default the page shows all experiments.
        run_id: the run that a server's page shows.

    Examples:
        >>> view_command("sqlite:////home/me/my bundles/mlflow/mlflow.db")
        "mlflow ui --backend-store-uri 'sqlite:////home/me/my bundles/mlflow/mlflow.db'"
        >>> view_command("http://host:5000", "1", "abc")
        'http://host:5000/#/experiments/1/runs/abc'
    """
    if not address.lower().startswith("http"):
        return shlex.join(["mlflow", "ui", "--backend-store-uri", address])
    page = f"/#/experiments/{experiment_id}/runs/{run_id}" if experiment_id else ""
    return address.rstrip("/") + page.rstrip("/")


def environment_for(address: str) -> dict[str, str]:
    """Return the environment variables of another process that tracks at an address."""
    return {_VARIABLE: _with_secrets(address)}
