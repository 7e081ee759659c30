# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What the tests of tracking share."""

import uuid

from helpers import history

from monai_iels.cli import make_parser
from monai_iels.tracking import Journal


def new_journal(folder, uri, experiment="e"):
    """Return the journal of a new run."""
    journal = Journal(folder)
    journal.begin(key=uuid.uuid4().hex, tracking_uri=uri, experiment=experiment, name="n")
    return journal


def replay(*arguments):
    """Run the command `tracking replay`, and return its exit code."""
    options = make_parser().parse_args(["tracking", "replay", *arguments])
    return options.run(options)


def history_length(output):
    """Return how many epochs a training has recorded."""
    return len(history(output)) if (output / "history.csv").exists() else 0
