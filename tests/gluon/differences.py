"""Where `gluonloader.mxnet` differs from Gluon, and why: each an expected failure of Gluon in the tests.

The table of docs/migrating-from-gluon.md tells the same to users, under the same ids; a test compares them.
"""

import pytest

DIFFERENCES = {
    # Interface
    "gluon-2-names": "code written for Gluon 2.0 runs, too",
    "loader-options": "all that gluonloader can do is there for Gluon's users",
    "close": "workers end when you say so, not when the garbage collector comes by",
    "no-timeout": "a first batch may well take longer than any number you would give",
    "arguments-checked": "a wrong argument is found where it was written, not an epoch later",
    "value-errors": "assertions vanish under `python -O`, and do not say what would be right",
    "quiet-failure": "one error, not a second one that hides it",
    "one-shot-samplers": "the second epoch would be empty",
    "any-sampler": "any iterable of indices says what is wanted",
    "lambda-batchify": "a forked worker has the function already; with spawn it is pickled once",
    # Order and length
    "rollover-kept": "no sample is lost",
    "rollover-length": "a progress bar that asks within the loop is right",
    "shuffle-order": "order depends on seed and epoch alone; `np.random.seed` before the loader repeats a run",
    "interval-length": "a length that is too large is an IndexError later, in the loader",
    "dataset-length": "a dataset that never raises IndexError kept them running for ever",
    "eager-iterators": "the first batch is on its way while you do something else, as in Gluon 1.4 to 1.8 and in 2.0",
    # Batches
    "structures": "batches keep the structure of their samples",
    "short-tuples": "data is not dropped in silence",
    "batchify-errors": "the one sample that does not fit can be found",
    "ndarray-dtypes": "NDArrays are stacked as NumPy's arrays are",
    "foreign-arrays": "both kinds of MXNet's arrays hold the same numbers",
    "zero-size": "an empty list of boxes is a sample like others",
    "bfloat16": "it is a dtype of MXNet",
    "pinned-containers": "pinning an array does not change what it lies in",
    # Faults
    "errors-and-epochs": "one bad file does not end a run",
    "sampler-errors": "batches that were drawn are delivered",
    "stop-iteration": "an error is not an end: the rest of the epoch was missing and nobody was told",
    "late-batches": "one slow sample can be found, and does not end an epoch",
    "worker-death": "out of memory, a crash in a library: the batch is made again, and no batch is lost",
    "worker-exit": "an exit in a dataset is an error of the dataset",
    "deletion": "a program must be able to end",
    "any-thread": "workers ignore Ctrl-C on their own account, so that the main thread's handlers stay as they are",
    "any-process": "it uses threads there, and warns",
    "random-streams": "augmentation is different for each sample, and repeats with the seed for any number of workers",
    "descriptors": "you may keep batches",
    "records-in-threads": "several threads move one file position; a lock keeps seek and read together",
}


def differs(name, raises=AssertionError):
    """Marks a test of what only `gluonloader.mxnet` does: it passes there, and fails over Gluon with `raises`."""
    expected = pytest.mark.xfail(strict=True, raises=raises, reason=f"{name}: {DIFFERENCES[name]}")
    sides = [pytest.param("gluon", marks=expected), "gluonloader"]
    return pytest.mark.parametrize("gdata", sides, indirect=True)
