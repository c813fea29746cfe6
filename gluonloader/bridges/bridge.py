"""`bridge`: gives another library's loader, its source, the interface of `DataLoader`.

    bridge(source) --> Bridge --> Epochs --> BridgePlan (plan.py) --> thread executor --> SourceReader (reader.py)

It has the epochs, the thread executor, the iterators and the statistics of a `DataLoader`. Only the source is another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..arguments.arguments import choose_delivery
from ..batchify import only_sample
from ..checks import check_int
from ..describe import call, describe, short_repr
from ..iterator import LoaderIterator
from ..loading.choice import Options
from ..loading.epochs import Epochs
from ..loading.workers import Workers
from ..state import add_checksum, parse_state
from ..statistics.advice import advise_on_source
from ..statistics.stats import LoaderStats
from ..tree import leaves
from ..work.task import Job, Task
from .plan import BridgeTasks
from .reader import SourceReader
from .source import BridgeSource, convert


def bridge(
    source: Any,
    prefetch: int = 2,
    output: str | Callable[[Any], Any] | None = None,
    pin_memory: bool = False,
    timeout: float | None = 120,
) -> Bridge:
    """Wraps another library's loader in the interface of `DataLoader`, and reads its batches ahead in a thread.

    Args:
        source: an object that yields batches. It is an object that can be iterated again for each epoch (torch's
            DataLoader, a list); an iterator with `reset()`, which is called once between two epochs (`mx.io.DataIter`);
            or a function that returns such an object for each epoch. If the function has a parameter, it is called with
            the number of the epoch. If the source or its `sampler` has `set_epoch`, that is called with the number of
            the epoch, too.
        prefetch: the maximum number of batches that are read and not delivered; at least 1.
        output: the framework to which the arrays of a batch are converted, as for `DataLoader`.
        pin_memory: as for `DataLoader`.
        timeout: seconds after which waiting for a batch raises an error; None waits without limit.

    Returns:
        A `Bridge`, which yields the batches of the source. A `DataBatch` of `mx.io` stays a `DataBatch`, but its arrays
        are copied, because MXNet overwrites the arrays of earlier batches; with `output`, a `DataBatch` becomes a tuple
        of the arrays in `data` and `label`. Any other source must not change batches that it has returned.

    Raises:
        ValueError: an argument is wrong; the text names the argument, its value and what to pass instead.
        MissingExtraError: the framework of `output` is not installed.

    >>> with bridge(["a", "b"]) as batches:
    ...     for batch in batches:
    ...         print(batch, batches.state_dict()["batch"])
    a 1
    b 2
    """
    read_from = BridgeSource(source)
    ahead = check_int("prefetch", prefetch, 1)
    options = Options("thread", num_workers=1, prefetch=ahead, start_method="", memory_limit=None)
    delivery = choose_delivery(True, timeout, output, pin_memory, 0)
    # The thread converts the batches, not `next`.
    reader = SourceReader(read_from, partial(convert, finish=delivery.convert, unpack=output is not None))
    delivery = replace(delivery, convert=None, samples_in=_samples_in)
    job = Job(source, only_sample, worker_init_fn=None, num_workers=1, seed=0, iterable=True, streams=reader)
    workers = Workers(job, options, lambda seed: ())
    return Bridge(Epochs(BridgeTasks(read_from, reader), workers, delivery, seed_given=True, auto_reload=False))


class Bridge:
    """A loader of another library with the interface of `DataLoader`; `bridge` makes it and documents its arguments.

    A bridge has one iterator at a time: `iter` starts the next epoch and ends the previous iterator. An exception of
    the source is raised in place of the batch. The iteration then continues if the source can continue.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def __iter__(self) -> LoaderIterator[Any]:
        """Starts the next epoch. The previous iterator raises `LoaderClosed` from now on."""
        return LoaderIterator(self._epochs, self._epochs.next())

    def __len__(self) -> int:
        """The length of the source; raises TypeError if the source has no length."""
        return len(self._epochs)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which is passed to the source's `set_epoch` or to the source function.

        If a position was just loaded and `epoch` is the number of its epoch, the next iteration still resumes there.
        """
        self._epochs.set_number(check_int("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """The position of the bridge after the last delivered batch, as JSON.

        The state contains the number of the epoch and of the batch. If the source (or the object that a source function
        returns) has `state_dict` and `load_state_dict`, the state also contains the state of the source at that batch.

        Raises:
            TypeError: the state of the source contains something other than JSON values and arrays of numbers.
        """
        return self._epochs.state()

    def load_state_dict(self, state: Any) -> None:
        """Makes the next iteration resume at the position `state`, which this or another process has saved.

        A source without `state_dict` is read again from the start of the epoch, and must yield the same batches again;
        a RuntimeWarning says how many batches are read and skipped. If the source's `load_state_dict` fails, its error
        is raised in place of the first batch.

        Args:
            state: what `state_dict()` returned, or the same as JSON text.

        Raises:
            ValueError: the state does not fit this bridge, or was edited; the text names the field. Nothing has
                changed.
        """
        fields = {"seed": 0, "dataset": None, **parse_state(state)}  # older states do not contain them
        with self._epochs.lock:
            self._epochs.load(add_checksum(fields))

    def stats(self) -> LoaderStats:
        """How many batches were delivered, and how the program and the thread spent their time.

        The thread counts as one worker, and everything that it does as reading samples.
        """
        stats = self._epochs.workers.stats()
        return replace(stats, why="a bridge reads its source in one thread", advice=advise_on_source(stats))

    def close(self) -> None:
        """Ends the thread; a second call does nothing.

        If the source is busy with a batch, `close` waits for half a second, and the thread ends after that batch.
        Delivered batches stay valid. `with bridge(...) as batches` closes the bridge at the end of the block. A bridge
        is also closed when it is deleted and when the program ends.
        """
        self._epochs.close()

    @short_repr
    def __repr__(self) -> str:
        workers = self._epochs.workers
        return call(self, describe(workers.job.dataset), *["closed"] * workers.closed)

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *exception: object) -> None:
        self._epochs.workers.block_ended = True
        self.close()


def _samples_in(task: Task, batch: Any) -> int:
    """The length of the first array of a batch; 0 if it has none."""
    try:
        return next((len(leaf) for _, leaf in leaves(batch) if getattr(leaf, "shape", ())), 0)
    except Exception:  # arrays of the user may have no length, and nested tensors of torch have no shape
        return 0
