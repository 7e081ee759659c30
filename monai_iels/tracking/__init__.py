# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Tracking with MLflow: a journal on disk, a thread that delivers it, and the addresses of servers.

A training writes only to its journal, so no server can stop it. A thread delivers the journal in the background, and
``monai-iels tracking replay`` delivers what is left.

Only ``_mlflow.py`` knows MLflow. Another tracker needs one module like it, with the same functions: one that delivers a
journal, and in it one method for each kind of entry in ``_entries.py``.
"""

from monai_iels.tracking._addresses import choose_address, environment, local_database, plain_address
from monai_iels.tracking._delivery_thread import DeliveryThread
from monai_iels.tracking._journal import JOURNAL, RESUMED, Journal, RunDescription
from monai_iels.tracking._mlflow import deliver, how_to_look

remember_secrets = without_secrets = plain_address


def environment_for(address: str) -> dict[str, str]:
    """Return the environment variables of another process that tracks at an address."""
    return {"MLFLOW_TRACKING_URI": address}
