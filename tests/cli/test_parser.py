# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""All commands and their options: each says what it is, and names what there is."""

import argparse

import pytest

from monai_iels.cli import make_parser
from monai_iels.data import SOURCES


def parsers(parser, words=()):
    """Yield each parser with the words of its command."""
    yield " ".join(words), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from parsers(command, (*words, name))


COMMANDS = dict(parsers(make_parser()))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_a_command_has_a_help(command):
    arguments = [one for one in COMMANDS[command]._actions if not isinstance(one, argparse._SubParsersAction)]
    assert not [one.dest for one in arguments if not one.help]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(command):
    assert COMMANDS[command].description.strip().endswith(".")
    for action in COMMANDS[command]._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert {one.dest for one in action._choices_actions if one.help} == set(action.choices)


@pytest.mark.parametrize("command", ["data download", "data check", "data synthesize", "advise"])
def test_commands_name_the_data_sets_that_there_are(command):
    (text,) = [one.help for one in COMMANDS[command]._actions if one.dest in ("name", "bundle")]
    assert text.startswith(", ".join(sorted(SOURCES)))
