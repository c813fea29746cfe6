"""How Sphinx builds these pages: `sphinx-build -W -b html docs docs/_build/html`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import gluonloader

project = "gluonloader"
author = "the gluonloader authors"
version = release = gluonloader.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"gluonloader {version}"

default_role = "code"  # docstrings write `name` for code
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 100
myst_heading_anchors = 3
