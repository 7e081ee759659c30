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

"""What can be wrong with a file, said in one sentence."""

import dataclasses
from collections.abc import Sequence

__all__ = ["DataError", "Problem"]

_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one file: what was expected, what was found, what to do.

    Args:
        kind: ``"missing"``, ``"extra"``, ``"unmatched"``, ``"empty"``, ``"unreadable"``, ``"truncated"``, ``"size"`` or
            ``"values"``.
        file: the file or folder.
        expected: what should be there, as the object of "expected".
        found: what is there instead, as the object of "found".
        remedy: what to do about it, a sentence.

    Example:
        >>> print(Problem("empty", "001.png", "a PNG image", "0 bytes", "Copy the file again."))
        001.png: expected a PNG image, found 0 bytes. Copy the file again.
    """

    kind: str
    file: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        sentence = f"{self.file}: expected {self.expected}, found {self.found}. {self.remedy}"
        # names of files may hold line breaks, and bytes that are no text
        return sentence.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode("utf-8")


class DataError(ValueError):
    """Data that cannot be used, with every problem found so far in ``problems``."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(
                f"... and {len(self.problems) - _SHOWN} more; `python -m monai_iels.data check` lists them all."
            )
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type["DataError"], tuple[Sequence[Problem]]]:
        """Keep the problems when a data loader's worker hands the error to its parent."""
        return type(self), (self.problems,)
