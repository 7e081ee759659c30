# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Problems: one line each, and all of them in one error."""

import pickle

from monai_iels.data import DataError, Problem


def test_a_long_list_of_problems_is_cut_after_twenty_lines():
    error = DataError(*(Problem("unreadable", f"{i}.png", f"a {i}", "c.") for i in range(30)))
    assert len(str(error).splitlines()) == 21
    assert "10 more" in str(error)


def test_files_with_the_same_problem_share_a_line():
    error = DataError(*(Problem("unreadable", f"labels/{i}.png", "a", "c.") for i in range(30)))
    assert str(error) == "labels: 30 files, such as 0.png: a. c."
    assert len(error.problems) == 30


def test_an_error_keeps_its_problems_on_the_way_from_another_process():
    error = DataError(Problem("unreadable", "a.png", "the file is empty"), Problem("extra", "b.png", "unexpected file"))
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems
    assert str(again) == str(error)
