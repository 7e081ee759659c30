# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Spatial mathematics on fields ``(B, C, *spatial)``, for any number of spatial axes."""
