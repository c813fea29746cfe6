"""Accelerate: our loader is kept, divided over processes by the same rules, and resumes exactly."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("accelerate")

import accelerate  # noqa: E402
import torch  # noqa: E402
from accelerate.utils import DataLoaderConfiguration  # noqa: E402

import gluonloader  # noqa: E402
from gluonloader.options import Processes
from gluonloader.torch import DataLoader  # noqa: E402
from gluonloader.torch.accelerate import keep_gluonloader, prepare, skip_first_batches  # noqa: E402

from .training import BATCH, SAMPLES, Points, run  # noqa: E402


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("way", "processes"),
    [
        ("stateful", 2),
        ("skip", 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("stateful", 1), ("skip", 2)]),
    ],
)
def test_a_run_that_is_resumed_in_mid_epoch_has_the_same_losses(tmp_path, way, processes):
    trained = run("accelerate_program", tmp_path, "train", way, processes=processes)
    resumed = run("accelerate_program", tmp_path, "resume", way, processes=processes)
    assert sorted(resumed) == sorted([step for step in steps if step[:2] > [1, 5]] for steps in trained)
    assert len(trained) == processes
    for epoch in range(3):
        indices = [index for steps in trained for step in steps if step[0] == epoch for index in step[3]]
        assert sorted(indices) == list(range(SAMPLES))
    # Three batches accumulate; the last batch of an epoch updates the weights, although fewer have accumulated.
    last = SAMPLES // BATCH // processes - 1
    assert all(updates is ((step + 1) % 3 == 0 or step == last) for _, step, *_, updates in trained[0])


@pytest.mark.spawn
@pytest.mark.parametrize("processes", [1, 2])
def test_processes_read_the_same_batches_as_from_torchs_loader(processes):
    cases = run("sharding_program", processes=processes)
    assert len(cases) == processes * 10
    for name, expected, found in cases:
        if name == "error":
            assert ("pass dispatch_batches=False" in expected) is (processes > 1)
        else:
            assert found == expected, name
    epochs = [found[0] for name, _, found in cases if name == "even"]
    indices = {index for epoch in epochs for batch, *_ in epoch for index in batch}
    assert indices == set(range(20))


def test_other_objects_and_other_loaders_are_prepared_as_usual():
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())
    theirs = torch.utils.data.DataLoader(Points(reader="torch"), batch_size=4)
    ours = DataLoader(Points(), batch_size=4, num_workers=1, executor=Processes(max_retries=3), memory_limit="32MB")
    prepared = prepare(accelerator, model, optimizer, theirs, ours)
    assert prepared[0] is model
    assert isinstance(prepared[1], accelerate.optimizer.AcceleratedOptimizer)
    assert type(prepared[2].base_dataloader) is torch.utils.data.DataLoader
    kept = prepared[3].base_dataloader
    assert isinstance(kept, DataLoader)
    assert (kept.num_workers, kept.executor, kept.memory_limit) == (1, Processes(max_retries=3), "32MB")
    assert isinstance(prepared[3], torch.utils.data.DataLoader)
    assert prepare(accelerator, prepared[3]) is accelerator.prepare(prepared[3]) is prepared[3]
    assert [batch["index"].tolist() for batch in skip_first_batches(prepared[2], 10)] == [[40, 41, 42, 43]]


def test_the_first_batches_of_a_loader_that_is_not_prepared_can_be_skipped():
    rest = skip_first_batches(DataLoader(Points(), batch_size=4, memory_limit="32MB"), 9)
    assert isinstance(rest, DataLoader)
    assert rest.memory_limit == "32MB"
    assert [batch["index"].tolist() for batch in rest] == [[36, 37, 38, 39], [40, 41, 42, 43]]


@pytest.mark.parametrize("kind", ["DataLoader", "Bridge"])
def test_a_loader_whose_samples_cannot_be_divided_is_refused(kind):
    loader = gluonloader.DataLoader([1], batch_size=1) if kind == "DataLoader" else gluonloader.bridge([1])
    with pytest.raises(TypeError, match=rf"gluonloader\.{kind} .* pass a gluonloader\.torch\.DataLoader"):
        prepare(accelerate.Accelerator(cpu=True), loader)


def test_a_loader_without_a_state_does_not_load_one():
    loader = prepare(accelerate.Accelerator(cpu=True), DataLoader(Points(), batch_size=4))
    next(iter(loader))
    with pytest.raises(ValueError, match="use_stateful_dataloader=True"):
        loader.load_state_dict(loader.state_dict())


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.utils.data.Subset(Points(14), range(14)))


STATEFUL = {
    "serial": (lambda: Points(14), 0, {}, {"shuffle": True}),
    "seedable": (lambda: Points(14), 2, {"use_seedable_sampler": True}, {"shuffle": True}),
    "persistent": (lambda: Points(14), 1, {}, {"shuffle": True, "persistent_workers": True}),
    "stream": (Stream, 1, {}, {}),
}


def prepared(dataset, workers, config, arguments):
    accelerate.state.AcceleratorState._reset_state()
    accelerate.state.GradientState._reset_state()
    accelerate.utils.set_seed(3)
    config = DataLoaderConfiguration(use_stateful_dataloader=True, **config)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
    return prepare(accelerator, DataLoader(dataset(), batch_size=4, num_workers=workers, **arguments))


@pytest.mark.filterwarnings("ignore:resuming:RuntimeWarning")  # the stream has no state
@pytest.mark.parametrize("case", STATEFUL)
def test_each_state_of_an_epoch_is_resumed_exactly(case):
    loader = prepared(*STATEFUL[case])
    states, epochs = [], []
    for epoch in range(3):
        epochs.append([])
        for batch in loader:
            epochs[-1].append(batch["x"].tolist())
            states.append((epoch, json.dumps(loader.state_dict()), torch.get_rng_state()))
    for number, (epoch, state, generator) in enumerate(states):
        resumed = prepared(*STATEFUL[case])
        resumed.load_state_dict(json.loads(state))
        torch.set_rng_state(generator)  # as accelerator.load_state does
        rest = epochs[epoch][number % 4 + 1 :]
        expected = [rest] * bool(rest) + epochs[epoch + 1 :]  # after the last batch, the next epoch starts
        assert [[batch["x"].tolist() for batch in resumed] for _ in expected] == expected


def test_a_state_that_was_loaded_can_be_saved_again():
    loader = prepared(*STATEFUL["seedable"])
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed, again = prepared(*STATEFUL["seedable"]), prepared(*STATEFUL["seedable"])
    resumed.load_state_dict(state)
    again.load_state_dict(resumed.state_dict())
    assert [batch["index"].tolist() for batch in again] == [batch["index"].tolist() for batch in iterator]


def test_the_position_is_not_restored_twice():
    loader = prepared(lambda: Points(14), 0, {}, {})
    with pytest.raises(ValueError, match="accelerator.load_state already restores the position"):
        skip_first_batches(loader, 2)


def test_only_loaders_of_torch_are_replaced():
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(Points(), batch_size=4))
    assert keep_gluonloader(loader) is loader
    assert [len(batch["index"]) for batch in loader] == [4] * 11
    assert keep_gluonloader(loader) is loader
    assert keep_gluonloader([1]) == [1]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(gluonloader.errors.MissingExtraError, match=r'run pip install "gluonloader\[accelerate\]"'):
        skip_first_batches(DataLoader(Points(), batch_size=4), 2)


@pytest.mark.spawn
def test_accelerate_is_imported_only_when_it_is_used():
    code = (
        "import sys, gluonloader.torch.accelerate, gluonloader.torch.transformers; print('accelerate' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
