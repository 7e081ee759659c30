# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Array and dictionary transforms in MONAI's conventions."""
