# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Drawings that stand in for the six data sets: same look, same difficulty, no image file shipped.

Every drawing is deterministic: the same state of its random generator gives the same picture.
"""
