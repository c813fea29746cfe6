"""What a user's `collate_fn` returns arrives from workers as it is; without workers, it is the same object."""

import collections
import dataclasses
import enum
import os

import numpy as np
import pytest

from .sides import OURS, Keys, Numbers, compared, epoch, epochs, same, tensor_facts, torch

data = torch.utils.data


class Graph:
    """A batch of a user's class."""

    def __init__(self, x):
        self.x, self.name = x, "graph"

    def __repr__(self):
        return f"Graph({tensor_facts(self.x)}, {self.name})"


@dataclasses.dataclass
class Output:
    x: torch.Tensor
    names: list

    def __repr__(self):
        return f"Output({tensor_facts(self.x)}, {self.names})"


class Dictionary(dict):
    """A dict with attributes, such as Hugging Face's BatchEncoding."""

    def __init__(self, *items, note=""):
        super().__init__(*items)
        self.note = note


class Color(enum.Enum):
    RED = 1


def made(i):
    return torch.arange(24.0).reshape(2, 3, 4) + i


BATCHES = {
    "tensor": made,
    "transposed": lambda i: made(i).transpose(0, 2),
    "expanded": lambda i: torch.tensor([float(i)]).expand(5),
    "channels-last": lambda i: torch.ones(2, 3, 4, 5).mul(i).to(memory_format=torch.channels_last),
    "sliced": lambda i: made(i)[:, ::2, 1:],
    "empty": lambda i: torch.zeros(0, 3),
    "scalar": lambda i: torch.tensor(i),
    "bfloat16": lambda i: made(i).bfloat16(),
    "float8": lambda i: made(i).to(torch.float8_e4m3fn),
    "uint16": lambda i: made(i).to(torch.uint16),
    "sparse": lambda i: (torch.eye(3) * i).to_sparse().to_dense(),
    "packed": lambda i: torch.nn.utils.rnn.pack_sequence([torch.ones(3) * i, torch.ones(2)]),
    "size": lambda i: torch.Size([i, 2]),
    "dtype": lambda i: (torch.float32, torch.device("cpu"), Color.RED, slice(1, 2), ..., None, NotImplemented),
    "graph": lambda i: Graph(made(i)),
    "graphs": lambda i: [Graph(made(i)), {"x": (Graph(made(1)), made(2))}],
    "dataclass": lambda i: Output(made(i), ["a"]),
    "dictionary": lambda i: Dictionary({"x": made(i)}, note=f"note {i}"),
    "ordered": lambda i: collections.OrderedDict(b=made(i), a=made(1)),
    "default": lambda i: collections.defaultdict(list, a=[made(i)]),
    "counter": lambda i: collections.Counter({"a": i}),
    "deque": lambda i: collections.deque([made(i), 2], maxlen=3),
    "set": lambda i: sorted({i, 3, 4}),
    "frozen": lambda i: frozenset([i]),
    "tuple": lambda i: (made(i), (), [], {}, ((made(1),),)),
    "text": lambda i: ["text", b"bytes", "ä" * 1000, ""],
    "numbers": lambda i: [i, 1.5, 2**100, 1j, True, None, float("inf")],
    "ints-as-keys": lambda i: {i: made(i), None: 1, (1, 2): made(2), True: 0},
    "array": lambda i: np.arange(6.0).reshape(2, 3) + i,
    "array-fortran": lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3) + i),
    "array-text": lambda i: np.array(["a", "bc"]),
    "array-object": lambda i: np.array([1, "a", None], object),
    "array-time": lambda i: np.array(["2020-01-01"], "M8[D]"),
    "array-records": lambda i: np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "array-big-endian": lambda i: np.arange(3).astype(">i4"),
    "array-and-tensor": lambda i: {"x": np.ones((2, 2)) * i, "y": made(i)},
    "scalars": lambda i: [np.float32(i), np.int64(2), np.bool_(True)],
    "many": lambda i: [torch.full((3,), float(j)) for j in range(100)],
    "large": lambda i: torch.full((700, 700), float(i)),
    "int": lambda i: i,
    "none": lambda i: None,
    "function": lambda i: Graph,
    "generator-state": lambda i: torch.Generator().manual_seed(i).get_state(),
    "module": lambda i: torch.nn.Linear(2, 1).requires_grad_(False).weight.mul(0).add(i),
    "parameter": lambda i: torch.nn.Parameter(torch.ones(2) * i, requires_grad=False),
    "gradient": lambda i: torch.ones(2, requires_grad=True),
}


