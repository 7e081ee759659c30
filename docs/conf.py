# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Settings of Sphinx. A build also draws the pictures of the gallery, runs the notebooks, and writes the reference.

The reports of the studies are stored; ``tests/study/test_report.py`` checks that they come out the same.

``-t quick`` keeps the pictures as they are.
"""

import re
import runpy
import sys
from pathlib import Path

import monai_iels

HERE = Path(__file__).parent
QUICKSTART = HERE / "gallery" / "before_after.py"  # trains for minutes: run it by hand when the quickstart changed
sys.path.insert(0, str(HERE))

project = "monai_iels"
author = "the monai_iels contributors"
copyright = author
release = version = monai_iels.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = "monai_iels"
html_use_index = html_domain_indices = False  # the search finds everything
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_rtype = False


OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./benchmarks|\.\./\.\./bundles)/[^)]+\.md\)")


def unlink_outside(app, docname, source):  # type: ignore[no-untyped-def] # Sphinx calls it
    """Leave only the text of links to files outside this folder: a code host has them, the site includes them."""
    source[0] = OUTSIDE.sub(r"\1", source[0])


def setup(app):  # type: ignore[no-untyped-def] # Sphinx calls it
    """Draw the gallery and write the generated pages before Sphinx reads them."""
    app.connect("source-read", unlink_outside)
    for script in [] if app.tags.has("quick") else sorted({*(HERE / "gallery").glob("*.py")} - {QUICKSTART}):
        runpy.run_path(str(script))["main"]()
    runpy.run_path(str(HERE / "reference" / "generate.py"))["main"]()
