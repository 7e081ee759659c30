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

"""What MLflow's pages show of our runs, and how to open them.

MLflow opens as a tool for chat models, and its table of runs shows no metrics. An address can ask for machine learning,
and a view that is saved with the experiment chooses the columns and the order.
"""

from __future__ import annotations

import json
import shlex

from monai_iels._terminal import script_command
from monai_iels.measures import KEY_METRIC, MEASURES

_LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` answers
_VIEW = "results"
_METRICS = [name for name, measure in MEASURES.items() if measure.per_epoch and name != KEY_METRIC]
_COLUMNS = [f"metrics.`{name}`" for name in (f"best_{KEY_METRIC}", f"last_{KEY_METRIC}", *_METRICS)]
_COLUMNS += [f"params.`{name}`" for name in ("noise_fraction", "gain", "iel_steps", "seed")]
_BEST_FIRST = {"orderByKey": f"metrics.`last_{KEY_METRIC}`", "orderByAsc": False}  # any order but time unfolds studies

EXPERIMENT_TAGS = {
    "mlflow.note.content": "Choose `Model training` at the upper left, then the view `Results`, to compare trainings.",
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{_VIEW}": json.dumps(
        {"name": "Results", "createdAt": 0, "state": json.dumps({"selectedColumns": _COLUMNS, **_BEST_FIRST})}
    ),
}
"""Tags that an experiment gets unless it has them: what its pages show."""


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
        'http://host:5000/#/experiments/1/runs/abc?workflowType=machine_learning'
    """
    if _is_server(address):
        return _page(address, experiment_id, run_id)
    return _ui_command("mlflow", address)


def _ui_command(program: str, address: str) -> str:
    return f"{program} ui --backend-store-uri {shlex.quote(address)}"


def how_to_look(address: str, experiment_id: str, run_id: str = "") -> str:
    """Return the command and the pages of an experiment, and of one of its runs if it is given, one per line."""
    is_server = _is_server(address)
    host = address if is_server else _LOCAL
    lines = [f"{_page(host, experiment_id, run_id)} (this run)"] if run_id else []
    lines.append(f"{_page(host, experiment_id)} (all runs)")
    if not is_server:
        lines.insert(0, _ui_command(script_command("mlflow"), address))
    return "\n".join(f"  {line}" for line in lines)


def _is_server(address: str) -> bool:
    return address.lower().startswith(("http", "databricks"))


def _page(host: str, experiment_id: str, run_id: str = "") -> str:
    page = f"{host.rstrip('/')}/#/experiments"
    if not experiment_id:
        return page
    query = "workflowType=machine_learning"
    if run_id:
        return f"{page}/{experiment_id}/runs/{run_id}?{query}"
    return f"{page}/{experiment_id}/runs?{query}&viewStateShareKey={_VIEW}"
