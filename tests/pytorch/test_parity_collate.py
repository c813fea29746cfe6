"""The default collate and convert functions: every kind of sample gives the same batch as with torch, or no batch."""

import collections
import dataclasses
import enum
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import Frozen, FrozenPair, NotedList, outcome

from .sides import OURS, THEIRS, compared, epoch, facts, same, torch

data = torch.utils.data
collate = data._utils.collate


class Point(NamedTuple):
    x: float
    y: float = 2.0


class Grid(collections.UserDict):
    """A mutable mapping that carries a note."""

    def __init__(self, items=(), note="grid"):
        super().__init__(items)
        self.note = note


class Pair(collections.abc.Sequence):
    def __init__(self, items):
        self.items_ = tuple(items)

    def __getitem__(self, i):
        return self.items_[i]

    def __len__(self):
        return len(self.items_)


class Tagged(torch.Tensor):
    """A subclass of Tensor."""


class Pixels(np.ndarray):
    """A subclass of ndarray."""


class Float(float):
    pass


class Text(str):
    pass


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Record:
    x: int


TENSOR_DTYPES = """float16 float32 float64 bfloat16 complex64 complex128 uint8 int8 int16 int32 int64 bool
uint16 uint32 uint64 float8_e4m3fn float8_e5m2 complex32""".split()
ARRAY_DTYPES = "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8 c8 c16".split()

# What makes sample number i of each kind.
KINDS = {
    "int": lambda i: i,
    "int-large": lambda i: 2**62 + i,
    "int-negative": lambda i: -i,
    "bool": lambda i: i % 2 == 0,
    "float": lambda i: i / 3,
    "float-nan": lambda i: float("nan"),
    "float-subclass": lambda i: Float(i),
    "enum": lambda i: Level.LOW,
    "str": lambda i: str(i),
    "str-subclass": lambda i: Text(i),
    "bytes": lambda i: bytes([i]),
    "tensor-0d": lambda i: torch.tensor(i / 2),
    "tensor-2d": lambda i: torch.arange(6).reshape(2, 3) + i,
    "tensor-large": lambda i: torch.full((300, 200), float(i)),
    "tensor-empty": lambda i: torch.zeros(0, 3),
    "tensor-transposed": lambda i: (torch.arange(6).reshape(2, 3) + i).T,
    "tensor-strided": lambda i: torch.arange(20)[i::3][:4],
    "tensor-expanded": lambda i: torch.tensor([float(i)]).expand(4),
    "tensor-channels-last": lambda i: torch.ones(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)[0] * i,
    "tensor-conj": lambda i: torch.tensor([1 + 2j, i]).conj(),
    "tensor-neg": lambda i: torch.tensor([1 + 2j, i + 1j]).conj().imag,
    "tensor-view": lambda i: torch.arange(100.0)[i : i + 5],
    "tensor-int-and-float": lambda i: torch.tensor([i]) if i % 2 else torch.tensor([i / 3]),
    "tensor-half-and-float": lambda i: torch.tensor([i / 2], dtype=torch.float16 if i % 2 else torch.float32),
    "tensor-subclass": lambda i: torch.tensor([i]).as_subclass(Tagged),
    "parameter": lambda i: torch.nn.Parameter(torch.tensor([float(i)]), requires_grad=False),
    "array-0d": lambda i: np.array(i),
    "array-2d": lambda i: np.arange(6).reshape(2, 3) + i,
    "array-large": lambda i: np.full((300, 200), i, np.uint8),
    "array-empty": lambda i: np.zeros((2, 0), np.float32),
    "array-fortran": lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3) + i),
    "array-strided": lambda i: np.arange(20)[i::3][:4],
    "array-dtypes": lambda i: np.array([i], np.int32 if i % 2 else np.float64),
    "array-int64-and-float32": lambda i: np.array([i], np.int64 if i % 2 else np.float32),  # float64 with NumPy
    "array-subclass": lambda i: np.array([i]).view(Pixels),
    "array-matrix": lambda i: np.ma.masked_array([i, 2], [False, True]),
    "tuple": lambda i: (i, i / 2, str(i)),
    "tuple-one": lambda i: (i,),
    "tuple-empty": lambda i: (),
    "list": lambda i: [i, torch.tensor([i])],
    "list-empty": lambda i: [],
    "dict": lambda i: {"x": i, 3: np.float32(i), ("t",): torch.ones(2) * i},
    "dict-empty": lambda i: {},
    "dict-more-keys": lambda i: {"x": i} if i % 3 == 0 else {"x": i, "y": 0},
    "dict-order": lambda i: {"x": i, "y": 2} if i % 2 else {"y": 2, "x": i},
    "ordered-dict": lambda i: collections.OrderedDict(b=i, a=2),
    "default-dict": lambda i: collections.defaultdict(list, a=i),
    "counter": lambda i: collections.Counter("abca"),
    "user-dict": lambda i: collections.UserDict(a=i),
    "user-mapping": lambda i: Grid({"a": i}, f"grid {i}"),
    "frozen-mapping": lambda i: Frozen({"a": i}),
    "frozen-mapping-alone": lambda i: FrozenPair(i, 2),
    "named-tuple": lambda i: Point(i, i / 2),
    "user-list": lambda i: collections.UserList([i, 2]),
    "list-subclass": lambda i: NotedList([i, 2], f"row {i}"),
    "user-sequence": lambda i: Pair([i, 2.0]),
    "deque": lambda i: collections.deque([i, 2]),
    "range": lambda i: range(i, i + 3),
    "nested": lambda i: {"a": [(i, Point(i, np.ones(2) * i)), {"b": torch.eye(2) * i}], "c": ("t", [i])},
    "tuples-in-named-tuple": lambda i: Point((i, 1), [2, i]),
    "same-object": lambda i: SHARED,
    **{f"tensor-{name}": lambda i, name=name: torch.ones(2).mul(i).to(getattr(torch, name)) for name in TENSOR_DTYPES},
    **{f"array-{name}": lambda i, name=name: (np.arange(3) + i).astype(name) for name in ARRAY_DTYPES},
    **{f"scalar-{name}": lambda i, name=name: np.dtype(name).type(i) for name in ARRAY_DTYPES if name != "u8"},
    **{f"array-0d-{name}": lambda i, name=name: np.array(i, name) for name in ("f4", "u1", "?")},
}
SHARED = torch.arange(3.0)

