# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Six data sets: their readers, synthetic samples of each, and a checker that finds what is broken.

A new data set needs

1. a page ``monai_iels/data/NAME.yaml``: its layout, terms, classes, label values, counts, and where to download it;
2. a reader: ``monai_iels/data/_NAME.py`` with a :class:`Source` of this page and two functions. ``find`` lists the
   files of each section, mostly with ``search.folder``, ``pair`` and ``split``; ``sample`` draws one case in the
   official layout. Add the source to ``SOURCES`` in ``_datalists.py``. ``_wbc.py`` is the shortest example;
3. a drawing of one image and its label, ``drawings/_NAME.py``, for tests and first steps without the data;
4. ``bundles/NAME/dataset.yaml``, about thirty lines: image size, number of classes, and what else differs.

The checker, the command line, archives, downloads and the cache then work with it as they are.
"""

from monai_iels.data._archives import is_archive
from monai_iels.data._cases import Datalists, all_files, case_files, cases_of
from monai_iels.data._check import Report, check_files, check_labels, check_source, label_readers, make_report
from monai_iels.data._datalists import SOURCES, SYNTHETIC, checked_datalists, describe_pairs, paired_datalists
from monai_iels.data._digests import fingerprint
from monai_iels.data._download import download_archive
from monai_iels.data._images import LoadFiled, read_file
from monai_iels.data._labels import LabelValues, LabelValuesd, SetAsideIgnoredd
from monai_iels.data._problems import DataError, Problem, Problems
from monai_iels.data._search import contents, listing, walk
from monai_iels.data._source import Source
from monai_iels.images import IGNORED, as_mask
