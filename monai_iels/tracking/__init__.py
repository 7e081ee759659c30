# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Tracking with MLflow: a journal on disk, a thread that delivers it, and the addresses of servers.

A training writes only to its journal, so no server can stop it. A thread delivers the journal in the background, and
``monai-iels tracking replay`` delivers what is left.

Only ``_mlflow.py`` knows MLflow. Another tracker needs one module like it, with the same functions: one that delivers a
journal, and in it one method for each kind of entry in ``_entries.py``.
"""

from monai_iels.tracking._addresses import (
    TrackingError,
    choose_address,
    environment,
    environment_for,
    local_database,
    remember_secrets,
    without_secrets,
)
from monai_iels.tracking._delivery_thread import DeliveryThread
from monai_iels.tracking._journal import JOURNAL, RESUMED, Journal, RunDescription
from monai_iels.tracking._mlflow import deliver, signed_in
from monai_iels.tracking._mlflow_pages import how_to_look

__all__ = [
    "JOURNAL",
    "RESUMED",
    "DeliveryThread",
    "Journal",
    "RunDescription",
    "TrackingError",
    "choose_address",
    "deliver",
    "environment",
    "environment_for",
    "how_to_look",
    "local_database",
    "remember_secrets",
    "signed_in",
    "without_secrets",
]
