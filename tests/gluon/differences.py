"""The differences between `gluonloader.mxnet` and Gluon, with reasons; for each, Gluon fails a test.

The tables in docs/gluon.md list the same ids and reasons for users; a test compares them. `differs` marks a test that
must fail with Gluon; `cases` is a table of calls with the results of both.
"""

from parity import differing, differing_cases

DIFFERENCES = {
    # Interface
    "gluon-2-names": "code that was written for Gluon 2.0 also runs",
    "loader-options": "users of Gluon can use every feature of gluonloader",
    "close": "you decide when the workers end, not the garbage collector",
    "no-timeout": "the first batch can take longer than any limit that is useful for the other batches",
    "arguments-checked": (
        "the traceback shows the line with the wrong argument, and the error comes before any batch is loaded"
    ),
    "value-errors": "`python -O` removes assertions, and an AssertionError does not say which values are right",
    "quiet-failure": "a second error would distract from the first error",
    "one-shot-samplers": "a generator can be used only once, so the second epoch would be empty",
    "any-sampler": "a `Sampler` is not necessary to list indices",
    "lambda-batchify": (
        "a forked worker inherits `batchify_fn`; with spawn it is pickled once, so it must not be a lambda"
    ),
    # Order and length
    "rollover-kept": "no sample is lost",
    "rollover-length": "a progress bar that reads `len(loader)` inside the loop shows the right length",
    "shuffle-order": (
        "the order depends only on the seed and the epoch; to get the same order in every run, "
        "call `np.random.seed` before the constructor"
    ),
    "interval-length": "if the length of a sampler is too large, the loader raises an IndexError later",
    "dataset-length": "with a dataset that never raises IndexError, they would never return",
    "eager-iterators": "the first batch is loaded while your program does other work, as in Gluon 1.4 to 1.8 and 2.0",
    # Batches
    "structures": "a batch has the same structure as its samples",
    "short-tuples": "no field is dropped without a message",
    "batchify-errors": "you can find the sample that does not fit the other samples",
    "ndarray-dtypes": "NDArrays are stacked by the same rules as NumPy arrays",
    "foreign-arrays": "both kinds of MXNet arrays contain the same kind of data",
    "zero-size": "arrays without elements are valid, for example the boxes of an image without objects",
    "bfloat16": "bfloat16 is a dtype of MXNet",
    "pinned-containers": "pinning memory should not change the structure of a batch",
    # Faults
    "errors-and-epochs": "a single unreadable file should not end a run",
    "sampler-errors": "batches whose indices were drawn before the error can still be used",
    "stop-iteration": "if an error looked like the end of an epoch, the remaining batches would be lost silently",
    "late-batches": "the stack shows which sample is slow, and a single slow sample should not end an epoch",
    "worker-death": "no batch should be lost if a worker runs out of memory or crashes in a library",
    "worker-exit": "an exit in a dataset is an error of the dataset, and is reported like other errors",
    "deletion": "a program must always be able to end",
    "any-thread": "each worker ignores Ctrl-C itself, so the signal handlers of the main program do not have to change",
    "any-process": "a daemonic process cannot start processes, so the loader uses threads and warns",
    "random-streams": (
        "augmentation differs between samples, and is the same for any number of workers if the seed is the same"
    ),
    "descriptors": "a program can keep as many batches as fit in memory",
    "records-in-threads": (
        "the file is mapped into memory, so the threads share no offset in the file that a read changes"
    ),
}

differs = differing(DIFFERENCES, "gdata", "gluon")
cases = differing_cases(DIFFERENCES, "gdata", "gluon")
