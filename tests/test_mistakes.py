"""Common mistakes of users who know Gluon, torch, NumPy or Keras, and the errors and warnings that answer them.

mistakes.py explains the table.
"""

import importlib
import pdb
import sys

import numpy as np
import pytest
from conftest import load_mxnet, load_or_skip
from mistakes import mistakes

import gluonloader as gl
from gluonloader import ArrayDataset, Group, SimpleDataset, Stack

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)
NUMBERS = list(range(8))
RAGGED = [np.zeros(2), np.zeros(2), np.zeros(3)]
PAIRS = [(np.zeros(2), 0), (np.zeros(3), 1)]
DICTS = [{"x": np.zeros(2), "y": 0}, {"x": np.zeros(3), "y": 1}]


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


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.23 emits this before the error
@mistakes(
    globals(),
    r"""
load(RAGGED, 3, batchify_fn=Pad)
    -> batchify_fn=<class 'gluonloader.batchify.functions.Pad'>: it is a class; pass an object of the class: Pad()
load((X, X + 1), 2)
    -> RuntimeWarning: dataset: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean
    ArrayDataset(X, Y)? If each array is a sample, pass a list, not a tuple
ArrayDataset({"x": Y})
    -> arrays[0]={'x': array([0, 1, 2, 3, 4, 5])}: its keys are strings, not indices; pass StackDataset(**arrays[0]),
    whose samples are dicts, or one of its values
load(NUMBERS, 32, last_batch="discard")
    -> RuntimeWarning: last_batch='discard' drops all 8 samples, which are fewer than batch_size=32, so the loader
    yields no batches; pass a smaller batch_size, or last_batch='keep'
load(PAIRS, 2, batchify_fn=Pad())
    -> BatchifyError: sample 0 (row 0 of batch 0): a tuple cannot be converted to an array of numbers; use one
    batchify function for each of its 2 fields, e.g. Group(Pad(), Stack())
load(NUMBERS, 2, sampler=RandomSampler)
    -> sampler=<class 'gluonloader.sampler.shuffled.RandomSampler'>: it is a class; pass an object of the class:
    RandomSampler(len(dataset))
load(NUMBERS, 4, True, None, None, 4)
    -> batch_sampler=4 is an int, but must be an iterable of lists of indices; if you passed the arguments in the
    order of torch, pass num_workers=4 by name
load(Unreadable(), 2)
    -> BatchifyError: sample 3 (row 1 of batch 1): it is None, which cannot be stacked (is a `return` missing in the
    dataset or a transform?); remove such samples from the dataset, return a placeholder, or pass a batchify_fn that
    drops None
load(Debugged(), 2, num_workers=1)
    -> BdbQuit: \n gluonloader: in dataset[0], batch 0 of epoch 0 \n gluonloader: a debugger cannot run in a worker
    process, because the worker has no standard input; pass num_workers=0 \n gluonloader: in worker 0 (pid ...)
# datasets
load(SimpleDataset, 2)
    -> dataset: <class 'gluonloader.dataset.base.SimpleDataset'> is a class; pass an object that supports
    len(dataset), e.g. a list, or pass IterableDataset(iterable)
load(zip(X, Y, strict=True), 2)
    -> dataset=<zip object at ...>: it can be iterated only once; pass a function that makes a new iterator:
    IterableDataset(make)
load(count, 2) -> dataset: <class 'function'>; it is a generator function; pass IterableDataset(count)
load(count(), 2)
    -> dataset: <class 'generator'>; it can be iterated only once; pass the function that makes it:
    IterableDataset(count)
load((number for number in NUMBERS), 2)
    -> dataset: <class 'generator'>; it can be iterated only once; pass the function that makes it:
    IterableDataset(make)
load(lambda: iter(NUMBERS), 2)
    -> dataset: <class 'function'>; it is a function; if it returns an iterator of samples, pass IterableDataset(make)
load({1, 2}, 2) -> dataset={1, 2}: the order of a set differs between processes; pass a list, e.g. sorted(...)
load({"x": X, "y": Y}, 2)
    -> dataset: <class 'dict'>; its keys are strings, not indices; pass StackDataset(**dataset), whose samples are
    dicts, or one of its values, or pass a sampler of its keys
load("data/train", 2)
    -> dataset: <class 'str'>; pass a dataset that reads the file, e.g. ArrowDataset(path) for Parquet, or list(text)
    for characters
load(100, 2)
    -> dataset: <class 'int'> has no __len__; pass an object that supports len(dataset), e.g. a list, or pass
    IterableDataset(iterable)
load(frame(), 2)
    -> dataset: <class 'pandas...DataFrame'>; pass ArrowDataset(table), whose samples are the rows of the table
load(gl.DataLoader(NUMBERS, 2), 2)
    -> dataset: <class 'gluonloader.loader.DataLoader'>; it yields batches, not samples; pass its dataset, or use
    bridge(loader) to read its batches ahead
load(torch_loader(), 2)
    -> dataset: <class 'torch.utils.data.dataloader.DataLoader'>; it yields batches, not samples; pass its dataset, or
    use bridge(loader) to read its batches ahead
load(X, Y, 2)
    -> batch_size=array([0, 1, 2, 3, 4, 5]): must be an int >= 1; to load several arrays, call
    DataLoader(ArrayDataset(X, Y), batch_size)
ArrayDataset(X, Y[:4]) -> ArrayDataset: the arrays have lengths [6, 4]; all must have the same length
ArrayDataset((X, Y))
    -> RuntimeWarning: arrays[0]: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean
    ArrayDataset(X, Y)? If each array is a sample, pass a list, not a tuple
ArrayDataset(Y, (row for row in X))
    -> arrays[1]=<generator object ...>: it has no length; pass a list, an array or a dataset with __len__
ArrayDataset({1, 2}) -> arrays[0]={1, 2}: it cannot be indexed; pass a list, an array or a dataset with __getitem__
SimpleDataset(X).transform(Stack)
    -> fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()
gl.IterableDataset(NUMBERS).transform(Stack)
    -> fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()
SimpleDataset(Y).transform(abs(-3)) -> fn=3: must be a function
SimpleDataset(X).transform_first(None) -> fn=None: must be a function
ArrayDataset(X, Y).transform(str, abs) -> lazy=<built-in function abs>: must be True or False
load(ArrayDataset(X, Y).transform(lambda image: image), 2)
    -> TypeError: ...takes 1 positional argument but 2 were given \n gluonloader: the sample has type tuple, so
    transform calls fn(*sample) with 2 arguments; transform_first(fn) passes only the first field \n gluonloader: in
    dataset[0], batch 0 of epoch 0
load(SimpleDataset([[1, 2], [3, 4]]).transform(lambda image, label: image), 2)
    -> TypeError: ...missing 1 required positional argument: 'label' \n gluonloader: the sample has type list, so
    transform calls fn(sample); only the fields of a tuple are passed as separate arguments \n gluonloader: in
    dataset[0], batch 0 of epoch 0
load(SimpleDataset(X).transform(lambda row: None), 2)
    -> BatchifyError: sample 0 (row 0 of batch 0): it is None, which cannot be stacked...
SimpleDataset(X).take("3") -> count='3': must be an int >= 0, or None for all samples
SimpleDataset(X).shard(6 / 2, 0) -> num_shards=3.0: must be an int >= 1
gl.random_split(NUMBERS, "0.8") -> lengths='0.8': must be a list, e.g. [0.8, 0.2]
# arguments
load(NUMBERS, shuffle=True) -> batch_size is missing; pass batch_size or batch_sampler
load(NUMBERS, "32") -> batch_size='32': must be the number of samples in a batch, an int >= 1
load(NUMBERS, 64 / 2) -> batch_size=32.0: must be the number of samples in a batch, an int >= 1
load(NUMBERS, -1) -> batch_size=-1: must be the number of samples in a batch, an int >= 1
load(NUMBERS, 2, shuffle="yes") -> shuffle='yes': must be True or False
load(NUMBERS, 2, last_batch=True)
    -> last_batch=True: must be 'keep', 'discard' or 'rollover'; to drop a last batch that is too short, pass
    'discard'
load(NUMBERS, 2, last_batch="drop")
    -> last_batch='drop': must be 'keep', 'discard' or 'rollover'; to drop a last batch that is too short, pass
    'discard'
load(NUMBERS, 2, last_batch="roll_over")
    -> last_batch='roll_over': must be 'keep', 'discard' or 'rollover'; did you mean 'rollover'?
load(NUMBERS, 2, num_workers=1, executor="threads")
    -> executor='threads': must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers; did
    you mean 'thread'?
load(NUMBERS, 2, num_workers=1, start_method="fork-server")
    -> start_method='fork-server': must be one of ['fork', 'forkserver', 'spawn'], or None; did you mean 'forkserver'?
load(NUMBERS, 2, ranks="Torch") -> ranks='Torch': must be 'torch', 'mpi' or 'env'; did you mean 'torch'?
load(NUMBERS, 2, drop_last=True)
    -> TypeError: DataLoader() has no argument drop_last: pass last_batch="discard" instead
load(NUMBERS, 2, collate_fn=list) -> TypeError: DataLoader() has no argument collate_fn: pass batchify_fn instead
load(NUMBERS, batchsize=2)
    -> TypeError: DataLoader() got an unexpected keyword argument 'batchsize'; did you mean batch_size?
load(NUMBERS, 2, workers=4)
    -> TypeError: DataLoader() got an unexpected keyword argument 'workers'; did you mean num_workers?
load(NUMBERS, 2, False, None, None, None, None, True) -> num_workers=True: must be an int >= 0
load(NUMBERS, 2, num_workers="4") -> num_workers='4': must be an int >= 0, or 'auto'
load(NUMBERS, 2, num_workers=1, prefetch=2.0) -> prefetch=2.0: must be an int >= 0
load(NUMBERS, 2, num_workers=1, thread_pool="no") -> thread_pool='no': must be True or False
load(NUMBERS, 2, timeout=True) -> timeout=True: must be a number of seconds > 0, or None to wait without limit
load(NUMBERS, 2, seed=np.random.default_rng(1)) -> seed=Generator(PCG64)...: must be an int
load(NUMBERS, 2, output="tensorflow")
    -> output='tensorflow': must be one of 'numpy', 'mxnet', 'torch', 'jax', a function of one array, or None
load(NUMBERS, 2, output=np.ndarray) -> output=<class 'numpy.ndarray'>: it is a class of arrays; pass output='numpy'
load(NUMBERS, 2, output=load_or_skip("torch").Tensor)
    -> output=<class 'torch.Tensor'>: it is a class of arrays; pass output='torch'
load(NUMBERS, 2, memory_limit="lots")
    -> memory_limit='lots': pass at least 1,048,576 bytes, as an int or as text such as "256MB", or None for no limit
gl.DataLoader(np.zeros((3000, 16)), 1, num_workers=1, prefetch=10**6).close()
    -> RuntimeWarning: prefetch=1,000,000: workers may make 3,000 batches, which is all of an epoch, before the
    program asks for them; all stay in memory (about 375 kB); pass a smaller prefetch, or remove it for the default of
    2
gl.DataLoader(gl.IterableDataset(count), 2, num_workers=1, prefetch=10**6).close()
    -> RuntimeWarning: prefetch=1,000,000: workers may make 1,000,000 batches before the program asks for them; all
    stay in memory (977 GB if each of them takes 1 MB); pass a smaller prefetch, or remove it for the default of 2
load(NUMBERS, 2, seed=0, ranks=(0, 2), sampler=gl.ShardedSampler(NUMBERS, 2, 0))
    -> ranks=(0, 2): sampler=ShardedSampler(...) already divides the samples among the ranks; remove one of them:
    remove ranks, or pass shuffle=True or a sampler that yields the whole order
load(NUMBERS, seed=0, ranks=(0, 2), batch_sampler=BatchSampler(torch_sampler(), 2, "keep"))
    -> ranks=(0, 2): batch_sampler=BatchSampler(...) already divides the samples among the ranks; remove one of them:
    remove ranks, or pass shuffle=True or a sampler that yields the whole order
load(NUMBERS, 2, seed=0, ranks=(0, 2), sampler=gl.RandomSampler(6))
    -> sampler=RandomSampler(6): this RandomSampler has no seed, so its order differs between the ranks; pass seed=...
    to the RandomSampler, with one seed for all ranks, or pass shuffle=True and seed=... to the loader instead
load(NUMBERS, ranks=(0, 2), batch_sampler=torch_batches())
    -> batch_sampler=<...BatchSampler object at ...>: this RandomSampler has no seed, so its order differs between the
    ranks; pass a seeded generator if it accepts one, with one seed for all ranks
load(NUMBERS, 2, ranks=(0, 2), sampler=mxnet_sampler())
    -> sampler=<...RandomSampler object at ...>: this RandomSampler has no seed, so its order differs between the
    ranks; pass a seeded generator if it accepts one, with one seed for all ranks, or pass shuffle=True and seed=...
    to the loader instead
load(NUMBERS, 2, shuffle=True, ranks=(0, 2))
    -> ranks=(0, 2): without a seed, each process draws its own one; pass the same seed on all ranks, e.g. seed=0
load(NUMBERS, 2, ranks=(0, 2), sampler=Pairs())
    -> RuntimeWarning: sampler=Pairs(6): 2 ranks divide its order, so it has to yield the same order on all ranks, but
    this loader cannot compare them; see that it does, e.g. by the same seed, and pass ranks=Ranks(..., gather=...),
    which compares the orders and ends this warning
load(gl.IterableDataset(count), 2, seed=0, ranks=(0, 2), sampler=torch_sampler())
    -> sampler=<...DistributedSampler object at ...>: ranks and sampler=DistributedSampler(...) both divide the
    samples among the ranks; remove one of them: remove sampler, since IterableDataset sets the order itself
load(NUMBERS, 2, batchify_fn=lambda samples: samples, num_workers=1, start_method="spawn")
    -> TransportError: start_method='spawn' needs to pickle batchify_fn, but this failed: Can't ...lambda.... Define
    its functions and classes at the top level of a module, or use start_method='fork'
load(NUMBERS, 2, num_workers=1, worker_init_fn=lambda: None)
    -> WorkerStartError: worker 0 (pid ...) could not start: TypeError: ...takes 0 positional arguments but 1 was
    given
# iterable datasets
load(IterableDataset(range(5)), 2, sampler=[1])
    -> sampler=...is an iterable dataset, which sets the order itself; remove sampler
load(IterableDataset(range(5)), 2, batch_sampler=[[1]])
    -> batch_sampler=...is an iterable dataset, ...; remove batch_sampler
load(IterableDataset(range(5)), 2, last_batch="drop") -> last_batch='drop'...
load(iter(range(5)), 2) -> ...only once...pass a function that makes a new iterator...
IterableDataset([1, 2], num_shards=0) -> num_shards=0: must be an int >= 1
IterableDataset([1, 2], shuffle_buffer=1) -> shuffle_buffer=1: must be an int >= 2
# samplers
load(NUMBERS, 2, sampler=(i for i in NUMBERS))
    -> sampler=<generator object ...>: it can be iterated only once; pass a list or a Sampler of indices
load(Y, 2, sampler=Y < 2)
    -> sampler=array([ True,  True, False, False, False, False]): it is a mask; pass the indices where it is true:
    np.flatnonzero(mask)
load(X, 2, sampler=BatchSampler(range(6), 2))
    -> sampler=BatchSampler(range(6), batch_size=2): it yields lists of indices; pass it as batch_sampler
load(NUMBERS, 2, sampler=gl.text.TokenBatchSampler([3, 4], 8, shuffle=False))
    -> sampler=TokenBatchSampler(2 documents, range(2), max_tokens=8): it yields lists of indices; pass it as
    batch_sampler
gl.text.PackedDataset(IterableDataset(range(3)))
    -> documents=IterableDataset(...): it cannot be indexed; pass PackedStream(documents, size)
load(NUMBERS, 2, sampler="random")
    -> sampler='random': must be an iterable of indices; for a random order, pass shuffle=True
load(NUMBERS, 2, sampler=[0.0, 1.0])
    -> TypeError: list indices must be integers or slices, not float \n gluonloader: in dataset[0.0], batch 0 of epoch
    0
load(NUMBERS, 2, sampler=[0, 1, 8])
    -> IndexError: list index out of range \n gluonloader: in dataset[8] of 8 samples, batch 1 of epoch 0
load(NUMBERS, 2, sampler=[0, 9], num_workers=1)
    -> IndexError: list index out of range \n gluonloader: in dataset[9] of 8 samples, batch 0 of epoch 0 \n
    gluonloader: in worker 0 (pid ...)
load(NUMBERS, batch_sampler=SequentialSampler(8))
    -> batch_sampler=SequentialSampler(8): it yielded 0 for batch 0; it must yield lists of at least one index; if it
    yields single ones, pass it as sampler
load(NUMBERS, 2, batch_sampler=[[0, 1]])
    -> batch_sampler replaces batch_size, shuffle, sampler and last_batch; remove them
RandomSampler(NUMBERS)
    -> length=[0, 1, 2, 3, 4, 5, 6, 7]: must be the number of samples, an int >= 0, e.g. len(dataset)
BatchSampler(8, 2) -> sampler=8: must be an iterable of indices
BatchSampler(SequentialSampler, 2)
    -> sampler=<class 'gluonloader.sampler.ordered.SequentialSampler'>: it is a class; pass an object of the class:
    SequentialSampler(len(dataset))
gl.WeightedSampler([1, -1])
    -> weights: pass a number >= 0 for each sample, and at least one number > 0; weights[1] is -1.0
# batchify functions
load(RAGGED, 3, batchify_fn=Stack())
    -> BatchifyError: sample 2 (row 2 of batch 0): it has shape (3,), but other samples have shape (2,); make the
    samples equal in size in the dataset, or pad them with Pad() in the batchify_fn
load(PAIRS, 2)
    -> BatchifyError: sample 1 (row 1 of batch 0) at [0]: it has shape (3,), but other samples have shape (2,); make
    the samples equal in size in the dataset, or pad them with Pad() in the batchify_fn
load([[1, 2], [3]], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0): it has 1 fields, but other samples have 2 fields; make the samples
    equal in size in the dataset, or pad them with Pad() in the batchify_fn
load(Unreadable(), 6, batchify_fn=Group(Pad(), Stack()))
    -> BatchifyError: sample 3 (row 3 of batch 0): it is None, which cannot be stacked...
load(Unreadable(), 6, batchify_fn=Stack())
    -> BatchifyError: sample 3 (row 3 of batch 0): it is None, which cannot be stacked...
load([np.zeros(1 << 14), None, np.zeros(1 << 14)], 3)
    -> BatchifyError: sample 1 (row 1 of batch 0): it is None, which cannot be stacked...
load([(1, 2), (3, None)], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0) at [1]: it is None, which cannot be stacked...
load(DICTS, 2, batchify_fn=Pad())
    -> BatchifyError: sample 0 (row 0 of batch 0): a dict cannot be converted to an array of numbers; use one batchify
    function for each key, e.g. Dict({'x': Stack(), ...})
load(DICTS, 2, batchify_fn=Group(Pad(), Stack()))
    -> BatchifyError: sample 0 (row 0 of batch 0): it has type dict, but Group needs a tuple or list of 2 fields
load(PAIRS, 2, batchify_fn=Dict({"x": Pad()}))
    -> BatchifyError: sample 0 (row 0 of batch 0): it has type tuple, but Dict needs a dict
load([(1, 2, 3)] * 2, 2, batchify_fn=Group(Stack(), Stack()))
    -> BatchifyError: sample 0 (row 0 of batch 0): it has 3 fields, but Group has 2 functions; pass Group one function
    for each field
Group(Stack, Pad)
    -> fn=<class 'gluonloader.batchify.functions.Stack'>: it is a class; pass an object of the class: Stack()
load([{"x": 1, "y": 2}, {"x": 3}], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0): it has no key 'y', but other samples have 'x', 'y'; return the same
    keys from each sample in the dataset, or select keys by Dict({'x': Stack()}) in the batchify_fn
load([{"x": 1}, {"y": 3}], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0): it has no key 'x' and extra key 'y', but other samples have 'x';
    return the same keys from each sample in the dataset
load([{"x": 1}, {"y": 3}], 2, batchify_fn=Dict({"x": Stack()}))
    -> BatchifyError: sample 1 (row 1 of batch 0): it has no key 'x', for which Dict has a function; return the same
    keys from each sample in the dataset
load([{"x": np.zeros(2)}, {"x": load_or_skip("torch").zeros(2)}], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0) at ['x']: it has type Tensor, but other samples have type ndarray;
    make the samples equal in type in the dataset, e.g. by torch.as_tensor(x)
load([(1, "a"), (2, 3)], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0) at [1]: it has type int, but other samples have type str; make the
    samples equal in type in the dataset
load([(1, 2), (3,)], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0): it has 1 fields, but other samples have 2 fields; make the samples
    equal in length in the dataset
load([np.zeros((4, 4, 3)), np.zeros((4, 4))], 2)
    -> BatchifyError: sample 1 (row 1 of batch 0): it has shape (4, 4), but other samples have shape (4, 4, 3); make
    the samples equal in shape in the dataset
load([np.zeros((2, 3)), np.zeros((4, 5))], 2, batchify_fn=Pad(axis=0))
    -> BatchifyError: sample 1 (row 1 of batch 0): it has size 5 along axis 1, but other samples have size 3 along
    axis 1; make the samples equal in size along axis 1 in the dataset, or pass axis=None to Pad
load(RAGGED, 3, batchify_fn="pad") -> batchify_fn='pad': must be a function or None
load(PAIRS, 2, batchify_fn=lambda images, labels: images)
    -> TypeError: ...missing 1 required positional argument: 'labels' \n gluonloader: in batchify_fn, batch 0 of epoch
    0
load([object()] * 2, 2)
    -> BatchifyError: sample 0 (row 0 of batch 0): cannot make a batch of builtins.object objects; return arrays,
    numbers, str, bytes, or tuples, lists, dicts and dataclasses of them, or pass a batchify_fn: AsList() keeps a list
    of anything
# use, and states
closed() -> LoaderClosed: this DataLoader is closed; make a new one, or iterate inside its `with` block
[*(ended := iter(gl.DataLoader(NUMBERS, 2)))] and ended.load_state_dict(gl.DataLoader(NUMBERS, 2).state_dict())
    -> LoaderClosed: this iterator has ended or was closed; save and load positions of the loader instead
next(gl.DataLoader(NUMBERS, 2)) -> TypeError: 'DataLoader' object is not an iterator
gl.DataLoader(NUMBERS, 2)[0] -> TypeError: 'DataLoader' object is not subscriptable
len(gl.DataLoader(gl.IterableDataset(lambda: iter(NUMBERS)), 2))
    -> TypeError: object of type 'IterableDataset' has no len(); define __len__ in the dataset or sampler if the
    length is known, or count the batches in the loop
len(gl.DataLoader(NUMBERS, batch_sampler=OnlyIterated()))
    -> TypeError: object of type 'OnlyIterated' has no len(); define __len__ in the dataset or sampler if the length
    is known, or count the batches in the loop
gl.DataLoader(NUMBERS, 2).set_epoch("1") -> epoch='1': must be an int >= 0
resume(None) -> state: it is a NoneType; pass what state_dict() returned, or its JSON text
resume("state.json")
    -> state: the text is not complete JSON (...); pass all that state_dict() returned; if it is in a file, pass the
    text of the file, not the path
resume({"weight": X}) -> state: version is missing: the state is incomplete, or another kind of loader saved it
resume(saved(), range(10), shuffle=True)
    -> state: length=8: this dataset has length=10; it must be the same as in the state
resume(saved())
    -> state: sampler.kind='RandomSampler': this sampler has kind='SequentialSampler'; it must be the same as in the
    state: pass the same shuffle or sampler
gl.DataLoader(NUMBERS, 2).upcoming(0) -> count=0: must be a number of samples, an int >= 1
gl.DataLoader(NUMBERS, 2).upcoming(3, all_ranks="yes") -> all_ranks='yes': must be True or False
DataLoader(IterableDataset(range(9)), 3).upcoming(3)
    -> dataset: it is iterable, so what comes next is known only when it is read
# attributes
outlived()
    -> LoaderClosed: the `with` block of the loader has ended, which has closed the loader and this iterator; iterate
    inside the block, or make a new loader
outlived(num_workers=1)
    -> LoaderClosed: the `with` block of the loader has ended, which has closed the loader and this iterator; iterate
    inside the block, or make a new loader
change("shuffle", True)
    -> AttributeError: shuffle of a DataLoader cannot be changed; pass it to the constructor: DataLoader(...,
    shuffle=True)
change("bathc_size", 3)
    -> AttributeError: a DataLoader has no attribute bathc_size; did you mean batch_size? It cannot be changed; pass
    it to the constructor: DataLoader(..., batch_size=3)
change("prefetch_factor", 4)
    -> AttributeError: a DataLoader has no attribute prefetch_factor; make a new one: pass prefetch=prefetch_factor *
    num_workers, the number of batches for all workers together
change("output", np.zeros(3), Ours(NUMBERS, 2))
    -> AttributeError: output of a DataLoader cannot be changed; pass it to the constructor: DataLoader(...,
    output=...)
# the replacement of Gluon's loader
gluon("mxnet").DataLoader(RAGGED, 3, batchify_fn=gluon("mxnet.batchify").Pad)
    -> batchify_fn=<class 'gluonloader.mxnet.batchify.Pad'>: it is a class; pass an object of the class: Pad()
gluon("mxnet").ArrayDataset({"x": Y})
    -> arrays[0]={'x': array([0, 1, 2, 3, 4, 5])}: its keys are strings, not indices; pass StackDataset(**arrays[0]),
    whose samples are dicts, or one of its values
gluon("mxnet").DataLoader((X, Y), 2)
    -> RuntimeWarning: dataset: a tuple of 2 arrays of length 6 is a dataset of 2 samples; did you mean
    ArrayDataset(X, Y)? If each array is a sample, pass a list, not a tuple
list(gluon("mxnet").DataLoader(PAIRS, 2, batchify_fn=gluon("mxnet.batchify").Pad()))
    -> BatchifyError: sample 0 (row 0 of batch 0): a tuple cannot be converted to an array of numbers; use one
    batchify function for each of its 2 fields, e.g. Group(Pad(), Stack())
list(gluon("mxnet").DataLoader(Unreadable(), 2))
    -> BatchifyError: sample 3 (row 1 of batch 1): it is None, which cannot be stacked...
gluon("mxnet").DataLoader(NUMBERS, 4, True, None, None, 4)
    -> batch_sampler=4 is an int, but must be an iterable of lists of indices; if you passed the arguments in the
    order of torch, pass num_workers=4 by name
gluon("mxnet").DataLoader(NUMBERS, batchsize=2)
    -> TypeError: DataLoader() got an unexpected keyword argument 'batchsize'; did you mean batch_size?
# the replacement of torch's loader
torch_loaders().DataLoader(NUMBERS, num_worker=2)
    -> TypeError: DataLoader() got an unexpected keyword argument 'num_worker'; did you mean num_workers?
torch_loaders().DataLoader(NUMBERS, 2, batchify_fn=list)
    -> TypeError: DataLoader() has no argument batchify_fn: pass collate_fn instead
torch_loaders().DataLoader(NUMBERS, 2, worker_payload=print)
    -> TypeError: DataLoader() has no argument worker_payload: use gluonloader.DataLoader(..., output="torch"), which
    has worker_payload
torch_loaders().DataLoader(NUMBERS, 2, num_workers=1, executor="threads")
    -> executor='threads': must be 'serial', 'thread', 'process', 'ray', 'auto', or None to choose by num_workers; did
    you mean 'thread'?
""",
)
def test_a_mistake_causes_an_error_or_a_warning_with_this_text(mistake):
    mistake.check()


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
