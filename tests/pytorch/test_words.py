"""Errors, warnings and advice name the arguments of torch's loader, and the user's classes."""

import inspect
import os
import re
import signal

import pytest

import gluonloader
from gluonloader.torch.words import advice_in_torchs_words

from .sides import OURS, Numbers, Range, torch

data = torch.utils.data


class Endless(data.IterableDataset):
    def __iter__(self):
        yield from range(4)
        raise LookupError("of the stream")


class Dying(data.IterableDataset):
    def __iter__(self):
        yield 0
        os.kill(os.getpid(), signal.SIGKILL)


def fails(samples):
    raise LookupError("of collate_fn")


def said(error):
    """The text and the notes of an error, and the first line of the traceback of its worker."""
    remote = [] if error.__cause__ is None else [str(error.__cause__).partition("\n")[0]]
    return [str(error), *getattr(error, "__notes__", ()), *remote]


@pytest.mark.parametrize("workers", [0, 1])
def test_notes_of_errors(workers):
    with pytest.raises(LookupError) as caught:
        list(OURS(Numbers(), 4, collate_fn=fails, num_workers=workers))
    assert said(caught.value)[1] == "gluonloader: in collate_fn, batch 0 of epoch 0"
    assert "batchify_fn" not in str(said(caught.value))
    with pytest.raises(LookupError) as caught:
        list(OURS(Endless(), 2, num_workers=workers))
    assert said(caught.value)[1] == "gluonloader: in batch 2 of worker 0, iterable dataset Endless"
    assert "Replicas" not in str(said(caught.value))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "last", "text"),
    [
        (RuntimeError, (torch.zeros(3), 0), "at [0]: it has shape (3,), but other samples have shape (2,)"),
        (TypeError, None, "it is None, which cannot be stacked"),
    ],
)
def test_notes_name_the_sample_that_torch_cannot_collate(workers, kind, last, text):
    with pytest.raises(kind) as caught:
        list(OURS([(torch.zeros(2), 0)] * 3 + [last], 4, num_workers=workers))
    cause, place = said(caught.value)[1:3]
    assert cause.startswith("gluonloader: sample 3 of the batch")
    assert text in cause
    assert "batchify_fn" not in cause
    assert place == "gluonloader: in collate_fn, batch 0 of epoch 0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"collate_fn": lambda samples: samples}, "needs to pickle collate_fn, but this failed: Can't"),
        ({"worker_init_fn": lambda worker: worker}, "but this failed: worker_init_fn: Can't"),
    ],
)
def test_what_cannot_be_pickled(arguments, text):
    with pytest.raises(gluonloader.errors.TransportError, match=f"^multiprocessing_context='spawn' .*{text}") as caught:
        iter(OURS(Numbers(), 2, num_workers=1, multiprocessing_context="spawn", **arguments))
    assert str(caught.value).endswith("or use multiprocessing_context='fork'")


def test_a_batch_that_cannot_be_pickled():
    with pytest.raises(gluonloader.errors.TransportError, match="and containers of them from collate_fn"):
        list(OURS(Numbers(), 2, num_workers=1, collate_fn=lambda samples: [lambda: samples]))


@pytest.mark.kill
def test_a_worker_that_dies():
    with pytest.raises(gluonloader.errors.WorkerDied, match="it was busy with batch 1 of worker 0, or with collate_fn"):
        list(OURS(Dying(), 1, num_workers=1))


def test_warnings():
    loader = OURS(Range(8), 2)
    next(iter(loader))
    state, again = loader.state_dict(), OURS(Range(8), 2)
    again.load_state_dict(state)
    with pytest.warns(RuntimeWarning, match="resuming Range reads the samples of about 1 batch again") as caught:
        assert next(iter(again)).tolist() == [2, 3]
    assert caught[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="^prefetch_factor=2,000: .*; pass a smaller prefetch_factor, or remove"):
        iter(OURS(Numbers(), 1, num_workers=1, prefetch_factor=2000))


@pytest.mark.parametrize("persistent", [False, True])
def test_advice_names_only_arguments_of_the_class(persistent):
    loader = OURS(Numbers(100), 2, num_workers=1, persistent_workers=persistent)
    for _ in range(3):
        list(loader)
    advice = loader.stats().advice
    loader.close()
    assert advice
    assert set(re.findall(r"(\w+)=", advice)) <= inspect.signature(OURS).parameters.keys() | {"out"}
    assert not re.search(r"\b(prefetch|auto_reload|batchify_fn)\b", advice)


@pytest.mark.parametrize("persistent", [False, True])
def test_the_advice_for_short_epochs(persistent):
    start, cure = ", and each epoch starts when the program asks for it", ", or pass auto_reload=True"
    advice = advice_in_torchs_words(f"in flight{start}: raise prefetch{cure}", persistent)
    start, cure = ("", "") if persistent else (start, ", or pass persistent_workers=True")
    assert advice == f"in flight{start}: raise prefetch_factor{cure}"
    slow = advice_in_torchs_words("look at it with loader.replay(3, 14); raise prefetch", persistent)
    assert slow == "look at it with loader.replay(14); raise prefetch_factor"
