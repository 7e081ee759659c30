# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The phases of a training, in their order, as events of Ignite.

Handlers of one Ignite event run in the order of a config's list. Ours must not depend on it, so they attach to phases.
The phases of an epoch fire after all other handlers of that epoch's event, such as MONAI's validation.
"""

from collections.abc import Callable
from typing import Any

from ignite.engine import EventEnum, Events


class Phases(EventEnum):
    """What happens when: at the start of a training, in each epoch, and at the end."""

    RESTORE = "restore"  # load the state of an interrupted training
    BEGIN = "begin"  # prepare what follows the training, and open the tracked run
    SEED = "seed"  # seed an epoch's random numbers
    REPORT = "report"  # write an epoch's numbers
    RECORD = "record"  # track them
    SAVE = "save"  # save the training's state
    DRAW = "draw"  # draw what came out
    SUMMARIZE = "summarize"  # say what came out, and where it is
    CLOSE = "close"  # end the tracked run


_FIRED_BY = {
    Events.EPOCH_STARTED: (Phases.SEED,),
    Events.EPOCH_COMPLETED: (Phases.REPORT, Phases.RECORD, Phases.SAVE),
    Events.COMPLETED: (Phases.DRAW, Phases.SUMMARIZE, Phases.CLOSE),
}


def attach(engine: Any, phase: Phases, handler: Callable[[Any], None]) -> None:
    """Call a handler in a phase of an engine's run."""
    if not engine.has_event_handler(_start, Events.STARTED):
        engine.register_events(*Phases)
        engine.add_event_handler(Events.STARTED, _start)
    engine.add_event_handler(phase, handler)


def _start(engine: Any) -> None:
    """Fire the phases of the start, and have the others fired; now all other handlers are attached already."""
    for event, phases in _FIRED_BY.items():
        if engine.has_event_handler(_fire, event):
            engine.remove_event_handler(_fire, event)
        engine.add_event_handler(event, _fire, phases)
    _fire(engine, (Phases.RESTORE, Phases.BEGIN))


def _fire(engine: Any, phases: tuple[Phases, ...]) -> None:
    for phase in phases:
        engine.fire_event(phase)
