"""Streams of Hugging Face: what their steps do to shards, states and epochs.

The package `datasets` is not imported here: if the dataset is a stream, its package has been imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_SPLIT_STEPS: Final = {"TakeExamplesIterable": "take", "SkipExamplesIterable": "skip"}


def is_stream(dataset: Any) -> bool:
    """Whether the dataset is a stream of Hugging Face."""
    return hasattr(dataset, "_ex_iterable")


def is_split(dataset: Any) -> bool:
    """Whether `split_dataset_by_node` has split the stream among ranks."""
    return getattr(dataset, "_distributed", None) is not None


def loses_samples(dataset: Any) -> bool:
    """Whether it is a stream with a shuffle buffer, whose samples are lost at `load_state_dict`."""
    return any(type(step).__name__ == "BufferShuffledExamplesIterable" for step in _steps(dataset))


def steps_in_shards(dataset: Any) -> set[str]:
    """The steps of a stream that choose other samples if the stream is split into shards.

    Hugging Face applies these steps to each shard separately. For example, `interleave_datasets` ends in each shard
    when its first dataset ends there.
    """
    found = set[str]()
    for step in _steps(dataset):
        name, strategy = type(step).__name__, getattr(step, "stopping_strategy", "")
        if name.endswith("CyclingMultiSourcesExamplesIterable") and strategy != "all_exhausted_without_replacement":
            found.add("interleave_datasets")
        elif name in _SPLIT_STEPS and getattr(step, "split_when_sharding", True):
            found.add(_SPLIT_STEPS[name])
    return found


def _steps(dataset: Any) -> Iterator[Any]:
    """All steps of a stream; none of another dataset."""
    left = [getattr(dataset, "_ex_iterable", None)]
    while left:
        step = left.pop()
        if step is not None:
            yield step
            left += [getattr(step, "ex_iterable", None), *getattr(step, "ex_iterables", ())]
