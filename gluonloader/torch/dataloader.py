"""`DataLoader` with the arguments, attributes and batches of torch's.

torch's constructor checks the arguments and makes the samplers. Each `iter` starts a pass (passes.py) over them, and a
`gluonloader.DataLoader`, here called the core loader, makes the batches:

    torch's sampler --indices--> core loader --> worker: dataset, collate_fn --> core loader --> iterator --> user
       order.py                    core.py       reading.py    collate.py                       passes.py
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any, Final, Generic, Literal

from ..arguments.arguments import MOVED, check_executor
from ..checks import ErrorAction, check_functions, check_int, parse_bytes
from ..describe import arguments, call, describe, short_repr
from ..errors import bad_argument, explain_arguments
from ..loading.random_order import check_random_order
from ..options import OnError, Processes, Ray, Threads, as_on_error
from ..statistics.stats import LoaderStats
from ..statistics.trace import Trace
from ..tree import Batch
from .passes import Passes, SerialPassIterator, WorkersPassIterator
from .utils_data import TorchDataLoader, data

# For `explain_arguments`: arguments of `gluonloader.DataLoader`, and what to pass instead.
_ONLY_THERE: Final = ("auto_reload", "worker_payload")
_CORE_WORDS: Final = {
    "batchify_fn": "pass collate_fn instead",
    "last_batch": 'pass drop_last=True instead of last_batch="discard"',
    "prefetch": "pass prefetch_factor=prefetch // num_workers, the number of batches for each worker",
    "thread_pool": 'pass executor="thread" instead',
    "start_method": "pass multiprocessing_context instead",
    "seed": "call torch.manual_seed(seed), or pass generator=torch.Generator().manual_seed(seed)",
    "ranks": "pass sampler=torch.utils.data.DistributedSampler(dataset) instead",
    "output": "remove output; the default collate_fn makes tensors",
    "pin_device_id": "remove pin_device_id; pin_memory=True is enough",
    "num_shards": "remove it: as with torch, each worker reads the whole dataset, and makes its own batches",
    "shuffle_buffer": "remove it: as with torch, an iterable dataset is not shuffled",
    "reseed_generators": "remove it: as with torch, generators that the dataset holds are not seeded",
    "share": 'use gluonloader.DataLoader(..., output="torch", ranks=Ranks.of("env", share="node"))',
    **{name: MOVED[name] for name in ("max_retries", "max_per_worker", "ray_options", "max_errors")},
    **{name: f'use gluonloader.DataLoader(..., output="torch"), which has {name}' for name in _ONLY_THERE},
}


class DataLoader(TorchDataLoader, Generic[Batch]):
    """A `torch.utils.data.DataLoader` whose batches are loaded by gluonloader.

    The arguments are those of torch, in the same order, with five more. The batches contain the same samples in the
    same order as torch's for the same seeds. docs/torch.md lists what differs.

    Without `persistent_workers`, workers start at each `iter(loader)`, with the dataset as it is then, and end with the
    iterator. With `persistent_workers=True` they start at the first `iter(loader)`, and end at `close()`, or when the
    loader is deleted.

    Args:
        executor: where the workers run: "process"; "thread", for datasets that several threads may read, whose random
            numbers should come from `gluonloader.get_rng()`; "ray", as actors of Ray; "auto" for threads where all
            parts of the loader allow it, otherwise processes; None for processes. `Processes` and `Ray` of
            `gluonloader.options` have options: `Processes(max_retries=3)`.
        memory_limit: the maximum shared memory for batches, in bytes or as text ("256MB"); None for no limit.
        concurrency: how many samples of a batch each worker reads at the same time, in threads.
        on_error: what happens if a sample raises an error: "raise" it; "skip" the sample; "replace" it by another
            sample of the same batch; or a function that gets the error and a `BadSample`, and returns a sample, or
            `SKIP`. If more than 1 % of the dataset do, the epoch ends with `TooManyErrors`;
            `gluonloader.options.OnError` sets another limit. Not for an iterable dataset.
        snapshot_every_n_steps: accepted for code that was written for torchdata's `StatefulDataLoader`, and ignored:
            states are exact after each batch.

    Raises:
        ValueError: an argument is wrong.
    """

    @explain_arguments(**_CORE_WORDS)
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        executor: Literal["process", "thread", "ray", "auto"] | Processes | Threads | Ray | None = None,
        memory_limit: int | str | None = None,
        concurrency: int = 1,
        on_error: ErrorAction | OnError = "raise",
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        if isinstance(dataset, data.IterDataPipe):
            raise ValueError("dataset: it is an IterDataPipe of torch; pass a torch.utils.data.IterableDataset instead")
        check_functions(collate_fn=collate_fn, worker_init_fn=worker_init_fn)
        own = _checked(dataset, num_workers, executor, memory_limit, concurrency, on_error)
        self._gluonloader = Passes(**own)
        for name, value in {**own, "snapshot_every_n_steps": snapshot_every_n_steps}.items():
            if not hasattr(self, name):  # a subclass may use the name; trainers read the arguments from attributes
                setattr(self, name, value)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        check_random_order(dataset, shuffle, sampler, batch_sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "seek":  # of gluonloader.DataLoader
            cure = "load a state_dict(), or use gluonloader.DataLoader(..., output='torch'), which has seek"
            raise AttributeError(f"a gluonloader.torch.DataLoader has no attribute {name!r}; {cure}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Any]:
        """Starts a pass over the sampler. Iterators are independent, also with `persistent_workers`."""
        iterator: Iterator[Any] = self._gluonloader.iterate(self)
        return iterator

    def _get_iterator(self) -> Any:
        return WorkersPassIterator(self) if self.num_workers else SerialPassIterator(self)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last delivered batch of the newest iterator, as a dict that JSON can store.

        As in torchdata's `StatefulDataLoader`: a state that is saved inside the loop after the last batch has no batch
        left; a state that is saved after the loop is the start of the next pass.

        Raises:
            TypeError: the state of your own sampler or dataset contains something that JSON does not have.
        """
        return self._gluonloader.state(self)

    def load_state_dict(self, state: Any) -> None:
        """Makes the next `iter(loader)` start at the position `state`, without reading the samples before it.

        torch's generators, also the global one, get the state that they had at the start of the saved pass, since the
        order is drawn from them again. For an iterable dataset, `num_workers` must be the same as when it was saved.

        Args:
            state: what `state_dict()` returned, or the same as JSON text.

        Raises:
            ValueError: the state does not fit this loader, or was edited; the text names the field. Nothing has
                changed.
        """
        self._gluonloader.load(self, state)

    def stats(self) -> LoaderStats:
        """How long the program and the workers of the newest iterator waited, and what to change; `print` shows it.

        With `persistent_workers`, the statistics are those of all iterators.

        Raises:
            RuntimeError: there was no iterator yet.
        """
        return self._gluonloader.stats()

    def trace(self, path: str | os.PathLike[str], batches: int = 10_000) -> Trace:
        """Starts to record what the program and each worker do, for a trace viewer such as https://ui.perfetto.dev.

        It records the iterator that is open, or the next one. Without `persistent_workers`, it ends with that iterator.

        Args:
            path: the JSON file to write, when the recording is stopped.
            batches: the recording ends after this many batches; each takes about 1 kB of the file.

        Returns:
            A `Trace`, to be used in a `with` block; or call its method `stop()`.

        Raises:
            OSError: the file cannot be written.
        """
        return self._gluonloader.trace(path, batches)

    def indices(self, batch: int) -> Any:
        """What the sampler yields, or has yielded, for a batch of the newest iterator.

        The order is drawn again from the states that torch's generators had at the start of the iterator, and compared
        with what was drawn last. The generators, the sampler and the iterator stay as they are.

        Args:
            batch: the number of the batch in its pass over the sampler, from 0 on.

        Returns:
            The list of indices; for `batch_size=None` the only index.

        Raises:
            RuntimeError: there was no iterator yet.
            ValueError: there is no such batch, or the order cannot be drawn again; the text names the sampler.
            TypeError: the dataset is iterable.
        """
        return self._gluonloader.indices(self, batch)

    def replay(self, batch: int) -> Any:
        """Makes a batch of the newest iterator again, with the same random numbers.

        It is made in the calling thread, so you can step through the dataset with a debugger. `worker_init_fn` is not
        called, and `torch.utils.data.get_worker_info()` is None there.

        Args:
            batch: as for `indices`.

        Raises:
            RuntimeError, ValueError, TypeError: as for `indices`.
            Exception: any exception of the dataset or collate_fn, as `next` raises it.
        """
        return self._gluonloader.replay(self, batch)

    def close(self) -> None:
        """Ends the workers and frees the shared memory; the next `iter(loader)` starts new workers.

        Batches that were delivered stay valid. Only `persistent_workers` need it, and only if the loader is not
        deleted. `with DataLoader(...) as loader` closes the loader at the end of the block.
        """
        self._gluonloader.close()

    def __enter__(self) -> DataLoader[Batch]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @short_repr
    def __repr__(self) -> str:
        sampler = None if isinstance(self.dataset, data.IterableDataset) else self.sampler
        shown = arguments(batch_size=self.batch_size, sampler=sampler, num_workers=self.num_workers or None)
        return call(self, describe(self.dataset), *shown)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gluonloader": copy.copy(self._gluonloader), "_iterator": None}


def _checked(
    dataset: Any, num_workers: Any, executor: Any, memory_limit: Any, concurrency: Any, on_error: Any
) -> dict[str, Any]:
    """The arguments that torch does not have, by name."""
    parse_bytes(memory_limit)
    own = {
        "executor": check_executor(executor, num_workers),
        "memory_limit": memory_limit,
        "concurrency": check_int("concurrency", concurrency, 1),
        "on_error": on_error,
    }
    tolerates = as_on_error(on_error) is not None
    if isinstance(dataset, data.IterableDataset) and (concurrency > 1 or tolerates):
        name, value = ("concurrency", concurrency) if concurrency > 1 else ("on_error", on_error)
        raise bad_argument(name, value, "torch's iterable datasets make their samples themselves; remove it")
    return own