REFUSED = {
    "none": (lambda i: None, TypeError),
    "none-later": (lambda i: None if i else 1, RuntimeError),
    "set": (lambda i: {i}, TypeError),
    "dataclass": (lambda i: Record(i), TypeError),
    "object": (lambda i: object(), TypeError),
    "complex": (lambda i: complex(i), TypeError),
    "none-inside": (lambda i: {"x": (i, None)}, TypeError),
    "array-text": (lambda i: np.array(["a"]), TypeError),
    "array-bytes": (lambda i: np.array([b"a"]), TypeError),
    "array-object": (lambda i: np.array([None]), TypeError),
    "array-datetime": (lambda i: np.array(["2020-01-01"], "M8[D]"), TypeError),
    "array-big-endian": (lambda i: np.array([i], ">f4"), ValueError),
    "array-structured": (lambda i: np.zeros(2, [("a", "i4")]), TypeError),
    "array-longdouble": (lambda i: np.ones(2, np.longdouble), TypeError),
    "tensor-shapes": (lambda i: torch.zeros(i + 1), RuntimeError),
    "array-shapes": (lambda i: np.zeros(i + 1), RuntimeError),
    "tensor-dimensions": (lambda i: torch.zeros([1] * i), RuntimeError),
    "lengths": (lambda i: [0] * (i + 1), RuntimeError),
    "tuple-lengths": (lambda i: (0,) * (i + 1), RuntimeError),
    "lengths-inside": (lambda i: {"x": [0] * (i + 1)}, RuntimeError),
    "missing-key": (lambda i: {"x": 0} if i else {"x": 0, "y": 1}, KeyError),
    "sparse": (lambda i: torch.eye(2).to_sparse(), RuntimeError),
    "sparse-csr": (lambda i: torch.eye(2).to_sparse_csr(), RuntimeError),
    "nested-tensor": (lambda i: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), RuntimeError),
    "int-too-large": (lambda i: 2**80, ValueError),
    "scalar-u8": (lambda i: np.uint64(i), TypeError),
}


