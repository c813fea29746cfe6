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
# Which members of a class its page shows, if any. Other public methods are for the library itself.
_ALL = """
    ArrowDataset BatchSampler BlockShuffleSampler Bridge CenterCrop DataLoader Dataset FileDataset FixedBucketSampler
    H5Dataset ImageDataset ImageFolderDataset ImageListDataset IndexedRecordIO IterableDataset LoaderIterator PackedRow
    PackingStats RandomCrop RandomResizedCrop RandomSampler Ranks RecordFileDataset ServedLoader Server ShardedSampler
    SortedBucketSampler SplitSampler SubsetSampler TokenBatchStats Tuning WeightedSampler ZarrDataset
"""
_SOME = {
    "MixtureSampler": "weights, schedule, drawn, set_epoch",
    "PackRows": "__call__",
    "PackedStream": "shard, set_epoch",
    "PackingSampler": "count, stats, set_epoch",
    "RepeatedBatches": "__iter__, __len__",
    "ServedIterator": "__next__",
    "TokenBatchSampler": "count, stats, set_epoch",
    "TokenDataset": "write, windows",
    "Trace": "stop",
    "WorkerInfo": "rng",
}
autosummary_context = {"shown": {**dict.fromkeys(_ALL.split(), ""), **_SOME}}
html_theme = "furo"
html_title = f"gluonloader {version}"
html_static_path = ["static"]
html_show_copyright = False
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"

default_role = "code"  # docstrings write `name` for code
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
