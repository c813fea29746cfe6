"""Compares gluonloader with other data loaders, in one run over the same data: `python -m benchmarks --help`.

    __main__   arguments, and the cases one after the other
    measure    rounds: what is timed, and in what order
    usage      processor time, page faults and memory, in a program of its own for each loader
    cases      what is loaded
    datasets   the datasets, and the data in them
    loaders    who loads it: one class for each library
    variants   the same libraries, set up in another way
    decoding   who decodes images in its own way
    bare       the limit: a loop that only fills batches
    copying    the limit: processes that only copy
    images     decoders, and ImagePipeline beside the same calls without a loader
    report     what is printed: tables and the machine
    page       the results as a page of markdown
    plot       the results as a picture

It runs with any of the libraries missing, and says which.
"""
