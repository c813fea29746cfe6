"""Checks the argument `share` of `DataLoader`, and chooses what the ranks of a node have to agree on."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..dataset.iterable import is_iterable
from ..describe import describe
from ..errors import bad_argument
from ..executors.shared.built_there import BuiltThere
from ..executors.shared.node import Node
from ..state import has_state
from ..work.task import Job
from .among_ranks import ranks_of
from .batching import Batching
from .choice import Options
from .lengths import length_if_known


def stand_in(dataset: Any) -> Any:
    """What stands for the dataset of a function on all ranks; any other argument `dataset` stays as it is."""
    is_function = inspect.isfunction(dataset) or inspect.ismethod(dataset) or isinstance(dataset, partial)
    return BuiltThere(dataset) if is_function else dataset


def share_workers(share: Any, batching: Batching, options: Options, seed_given: bool, job: Job) -> Options:
    """The options of a loader whose ranks share workers; for the arguments see `DataLoader`.

    If the dataset is a function, this joins the server, which builds the dataset and tells its length.

    Args:
        job: as far as it is known without the length of the dataset.
    """
    dataset = job.dataset
    _check(share, dataset, batching, options)
    facts = {
        "dataset": describe(dataset),
        "len(dataset)": None if isinstance(dataset, BuiltThere) else length_if_known(dataset),
        "batch_size": str(batching.batch_size),
        "shuffle": bool(batching.shuffle),
        "seed": job.seed if seed_given else None,
        "num_workers": options.num_workers,
        "batchify_fn": describe(job.batchify_fn),
        "the number of ranks": _count_of(batching.ranks),
    }
    node = Node(share, dataset, _version(), facts, options.start_method)
    if isinstance(dataset, BuiltThere):
        # A number above 0 stands for all samples of the dataset.
        is_own = batching.sampler is None and batching.batch_sampler is None
        reading = replace(job.reading, replace_from=int(is_own and job.reading.on_error == "replace"))
        dataset.set_length(node.join_ahead(replace(job, reading=reading)).length or 0)
    return replace(options, executor="process", node=node, ranks=_count_of(batching.ranks))


def _check(share: Any, dataset: Any, batching: Batching, options: Options) -> None:
    if not isinstance(share, str) or not (share == "node" or share.removeprefix("node:") not in (share, "")):
        raise bad_argument("share", share, "must be 'node', 'node:' and a name, e.g. 'node:validation', or None")
    if options.executor not in ("process", "auto"):
        right = f"executor={options.executor!r} has no worker processes; pass num_workers, their number for all ranks"
        raise bad_argument("share", share, right)
    kind = type(dataset).__name__
    if is_iterable(dataset) and batching.ranks is None:
        right = f"workers that are shared cannot know which shards of {kind} each rank reads; pass ranks, e.g. 'env'"
        raise bad_argument("share", share, right)
    if not is_iterable(dataset) and has_state(dataset):
        right = f"{kind} has a state_dict(), so each rank may load another state; remove share"
        raise bad_argument("share", share, right)


def _count_of(ranks: Any) -> int:
    """The number of ranks that the argument `ranks` says; 1 without ranks."""
    return 1 if ranks is None else ranks_of(ranks, "repeat").count


def _version() -> str:
    try:
        return version("gluonloader")
    except PackageNotFoundError:  # it was not installed, but copied
        return "unknown"
