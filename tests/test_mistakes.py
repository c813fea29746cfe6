"""Common mistakes of users who know Gluon, torch, NumPy or Keras, and the errors and warnings that answer them.

Each row of the tables contains a description of the mistake, the call, the type of the error or warning, and its
complete text with all notes. In a text, "..." stands for any characters, such as the number of a process.
"""

import bdb
import importlib
import pdb
import re
import sys

import numpy as np
import pytest
from conftest import load_mxnet, load_or_skip

import gluonloader as gl
from gluonloader import (
    ArrayDataset,
    BatchSampler,
    Dict,
    Group,
    Pad,
    RandomSampler,
    SequentialSampler,
    SimpleDataset,
    Stack,
)
from gluonloader.errors import BatchifyError

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)
NUMBERS = list(range(8))
RAGGED = [np.zeros(2), np.zeros(2), np.zeros(3)]
PAIRS = [(np.zeros(2), 0), (np.zeros(3), 1)]
DICTS = [{"x": np.zeros(2), "y": 0}, {"x": np.zeros(3), "y": 1}]
IS_NONE = (
    "it is None, which cannot be stacked (is a `return` missing in the dataset or a transform?); remove such samples "
    "from the dataset, return a placeholder, or pass a batchify_fn that drops None"
)
PADDING = "make the samples equal in size in the dataset, or pad them with Pad() in the batchify_fn"
FIELDS = "a tuple cannot be converted to an array of numbers; use one batchify function for each of its 2 fields, e.g. "


class Unreadable:
    """A dataset whose sample 3 is None."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return None if index == 3 else (np.zeros(2), index)


class Shaped:
    """No array, although it has a shape."""

    def __init__(self, shape):
        self.shape = shape


class OnlyIndexed:
    """Python iterates over it by `__getitem__`, until an IndexError."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


class OnlyIterated:
    """A batch sampler of a user."""

    def __iter__(self):
        return iter([[0, 1], [2, 3]])


class Debugged:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        pdb.Pdb(stdin=sys.stdin).set_trace()  # does the same as pdb.set_trace(), which pytest replaces
        return index


def count():
    yield from NUMBERS


class Ours(gl.DataLoader):
    """A subclass with attributes of its own."""

    seed = None

    def __init__(self, dataset, batch_size, shuffle=False):
        self.shuffle = shuffle
        super().__init__(dataset, batch_size, shuffle)
        self.order = "random" if shuffle else "sequential"


def load(*args, **kwargs):
    """All batches of a loader."""
    with gl.DataLoader(*args, **kwargs) as loader:
        return list(loader)


def closed():
    loader = gl.DataLoader(NUMBERS, 2)
    loader.close()
    iter(loader)


def resume(state, dataset=NUMBERS, **kwargs):
    gl.DataLoader(dataset, 2, **kwargs).load_state_dict(state)


def saved():
    return gl.DataLoader(NUMBERS, 2, shuffle=True).state_dict()


def torch_loader():
    return load_or_skip("torch.utils.data").DataLoader(NUMBERS, 2)


def torch_sampler():
    return load_or_skip("torch.utils.data").DistributedSampler(NUMBERS, 2, 0)


def torch_batches():
    data = load_or_skip("torch.utils.data")
    return data.BatchSampler(data.RandomSampler(NUMBERS), 2, False)


def mxnet_sampler():
    gluon("mxnet")  # skips the test without MXNet
    return load_mxnet().gluon.data.RandomSampler(8)


class Pairs:
    """A user's sampler."""

    def __len__(self):
        return 6

    def __iter__(self):
        return iter([0, 1, 2, 3, 4, 5])


def outlived(**kwargs):
    """Uses an iterator after the `with` block of its loader."""
    with gl.DataLoader(NUMBERS, 2, **kwargs) as loader:
        iterator = iter(loader)
    next(iterator)


def change(name, value, loader=None):
    setattr(loader or gl.DataLoader(NUMBERS, 2), name, value)


def frame():
    return load_or_skip("pandas").DataFrame({"x": [1, 2, 3]})


def gluon(name):
    """The module `gluonloader.<name>`, which replaces a module of Gluon."""
    if load_mxnet() is None:
        pytest.skip("needs mxnet")
    return importlib.import_module(f"gluonloader.{name}")


def torch_loaders():
    """The module `gluonloader.torch`, which replaces the loader of torch."""
    load_or_skip("torch")
    return importlib.import_module("gluonloader.torch")