class Made(data.Dataset):
    """Six samples of a kind."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 6

    def __getitem__(self, index):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # prototypes of torch: CSR, nested
            return self.make(index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, None], ids=["collate", "convert"])
@compared
def test_default_collate_and_default_convert(L, size, kind):
    return epoch(L(Made(KINDS[kind]), size))


# torch's workers refuse the first two; torch cannot pickle the last one.
WITH_WORKERS = [kind for kind in KINDS if kind not in ("tensor-conj", "tensor-neg", "tensor-complex32")]


@pytest.mark.parametrize("start", range(4))
def test_default_collate_in_workers(start):
    """Each worker makes batches of all kinds, so that few workers have to start."""
    kinds = WITH_WORKERS[start::4]

    class All(data.Dataset):
        def __getitem__(self, index):
            return KINDS[index[0]](index[1])

    batches = [[(kind, i) for i in range(4)] for kind in kinds]
    returned = same(lambda L: epoch(L(All(), batch_sampler=batches, num_workers=2)))
    assert len(returned[1]) == len(kinds)


IN_WORKERS = ["none", "missing-key", "tensor-shapes", "sparse", "lengths"]
CASES = [*((kind, 0) for kind in REFUSED), *((kind, 1) for kind in IN_WORKERS)]


@pytest.mark.parametrize(("kind", "num_workers"), CASES)
def test_refused_samples(kind, num_workers):
    make, error = REFUSED[kind]
    same(lambda L: epoch(L(Made(make), 4, num_workers=num_workers)), raises=error)


MAKERS = {**KINDS, **{kind: make for kind, (make, _) in REFUSED.items()}}


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")  # of torch, once in a process
@settings(max_examples=400)
@given(*[st.sampled_from([kind for kind in MAKERS if kind != "object"])] * 2)
def test_samples_of_two_kinds_are_the_same_batch_or_the_same_error(first, second):
    if first in ("str", "str-subclass", "bytes") and first != second:
        return  # torch leaves the samples after a text as they are, and ours makes tensors of arrays
    made = Made(lambda i: MAKERS[second if i % 2 else first](i))
    theirs, ours = (outcome(lambda L=L: facts(epoch(L(made, 4)))) for L in (THEIRS, OURS))
    assert ours == theirs


GRADIENTS = {
    "all": lambda i: torch.tensor([float(i)], requires_grad=True),
    "one": lambda i: torch.tensor([float(i)], requires_grad=i == 3),
}


@pytest.mark.parametrize("kind", GRADIENTS)
@compared
def test_tensors_with_a_gradient(L, kind):
    return epoch(L(Made(GRADIENTS[kind]), 4))


@compared
def test_a_gradient_flows_to_the_samples_without_workers(L):
    weight = torch.tensor([2.0], requires_grad=True)
    for batch in L(Made(lambda i: weight * i), 4):
        batch.sum().backward()
    return weight.grad


def all_x(batch, *, collate_fn_map=None):
    return torch.tensor([record.x for record in batch])


def as_list(batch, *, collate_fn_map=None):
    return list(batch)


@pytest.mark.parametrize(
    ("kind", "function", "make"),
    [(Record, all_x, lambda i: {"x": Record(i), "y": i}), (torch.Tensor, as_list, lambda i: (torch.ones(i), 1))],
    ids=["own", "tensors"],
)
def test_a_collate_function_for_a_type(monkeypatch, workers, kind, function, make):
    monkeypatch.setitem(collate.default_collate_fn_map, kind, function)
    same(lambda L: epoch(L(Made(make), 4, num_workers=workers)))


def test_a_collate_function_that_was_removed(monkeypatch):
    monkeypatch.delitem(collate.default_collate_fn_map, str)
    same(lambda L: epoch(L(Made(str), 4)), raises=RecursionError)


@compared
def test_batches_are_not_shared_between_epochs(L, workers):
    """A batch that is changed changes no other one, and not the samples."""
    dataset = [torch.ones(3) * i for i in range(6)]
    loader, kept = L(dataset, 3, num_workers=workers), []
    for _ in range(2):
        for batch in loader:
            kept.append(batch.clone())
            batch.zero_()
    for batch in L(dataset, 1):
        batch.add_(5)
    return kept, dataset


DIFFERENT = [
    (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    (torch.ones(2), torch.ones(2, requires_grad=True)),
    (torch.ones(2), torch.ones(1, 2)),
    (torch.ones(2), torch.ones(2).as_subclass(Tagged)),
    ((1, 2), [1, 2]),
    (Point(1, 2), (1, 2)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, collections.OrderedDict(a=1)),
    (Grid({"a": 1}, "one"), Grid({"a": 1}, "two")),
    (np.float32(1), np.float64(1)),
    (1, 1.0),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_the_facts_of_different_batches_differ(one, other):
    """The comparison itself sees dtype, class, gradient and the notes of containers."""
    assert facts(one) != facts(other)
    assert facts(one) == facts(one)
