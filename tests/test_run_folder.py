# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: its tables, and the epoch that is best."""

import numpy as np
import pandas as pd
import pytest
from helpers import configs
from monai.bundle import ConfigParser

from monai_iels.run_folder import RunFolder


@pytest.mark.parametrize(("name", "decides"), [("wbc", "val_mean_dice"), ("cityscapes", "val_set_iou")])
def test_the_metric_that_a_data_set_is_judged_by_decides_on_the_best_epoch(name, decides, tmp_path):
    """In the config, and where the best epoch is looked up again."""
    config = ConfigParser(ConfigParser.load_config_file(configs(name, "train")[0]))
    assert next(iter(config.get_parsed_content("validate#key_metric"))) == decides
    history = pd.DataFrame({"epoch": [1, 2, 3], "val_mean_dice": [0.5, 0.7, np.nan], "val_set_iou": [0.4, 0.3, np.nan]})
    folder = RunFolder(tmp_path)
    folder.write_epoch(history if name == "cityscapes" else history.drop(columns="val_set_iou"), pd.DataFrame())
    expected = {"val_mean_dice": 0.5, "val_set_iou": 0.4} if name == "cityscapes" else {"val_mean_dice": 0.7}
    assert folder.best_scores() == expected


def test_the_epochs_that_are_continued_are_read_back(tmp_path):
    folder = RunFolder(tmp_path)
    assert [len(table) for table in folder.read_epochs(2)] == [0, 0]
    history = pd.DataFrame({"epoch": [1.0, 2.0, 3.0], "loss": [0.1, 0.2, 1 / 3]})
    folder.write_epoch(history, pd.DataFrame())
    assert not folder.cases.exists()
    assert [len(table) for table in folder.read_epochs(2)] == [2, 0]
    folder.write_epoch(history, pd.DataFrame({"epoch": [2.0, 3.0], "case": ["1", "-2"]}))
    kept, cases = folder.read_epochs(3)
    pd.testing.assert_frame_equal(kept, history, check_exact=True)
    assert cases["case"].tolist() == ["1", "'-2"]
    assert folder.read_epochs(2)[1]["case"].tolist() == ["1"]
    assert [len(table) for table in folder.read_epochs(0)] == [0, 0]
