"""The shape of the code: imports point down, and private names stay private.

Out of the package, imports go to the standard library and NumPy only. The drop-ins import MXNet and torch, too;
frameworks are found among the modules that are loaded.

The order is read from the comment in `gluonloader/__init__.py`, so that the text and the code cannot part.
"""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

import gluonloader

ROOT = Path(gluonloader.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
OUTSIDE = {"numpy"}
TESTS = Path(__file__).parent
BENCHMARKS = sorted((TESTS.parent / "benchmarks").rglob("*.py"))


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
    above = ROOT.parent if file.is_relative_to(ROOT) else TESTS.parent
    names = file.relative_to(above).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@functools.cache
def tree_of(file):
    return ast.parse(file.read_text())


@pytest.fixture(scope="module", autouse=True)
def forget_trees():
    """They take 100 MB, which later tests would pay for at each fork."""
    yield
    tree_of.cache_clear()


def imports(file):
    """Full names of what a file imports, anywhere in it: in functions and under `if TYPE_CHECKING`, too."""
    module = module_name(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree_of(file)):
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


def points_down(part, name):
    """Whether a part of the package may import a name of the package; peers of one layer do not know each other."""
    other = part_of(name)
    return other in LAYERS and (not part or other == part or LAYERS[other] < LAYERS[part])


def test_imports_point_down():
    found = [
        f"{module_name(file)} imports {name}"
        for file in FILES
        for name in imports(file)
        if name.split(".")[0] == "gluonloader" and not points_down(part_of(module_name(file)), name)
    ]
    assert found == []


def test_only_the_standard_library_and_numpy_are_imported():
    found = {}
    for file in FILES:
        module = module_name(file)
        drop_in = {part_of(module)} & {"mxnet", "torch"}
        checked = {"typing_extensions"} if module == "gluonloader.tree" else set()  # by type checkers
        allowed = {"gluonloader"} | OUTSIDE | drop_in | checked | set(sys.stdlib_module_names)
        found[module] = {name.split(".")[0] for name in imports(file)} - allowed
    assert {module: outside for module, outside in found.items() if outside} == {}


def test_the_reader_of_imports_reads_all_kinds(tmp_path, monkeypatch):
    root = tmp_path / "gluonloader"
    monkeypatch.setitem(globals(), "ROOT", root)
    (root / "low").mkdir(parents=True)
    file = root / "low" / "file.py"
    file.write_text(
        "import os.path, numpy as np\nfrom . import peer\nfrom ..high import Thing\nfrom .. import top\n"
        "def f():\n    from .inner import x\nif False:\n    import gluonloader.loader\n"
    )
    assert set(imports(file)) == {
        "os.path", "numpy", "gluonloader.low.peer", "gluonloader.high.Thing", "gluonloader.top",
        "gluonloader.low.inner.x", "gluonloader.loader",
    }  # fmt: skip


# -- private names -----------------------------------------------------------------------------------------------------

DOCUMENTED = {"_fields", "_make", "_replace", "_asdict", "_indices"}  # of named tuples and of torch's sparse tensors


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def private_names_of(tree):
    """The private names that a file defines: at its top, in its classes, and as attributes of `self` or `cls`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value  # of __slots__ and setattr


def private_uses(file, own, others):
    """Private names that a file imports from another file of ours, and those that only other packages of ours define.

    Args:
        own: the private names that the files of the same package define.
        others: those that the files of all other packages define.
    """
    for name in imports(file):
        if name.startswith("gluonloader.") and is_private(name.rpartition(".")[2]):
            yield name
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr in others - own - DOCUMENTED:
            yield node.attr


def test_private_names_are_used_in_their_own_package_only():
    private = {}  # names of each package
    for file in FILES:
        names = set(filter(is_private, private_names_of(tree_of(file))))
        private.setdefault(part_of(module_name(file)), set()).update(names)
    found = set()
    for file in FILES:
        module = module_name(file)
        part = part_of(module)
        others = set().union(*(names for other, names in private.items() if other != part))
        found |= {(module, name) for name in private_uses(file, private[part], others)}
    assert found == set()


def test_locks_of_the_standard_library_are_nowhere_but_in_locks():
    """NOTE [locks] in gluonloader/locks.py."""
    found = {
        module_name(file)
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Attribute) and node.attr in ("Lock", "RLock") and ast.unparse(node.value) == "threading"
    }
    named = {name for file in FILES for name in imports(file) if name in ("threading.Lock", "threading.RLock")}
    assert (found, named) == (set(), set())


# -- cycles ------------------------------------------------------------------------------------------------------------

MODULES = set(map(module_name, FILES + BENCHMARKS))


def imported_modules(file):
    """The modules of ours that a file imports, anywhere in it."""
    module = module_name(file)
    for name in imports(file):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        if name and name != module:
            yield name


def cycle(graph):
    """The nodes of one cycle of a directed graph, in order; empty if there is none."""
    done = set()

    def visit(node, path):
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for following in sorted(graph.get(node, ())):
            if found := visit(following, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def test_no_files_import_each_other():
    files = [file for file in FILES + BENCHMARKS if file.name != "__init__.py"]
    graph = {module_name(file): set(imported_modules(file)) for file in files}
    assert cycle(graph) == []


def test_a_cycle_is_found():
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


# -- the tests ---------------------------------------------------------------------------------------------------------


def patches_private_name(node):
    """Whether code sets a private attribute of something other than `self`: `x._y = z`, `setattr(x, "_y", z)`."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        return name in ("setattr", "delattr") and any(is_private(text.rpartition(".")[2]) for text in texts[:1])
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_private(node.attr)
    return stored and ast.unparse(node.value) not in ("self", "cls")


def imports_a_test(node):
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(module.startswith("test_") for module in modules)


def test_no_test_imports_another_or_patches_a_private_name():
    """One test for both, since to parse all tests takes a while."""
    importing, patching = set(), set()
    for file in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if imports_a_test(node):
                importing.add(file.stem)
            if patches_private_name(node):
                patching.add(file.stem)
    assert (importing, patching) == (set(), set())


def test_patches_are_found():
    lines = {
        "monkeypatch.setattr(module, '_LIMIT', 3)": True,
        "monkeypatch.setattr('package.module._LIMIT', 3)": True,
        "module._A = module._B = 0": True,
        "monkeypatch.setattr(os, 'fork', None)": False,
        "self._level = 3": False,
    }
    for line, patches in lines.items():
        assert any(map(patches_private_name, ast.walk(ast.parse(line)))) is patches