# Earlier versions reported no error for these mistakes, or an error that did not name the cause.
SILENT = [
    (
        "the class Pad instead of an object",
        lambda: load(RAGGED, 3, batchify_fn=Pad),
        ValueError,
        "batchify_fn=<class 'gluonloader.batchify.functions.Pad'>: it is a class; pass an object of the class: Pad()",
    ),
    (
        "a tuple of arrays as dataset",
        lambda: load((X, X + 1), 2),
        RuntimeWarning,
        "dataset: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean ArrayDataset(X, Y)? If "
        "each array is a sample, pass a list, not a tuple",
    ),
    (
        "a dict in ArrayDataset",
        lambda: ArrayDataset({"x": Y}),
        ValueError,
        "arrays[0]={'x': array([0, 1, 2, 3, 4, 5])}: its keys are strings, not indices; pass "
        "StackDataset(**arrays[0]), whose samples are dicts",
    ),
    (
        "last_batch='discard' with a batch that is larger than the dataset",
        lambda: load(NUMBERS, 32, last_batch="discard"),
        RuntimeWarning,
        "last_batch='discard' drops all 8 samples, which are fewer than batch_size=32, so the loader yields no "
        "batches; pass a smaller batch_size, or last_batch='keep'",
    ),
    (
        "Pad() for tuples",
        lambda: load(PAIRS, 2, batchify_fn=Pad()),
        BatchifyError,
        f"sample 0 (row 0 of batch 0): {FIELDS}Group(Pad(), Stack())",
    ),
    (
        "the class RandomSampler instead of an object",
        lambda: load(NUMBERS, 2, sampler=RandomSampler),
        ValueError,
        "sampler=<class 'gluonloader.sampler.shuffled.RandomSampler'>: it is a class; pass an object of the class: "
        "RandomSampler(len(dataset))",
    ),
    (
        "torch's order of arguments",
        lambda: load(NUMBERS, 4, True, None, None, 4),
        ValueError,
        "batch_sampler=4 is an int, but must be an iterable of lists of indices; if you passed the arguments in the "
        "order of torch, pass num_workers=4 by name",
    ),
    (
        "None as a sample",
        lambda: load(Unreadable(), 2),
        BatchifyError,
        f"sample 3 (row 1 of batch 1): {IS_NONE}",
    ),
    (
        "a debugger in a worker",
        lambda: load(Debugged(), 2, num_workers=1),
        bdb.BdbQuit,
        "\ngluonloader: in dataset[0], batch 0 of epoch 0\n"
        "gluonloader: a debugger cannot run in a worker process, because the worker has no standard input; pass "
        "num_workers=0\n"
        "gluonloader: in worker 0 (pid ...)",
    ),
]

DATASETS = [
    (
        "a class as dataset",
        lambda: load(SimpleDataset, 2),
        ValueError,
        "dataset: <class 'gluonloader.dataset.base.SimpleDataset'> is a class; pass an object that supports "
        "len(dataset), e.g. a list, or pass IterableDataset(iterable)",
    ),
    (
        "a zip as dataset",
        lambda: load(zip(X, Y, strict=True), 2),
        ValueError,
        "dataset=<zip object at ...>: it can be iterated only once; pass a function that makes a new iterator: "
        "IterableDataset(make)",
    ),
    (
        "a generator function as dataset",
        lambda: load(count, 2),
        ValueError,
        "dataset: <class 'function'>; it is a generator function; pass IterableDataset(count)",
    ),
    (
        "a generator as dataset",
        lambda: load(count(), 2),
        ValueError,
        "dataset: <class 'generator'>; it can be iterated only once; pass the function that makes it: "
        "IterableDataset(count)",
    ),
    (
        "a generator expression as dataset",
        lambda: load((number for number in NUMBERS), 2),
        ValueError,
        "dataset: <class 'generator'>; it can be iterated only once; pass the function that makes it: "
        "IterableDataset(make)",
    ),
    (
        "a function as dataset",
        lambda: load(lambda: iter(NUMBERS), 2),
        ValueError,
        "dataset: <class 'function'>; it is a function; if it returns an iterator of samples, pass "
        "IterableDataset(make)",
    ),
    (
        "a set as dataset",
        lambda: load({1, 2}, 2),
        ValueError,
        "dataset={1, 2}: the order of a set differs between processes; pass a list, e.g. sorted(...)",
    ),
    (
        "a dict of arrays as dataset",
        lambda: load({"x": X, "y": Y}, 2),
        ValueError,
        "dataset: <class 'dict'>; its keys are strings, not indices; pass StackDataset(**dataset), whose samples are "
        "dicts, or pass a sampler of its keys",
    ),
    (
        "a path as dataset",
        lambda: load("data/train", 2),
        ValueError,
        "dataset: <class 'str'>; pass a dataset that reads the file, e.g. ArrowDataset(path) for Parquet, or list(text)"
        " for characters",
    ),
    (
        "a number as dataset",
        lambda: load(100, 2),
        ValueError,
        "dataset: <class 'int'> has no __len__; pass an object that supports len(dataset), e.g. a list, or pass "
        "IterableDataset(iterable)",
    ),
    (
        "a data frame as dataset",
        lambda: load(frame(), 2),
        ValueError,
        "dataset: <class 'pandas...DataFrame'>; pass ArrowDataset(table), whose samples are the rows of the table",
    ),
    (
        "a loader as dataset",
        lambda: load(gl.DataLoader(NUMBERS, 2), 2),
        ValueError,
        "dataset: <class 'gluonloader.loader.DataLoader'>; it yields batches, not samples; pass its dataset, or use "
        "bridge(loader) to read its batches ahead",
    ),
    (
        "a loader of torch as dataset",
        lambda: load(torch_loader(), 2),
        ValueError,
        "dataset: <class 'torch.utils.data.dataloader.DataLoader'>; it yields batches, not samples; pass its dataset, "
        "or use bridge(loader) to read its batches ahead",
    ),
    (
        "two arrays instead of a dataset",
        lambda: load(X, Y, 2),
        ValueError,
        "batch_size=array([0, 1, 2, 3, 4, 5]): must be an int >= 1; to load several arrays, call "
        "DataLoader(ArrayDataset(X, Y), batch_size)",
    ),
    (
        "arrays of different lengths",
        lambda: ArrayDataset(X, Y[:4]),
        ValueError,
        "ArrayDataset: the arrays have lengths [6, 4]; all must have the same length",
    ),
    (
        "a tuple of arrays in ArrayDataset",
        lambda: ArrayDataset((X, Y)),
        RuntimeWarning,
        "arrays[0]: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean ArrayDataset(X, Y)? If "
        "each array is a sample, pass a list, not a tuple",
    ),
    (
        "a generator in ArrayDataset",
        lambda: ArrayDataset(Y, (row for row in X)),
        ValueError,
        "arrays[1]=<generator object ...>: it has no length; pass a list, an array or a dataset with __len__",
    ),
    (
        "a set in ArrayDataset",
        lambda: ArrayDataset({1, 2}),
        ValueError,
        "arrays[0]={1, 2}: it cannot be indexed; pass a list, an array or a dataset with __getitem__",
    ),
    (
        "a transform that is a class",
        lambda: SimpleDataset(X).transform(Stack),
        ValueError,
        "fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()",
    ),
    (
        "a transform of an iterable dataset that is a class",
        lambda: gl.IterableDataset(NUMBERS).transform(Stack),
        ValueError,
        "fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()",
    ),
    (
        "the result of a transform instead of the function",
        lambda: SimpleDataset(Y).transform(abs(-3)),
        ValueError,
        "fn=3: must be a function",
    ),
    (
        "None as transform",
        lambda: SimpleDataset(X).transform_first(None),
        ValueError,
        "fn=None: must be a function",
    ),
    (
        "a second transform, for the labels",
        lambda: ArrayDataset(X, Y).transform(str, abs),
        ValueError,
        "lazy=<built-in function abs>: must be True or False",
    ),
    (
        "a transform of the image for samples of two fields",
        lambda: load(ArrayDataset(X, Y).transform(lambda image: image), 2),
        TypeError,
        "...takes 1 positional argument but 2 were given\ngluonloader: the sample has type tuple, so transform calls "
        "fn(*sample) with 2 arguments; transform_first(fn) passes only the first field\n"
        "gluonloader: in dataset[0], batch 0 of epoch 0",
    ),
    (
        "a transform of two fields for samples that are lists",
        lambda: load(SimpleDataset([[1, 2], [3, 4]]).transform(lambda image, label: image), 2),
        TypeError,
        "...missing 1 required positional argument: 'label'\ngluonloader: the sample has type list, so transform calls "
        "fn(sample); only the fields of a tuple are passed as separate arguments\n"
        "gluonloader: in dataset[0], batch 0 of epoch 0",
    ),
    (
        "a transform without `return`",
        lambda: load(SimpleDataset(X).transform(lambda row: None), 2),
        BatchifyError,
        f"sample 0 (row 0 of batch 0): {IS_NONE}",
    ),
    (
        "a number of samples as text",
        lambda: SimpleDataset(X).take("3"),
        ValueError,
        "count='3': must be an int >= 0, or None for all samples",
    ),
    (
        "a number of shards that is a float",
        lambda: SimpleDataset(X).shard(6 / 2, 0),
        ValueError,
        "num_shards=3.0: must be an int >= 1",
    ),
    (
        "lengths that are not a list",
        lambda: gl.random_split(NUMBERS, "0.8"),
        ValueError,
        "lengths='0.8': must be a list, e.g. [0.8, 0.2]",
    ),
]

