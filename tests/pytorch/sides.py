"""The two loaders that every test here compares, and what can be observed of a pipeline. Skips if torch is missing.

`differs` marks a test that must fail with torch; `cases` is a table of calls with the results of both.
"""

import collections
import inspect
import random
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from parity import Custom, differences_on, differing, differing_cases, shown

torch = pytest.importorskip("torch")

import gluonloader.torch  # noqa: E402

SIDES = {"torch": torch.utils.data.DataLoader, "gluonloader": gluonloader.torch.DataLoader}
THEIRS, OURS = SIDES.values()

DIFFERENCES = differences_on("torch.md", "Differences of gluonloader.torch.DataLoader")
differs = differing(DIFFERENCES, "loader_class", "torch")
cases = differing_cases(DIFFERENCES, "loader_class", "torch")


def facts(value):
    """A batch in plain terms, which `==` compares: containers by type and attributes, tensors by dtype and bytes."""
    if isinstance(value, torch.Tensor):
        return tensor_facts(value)
    if isinstance(value, np.ndarray):
        return type(value).__name__, value.dtype.str, value.shape, value.tolist()
    if isinstance(value, np.generic):
        return type(value).__name__, value.item()
    if isinstance(value, (Mapping, collections.UserDict)):
        items = [(facts(key), facts(value[key])) for key in value]
        return type(value).__name__, items, getattr(value, "default_factory", None), notes(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, range)):
        return type(value).__name__, [facts(part) for part in value], notes(value)
    if isinstance(value, float):
        return float.hex(value)  # NaN is equal to itself
    return value if isinstance(value, (str, bytes, int, range, type(None))) else repr(value)


def tensor_facts(tensor):
    about = [type(tensor).__name__, str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad, str(tensor.layout)]
    about += [tensor.is_contiguous(), tensor.is_pinned(), str(tensor.device), tensor.is_conj(), tensor.is_neg()]
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return [*about, tensor.contiguous().flatten().view(torch.uint8).tolist() if tensor.numel() else []]


def notes(value):
    """What a user's own container carries besides its items."""
    return {name: note for name, note in getattr(value, "__dict__", {}).items() if isinstance(note, str)}


def epoch(loader):
    return list(loader)


def epochs(loader, count=2):
    return [list(loader) for _ in range(count)]


def lists(loader):
    """The batches of an epoch as lists."""
    return [shown(batch) for batch in loader]


def left_after(loader, count):
    """The state of a loader after some batches of an epoch, and the batches that were left."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return loader.state_dict(), lists(batches)


def continued(loader, state):
    """The batches of the epoch that a state continues."""
    loader.load_state_dict(state)
    return lists(loader)


def samples(loader):
    """All samples of an epoch as one list, if they are numbers."""
    return [number for batch in loader for number in batch.tolist()]


def seed_all(seed=1):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def generators():
    """What the global generators draw next."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1:3]
    return [str(hash(str(state.tolist() if hasattr(state, "tolist") else state))) for state in states]


def observe(pipeline, loader_class, state):
    """What a pipeline returns, raises and warns of, and what the global generators draw afterwards."""
    seed_all()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "This DataLoader will create")  # depends on the machine
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)  # of garbage of other tests, whenever it is collected
        try:
            returned, raised = facts(pipeline(loader_class)), None
        except Exception as error:
            # Without its traceback, which would keep torch's iterator: a late `__del__` waits, or hangs.
            returned, raised = None, error.with_traceback(None)
            raised.__context__ = None
    seen = sorted({warning.category.__name__ for warning in caught})
    return returned, raised, seen, generators() if state else None


def same(pipeline, *, raises=None, state=True, text=False, warns=False):
    """Runs a pipeline with both loaders and compares; returns what it returns, in plain terms.

    Args:
        pipeline: a function of the class of the loader.
        raises: the type of the error that both must raise.
        state: whether the global generators must be in the same state afterwards.
        text: whether the texts of the errors must be equal, too.
        warns: whether both must warn; None if that does not matter.
    """
    returned, raised, warned, after = observe(pipeline, THEIRS, state)
    if raised is not None and raises is None:
        raise raised
    assert type(raised) is (raises or type(None)), repr(raised)
    same_returned, same_raised, same_warned, same_after = observe(pipeline, OURS, state)
    if same_raised is not None and raises is None:
        raise same_raised
    assert type(same_raised) is type(raised), repr(same_raised)
    assert same_returned == returned
    assert warns is None or bool(same_warned) == bool(warned) == warns, (same_warned, warned)
    assert same_after == after, "the global generators are in another state"
    if text:
        assert str(same_raised) == str(raised)
    return returned


def compared(pipeline=None, **expected):
    """Makes a test of a pipeline: with both classes, its first argument, it must do the same; see `same`.

    The other arguments of the pipeline are fixtures or parameters.
    """
    if pipeline is None:
        return lambda pipeline: compared(pipeline, **expected)

    def test(**arguments):
        same(lambda L: pipeline(L, **arguments), **expected)

    first, *others = inspect.signature(pipeline).parameters.values()
    test.__signature__ = inspect.Signature(others)
    test.__name__, test.__doc__, test.__module__ = pipeline.__name__, pipeline.__doc__, pipeline.__module__
    return test


class Numbers(torch.utils.data.Dataset):
    """The squares of the first numbers, with labels."""

    def __init__(self, length=11):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return torch.tensor([float(index), float(index) ** 2]), int(index)


class Keys(torch.utils.data.Dataset):
    """Each sample is its key."""

    def __getitem__(self, key):
        return key


class Noise(torch.utils.data.Dataset):
    """Random numbers of each generator."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(()).item(), np.random.rand(), random.random()


class Range(torch.utils.data.IterableDataset):
    """The first numbers as a stream."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class Broken(torch.utils.data.Sampler):
    """A sampler that fails after some indices."""

    def __init__(self, good):
        self.good = good

    def __iter__(self):
        yield from range(self.good)
        raise Custom("no index")

    def __len__(self):
        return 8


def raised(loader):
    """The error that an epoch raises."""
    with pytest.raises(Exception) as caught:
        list(loader)
    return caught.value
