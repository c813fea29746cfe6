"""The public interface: exactly the documented names, each with a docstring that says something, and types."""

import importlib
import importlib.resources
import inspect
import re
from types import ModuleType

import pytest
from conftest import modules

import gluonloader

PUBLIC = {
    "SKIP", "Append", "ArrayDataset", "ArrowDataset", "AsList", "BatchSampler", "BatchTimeout", "BatchifyError",
    "BlockShuffleSampler", "Bridge", "CachedLoader", "ConcatDataset", "ConstWidthBucket", "DataLoader", "Dataset",
    "Dict", "ExpWidthBucket", "FileDataset", "FilterSampler", "FixedBucketSampler", "GluonLoaderError", "Group",
    "H5Dataset", "ImageError", "IntervalSampler", "IterableDataset", "LinearWidthBucket", "LoaderClosed",
    "MissingExtraError", "MixtureSampler", "NamedTuple", "NpyDataset", "PackRows", "PackedDataset", "PackedList",
    "PackedStream", "PackingSampler", "Pad", "RandomSampler", "Ranks", "RecordError", "Rows", "Sampler",
    "SequentialSampler", "ShardedSampler", "SharedMemoryError", "SimpleDataset", "SortedBucketSampler",
    "SortedSampler", "Split", "SplitSampler", "Stack", "StackDataset", "Subset", "SubsetSampler",
    "TokenBatchSampler", "TokenDataset", "TokenError", "TooManyErrors", "TransportError", "TupleDataset",
    "WeightedSampler", "WorkerDied", "WorkerStartError", "ZarrDataset", "attach", "bridge", "default_batchify",
    "empty", "get_rng", "get_worker_info", "gil_free", "merge_states", "random_split", "serve", "thread_safe",
    "tune",
}  # fmt: skip
RESULTS = {
    "BadSample", "BatchInfo", "BridgeIterator", "ConsumerStats", "EpochStats", "LoaderInfo", "LoaderIterator",
    "LoaderStats", "MemoryStats", "PackedRow", "PackingStats", "Segments", "ServedIterator", "ServedLoader",
    "Server", "ServerStats", "SourceStats", "TokenBatchStats", "Trace", "Trial", "Tuning", "WorkerInfo",
    "WorkerStats",
}  # fmt: skip

# The positional part is that of mxnet.gluon.data.DataLoader, in its order.
GLUON_ARGUMENTS = [
    "dataset", "batch_size", "shuffle", "sampler", "last_batch", "batch_sampler", "batchify_fn", "num_workers",
    "pin_memory", "pin_device_id", "prefetch", "thread_pool", "timeout", "auto_reload",
]  # fmt: skip


def tells(docstring):
    """Whether the first paragraph is made of full sentences: several words, and a stop at its end."""
    first = (docstring or "").strip().split("\n\n")[0]
    return re.search(r"\w+\W+\w+", first) is not None and first.rstrip().endswith((".", ":"))


def documented():
    for name in sorted(PUBLIC | RESULTS):
        value = getattr(gluonloader if name in PUBLIC else gluonloader.types, name)
        yield name, value.__doc__
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if attribute.startswith("_"):
                    continue
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if inspect.isfunction(member):
                    yield f"{name}.{attribute}", inspect.getdoc(getattr(value, attribute))


def test_the_package_exports_exactly_the_documented_names():
    names = {
        name for name, value in vars(gluonloader).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }  # fmt: skip
    assert names == PUBLIC
    assert set(gluonloader.types.__all__) == RESULTS
    assert re.fullmatch(r"\d+\.\d+\.\d+", gluonloader.__version__)


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
    for name in (PUBLIC | RESULTS) - {"SKIP"}:  # neither a class nor a function
        value = getattr(gluonloader if name in PUBLIC else gluonloader.types, name)
        assert value.__name__ == {"TupleDataset": "StackDataset"}.get(name, name)  # torch's and Chainer's names
        assert name in vars(importlib.import_module(value.__module__))


def test_the_names_of_results_can_still_be_imported_from_the_package():
    for name in RESULTS:
        with pytest.warns(DeprecationWarning, match=f"import {name} from gluonloader.types"):
            assert getattr(gluonloader, name) is getattr(gluonloader.types, name)
    with pytest.raises(AttributeError, match="module 'gluonloader' has no attribute 'Dataloader'"):
        _ = gluonloader.Dataloader


def test_the_loaders_positional_arguments_are_gluons():
    parameters = inspect.signature(gluonloader.DataLoader).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == GLUON_ARGUMENTS
    assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)


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
        assert issubclass(getattr(gluonloader, name), (gluonloader.GluonLoaderError))
        assert issubclass(getattr(gluonloader, name), builtin)


def test_type_information_is_shipped():
    assert importlib.resources.files("gluonloader").joinpath("py.typed").is_file()
