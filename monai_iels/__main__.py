# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""``python -m monai_iels`` is ``monai-iels``."""

from monai_iels.cli import run_program

if __name__ == "__main__":
    run_program()
