"""Names, signatures, defaults, classes, and what wrong arguments do."""

import importlib
import inspect

import pytest

from .sides import GLUON, OURS, epoch, mx

# Gluon's loader has a __del__ that fails when its constructor failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CLASSES = [
    "ArrayDataset", "BatchSampler", "DataLoader", "Dataset", "FilterSampler", "IntervalSampler", "RandomSampler",
    "RecordFileDataset", "Sampler", "SequentialSampler", "SimpleDataset",
]  # fmt: skip

GLUON_2 = {
    "Append": [("expand", True), ("batch_axis", 0), ("use_shared_mem", False)],
    "AsList": [],
    "Pad": [("val", None), ("dtype", None), ("round_to", None), ("use_shared_mem", False)],
    "Stack": [("use_shared_mem", False)],
}


def arguments(function):
    """Name, kind and default of each argument; the name of *args is its own affair."""
    parameters = inspect.signature(function).parameters.values()
    return [(p.kind if p.kind is p.VAR_POSITIONAL else p.name, p.kind, p.default) for p in parameters]


def public(module):
    return {name for name in vars(module) if not name.startswith("_")}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_takes_the_same_arguments_in_the_same_order_and_is_one_of_gluons(name):
    theirs = getattr(mx.gluon.contrib.data if name == "IntervalSampler" else GLUON, name)
    ours, base = getattr(OURS, name), GLUON.Sampler if name == "IntervalSampler" else theirs
    wanted, got = arguments(theirs.__init__), arguments(ours.__init__)
    assert got[: len(wanted)] == wanted
    # What is more is optional.
    empty, variable = inspect.Parameter.empty, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert all(default is not empty or kind in variable for _, kind, default in got[len(wanted) :])
    assert issubclass(ours, base)
    assert ours is not theirs


@pytest.mark.parametrize("choice", [None, True, False])
def test_the_loader_also_takes_what_gluon_2_added(choice):
    assert [name for name, *_ in arguments(OURS.DataLoader.__init__)][-2:] == ["try_nopython", "options"]
    with OURS.DataLoader(range(4), 2, try_nopython=choice) as loader:
        assert epoch(loader) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("name", ["filter", "shard", "take", "sample", "transform", "transform_first"])
def test_dataset_methods_take_the_same_arguments(name):
    assert arguments(getattr(OURS.Dataset, name)) == arguments(getattr(GLUON.Dataset, name))


@pytest.mark.parametrize("name", GLUON_2)
def test_batchify_functions_take_the_arguments_of_gluon_2(name):
    parameters = list(inspect.signature(getattr(OURS.batchify, name)).parameters.values())
    own = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [(p.name, p.default) for p in parameters if p.name not in own] == GLUON_2[name]
    assert own == (["axis", "ret_length", "mask"] if name == "Pad" else [])


@pytest.mark.parametrize("module", ["", "dataset", "sampler", "dataloader", "vision", "vision.transforms"])
def test_every_public_name_is_there(module):
    theirs = importlib.import_module(f"{GLUON.__name__}.{module}".rstrip("."))
    ours = importlib.import_module(f"{OURS.__name__}.{module}".rstrip("."))
    missing = [name for name in public(theirs) if not hasattr(ours, name)]
    assert missing == []


def test_vision_is_gluons_own(gdata):
    assert gdata.vision.MNIST is mx.gluon.data.vision.MNIST
    assert gdata.vision.transforms.ToTensor is mx.gluon.data.vision.transforms.ToTensor


def test_all_fourteen_arguments_by_position(gdata):
    loader = gdata.DataLoader(
        list(range(6)), 4, False, None, "keep", None, None, 0, False, 0, None, False, 120, False
    )  # fmt: skip
    assert epoch(loader) == [[0, 1, 2, 3], [4, 5]]
    loader = gdata.DataLoader(range(6), None, False, None, None, [[5, 0], [1]], None, 0)
    assert epoch(loader) == [[5, 0], [1]]


def test_a_subclass_of_the_loader(gdata):
    class Mine(gdata.DataLoader):
        def __init__(self, dataset, size):
            super().__init__(dataset, size, False, None, "keep", None, None, 0)

        def __iter__(self):
            return (batch * 2 for batch in super().__iter__())

    loader = Mine(range(3), 2)
    assert (len(loader), epoch(loader)) == (2, [[0, 2], [4]])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "batch_size"),
        ({"batch_size": 2, "shuffle": True, "sampler": [1]}, "sampler"),
        ({"batch_size": 2, "batch_sampler": [[1]]}, "batch_sampler"),
        ({"shuffle": True, "batch_sampler": [[1]]}, "batch_sampler"),
        ({"sampler": [1], "batch_sampler": [[1]]}, "batch_sampler"),
        ({"last_batch": "keep", "batch_sampler": [[1]]}, "batch_sampler"),
    ],
)
def test_arguments_that_contradict_are_a_value_error(gdata, arguments, named):
    with pytest.raises(ValueError, match=named):
        gdata.DataLoader([1, 2, 3], **arguments)
