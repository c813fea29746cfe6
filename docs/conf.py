"""How Sphinx builds these pages: `sphinx-build -W -b html docs docs/_build/html`."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import gluonloader

project = "gluonloader"
author = "the gluonloader authors"
version = release = gluonloader.__version__

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_design"),
    "sphinx_llm.txt",
]
exclude_patterns = ["_build", "templates"]
templates_path = ["templates"]  # of the pages in docs/api, which autosummary writes
# The page of a class shows its members that have a docstring, but not what it inherits from these,
_WITHOUT = "BaseException, Dataset, Generic, OrderedSampler, Sequence, int, object, tuple"
# nor the public methods that only other parts of the library call.
_HIDDEN = """
    check_fits color contiguous_rows counts_of_blocks cut delivered describe_by drew epoch_seed fetched_ns flag folder
    full gil_free id id2 is_remote keep_first label loading named needed_blocks needed_spans open order order_state
    random_over read_tokens reader slow_in_random_order stats_if_known watch
"""
autosummary_context = {"without": _WITHOUT, "hidden": ", ".join(_HIDDEN.split())}
html_theme = "furo"
html_title = f"gluonloader {version}"
html_static_path = ["static"]
html_show_copyright = False
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"

default_role = "code"  # docstrings write `name` for code
autodoc_inherit_docstrings = False  # a method that has none of its own is described on the page of its base class
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True  # as they are written, not as Python prints them
autodoc_type_aliases = {"DTypeLike": "DTypeLike"}
maximum_signature_line_length = 100
myst_heading_anchors = 3
llms_txt_description = (
    "gluonloader is a data loader for programs that train with torch, JAX, MXNet or NumPy. It runs training scripts "
    "unchanged, loses no batch if a worker dies, and resumes at the exact batch of a checkpoint."
)
llms_txt_full_build = True
llms_txt_suppress_unknown_node_warnings = True  # the grids of the landing page
myst_enable_extensions = ["colon_fence"]  # ::: for the grids and cards of sphinx_design


def link_pages(app, what, name, obj, options, lines):
    """Makes links of the pages that docstrings name: `docs/workers.md`."""
    lines[:] = [re.sub(r"`docs/([\w-]+)\.md`", r":doc:`/\1`", line) for line in lines]


def name_aliases(app, what, name, obj, options, signature, returns):
    """Writes `DTypeLike | None`, which Sphinx 9 writes as `TypeAliasForwardRef('DTypeLike') | None`."""
    return signature and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature), returns


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-process-signature", name_aliases)
