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

"""Settings of Sphinx. A build also draws the pictures and writes the reports and the reference."""

import runpy
import sys
from pathlib import Path

import monai_iels
from monai_iels._cli import main as monai_iels_command

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "monai_iels"
author = "the monai_iels contributors"
copyright = author
release = version = monai_iels.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery", "results/*/report.md"]
html_theme = "furo"
html_title = "monai_iels"
html_use_index = html_domain_indices = False  # the reference is one page, and the search finds the rest
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_rtype = False


def setup(app):  # type: ignore[no-untyped-def] # Sphinx calls it
    """Draw the gallery and write the generated pages before Sphinx reads them."""
    for script in sorted((HERE / "gallery").glob("*.py")):
        runpy.run_path(str(script))["main"]()
    for file in sorted((HERE / "results").glob("*/results.json")):
        if monai_iels_command(["study", "report", str(file.parent)]):
            raise RuntimeError(f"the page of {file} was not written")
    runpy.run_path(str(HERE / "reference" / "generate.py"))["main"]()
