"""gluonloader: a data loader for programs that train with torch, JAX, MXNet or NumPy; it needs only NumPy.

This file exports the names that most programs use. Others are in `gluonloader.text`, `tables`, `buckets`, `vision`,
`records` and `errors`. `options` has objects for arguments of `DataLoader`; `types` has the classes of what programs
get. A module imports only from layers below its layer (tests/test_layers.py checks it):

    types        the classes of what the library returns
    __main__     the command line
    tools        its commands; tools/tuning finds the best arguments of a loader
    serving      one loader for several programs
    mxnet        replaces mxnet.gluon.data
    torch        replaces torch.utils.data.DataLoader
    dropin       what these two share: replacing names, running a script
    bridges, repeated, testing
    comparing    differences between two batches
    loader       DataLoader: builds its parts from its arguments
    iterator     one epoch
    arguments    checks the arguments of a loader, and makes its parts of them
    loading      epochs, plans, choice of executor
    position     where an epoch stands: saved, checked, loaded, merged
    executors    where batches are made: in the caller, in threads, in processes or by Ray
    statistics   how a loader spends its time: counts, advice, traces
    work         a task, and how one batch is made
    vision       images: decoding, datasets, transforms, a pipeline
    records      RecordIO files
    text         tokens: files, rows of several documents, windows, streams
    tables       data frames, Parquet, npy, HDF5 and Zarr files
    batchify, buckets
    dataset, sampler
    stores       objects of stores, read through a folder on a local disk
    guests       what is known of the insides of other libraries
    memory       the memory in which a batch travels between processes
    wire         how processes of one machine meet: names, greetings, messages with descriptors
    frameworks   conversion of arrays of MXNet, torch and JAX to NumPy and back
    options, ranks
    randomness
    rows, segments, lengths
    declared, decoders, describe, indices, limits, replacing, state, tree
    checks
    errors, forks, interrupts, progress, units
    current, locks, messages
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("gluonloader does not run on Windows; install it in WSL 2, the Linux in Windows")

from .batchify import Append, AsList, Dict, Group, Pad, Split, Stack, default_batchify
from .dataset.arrays import ArrayDataset, StackDataset
from .dataset.base import ConcatDataset, Dataset, SimpleDataset, Subset
from .dataset.compact import CompactList
from .dataset.iterable import IterableDataset
from .declared import gil_free, thread_safe
from .loader import DataLoader
from .memory import empty
from .randomness import get_rng
from .ranks import Ranks
from .rows import Rows
from .sampler.base import BatchSampler, Sampler
from .sampler.ordered import FilterSampler, IntervalSampler, SequentialSampler
from .sampler.sharded import ShardedSampler
from .sampler.shuffled import BlockShuffleSampler, RandomSampler, SubsetSampler
from .sampler.weighted import WeightedSampler
from .work.info import get_worker_info
from .work.tolerance import SKIP

if TYPE_CHECKING:
    from .bridges.bridge import bridge
    from .dataset.files import FileDataset
    from .dataset.split import random_split
    from .position.merging import merge_states
    from .repeated import RepeatedBatches
    from .sampler.mixture import MixtureSampler
    from .serving.client import attach
    from .serving.server import serve
    from .stores.cache import NodeCache
    from .tools.tuning.tuner import tune

__all__ = [
    "SKIP", "Append", "ArrayDataset", "AsList", "BatchSampler", "BlockShuffleSampler", "CompactList", "ConcatDataset",
    "DataLoader", "Dataset", "Dict", "FileDataset", "FilterSampler", "Group", "IntervalSampler", "IterableDataset",
    "MixtureSampler", "NodeCache", "Pad", "RandomSampler", "Ranks", "RepeatedBatches", "Rows", "Sampler",
    "SequentialSampler", "ShardedSampler", "SimpleDataset", "Split", "Stack", "StackDataset", "Subset",
    "SubsetSampler", "WeightedSampler", "attach", "bridge", "default_batchify", "empty", "get_rng", "get_worker_info",
    "gil_free", "merge_states", "random_split", "serve", "thread_safe", "tune",
]  # fmt: skip

__version__ = "0.2.0"

# Names that are imported at their first use, and where they are.
_LATER = {
    "FileDataset": "dataset.files", "MixtureSampler": "sampler.mixture", "NodeCache": "stores.cache",
    "RepeatedBatches": "repeated", "attach": "serving.client", "bridge": "bridges.bridge",
    "merge_states": "position.merging", "random_split": "dataset.split", "serve": "serving.server",
    "tune": "tools.tuning.tuner",
}  # fmt: skip
_ROOMS = ("batchify", "buckets", "errors", "options", "records", "tables", "testing", "text", "types", "vision")
_RENAMED = {"CachedLoader": "RepeatedBatches", "PackedList": "CompactList", "TupleDataset": "StackDataset"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a name or a room at its first use; tells where other names are."""
        if name in _ROOMS:
            return importlib.import_module(f".{name}", __name__)
        if name in _LATER:
            value = globals()[name] = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
            return value
        text = f"module {__name__!r} has no attribute {name!r}"
        if name in _RENAMED:
            text += f"; it is called {_RENAMED[name]} now"
        elif not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is None:
            rooms = [room for room in _ROOMS if name in importlib.import_module(f".{room}", __name__).__all__]
            text += "".join([f"; write: from {__name__}.{room} import {name}" for room in rooms[:1]])
        # `from gluonloader import X` would replace the text of an AttributeError.
        is_from = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if is_from and "; " in text else AttributeError)(text)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER, *_ROOMS})
