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

"""A picture that cannot be drawn costs a sentence, not the training."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from monai_iels._files import atomic
from monai_iels._terminal import first_line, shown

logger = logging.getLogger(__name__)


@contextmanager
def drawing(file: Path) -> Iterator[Path]:
    """Yield a temporary path for a picture, and move it to ``file``; if the block fails, only warn."""
    try:
        with atomic(file) as part:
            yield part
    except Exception as error:
        logger.warning(f"{shown(file)} could not be drawn: {first_line(error)}. Everything else goes on.")
