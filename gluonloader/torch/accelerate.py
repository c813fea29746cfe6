"""`prepare` and `skip_first_batches` of Hugging Face Accelerate that keep `gluonloader.torch.DataLoader`.

Accelerate builds a new loader from the attributes of the loader that it prepares, and the new loader is always torch's.
The functions here let Accelerate do that: it decides which process reads which samples, puts batches on the device, and
tells gradient accumulation where an epoch ends. Then they replace torch's loader by ours with the same arguments:

    accelerate.DataLoaderShard              one batch ahead, device, GradientState
        .base_dataloader                    torch.utils.data.DataLoader -> gluonloader.torch.DataLoader
            .batch_sampler                  accelerate.BatchSamplerShard: the batches of this process
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from ..bridges.bridge import Bridge
from ..errors import import_extra
from ..loader import DataLoader as CoreDataLoader
from .converting import arguments_of
from .dataloader import DataLoader
from .utils_data import TorchDataLoader, torch

__all__ = ["keep_gluonloader", "prepare", "skip_first_batches"]


def prepare(accelerator: Any, *objects: Any) -> Any:
    """Prepares models, optimizers and loaders like `accelerator.prepare`, but keeps `gluonloader.torch.DataLoader`.

    Accelerate divides the batches over the processes (`split_batches`, `even_batches`, `dispatch_batches` and
    `use_seedable_sampler` have their usual meaning), and puts them on the device of the process.

    Args:
        accelerator: an `accelerate.Accelerator`.
        objects: everything that `accelerator.prepare` accepts.

    Returns:
        The prepared objects in the same order, or the prepared object if there is only one.

    Raises:
        TypeError: a loader is a `gluonloader.DataLoader` or a bridge, whose samples Accelerate cannot divide.
        ValueError: with several processes, `use_stateful_dataloader=True` needs `dispatch_batches=False`.
    """
    for item in objects:
        if isinstance(item, (CoreDataLoader, Bridge)):
            raise TypeError(
                f"prepare: Accelerate cannot divide the samples of a gluonloader.{type(item).__name__} over the "
                "processes; pass a gluonloader.torch.DataLoader instead"
            )
    kept = [_prepare_loader(accelerator, item) if isinstance(item, DataLoader) else item for item in objects]
    return accelerator.prepare(*kept)  # it returns loaders that are prepared as they are


def _prepare_loader(accelerator: Any, loader: DataLoader[Any]) -> Any:
    config = accelerator.dataloader_config
    stateful = config.use_stateful_dataloader
    config.use_stateful_dataloader = False  # or Accelerate starts the workers of the loader that is replaced here
    try:
        prepared = accelerator.prepare(loader)
    finally:
        config.use_stateful_dataloader = stateful
    if stateful and accelerator.num_processes > 1 and type(prepared).__name__ == "DataLoaderDispatcher":
        raise ValueError(
            "prepare: use_stateful_dataloader=True saves wrong positions if one process reads the batches of all "
            f"{accelerator.num_processes} processes; pass dispatch_batches=False to the DataLoaderConfiguration"
        )
    prepared.use_stateful_dataloader = stateful
    return keep_gluonloader(prepared, loader)


def skip_first_batches(loader: Any, num_batches: int = 0) -> Any:
    """Returns a loader for the rest of an epoch: without its first `num_batches` batches.

    Like `accelerate.skip_first_batches`, but keeps our loader.

    Args:
        loader: what `prepare` returned, or any other loader.
        num_batches: number of batches of this process to skip. Their samples are not read, except from an
            iterable dataset.

    Raises:
        ValueError: the loader was prepared with `use_stateful_dataloader=True`. Then `accelerator.load_state` already
            restores the position.
    """
    if num_batches and getattr(loader, "use_stateful_dataloader", False):
        raise ValueError(
            f"skip_first_batches(num_batches={num_batches}): with use_stateful_dataloader=True, accelerator.load_state "
            "already restores the position; iterate over the loader itself"
        )
    rest = import_extra("accelerate", "accelerate").skip_first_batches(loader, num_batches)
    base = getattr(loader, "base_dataloader", loader)
    if not isinstance(base, DataLoader):
        return rest
    kept = keep_gluonloader(rest, base)
    if num_batches and isinstance(base, _Base):
        kept.base_dataloader.continue_epoch()
    return kept


def keep_gluonloader(loader: Any, like: DataLoader[Any] | None = None) -> Any:
    """Puts our loader into a loader that Accelerate has prepared from torch's.

    For code that cannot call `prepare`; `gluonloader.torch.transformers` uses it for the loaders of a `Trainer`.

    Args:
        loader: what `accelerator.prepare` returned for a `torch.utils.data.DataLoader`.
        like: the loader whose `executor` and `memory_limit` are used.

    Returns:
        The changed `loader`; if `loader` is torch's own, a new loader of ours; anything else unchanged.
    """
    base = getattr(loader, "base_dataloader", loader)
    if isinstance(base, DataLoader) or not isinstance(base, TorchDataLoader):
        return loader
    arguments = arguments_of(base)
    if like is not None:
        arguments.update(like._gluonloader.more)
    if base is loader:
        return DataLoader(base.dataset, **arguments)
    sampler = loader.get_sampler()
    if hasattr(sampler, "initial_seed") and sampler.generator is None:  # a SeedableRandomSampler seeds it in each epoch
        sampler.generator = torch.Generator()
    loader.base_dataloader = _Base(loader, base.dataset, **arguments)
    loader.dl_state_dict = loader.base_dataloader.state_dict()
    return loader


class _Base(DataLoader[Any]):
    """Our loader inside a loader of Accelerate, which reads the state before each batch, even if nobody needs it."""

    def __init__(self, outer: Any, dataset: Any, **arguments: Any) -> None:
        self._outer: Any = weakref.proxy(outer)
        self._continues = False
        super().__init__(dataset, **arguments)

    def continue_epoch(self) -> None:
        """The next iteration is the rest of an epoch: it leaves torch's generator, which dropout uses, as it is."""
        self._continues = True

    def __iter__(self) -> Iterator[Any]:
        if not self._continues:
            return super().__iter__()
        self._continues = False
        state = torch.get_rng_state()
        try:
            return super().__iter__()
        finally:
            torch.set_rng_state(state)

    def state_dict(self) -> dict[str, Any]:
        outer = self._outer
        if not outer.use_stateful_dataloader:
            return {}
        ended = outer.end_of_dataloader
        return {**super().state_dict(), "iteration": outer.iteration + ended, "_iterator_finished": ended}

    def load_state_dict(self, state: Any) -> None:
        if not self._outer.use_stateful_dataloader:
            raise ValueError(
                "this loader was prepared without a state; pass DataLoaderConfiguration(use_stateful_dataloader=True) "
                "to the Accelerator, or use skip_first_batches"
            )
        super().load_state_dict({name: state[name] for name in state.keys() - {"iteration", "_iterator_finished"}})
        self._outer.set_epoch(state["iteration"])  # on which the order depends
        self._outer.dl_state_dict = dict(state)  # if it is saved again before the first batch
        if not state["_iterator_finished"] and state["position"] is not None:
            self.continue_epoch()
