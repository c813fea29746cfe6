"""Checks the share of `Ranks`, and chooses what the ranks of a node have to agree on."""

from __future__ import annotations

import inspect
import platform
from dataclasses import replace
from functools import partial
from typing import Any

from ..checks import check_timeout
from ..describe import describe
from ..errors import bad_argument
from ..executors.shared.dataset_in_server import DatasetInServer, refuse_state
from ..executors.shared.fingerprint import fingerprints
from ..executors.shared.meeting import Meeting
from ..executors.shared.messages import CONTENT
from ..lengths import length_if_known
from ..loading.among_ranks import ranks_of
from ..loading.choice import Options
from ..work.task import Job
from .batching import Batching


def stand_in(dataset: Any) -> Any:
    """Wraps a function that returns a dataset; returns any other dataset unchanged."""
    is_function = inspect.isfunction(dataset) or inspect.ismethod(dataset) or isinstance(dataset, partial)
    return DatasetInServer(dataset) if is_function else dataset


def share_workers(
    share: str, batching: Batching, options: Options, seed_given: bool, job: Job, timeout: float | None
) -> Options:
    """The options of a loader whose ranks share workers.

    If the dataset is a function, this joins the server, which builds the dataset and tells its length.
    """
    check_timeout(timeout)
    dataset = job.dataset
    _check(share, job, options)
    ranks = ranks_of(batching.ranks, "repeat")
    in_server = isinstance(dataset, DatasetInServer)
    facts = {
        "dataset": describe(dataset),
        "len(dataset)": None if in_server else length_if_known(dataset),
        "batch_size": str(batching.batch_size),
        "shuffle": bool(batching.shuffle),
        "seed": job.seed if seed_given else None,
        "num_workers": options.num_workers,
        "batchify_fn": describe(job.batchify_fn),
        "worker_init_fn": describe(job.worker_init_fn),
        "concurrency": str(job.reading.concurrency),
        "on_error": describe(job.reading.on_error),
        "reseed_generators": bool(job.reading.reseed_generators),
        "the number of ranks": int(ranks.count),
        "Python": platform.python_version(),
        CONTENT: fingerprints(dataset=dataset.function if in_server else dataset, batchify_fn=job.batchify_fn),
    }
    meeting = Meeting(share, dataset, int(ranks.index), int(ranks.count), facts, options.start_method, timeout)
    if in_server:
        dataset.length = meeting.join_ahead(job).length
        dataset.has_length = dataset.length is not None
    return replace(options, executor="process", meeting=meeting, ranks=ranks.count)


def _check(share: str, job: Job, options: Options) -> None:
    if options.executor == "serial":
        right = "num_workers=0 starts no workers; pass num_workers, the number of workers for all ranks together"
        raise bad_argument("share", share, right)
    if options.executor not in ("process", "auto"):
        raise bad_argument("share", share, f"executor={options.executor!r} has no worker processes; remove one of them")
    if not job.iterable:
        refuse_state("share", share, job.dataset)
