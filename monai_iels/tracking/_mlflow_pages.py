# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

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
_QUERY = "workflowType=machine_learning"
_METRICS = [name for name, measure in MEASURES.items() if measure.per_epoch and name != KEY_METRIC]
_COLUMNS = [f"metrics.`{name}`" for name in (f"best_{KEY_METRIC}", f"last_{KEY_METRIC}", *_METRICS)]
_COLUMNS += [f"params.`{name}`" for name in ("label_error", "gain", "layer_steps", "seed")]
_BEST_FIRST = {"orderByKey": f"metrics.`last_{KEY_METRIC}`", "orderByAsc": False}  # any order but time unfolds studies

EXPERIMENT_TAGS = {
    "mlflow.note.content": "Choose `Model training` at the upper left, then the view `Results`, to compare trainings.",
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{_VIEW}": json.dumps(
        {"name": "Results", "createdAt": 0, "state": json.dumps({"selectedColumns": _COLUMNS, **_BEST_FIRST})}
    ),
}
"""Tags that an experiment gets unless it has them: what its pages show."""


def how_to_look(address: str, experiment_id: str, run_id: str = "") -> str:
    """Return the command and the pages of an experiment, and of one of its runs if it is given, one per line."""
    is_server = address.lower().startswith(("http", "databricks"))
    page = f"{(address if is_server else _LOCAL).rstrip('/')}/#/experiments/{experiment_id}/runs"
    lines = [] if is_server else [f"{script_command('mlflow')} ui --backend-store-uri {shlex.quote(address)}"]
    if run_id:
        lines.append(f"{page}/{run_id}?{_QUERY} (this run)")
    lines.append(f"{page}?{_QUERY}&viewStateShareKey={_VIEW} (all runs)")
    return "\n".join(f"  {line}" for line in lines)
