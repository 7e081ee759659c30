# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A thread that delivers a journal while a training runs."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack

from monai_iels._terminal import first_line
from monai_iels.tracking._journal import Journal
from monai_iels.tracking._mlflow import deliver_pending, impatient

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0
_LONGEST_REQUEST = 11.0  # seconds


class DeliveryThread(threading.Thread):
    """Deliver a journal in the background until the run ends.

    Args:
        journal: what to deliver.
        uri: where to, by default ``MLFLOW_TRACKING_URI`` or the journal's own address.
    """

    def __init__(self, journal: Journal, uri: str | None = None) -> None:
        super().__init__(name="tracking", daemon=True)
        self.journal = journal
        self.address = journal.address(uri)
        self._settings = ExitStack()
        self._news = threading.Event()
        self._stop_now = threading.Event()
        self._pause: float | None = None  # before the next try; None while the server answers

    def start(self) -> None:
        """Start the thread. The same thread that calls this calls :meth:`finish`."""
        self._settings.enter_context(impatient())
        self.notify()
        super().start()

    def notify(self) -> None:
        """Say that there is something new to deliver."""
        self._news.set()

    def run(self) -> None:
        """Deliver; if that fails, try again after a pause."""
        while not self._stop_now.is_set():
            self._news.wait(self._pause)
            self._news.clear()
            try:
                deliver_pending(self.journal, self.address, self._stop_now)
            except Exception as error:
                if self._pause is None:
                    logger.warning(
                        f"Tracking is not delivered for now ({first_line(error)[:200]}). The training goes on, and "
                        f"everything is kept in {self.journal.folder}."
                    )
                self._pause = min(2 * (self._pause or 1.0), _LONGEST_PAUSE)
                self._stop_now.wait(0.5)  # even if there is something new
            else:
                if self._pause is not None:
                    logger.warning("The tracking server answers again; everything recorded was delivered.")
                self._pause = None

    def finish(self, patience: float = 20.0) -> bool:
        """Wait for what is pending as long as some of it arrives; return whether everything has arrived.

        Args:
            patience: how many seconds to wait without progress; at most 5 if the server did not answer just before.
        """
        try:
            left = self.journal.pending(self.address)
            give_up = time.monotonic() + (patience if self._pause is None else min(5.0, patience))
            while left and time.monotonic() < give_up:
                self.notify()
                time.sleep(0.05)
                before, left = left, self.journal.pending(self.address)
                if len(left) < len(before):
                    give_up = time.monotonic() + patience
        finally:
            self._stop_now.set()
            self.notify()
            self.join(_LONGEST_REQUEST)  # the environment must not change while the thread reads it
            self._settings.close()
        if left:
            later = f"monai-iels tracking replay {self.journal.folder}"
            logger.warning(f"Some of the tracking was not delivered. Later: {later}")
        return not left
