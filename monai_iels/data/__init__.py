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

"""Five data sets: their readers, their embedded samples, and a checker that finds what is broken."""

from monai_iels.data.check import check_labels, check_source
from monai_iels.data.datalists import SOURCES, cases_of, checked_datalists, paired_datalists
from monai_iels.data.drive import read_drive
from monai_iels.data.dsb2018 import read_dsb2018
from monai_iels.data.hippocampus import read_hippocampus
from monai_iels.data.images import LabelValuesd, LoadFiled
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.refuge import read_refuge
from monai_iels.data.wbc import read_wbc

__all__ = [
    "SOURCES",
    "DataError",
    "LabelValuesd",
    "LoadFiled",
    "Problem",
    "cases_of",
    "check_labels",
    "check_source",
    "checked_datalists",
    "paired_datalists",
    "read_drive",
    "read_dsb2018",
    "read_hippocampus",
    "read_refuge",
    "read_wbc",
]
