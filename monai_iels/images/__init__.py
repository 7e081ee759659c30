# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Images and volumes on disk: one object per file format knows its endings, its header, how to read and write it.

A new file format is one new file here with a subclass of :class:`Format`, and its entry in ``FORMATS`` in
``_all_formats.py``. Training, inference, the adviser and the served model then read it as they are. A PNG needs neither
itk nor nibabel.
"""

from monai_iels.images._all_formats import FORMATS, format_of, header, read, suffix_of, suffixes, writable
from monai_iels.images._dicom import find_series, read_series
from monai_iels.images._format import IGNORED, Format, Header
from monai_iels.images._pictures import as_mask
