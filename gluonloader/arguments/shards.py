"""Checks the arguments of `DataLoader` for an iterable dataset, and makes its source of tasks."""

from __future__ import annotations

from typing import Any, Final

from ..checks import check_int, check_last_batch
from ..dataset.iterable import asked, check_iterable, check_split, varying_steps
from ..describe import class_name
from ..errors import bad_argument, warn
from ..loading.among_ranks import dividing_argument, ranks_of, refuse_unseeded
from ..loading.shard_source import ShardSource, quota_of, stated_lengths
from ..position.shards import Shards
from ..ranks import Ranks
from .batching import Batching

_SHUFFLE_BUFFER: Final = 1000  # samples


def choose_shards(dataset: Any, batching: Batching, seed_given: bool, num_workers: int) -> ShardSource:
    """The source of tasks of an iterable dataset."""
    ranks = Ranks(0, 1, "uneven") if batching.ranks is None else ranks_of(batching.ranks, "uneven")
    if batching.ranks is not None and not seed_given:
        refuse_unseeded(batching.ranks)
    shards = _shards(dataset, batching, ranks, num_workers)
    stated = stated_lengths(ranks.shard_lengths, shards)
    return ShardSource(shards, stated, quota_of(dataset, shards, ranks, stated))


def _shards(dataset: Any, batching: Batching, ranks: Ranks, num_workers: int) -> Shards:
    check_iterable(dataset)
    for name in ("sampler", "batch_sampler"):
        if (value := getattr(batching, name)) is not None:
            right = f"{class_name(dataset)} is an iterable dataset, which sets the order itself; remove {name}"
            if batching.ranks is not None and (sampler := dividing_argument(batching.sampler, batching.batch_sampler)):
                right = f"ranks and {sampler} both divide the samples among the ranks; remove one of them: "
                right += f"remove {name}, since {class_name(dataset)} sets the order itself"
            raise bad_argument(name, value, right)
    size = 1 if batching.batch_size is None else check_int("batch_size", batching.batch_size, 1)
    least, given = ranks.count, asked(dataset, "num_shards")
    shards = least * max(1, num_workers) if given is None else given
    if shards < least:
        raise bad_argument("num_shards", given, f"each of the {least} ranks needs a shard; pass at least {least}")
    check_split(dataset, shards, batching.ranks is not None)
    if given is None and (steps := varying_steps(dataset, shards)):
        _warn_of_steps(sorted(steps), shards, least)
    buffer = asked(dataset, "shuffle_buffer") or _SHUFFLE_BUFFER if batching.shuffle else 0
    last_batch = "keep" if batching.last_batch is None else check_last_batch(batching.last_batch)
    return Shards(shards, size, last_batch, buffer, num_workers, ranks.index, ranks.count)


def _warn_of_steps(steps: list[str], shards: int, ranks: int) -> None:
    """Warns that other numbers of workers would yield other samples."""
    who = f"{' and '.join(steps)} of Hugging Face {'apply' if len(steps) > 1 else 'applies'}"
    each = "worker of each rank" if ranks > 1 else "worker"
    whole = "" if ranks > 1 else "num_shards=1 for the samples that the dataset itself yields, or "
    warn(
        f"{who} to each shard separately, so the samples depend on the number of shards, which is one for each {each} "
        f"by default (here {shards}); pass {whole}num_shards={shards} to get these samples with any number of workers: "
        f"IterableDataset(dataset, num_shards={shards})"
    )
