# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The bundles: ``monai-iels bundle compose bundles`` writes the configs of each.

They are made from ``bundles/shared`` and what the bundle's ``dataset.yaml`` changes.
"""

from monai_iels.bundles._composing import compose
from monai_iels.bundles._data import check_data, composed_config, list_data