class ByKind:
    """A collate function for batches of one key."""

    def __call__(self, keys):
        kind, i = keys[0]
        return BATCHES[kind](i)


REPACKED = ["transposed", "expanded", "channels-last", "sliced", "array-big-endian"]


@compared(state=False)
def test_batches_arrive_from_a_worker_as_they_are(L):
    """Apart from strides: see `contiguous-batches`."""
    keys = [(kind, i) for kind in BATCHES for i in range(3)]
    batches = epoch(L(Keys(), batch_sampler=[[key] for key in keys], collate_fn=ByKind(), num_workers=1))
    return {
        key: torch.tensor(batch.tolist()) if key[0] in REPACKED else batch
        for key, batch in zip(keys, batches, strict=True)
    }


def test_an_array_that_collate_fn_returns_keeps_its_byte_order():
    (batch,) = OURS([1], collate_fn=lambda samples: np.array(samples, ">i4"), num_workers=1)
    assert (batch.dtype, batch.tolist()) == (np.dtype(">i4"), [1])


@compared
def test_without_workers_a_batch_is_the_object_that_collate_fn_returns(L):
    dataset = [torch.zeros(2), torch.zeros(2)]
    for sample in L(dataset, 1, collate_fn=lambda samples: samples[0]):
        sample += 1
    for sample in L(dataset, None):
        sample += 1
    return dataset


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@compared
def test_inference_mode_and_no_grad(L, workers, mode):
    with mode():
        batches = epoch(L(Numbers(), 4, num_workers=workers))
    return [(x.is_inference(), x.requires_grad, x) for x, _ in batches]


@compared
def test_the_default_dtype(L, workers):
    torch.set_default_dtype(torch.float64)
    try:
        return epoch(L([{"a": 1.5, "b": 2, "c": np.float32(3)}] * 4, 2, num_workers=workers))
    finally:
        torch.set_default_dtype(torch.float32)


@compared
def test_models_train_on_the_batches(L, workers):
    """Gradients, in-place operations and views work on batches as on other tensors."""
    weight = torch.ones(2, requires_grad=True)
    for x, y in L(Numbers(), 4, num_workers=workers):
        x.div_(10).clamp_(max=3)
        ((x * weight).sum(1) - y).pow(2).mean().backward()
    return weight.grad, x.view(-1), x.numpy(), torch.from_numpy(x.numpy()), x.clone().share_memory_()


@compared
def test_batches_can_be_sent_to_other_processes(L, workers):
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    for batch in L(Numbers(), 4, num_workers=workers):
        queue.put(batch)
        received = queue.get()
    return received


PROGRAM = os.getpid()


class Counted(data.Dataset):
    """How often the dataset was prepared in a worker and read there, and whether a worker is another process."""

    starts = reads = 0

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.reads += 1
        return self.starts, self.reads, os.getpid() == PROGRAM


def count_starts(worker):
    data.get_worker_info().dataset.starts += 1


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}], ids=["serial", "new", "kept"]
)
@compared
def test_what_a_worker_keeps_from_epoch_to_epoch(L, options):
    return epochs(L(Counted(), 2, worker_init_fn=count_starts, **options), 3)


def test_map_data_pipes(workers):
    from torch.utils.data.datapipes.map import SequenceWrapper

    same(lambda L: epoch(L(SequenceWrapper(list(range(5))), 2, num_workers=workers)), warns=None)


@compared
def test_generators_of_loader_and_sampler_may_differ(L, workers):
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    sampler = data.RandomSampler(range(11), replacement=True, num_samples=40, generator=other)
    return epochs(L(Numbers(), 3, sampler=sampler, generator=one, num_workers=workers)), [
        one.get_state(),
        other.get_state(),
    ]
