"""The public interface: exactly the documented names, each with a docstring that says something, and types."""

import importlib
import importlib.resources
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import modules, run_program

import gluonloader

API_PAGE = Path(__file__).parents[1] / "docs" / "api.md"
ROOMS = ("buckets", "errors", "options", "records", "tables", "testing", "text", "types")


def documented_in(place):
    """The names of a place that the API page lists."""
    return re.findall(rf"^   {place.__name__}\.(\w+)$", API_PAGE.read_text(), re.MULTILINE)


PLACES = [
    (place, set(documented_in(place)))
    for place in (gluonloader, *(importlib.import_module(f"gluonloader.{room}") for room in ROOMS))
]

# The positional part is that of mxnet.gluon.data.DataLoader, in its order.
GLUON_ARGUMENTS = [
    "dataset", "batch_size", "shuffle", "sampler", "last_batch", "batch_sampler", "batchify_fn", "num_workers",
    "pin_memory", "pin_device_id", "prefetch", "thread_pool", "timeout", "auto_reload",
]  # fmt: skip
OTHER_ARGUMENTS = [  # a new option belongs to one of these, or to the dataset
    "executor", "output", "seed", "in_order", "worker_init_fn", "worker_payload", "start_method", "memory_limit",
    "ranks", "concurrency", "on_error",
]  # fmt: skip


def tells(docstring):
    """Whether the first paragraph is made of full sentences: several words, and a stop at its end."""
    first = (docstring or "").strip().split("\n\n")[0]
    return re.search(r"\w+\W+\w+", first) is not None and first.rstrip().endswith((".", ":"))


def documented():
    for place, name in [(place, name) for place, names in PLACES for name in sorted(names)]:
        value = getattr(place, name)
        yield name, value.__doc__
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if attribute.startswith("_"):
                    continue
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if inspect.isfunction(member):
                    yield f"{name}.{attribute}", inspect.getdoc(getattr(value, attribute))


def test_the_package_exports_exactly_the_documented_names():
    for place, names in PLACES:
        assert sorted(place.__all__) == sorted(documented_in(place))
        assert names <= set(dir(place))
    assert {name for name in vars(gluonloader) if not name.startswith("_")} - set(dir(gluonloader)) == set()
    assert re.fullmatch(r"\d+\.\d+\.\d+", gluonloader.__version__)


IMPORTS = """
import sys, gluonloader
from gluonloader import dropin
later = {"gluonloader.text", "gluonloader.tools", "gluonloader.types", "gluonloader.vision", "typing_extensions"}
print(sorted(later & set(sys.modules)))
from gluonloader import *
print("gluonloader.tools" in sys.modules, tune is gluonloader.tune)
"""


def test_rooms_and_tools_are_imported_later_and_typing_extensions_by_type_checkers_only():
    done = run_program(IMPORTS)
    assert (done.stdout, done.stderr) == ("[]\nTrue True\n", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TokenDataset", "; write: from gluonloader.text import TokenDataset"),
        ("WorkerDied", "; write: from gluonloader.errors import WorkerDied"),
        ("LoaderStats", "; write: from gluonloader.types import LoaderStats"),
        ("RecordFileDataset", "; write: from gluonloader.records import RecordFileDataset"),
        ("PackedList", "; it is called CompactList now"),
        ("Dataloader", ""),
    ],
)
def test_a_name_that_is_elsewhere_says_where(name, text):
    with pytest.raises(
        AttributeError, match=f"^{re.escape(f'module {gluonloader.__name__!r} has no attribute {name!r}{text}')}$"
    ):
        getattr(gluonloader, name)
    assert not hasattr(gluonloader, name)
    if text:
        with pytest.raises(ImportError, match=f"{re.escape(text)}$"):
            exec(f"from gluonloader import {name}")


def test_everything_public_is_documented():
    assert {name: docstring for name, docstring in documented() if not tells(docstring)} == {}


def test_modules_say_what_they_are_for_and_export_what_they_name():
    names = modules()
    loaded = {name: importlib.import_module(name) for name in names}
    assert [name for name, module in loaded.items() if not tells(module.__doc__)] == []
    # The drop-ins import their names when they are used, for which the framework must be there.
    absent = {f"gluonloader.{part}" for part in ("mxnet", "torch") if f"gluonloader.{part}.dataloader" not in names}
    assert [
        f"{name}.__all__ names {public}, which is not there"
        for name, module in loaded.items()
        for public in getattr(module, "__all__", ())
        if name not in absent and not hasattr(module, public)
    ] == []


def test_public_classes_and_functions_name_their_public_place():
    for place, name in [(place, name) for place, names in PLACES for name in names - {"SKIP"}]:  # it is no class
        value = getattr(place, name)
        assert value.__name__ == name
        assert name in vars(importlib.import_module(value.__module__))


def test_the_loaders_positional_arguments_are_gluons():
    parameters = inspect.signature(gluonloader.DataLoader).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == GLUON_ARGUMENTS
    assert [p.name for p in parameters if p.kind is p.KEYWORD_ONLY] == OTHER_ARGUMENTS
    assert len(parameters) == len(GLUON_ARGUMENTS) + len(OTHER_ARGUMENTS)


def test_the_loaders_docstring_names_every_argument():
    docstring = inspect.getdoc(gluonloader.DataLoader)
    for name in inspect.signature(gluonloader.DataLoader).parameters:
        assert re.search(rf"^    {name}: \S", docstring, re.MULTILINE), name


def test_every_error_is_ours_and_a_built_in_one():
    builtins = {"BatchifyError": ValueError, "BatchTimeout": TimeoutError, "SharedMemoryError": OSError,
                "TransportError": TypeError, "TooManyErrors": RuntimeError, "LoaderClosed": RuntimeError,
                "WorkerDied": RuntimeError, "WorkerStartError": RuntimeError, "MissingExtraError": ImportError,
                "ImageError": ValueError, "RecordError": ValueError}  # fmt: skip
    for name, builtin in builtins.items():
        assert issubclass(getattr(gluonloader.errors, name), gluonloader.errors.GluonLoaderError)
        assert issubclass(getattr(gluonloader.errors, name), builtin)


def test_type_information_is_shipped():
    assert importlib.resources.files("gluonloader").joinpath("py.typed").is_file()


def test_on_windows_the_import_says_what_to_do():
    code = "import sys; sys.platform = 'win32'; import gluonloader"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    text = "ImportError: gluonloader does not run on Windows; install it in WSL 2, the Linux in Windows"
    assert done.stderr.splitlines()[-1] == text
