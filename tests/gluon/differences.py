"""The differences between `gluonloader.mxnet` and Gluon, with reasons; their tests are expected to fail with Gluon.

The tables in docs/migrating-from-gluon.md list the same ids and reasons for users; a test compares them.
"""

import pytest

DIFFERENCES = {
    # Interface
    "gluon-2-names": "code that was written for Gluon 2.0 runs as well",
    "loader-options": "users of Gluon can use every feature of gluonloader",
    "close": "you decide when workers end, not the garbage collector",
    "no-timeout": "the first batch may take longer than any limit that suits the others",
    "arguments-checked": "the error points at the line with the wrong argument, and comes before any batch is loaded",
    "value-errors": "`python -O` removes assertions, and an AssertionError does not say which values are right",
    "quiet-failure": "a second error would distract from the first one",
    "one-shot-samplers": "a generator can be read once, so the second epoch would be empty",
    "any-sampler": "any iterable can hold the indices",
    "lambda-batchify": "a forked worker inherits the function; with spawn it is pickled once, and must not be a lambda",
    # Order and length
    "rollover-kept": "no sample is lost",
    "rollover-length": "a progress bar that reads the length inside the loop shows the right one",
    "shuffle-order": "the order depends only on seed and epoch; `np.random.seed` before the constructor repeats a run",
    "interval-length": "if the length is too large, the loader raises an IndexError later",
    "dataset-length": "with a dataset that never raises IndexError, they would never return",
    "eager-iterators": "the first batch is loaded while your program does other work, as in Gluon 1.4 to 1.8 and 2.0",
    # Batches
    "structures": "batches keep the structure of their samples",
    "short-tuples": "fields are not dropped without a message",
    "batchify-errors": "you can find the sample that does not fit",
    "ndarray-dtypes": "NDArrays are stacked by the same rules as NumPy arrays",
    "foreign-arrays": "the two kinds of MXNet arrays hold the same kind of data",
    "zero-size": "arrays without elements are valid, e.g. the boxes of an image without objects",
    "bfloat16": "bfloat16 is a dtype of MXNet",
    "pinned-containers": "pinning memory should not change the structure of a batch",
    # Faults
    "errors-and-epochs": "one unreadable file should not end a run",
    "sampler-errors": "batches whose indices were drawn before the error are delivered",
    "stop-iteration": "an error should not look like the end of an epoch, which silently loses the remaining batches",
    "late-batches": "the stack shows which sample is slow, and one slow sample should not end an epoch",
    "worker-death": "a worker that runs out of memory or crashes in a library should not cost a batch",
    "worker-exit": "an exit in a dataset is an error of the dataset, and is reported like one",
    "deletion": "a program must always be able to end",
    "any-thread": "each worker ignores Ctrl-C by itself, so the main program's signal handlers stay unchanged",
    "any-process": "a daemonic process may not start processes, so the loader uses threads and warns",
    "random-streams": "augmentation differs between samples, and repeats with the same seed for any number of workers",
    "descriptors": "a program may keep as many batches as fit in memory",
    "records-in-threads": "threads share one file position; a lock makes seeking and reading one step",
}


def differs(name, raises=AssertionError):
    """Marks a test that passes with `gluonloader.mxnet` and fails with Gluon, which raises `raises`."""
    expected = pytest.mark.xfail(strict=True, raises=raises, reason=f"{name}: {DIFFERENCES[name]}")
    sides = [pytest.param("gluon", marks=expected), "gluonloader"]
    return pytest.mark.parametrize("gdata", sides, indirect=True)