ARGUMENTS = [
    (
        "no batch_size",
        lambda: load(NUMBERS, shuffle=True),
        ValueError,
        "batch_size is missing; pass batch_size or batch_sampler",
    ),
    (
        "batch_size as text",
        lambda: load(NUMBERS, "32"),
        ValueError,
        "batch_size='32': must be the number of samples in a batch, an int >= 1",
    ),
    (
        "batch_size as a float",
        lambda: load(NUMBERS, 64 / 2),
        ValueError,
        "batch_size=32.0: must be the number of samples in a batch, an int >= 1",
    ),
    (
        "a negative batch_size",
        lambda: load(NUMBERS, -1),
        ValueError,
        "batch_size=-1: must be the number of samples in a batch, an int >= 1",
    ),
    (
        "shuffle as text",
        lambda: load(NUMBERS, 2, shuffle="yes"),
        ValueError,
        "shuffle='yes': must be True or False",
    ),
    (
        "the value of torch's drop_last",
        lambda: load(NUMBERS, 2, last_batch=True),
        ValueError,
        "last_batch=True: must be 'keep', 'discard' or 'rollover'; to drop a last batch that is too short, pass "
        "'discard'",
    ),
    (
        "last_batch='drop'",
        lambda: load(NUMBERS, 2, last_batch="drop"),
        ValueError,
        "last_batch='drop': must be 'keep', 'discard' or 'rollover'; to drop a last batch that is too short, pass "
        "'discard'",
    ),
    (
        "a misspelled last_batch",
        lambda: load(NUMBERS, 2, last_batch="roll_over"),
        ValueError,
        "last_batch='roll_over': must be 'keep', 'discard' or 'rollover'; did you mean 'rollover'?",
    ),
    (
        "a misspelled executor",
        lambda: load(NUMBERS, 2, num_workers=1, executor="threads"),
        ValueError,
        "executor='threads': must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers; "
        "did you mean 'thread'?",
    ),
    (
        "a misspelled start method",
        lambda: load(NUMBERS, 2, num_workers=1, start_method="fork-server"),
        ValueError,
        "start_method='fork-server': must be one of ['fork', 'forkserver', 'spawn'], or None; did you mean "
        "'forkserver'?",
    ),
    (
        "ranks of an unknown launcher",
        lambda: load(NUMBERS, 2, ranks="Torch"),
        ValueError,
        "ranks='Torch': must be 'torch', 'mpi' or 'env'; did you mean 'torch'?",
    ),
    (
        "torch's drop_last",
        lambda: load(NUMBERS, 2, drop_last=True),
        TypeError,
        'DataLoader() has no argument drop_last: pass last_batch="discard" instead',
    ),
    (
        "torch's collate_fn",
        lambda: load(NUMBERS, 2, collate_fn=list),
        TypeError,
        "DataLoader() has no argument collate_fn: pass batchify_fn instead",
    ),
    (
        "a misspelled argument",
        lambda: load(NUMBERS, batchsize=2),
        TypeError,
        "DataLoader() got an unexpected keyword argument 'batchsize'; did you mean batch_size?",
    ),
    (
        "the workers of Keras",
        lambda: load(NUMBERS, 2, workers=4),
        TypeError,
        "DataLoader() got an unexpected keyword argument 'workers'; did you mean num_workers?",
    ),
    (
        "True as num_workers, for pin_memory in torch's order",
        lambda: load(NUMBERS, 2, False, None, None, None, None, True),
        ValueError,
        "num_workers=True: must be an int >= 0",
    ),
    (
        "num_workers as text",
        lambda: load(NUMBERS, 2, num_workers="4"),
        ValueError,
        "num_workers='4': must be an int >= 0, or 'auto'",
    ),
    (
        "prefetch as a float",
        lambda: load(NUMBERS, 2, num_workers=1, prefetch=2.0),
        ValueError,
        "prefetch=2.0: must be an int >= 0",
    ),
    (
        "thread_pool as text",
        lambda: load(NUMBERS, 2, num_workers=1, thread_pool="no"),
        ValueError,
        "thread_pool='no': must be True or False",
    ),
    (
        "timeout as a bool",
        lambda: load(NUMBERS, 2, timeout=True),
        ValueError,
        "timeout=True: must be a number of seconds > 0, or None to wait without limit",
    ),
    (
        "a generator as seed",
        lambda: load(NUMBERS, 2, seed=np.random.default_rng(1)),
        ValueError,
        "seed=Generator(PCG64)...: must be an int",
    ),
    (
        "a framework that is not supported",
        lambda: load(NUMBERS, 2, output="tensorflow"),
        ValueError,
        "output='tensorflow': must be one of 'numpy', 'mxnet', 'torch', 'jax', a function of one array, or None",
    ),
    (
        "the class of an array as output",
        lambda: load(NUMBERS, 2, output=np.ndarray),
        ValueError,
        "output=<class 'numpy.ndarray'>: it is a class of arrays; pass output='numpy'",
    ),
    (
        "the class of tensors as output",
        lambda: load(NUMBERS, 2, output=load_or_skip("torch").Tensor),
        ValueError,
        "output=<class 'torch.Tensor'>: it is a class of arrays; pass output='torch'",
    ),
    (
        "a memory limit without a number",
        lambda: load(NUMBERS, 2, memory_limit="lots"),
        ValueError,
        "memory_limit='lots': pass at least 1,048,576 bytes, as an int or as text such as \"256MB\", or None for no "
        "limit",
    ),
    (
        "a prefetch of 1,000,000 batches of an array",
        lambda: gl.DataLoader(np.zeros((3000, 16)), 1, num_workers=1, prefetch=10**6).close(),
        RuntimeWarning,
        "prefetch=1,000,000: workers may make 3,000 batches, which is all of an epoch, before the program asks for "
        "them; all stay in memory (about 375 kB); pass a smaller prefetch, or remove it for the default of 2",
    ),
    (
        "a prefetch of 1,000,000 batches of an unknown size",
        lambda: gl.DataLoader(gl.IterableDataset(count), 2, num_workers=1, prefetch=10**6).close(),
        RuntimeWarning,
        "prefetch=1,000,000: workers may make 1,000,000 batches before the program asks for them; all stay in memory "
        "(977 GB if each of them takes 1 MB); pass a smaller prefetch, or remove it for the default of 2",
    ),
    (
        "ranks and a sampler of ranks",
        lambda: load(NUMBERS, 2, seed=0, ranks=(0, 2), sampler=gl.ShardedSampler(NUMBERS, 2, 0)),
        ValueError,
        "ranks=(0, 2): sampler=ShardedSampler(...) already divides the samples among the ranks; remove one of them: "
        "remove ranks, or pass shuffle=True or a sampler that yields the whole order",
    ),
    (
        "ranks and a batch sampler of ranks",
        lambda: load(NUMBERS, seed=0, ranks=(0, 2), batch_sampler=BatchSampler(torch_sampler(), 2, "keep")),
        ValueError,
        "ranks=(0, 2): batch_sampler=BatchSampler(...) already divides the samples among the ranks; remove one of "
        "them: remove ranks, or pass shuffle=True or a sampler that yields the whole order",
    ),
    (
        "a random order that differs between ranks",
        lambda: load(NUMBERS, 2, seed=0, ranks=(0, 2), sampler=gl.RandomSampler(6)),
        ValueError,
        "sampler=RandomSampler(6): this RandomSampler has no seed, so its order differs between the ranks; pass "
        "seed=... to the RandomSampler, with one seed for all ranks, or pass shuffle=True and seed=... to the loader "
        "instead",
    ),
    (
        "a batch sampler of torch whose order differs between ranks",
        lambda: load(NUMBERS, ranks=(0, 2), batch_sampler=torch_batches()),
        ValueError,
        "batch_sampler=<...BatchSampler object at ...>: this RandomSampler has no seed, so its order differs between "
        "the ranks; pass a seeded generator if it accepts one, with one seed for all ranks",
    ),
    (
        "a random sampler of MXNet",
        lambda: load(NUMBERS, 2, ranks=(0, 2), sampler=mxnet_sampler()),
        ValueError,
        "sampler=<...RandomSampler object at ...>: this RandomSampler has no seed, so its order differs between the "
        "ranks; pass a seeded generator if it accepts one, with one seed for all ranks, or pass shuffle=True and "
        "seed=... to the loader instead",
    ),
    (
        "shuffling without a seed over ranks",
        lambda: load(NUMBERS, 2, shuffle=True, ranks=(0, 2)),
        ValueError,
        "ranks=(0, 2): without a seed, each process draws its own one; pass the same seed on all ranks, e.g. seed=0",
    ),
    (
        "a sampler that ranks may see in different orders",
        lambda: load(NUMBERS, 2, ranks=(0, 2), sampler=Pairs()),
        RuntimeWarning,
        "sampler=Pairs(6): 2 ranks divide its order, so it has to yield the same order on all ranks, but this loader "
        "cannot compare them; see that it does, e.g. by the same seed, and pass ranks=Ranks(..., gather=...), which "
        "compares the orders and ends this warning",
    ),
    (
        "ranks and a sampler of ranks for an iterable dataset",
        lambda: load(gl.IterableDataset(count), 2, seed=0, ranks=(0, 2), sampler=torch_sampler()),
        ValueError,
        "sampler=<...DistributedSampler object at ...>: ranks and sampler=DistributedSampler(...) both divide the "
        "samples among the ranks; remove one of them: remove sampler, since IterableDataset sets the order itself",
    ),
    (
        "a lambda in a worker that is spawned",
        lambda: load(NUMBERS, 2, batchify_fn=lambda samples: samples, num_workers=1, start_method="spawn"),
        gl.errors.TransportError,
        "start_method='spawn' needs to pickle batchify_fn, but this failed: Can't ...lambda.... Define its "
        "functions and classes at the top level of a module, or use start_method='fork'",
    ),
    (
        "a worker_init_fn without an argument",
        lambda: load(NUMBERS, 2, num_workers=1, worker_init_fn=lambda: None),
        gl.errors.WorkerStartError,
        "worker 0 (pid ...) could not start: TypeError: ...takes 0 positional arguments but 1 was given",
    ),
]

