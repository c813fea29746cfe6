"""The layer rule: imports point down only, and out of the package only to the standard library and NumPy.

The drop-in for `mxnet.gluon.data` imports MXNet, too; frameworks are found among the modules that are loaded.

The order is read from the comment in `gluonloader/__init__.py`, so that the text and the code cannot part.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

import gluonloader

ROOT = Path(gluonloader.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
OUTSIDE = {"numpy"}


def layers():
    """Each part of the package and its layer's number, 0 at the bottom."""
    lines = re.findall(r"^    (\S.*)$", gluonloader.__doc__, re.MULTILINE)
    parts = [re.split(r"\s{2,}", line)[0].split(", ") for line in reversed(lines)]
    return {part: number for number, layer in enumerate(parts) for part in layer}


LAYERS = layers()


def part_of(dotted):
    """gluonloader.memory.slab -> memory"""
    return dotted.split(".")[1] if "." in dotted else ""


def module_name(file):
    names = ["gluonloader", *file.relative_to(ROOT).with_suffix("").parts]
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(file):
    """Full names of what a file imports, anywhere in it: in functions and under `if TYPE_CHECKING`, too."""
    module = module_name(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_the_comment_names_every_part_once():
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(LAYERS) == parts - {"__init__"}
    assert LAYERS["loader"] > LAYERS["executors"] > LAYERS["work"] > LAYERS["memory"] > LAYERS["errors"]


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports_point_down(file):
    part = part_of(module_name(file))
    for name in imports(file):
        if name.split(".")[0] != "gluonloader":
            continue
        other = part_of(name)
        assert other in LAYERS, f"{name}: no part of the package, or the package itself"
        # Peers of one layer do not know each other.
        below = not part or other == part or LAYERS[other] < LAYERS[part]
        assert below, f"{part} (layer {LAYERS.get(part)}) imports {name} (layer {LAYERS[other]})"


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_standard_library_and_numpy_are_imported(file):
    outside = {name.split(".")[0] for name in imports(file)} - {"gluonloader"}
    drop_in = {"mxnet"} if part_of(module_name(file)) == "mxnet" else set()
    assert outside <= OUTSIDE | drop_in | set(sys.stdlib_module_names)


def test_the_reader_of_imports_reads_all_kinds(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "low").mkdir()
    file = tmp_path / "low" / "file.py"
    file.write_text(
        "import os.path, numpy as np\nfrom . import peer\nfrom ..high import Thing\nfrom .. import top\n"
        "def f():\n    from .inner import x\nif False:\n    import gluonloader.loader\n"
    )
    assert set(imports(file)) == {
        "os.path", "numpy", "gluonloader.low.peer", "gluonloader.high.Thing", "gluonloader.top",
        "gluonloader.low.inner.x", "gluonloader.loader",
    }  # fmt: skip
