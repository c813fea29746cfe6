"""`load_factory`: finds `module:function`, and says what is wrong with it."""

import os
import sys
import textwrap

import pytest
from conftest import load_or_skip

from gluonloader import DataLoader
from gluonloader.tools.factory import FactoryError, load_factory

GOOD = """
from gluonloader import DataLoader

def make(**options):
    return DataLoader(range(10), 4, **options)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module into the current folder; afterwards it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name, code):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return path

    yield write
    for name, module in list(sys.modules.items()):
        # Only those that the test has written: importing torch a second time crashes the program later.
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("place", ["good_factory", "good_factory.py", "folder/good_factory.py", "ABSOLUTE"])
def test_a_factory_by_the_name_of_its_module_or_by_its_file(write, place):
    path = write("folder/good_factory.py" if "/" in place else "good_factory.py", GOOD)
    make = load_factory(f"{path if place == 'ABSOLUTE' else place}:make")
    loader = make(shuffle=True, seed=1)
    assert isinstance(loader, DataLoader)
    assert len(loader) == 3
    assert make() is not loader


def test_a_factory_in_a_package(write):
    write("package_of_factories/__init__.py", "")
    write("package_of_factories/inner.py", GOOD)
    assert len(load_factory("package_of_factories.inner:make")(last_batch="discard")) == 2


def test_subclasses_of_the_loader_and_named_arguments(write):
    write("own_loader.py", """
        import gluonloader

        class DataLoader(gluonloader.DataLoader):
            pass

        def make(num_workers=0, batch_size=2):
            return DataLoader(range(10), batch_size, num_workers=num_workers)
    """)  # fmt: skip
    make = load_factory("own_loader:make")
    assert len(make(num_workers=0)) == 5
    with pytest.raises(FactoryError, match="does not accept the argument seed; write `def make"):
        make(num_workers=0, seed=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("good_factory", "write MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("good_factory:", "write MODULE:FUNCTION"),
        (":make", "write MODULE:FUNCTION"),
        ("no_such_module:make", "there is no module no_such_module, neither in "),
        ("no_such_module.inner:make", "there is no module no_such_module"),
        ("no_such_file.py:make", "there is no such file"),
        ("good_factory:mak", "good_factory has no function mak; it has make"),
        ("good_factory:__name__", "__name__ is a str; write `def make"),
        ("broken_factory:make", r"importing it raised ZeroDivisionError: .*broken_factory.py, line 1\)"),
        ("lacking_factory:make", "importing it raised ModuleNotFoundError: No module named 'no_such_library'"),
        ("misspelled_factory:make", r"importing it raised SyntaxError: .*\(misspelled_factory.py, line 1\)$"),
        ("leaving_factory:make", "importing it raised SystemExit: 3"),
        ("json.py:make", "another module has the name json"),
    ],
)
def test_what_cannot_be_found(write, text, expected):
    write("good_factory.py", GOOD)
    write("broken_factory.py", "1 / 0")
    write("lacking_factory.py", "import no_such_library")
    write("misspelled_factory.py", "def make(")
    write("leaving_factory.py", "raise SystemExit(3)")
    write("json.py", GOOD)
    with pytest.raises(FactoryError, match=expected):
        load_factory(text)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("global kept; kept = globals().get('kept') or DataLoader([1], 1); return kept", "the same DataLoader twice"),
        ("return [1, 2]", "it returned <class 'list'>, not a gluonloader.DataLoader"),
        (
            "return DataLoader(range(3), 2, num_workers=0, **options)",
            "it sets num_workers, but the command varies it; write DataLoader",
        ),
        ("return DataLoader(range(3), 2, num_workers=2)", "called with num_workers=0, it returned a loader with num_"),
    ],
)
def test_what_a_factory_does_wrong(write, code, expected):
    write("wrong_factory.py", f"from gluonloader import DataLoader\ndef make(**options):\n    {code}\n")
    make = load_factory("wrong_factory:make")
    with pytest.raises(ValueError, match=expected):
        assert [make(num_workers=0), make(num_workers=0)]


@pytest.mark.parametrize("module", ["gluonloader.torch", "torch.utils.data"])
@pytest.mark.parametrize("passes", ["", "**options"])
def test_a_loader_of_torch_is_read_by_gluonloader_with_the_options(write, module, passes):
    load_or_skip("torch")
    code = f"""
        from {module} import DataLoader
        from torch.utils.data import IterableDataset
        def make({passes}):
            return DataLoader(range(10), 4, shuffle=True, {passes})
        def collected():
            return DataLoader(range(10), 4, collate_fn=list, num_workers=1)
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(6))
        def streamed():
            return DataLoader(Stream(), 4)
    """
    name = f"of_{module.replace('.', '_')}_{len(passes)}"
    write(f"{name}.py", textwrap.dedent(code))
    make = load_factory(f"{name}:make", accepts=["num_workers", "prefetch", "executor"])
    with make(num_workers=2, prefetch=3, executor="thread") as loader:
        assert isinstance(loader, DataLoader)
        assert (loader.num_workers, loader.prefetch, loader.stats().executor) == (2, 3, "thread")
        assert sorted(n for batch in loader for n in batch.tolist()) == list(range(10))
    with load_factory(f"{name}:collected")() as loader:
        assert (loader.num_workers, list(loader)) == (1, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    with load_factory(f"{name}:streamed")() as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]


def test_an_argument_without_default(write):
    write("wrong_factory.py", "def make(path, **options):\n    pass\n")
    with pytest.raises(FactoryError, match="missing a required argument: 'path'; give the argument a default"):
        load_factory("wrong_factory:make")()


def test_errors_of_the_factory_itself_are_not_replaced(write):
    write("raising.py", "def make(**options):\n    raise TypeError('got multiple values for argument x')\n")
    with pytest.raises(TypeError, match="x"):
        load_factory("raising:make")(num_workers=0)
    write("refusing.py", GOOD)
    with pytest.raises(ValueError, match="prefetch=-1") as caught:
        load_factory("refusing:make")(prefetch=-1)
    assert not isinstance(caught.value, FactoryError)


def test_the_current_folder_comes_first(write, tmp_path):
    write("good_factory.py", GOOD)
    load_factory("good_factory:make")
    assert sys.path[0] == os.getcwd() == str(tmp_path.resolve())
