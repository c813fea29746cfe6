"""The differences between `gluonloader.torch.DataLoader` and torch's, with reasons; for each, torch fails a test.

The tables in docs/torch.md list the same ids and reasons for users; a test compares them. `differs` marks a test that
must fail with torch; `cases` is a table of calls with the results of both.
"""

from parity import differing, differing_cases

DIFFERENCES = {
    # Interface
    "more-arguments": "you can limit the shared memory, end the workers, and train on although some samples are bad",
    "functions-checked": "the traceback shows the line with the wrong argument",
    "timeout-without-workers": "a program can be debugged with `num_workers=0` without changes to its other arguments",
    "quiet-deletion": "a second error would distract from the first error",
    "copies": "launchers and trainers copy loaders",
    "data-pipes": "torch's `IterDataPipe` has its own rules for shuffling and sharding, and is no longer developed",
    "pin-memory-warning": "the same warning in each epoch hides other warnings",
    "length-warning": "the same warning at each batch hides other warnings",
    # Order and random numbers
    "random-numbers": "augmentation can be repeated with any number of workers",
    "persistent-random-numbers": "an epoch can be repeated whatever was prefetched before it",
    "stream-random-numbers": "a stream can be read again after a resume",
    "free-workers": "a slow sample does not keep the other workers waiting",
    "several-iterators": "no batch should be lost or swapped without a message",
    "late-streams": "files are opened only if samples are read",
    # Batches
    "array-strides": "a flipped image is a usual sample",
    "conjugates": "the same samples should work with and without workers",
    "contiguous-batches": "arrays are copied into one block of shared memory, without gaps",
    "empty-batches": "a batch without samples has no structure and no dtypes",
    "resize": "the memory of a batch has a fixed size, because it is used again for later batches",
    # Errors and workers
    "private-tensors": "samples must not depend on the start method",
    "error-texts": "`except OSError as error` can read `error.errno`",
    "error-classes": "your own `except` clauses work with and without workers",
    "sampler-errors": "batches whose indices were drawn before the error can still be used",
    "start-errors": "a worker that was not prepared would load wrong samples",
    "stop-iteration": "if an error looked like the end of an epoch, the remaining batches would be lost silently",
    "late-batches": "the stack shows which sample is slow",
    "worker-death": "no batch should be lost if a worker runs out of memory or crashes in a library",
    "worker-exit": "an exit in a dataset is an error of the dataset, and is reported like other errors",
    "unpicklable-batches": "a program should never wait for something that cannot come",
    "unpicklable-datasets": "the error of `pickle` does not say which argument it is about",
    "any-process": "a daemonic process cannot start processes",
    # States, compared with torchdata's `StatefulDataLoader`
    "json-states": "a checkpoint should be readable without torch",
    "states-and-workers": "a job often resumes on another machine",
    "states-checked": "samples would be doubled or lost without a message",
    "states-repeat-random-numbers": "a resumed run should end with the same weights",
    "states-at-the-end": "the state counts delivered batches",
}

differs = differing(DIFFERENCES, "loader_class", "torch")
cases = differing_cases(DIFFERENCES, "loader_class", "torch")