SAMPLERS = [
    (
        "a generator as sampler",
        lambda: load(NUMBERS, 2, sampler=(i for i in NUMBERS)),
        ValueError,
        "sampler=<generator object ...>: it can be iterated only once; pass a list or a Sampler of indices",
    ),
    (
        "a mask as sampler",
        lambda: load(Y, 2, sampler=Y < 2),
        ValueError,
        "sampler=array([ True,  True, False, False, False, False]): it is a mask; pass the indices where it is true: "
        "np.flatnonzero(mask)",
    ),
    (
        "a batch sampler as sampler",
        lambda: load(X, 2, sampler=BatchSampler(range(6), 2)),
        ValueError,
        "sampler=BatchSampler(range(6), batch_size=2): it yields lists of indices; pass it as batch_sampler",
    ),
    (
        "a name as sampler",
        lambda: load(NUMBERS, 2, sampler="random"),
        ValueError,
        "sampler='random': must be an iterable of indices; for a random order, pass shuffle=True",
    ),
    (
        "floats as indices",
        lambda: load(NUMBERS, 2, sampler=[0.0, 1.0]),
        TypeError,
        "list indices must be integers or slices, not float\ngluonloader: in dataset[0.0], batch 0 of epoch 0",
    ),
    (
        "an index after the end",
        lambda: load(NUMBERS, 2, sampler=[0, 1, 8]),
        IndexError,
        "list index out of range\ngluonloader: in dataset[8] of 8 samples, batch 1 of epoch 0",
    ),
    (
        "a sampler as batch_sampler",
        lambda: load(NUMBERS, batch_sampler=SequentialSampler(8)),
        ValueError,
        "batch_sampler=SequentialSampler(8): it yielded 0 for batch 0; it must yield lists of at least one index",
    ),
    (
        "batch_sampler and batch_size",
        lambda: load(NUMBERS, 2, batch_sampler=[[0, 1]]),
        ValueError,
        "batch_sampler replaces batch_size, shuffle, sampler and last_batch; remove them",
    ),
    (
        "a dataset instead of its length",
        lambda: RandomSampler(NUMBERS),
        ValueError,
        "length=[0, 1, 2, 3, 4, 5, 6, 7]: must be the number of samples, an int >= 0, e.g. len(dataset)",
    ),
    (
        "a length instead of a sampler",
        lambda: BatchSampler(8, 2),
        ValueError,
        "sampler=8: must be an iterable of indices",
    ),
    (
        "the class of a sampler in a batch sampler",
        lambda: BatchSampler(SequentialSampler, 2),
        ValueError,
        "sampler=<class 'gluonloader.sampler.ordered.SequentialSampler'>: it is a class; pass an object of the class: "
        "SequentialSampler(len(dataset))",
    ),
    (
        "negative weights",
        lambda: gl.WeightedSampler([1, -1]),
        ValueError,
        "weights: pass a number >= 0 for each sample, and at least one number > 0; weights[1] is -1.0",
    ),
]

