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

"""What an error of another package says, in one line, for our own sentences."""

import re


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, but for places in ITK's sources, or its kind if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not re.match(r".*\.(hxx|cxx|h):\d+:$", line)), type(error).__name__)
