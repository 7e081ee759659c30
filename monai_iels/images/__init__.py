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
"""Images and volumes on disk: one object per file format knows its endings, its header, how to read and write it.

A new file format is one new file here with a subclass of :class:`Format`, and its entry in ``FORMATS`` in
``_known.py``. Training, inference, the adviser and the served model then read it as they are. itk and nibabel are
imported where they are used: a PNG needs neither.
"""

from monai_iels.images._dicom import find_series, read_series
from monai_iels.images._format import IGNORED, Format, Header
from monai_iels.images._known import FORMATS, format_of, header, read, suffix_of, suffixes, writable
from monai_iels.images._pictures import as_mask

__all__ = [
    "FORMATS",
    "IGNORED",
    "Format",
    "Header",
    "as_mask",
    "find_series",
    "format_of",
    "header",
    "read",
    "read_series",
    "suffix_of",
    "suffixes",
    "writable",
]