BATCHIFY = [
    (
        "Stack() for arrays of different lengths",
        lambda: load(RAGGED, 3, batchify_fn=Stack()),
        BatchifyError,
        f"sample 2 (row 2 of batch 0): it has shape (3,), but other samples have shape (2,); {PADDING}",
    ),
    (
        "tuples with arrays of different lengths",
        lambda: load(PAIRS, 2),
        BatchifyError,
        f"sample 1 (row 1 of batch 0) at [0]: it has shape (3,), but other samples have shape (2,); {PADDING}",
    ),
    (
        "lists of different lengths",
        lambda: load([[1, 2], [3]], 2),
        BatchifyError,
        f"sample 1 (row 1 of batch 0): it has 1 fields, but other samples have 2 fields; {PADDING}",
    ),
    (
        "None as a sample, with Group",
        lambda: load(Unreadable(), 6, batchify_fn=Group(Pad(), Stack())),
        BatchifyError,
        f"sample 3 (row 3 of batch 0): {IS_NONE}",
    ),
    (
        "None as a sample, with Stack",
        lambda: load(Unreadable(), 6, batchify_fn=Stack()),
        BatchifyError,
        f"sample 3 (row 3 of batch 0): {IS_NONE}",
    ),
    (
        "None as a sample, among large arrays",
        lambda: load([np.zeros(1 << 14), None, np.zeros(1 << 14)], 3),
        BatchifyError,
        f"sample 1 (row 1 of batch 0): {IS_NONE}",
    ),
    (
        "None as a field",
        lambda: load([(1, 2), (3, None)], 2),
        BatchifyError,
        f"sample 1 (row 1 of batch 0) at [1]: {IS_NONE}",
    ),
    (
        "Pad() for dicts",
        lambda: load(DICTS, 2, batchify_fn=Pad()),
        BatchifyError,
        "sample 0 (row 0 of batch 0): a dict cannot be converted to an array of numbers; use one batchify function "
        "for each key, e.g. Dict({'x': Stack(), ...})",
    ),
    (
        "Group for dicts",
        lambda: load(DICTS, 2, batchify_fn=Group(Pad(), Stack())),
        BatchifyError,
        "sample 0 (row 0 of batch 0): it has type dict, but Group needs a tuple or list of 2 fields",
    ),
    (
        "Dict for tuples",
        lambda: load(PAIRS, 2, batchify_fn=Dict({"x": Pad()})),
        BatchifyError,
        "sample 0 (row 0 of batch 0): it has type tuple, but Dict needs a dict",
    ),
    (
        "too few functions in Group",
        lambda: load([(1, 2, 3)] * 2, 2, batchify_fn=Group(Stack(), Stack())),
        BatchifyError,
        "sample 0 (row 0 of batch 0): it has 3 fields, but Group has 2 functions; pass Group one function for each "
        "field",
    ),
    (
        "classes in Group",
        lambda: Group(Stack, Pad),
        ValueError,
        "fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()",
    ),
    (
        "dicts with different keys",
        lambda: load([{"x": 1, "y": 2}, {"x": 3}], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has no key 'y', but other samples have 'x', 'y'; return the same keys from "
        "each sample in the dataset, or select keys by Dict({'x': Stack()}) in the batchify_fn",
    ),
    (
        "dicts without a common key",
        lambda: load([{"x": 1}, {"y": 3}], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has no key 'x' and extra key 'y', but other samples have 'x'; return the same "
        "keys from each sample in the dataset",
    ),
    (
        "dicts without a key of Dict",
        lambda: load([{"x": 1}, {"y": 3}], 2, batchify_fn=Dict({"x": Stack()})),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has no key 'x', for which Dict has a function; return the same keys from each "
        "sample in the dataset",
    ),
    (
        "arrays of NumPy and tensors",
        lambda: load([{"x": np.zeros(2)}, {"x": load_or_skip("torch").zeros(2)}], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0) at ['x']: it has type Tensor, but other samples have type ndarray; make the "
        "samples equal in type in the dataset, e.g. by torch.as_tensor(x)",
    ),
    (
        "texts and numbers",
        lambda: load([(1, "a"), (2, 3)], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0) at [1]: it has type int, but other samples have type str; make the samples equal "
        "in type in the dataset",
    ),
    (
        "tuples of different lengths",
        lambda: load([(1, 2), (3,)], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has 1 fields, but other samples have 2 fields; make the samples equal in "
        "length in the dataset",
    ),
    (
        "images with and without channels",
        lambda: load([np.zeros((4, 4, 3)), np.zeros((4, 4))], 2),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has shape (4, 4), but other samples have shape (4, 4, 3); make the samples "
        "equal in shape in the dataset",
    ),
    (
        "Pad() along one axis for arrays that differ along another",
        lambda: load([np.zeros((2, 3)), np.zeros((4, 5))], 2, batchify_fn=Pad(axis=0)),
        BatchifyError,
        "sample 1 (row 1 of batch 0): it has size 5 along axis 1, but other samples have size 3 along axis 1; make the "
        "samples equal in size along axis 1 in the dataset, or pass axis=None to Pad",
    ),
    (
        "the name of a batchify function",
        lambda: load(RAGGED, 3, batchify_fn="pad"),
        ValueError,
        "batchify_fn='pad': must be a function or None",
    ),
    (
        "a batchify_fn with an argument for each field",
        lambda: load(PAIRS, 2, batchify_fn=lambda images, labels: images),
        TypeError,
        "...missing 1 required positional argument: 'labels'\ngluonloader: in batchify_fn, batch 0 of epoch 0",
    ),
    (
        "samples of a class that cannot be stacked",
        lambda: load([object()] * 2, 2),
        BatchifyError,
        "sample 0 (row 0 of batch 0): cannot make a batch of builtins.object objects; return arrays, numbers, str, "
        "bytes, or tuples, lists, dicts and dataclasses of them, or pass a batchify_fn: AsList() keeps a list of "
        "anything",
    ),
]

USE = [
    (
        "iterating over a closed loader",
        closed,
        gl.errors.LoaderClosed,
        "this DataLoader is closed; make a new one, or iterate inside its `with` block",
    ),
    (
        "next() of a loader",
        lambda: next(gl.DataLoader(NUMBERS, 2)),
        TypeError,
        "'DataLoader' object is not an iterator",
    ),
    (
        "a batch by its number",
        lambda: gl.DataLoader(NUMBERS, 2)[0],
        TypeError,
        "'DataLoader' object is not subscriptable",
    ),
    (
        "the length of a loader over a generator",
        lambda: len(gl.DataLoader(gl.IterableDataset(lambda: iter(NUMBERS)), 2)),
        TypeError,
        "object of type 'IterableDataset' has no len(); define __len__ in the dataset or sampler if the length is "
        "known, or count the batches in the loop",
    ),
    (
        "the length of a loader whose sampler has none",
        lambda: len(gl.DataLoader(NUMBERS, batch_sampler=OnlyIterated())),
        TypeError,
        "object of type 'OnlyIterated' has no len(); define __len__ in the dataset or sampler if the length is known, "
        "or count the batches in the loop",
    ),
    (
        "an epoch as text",
        lambda: gl.DataLoader(NUMBERS, 2).set_epoch("1"),
        ValueError,
        "epoch='1': must be an int >= 0",
    ),
    (
        "None as state",
        lambda: resume(None),
        ValueError,
        "state: it is a NoneType; pass what state_dict() returned, or its JSON text",
    ),
    (
        "the path of a saved state",
        lambda: resume("state.json"),
        ValueError,
        "state: the text is not complete JSON (...); pass all that state_dict() returned; if it is in a file, pass "
        "the text of the file, not the path",
    ),
    (
        "the state of a model",
        lambda: resume({"weight": X}),
        ValueError,
        "state: version is missing: the state is incomplete, or another kind of loader saved it",
    ),
    (
        "the state of another dataset",
        lambda: resume(saved(), range(10), shuffle=True),
        ValueError,
        "state: length=8: this dataset has length=10; it must be the same as in the state",
    ),
    (
        "the state of a loader that shuffles",
        lambda: resume(saved()),
        ValueError,
        "state: sampler.kind='RandomSampler': this sampler has kind='SequentialSampler'; it must be the same as in the "
        "state",
    ),
]

BLOCK_ENDED = (
    "the `with` block of the loader has ended, which has closed the loader and this iterator; iterate inside the "
    "block, or make a new loader"
)
ATTRIBUTES = [
    ("an iterator after the block of its loader", outlived, gl.errors.LoaderClosed, BLOCK_ENDED),
    (
        "an iterator after the block of its loader with workers",
        lambda: outlived(num_workers=1),
        gl.errors.LoaderClosed,
        BLOCK_ENDED,
    ),
    (
        "shuffle of a loader",
        lambda: change("shuffle", True),
        AttributeError,
        "shuffle of a DataLoader cannot be changed; pass it to the constructor: DataLoader(..., shuffle=True)",
    ),
    (
        "a misspelled attribute",
        lambda: change("bathc_size", 3),
        AttributeError,
        "a DataLoader has no attribute bathc_size; did you mean batch_size? It cannot be changed; pass it to the "
        "constructor: DataLoader(..., batch_size=3)",
    ),
    (
        "an attribute of torch's loader",
        lambda: change("prefetch_factor", 4),
        AttributeError,
        "a DataLoader has no attribute prefetch_factor; make a new one: pass prefetch=prefetch_factor * num_workers, "
        "the number of batches for all workers together",
    ),
    (
        "an argument as attribute of a subclass",
        lambda: change("output", np.zeros(3), Ours(NUMBERS, 2)),
        AttributeError,
        "output of a DataLoader cannot be changed; pass it to the constructor: DataLoader(..., output=...)",
    ),
]

GLUON = [
    (
        "Gluon: the class Pad",
        lambda: gluon("mxnet").DataLoader(RAGGED, 3, batchify_fn=gluon("mxnet.batchify").Pad),
        ValueError,
        "batchify_fn=<class 'gluonloader.mxnet.batchify.Pad'>: it is a class; pass an object of the class: Pad()",
    ),
    (
        "Gluon: a dict in ArrayDataset",
        lambda: gluon("mxnet").ArrayDataset({"x": Y}),
        ValueError,
        "arrays[0]={'x': array([0, 1, 2, 3, 4, 5])}: its keys are strings, not indices; pass "
        "StackDataset(**arrays[0]), whose samples are dicts",
    ),
    (
        "Gluon: a tuple of arrays as dataset",
        lambda: gluon("mxnet").DataLoader((X, Y), 2),
        RuntimeWarning,
        "dataset: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean ArrayDataset(X, Y)? If "
        "each array is a sample, pass a list, not a tuple",
    ),
    (
        "Gluon: Pad() for tuples",
        lambda: list(gluon("mxnet").DataLoader(PAIRS, 2, batchify_fn=gluon("mxnet.batchify").Pad())),
        BatchifyError,
        f"sample 0 (row 0 of batch 0): {FIELDS}Group(Pad(), Stack())",
    ),
    (
        "Gluon: None as a sample",
        lambda: list(gluon("mxnet").DataLoader(Unreadable(), 2)),
        BatchifyError,
        f"sample 3 (row 1 of batch 1): {IS_NONE}",
    ),
    (
        "Gluon: torch's order of arguments",
        lambda: gluon("mxnet").DataLoader(NUMBERS, 4, True, None, None, 4),
        ValueError,
        "batch_sampler=4 is an int, but must be an iterable of lists of indices; if you passed the arguments in the "
        "order of torch, pass num_workers=4 by name",
    ),
    (
        "Gluon: a misspelled argument",
        lambda: gluon("mxnet").DataLoader(NUMBERS, batchsize=2),
        TypeError,
        "DataLoader() got an unexpected keyword argument 'batchsize'; did you mean batch_size?",
    ),
]

TORCH = [
    (
        "torch: a misspelled argument",
        lambda: torch_loaders().DataLoader(NUMBERS, num_worker=2),
        TypeError,
        "DataLoader() got an unexpected keyword argument 'num_worker'; did you mean num_workers?",
    ),
    (
        "torch: an argument of gluonloader.DataLoader that torch names otherwise",
        lambda: torch_loaders().DataLoader(NUMBERS, 2, batchify_fn=list),
        TypeError,
        "DataLoader() has no argument batchify_fn: pass collate_fn instead",
    ),
    (
        "torch: an argument that only gluonloader.DataLoader has",
        lambda: torch_loaders().DataLoader(NUMBERS, 2, worker_payload=print),
        TypeError,
        "DataLoader() has no argument worker_payload: "
        'use gluonloader.DataLoader(..., output="torch"), which has worker_payload',
    ),
    (
        "torch: a misspelled executor",
        lambda: torch_loaders().DataLoader(NUMBERS, 2, num_workers=1, executor="threads"),
        ValueError,
        "executor='threads': must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers; "
        "did you mean 'thread'?",
    ),
]

MISTAKES = [*SILENT, *DATASETS, *ARGUMENTS, *SAMPLERS, *BATCHIFY, *USE, *ATTRIBUTES, *GLUON, *TORCH]


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.23 emits this before the error
@pytest.mark.parametrize(("call", "kind", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_causes_an_error_or_a_warning_with_this_text(call, kind, text):
    if issubclass(kind, Warning):
        with pytest.warns(kind) as warned:
            call()
        assert [warning.filename for warning in warned] == [__file__]
        said = str(warned[0].message)
    else:
        with pytest.raises(kind) as caught:
            call()
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    pattern = re.escape(text).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, said, re.DOTALL), said


def test_the_tables_have_enough_rows_and_no_row_twice():
    assert (len(SILENT), len(MISTAKES) >= 39) == (9, True)
    assert len({name for name, *_ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("name", ["epoch", "name", "device", "rank", "datasets", "my_output", "_shuffle", "tag"])
def test_a_loader_accepts_other_attributes(name):
    loader = gl.DataLoader(NUMBERS, 2)
    change(name, "mine", loader)
    assert getattr(loader, name) == "mine"


def test_a_subclass_may_have_attributes_with_the_names_of_arguments():
    loader = Ours(NUMBERS, 2, shuffle=True)
    assert (loader.shuffle, loader.order) == (True, "random")
    loader.shuffle = loader.seed = loader.order = 3  # they exist already
    assert (loader.shuffle, loader.seed, loader.order) == (3, 3, 3)


def test_the_replacements_of_other_loaders_accept_the_attributes_that_their_originals_accept():
    torch_data, ours = load_or_skip("torch.utils.data"), importlib.import_module("gluonloader.torch").DataLoader
    for name in ("shuffle", "bathc_size", "prefetch_factor", "batch_size", "sampler", "drop_last", "dataset"):
        answers = []
        for kind in (torch_data.DataLoader, ours):
            loader = kind(NUMBERS, 2)
            try:
                setattr(loader, name, 3)
            except ValueError:
                answers.append("refused")
            else:
                answers.append(getattr(loader, name))
        assert answers[0] == answers[1], name
    loader = gluon("mxnet").DataLoader(NUMBERS, 2)
    loader.shuffle = loader.bathc_size = loader.batch_size = 3
    assert (loader.shuffle, loader.bathc_size, loader.batch_size) == (3, 3, 3)


@pytest.mark.parametrize(
    ("call", "batches"),
    [
        (lambda: load([X, X], 2), 1),  # in a list, each array is a sample
        (lambda: load((X, X, X, X, X), 2), 3),  # in a tuple of more than four arrays, each array is a sample
        (lambda: load((X[:2], X[:2]), 2), 1),  # in a tuple that is not shorter than its arrays, each array is a sample
        (lambda: load(((1, 2), (3, 4)), 2), 1),
        (lambda: load(ArrayDataset([X, X]), 2), 1),
        (lambda: load({"a": 1, "b": 2}, 2, sampler=["b", "a"]), 1),
        (lambda: load({0: 1, 1: 2}, 2), 1),
        (lambda: load(NUMBERS, 2, batchify_fn=list), 4),  # a class, but calling it makes a batch
        (lambda: load(SimpleDataset(NUMBERS).transform(float), 2), 4),
        (lambda: load(NUMBERS, 2, output=np.float32), 4),
        (lambda: load(NUMBERS, 8, last_batch="discard"), 1),
        (lambda: load([], 8, last_batch="discard"), 0),
        (lambda: load(NUMBERS, 32, last_batch="keep"), 1),
        (lambda: load(NUMBERS, 2, thread_pool=None), 4),
        (lambda: load(np.array([[1, 2], [3, 4]]), 2, batchify_fn=Group(Stack(), Stack())), 1),
        (lambda: load((Shaped("round"), Shaped("oval")), 2, batchify_fn=list), 1),
        (lambda: load((Shaped(None), Shaped(None)), 2, batchify_fn=list), 1),
        (lambda: load(NUMBERS, 2, sampler=OnlyIndexed([3, 1, 2])), 2),
        (lambda: load(NUMBERS, batch_sampler=OnlyIndexed([[3, 1], [2]])), 2),
    ],
)
def test_a_call_that_may_be_correct_causes_no_error_and_no_warning(call, batches):
    assert len(call()) == batches


def test_a_batchify_fn_may_drop_samples_that_are_none():
    batches = load(Unreadable(), 2, batchify_fn=lambda samples: gl.default_batchify(list(filter(None, samples))))
    assert [labels.tolist() for _, labels in batches] == [[0, 1], [2], [4, 5]]
