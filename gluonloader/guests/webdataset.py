"""WebDataset pipelines: each shard reads some of the URLs, and the loader seeds what shuffles.

    URLs -> split by worker -> shuffle URLs -> open -> samples -> shuffle samples -> decode     a pipeline
    URLs -> every n-th URL  -> seeded       -> open -> samples -> seeded          -> decode     the same, as a shard

The package `webdataset` is not imported here: if the dataset is a pipeline, its package has been imported.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ..errors import bad_argument
from ..messages import message
from ..randomness import get_rng

_FOR_TORCH: Final = ("split_by_worker", "single_node_only")  # the loader splits, and `check_nodes` checks the nodes


@message(frozen=True, slots=True)
class _EveryNth:
    """The stage that passes on the URLs of one shard."""

    num_shards: int
    index: int

    def __call__(self, urls: Iterator[Any]) -> Iterator[Any]:
        return islice(urls, self.index, None, self.num_shards)


def is_pipeline(dataset: Any) -> bool:
    """Whether the dataset is a pipeline of WebDataset."""
    return any(
        base.__module__ == "webdataset.pipeline" and base.__name__ == "DataPipeline" for base in type(dataset).__mro__
    )


def url_count(pipeline: Any) -> int | None:
    """The number of URLs; None if the pipeline has to be read as a whole, since it counts samples or has no list."""
    urls = getattr(pipeline.pipeline[0], "urls", None)
    counts = pipeline.nsamples > 0 or any(getattr(stage, "f", None) is islice for stage in pipeline.pipeline)
    return len(urls) if isinstance(urls, list) and not counts and not _is_resampled(pipeline) else None


def url_shard(pipeline: Any, num_shards: int, index: int) -> Any:
    """The pipeline that reads every `num_shards`-th URL."""
    stages = list(pipeline.pipeline)
    by_node = [_name(stage) for stage in stages[1:2]] == ["split_by_node"]
    stages.insert(2 if by_node else 1, _EveryNth(num_shards, index))
    if num_shards > 1:  # a single shard may be empty
        stages = [stage for stage in stages if _name(stage) != "check_empty"]
    return _with_stages(pipeline, stages)


def open_pipeline(pipeline: Any) -> Iterator[Any]:
    """An iterator whose order depends only on the state of `get_rng`, and on the shard."""
    shard = next((stage for stage in pipeline.pipeline if isinstance(stage, _EveryNth)), None)
    seed = f"{get_rng().integers(2**63)} {shard}"
    kept = [stage for stage in pipeline.pipeline if _name(stage) not in _FOR_TORCH]
    return iter(_with_stages(pipeline, [_seeded(stage, f"{seed} {number}") for number, stage in enumerate(kept)]))


def _with_stages(pipeline: Any, stages: list[Any]) -> Any:
    pipeline = copy.copy(pipeline)
    pipeline.pipeline = stages
    return pipeline


def _seeded(stage: Any, seed: str) -> Any:
    """The stage. It is a copy if it may have a state, and gets the seed if it shuffles."""
    if type(stage).__name__ == "detshuffle":
        stage = copy.copy(stage)
        stage.seed = random.Random(seed).getrandbits(32)
    elif _name(getattr(stage, "f", None)) == "_shuffle":
        stage = copy.copy(stage)
        options = {name: value for name, value in stage.kw.items() if name != "seed"}
        stage.kw = {**options, "rng": random.Random(seed)}
    elif hasattr(stage, "run"):
        stage = copy.copy(stage)
    return stage


def _name(stage: Any) -> str:
    """The name of a function, also if arguments are bound to it; of any other object the empty text."""
    return getattr(getattr(stage, "func", stage), "__name__", "")


def _is_resampled(pipeline: Any) -> bool:
    """Whether the URLs are drawn at random, without end."""
    return hasattr(pipeline.pipeline[0], "nshards") or any(
        _name(getattr(stage, "f", None)) == "resampled_" for stage in pipeline.pipeline
    )


def check_pipeline(pipeline: Any, num_shards: int, has_ranks: bool) -> None:
    """Raises a ValueError if samples would be lost or come twice when the pipeline is split."""
    names, world = [_name(stage) for stage in pipeline.pipeline], int(os.environ.get("WORLD_SIZE", 1))
    if num_shards > 1 and _is_resampled(pipeline):
        right = "it draws URLs at random, so shards would overlap; pass resampled=False, and shuffle=True to the loader"
        raise bad_argument("dataset", pipeline, right)
    if has_ranks and "split_by_node" in names:
        right = "its nodesplitter and the argument ranks would both split the data; remove nodesplitter=split_by_node"
        raise bad_argument("dataset", pipeline, right)
    if not has_ranks and world > 1 and "single_node_only" in names:
        right = "each process would read all URLs; pass ranks='env' and a seed to the loader"
        raise bad_argument("dataset", pipeline, right)
    if world > 1 and "split_by_node" in names[2:]:
        right = "processes may shuffle URLs differently before split_by_node; remove it, and pass ranks='env'"
        raise bad_argument("dataset", pipeline, right)
