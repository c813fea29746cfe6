"""Compares gluonloader with other data loaders, in one run over the same data: `python -m benchmarks --help`.

    __main__   parses the arguments, and runs one case after another
    measure    times the loaders in rounds, in separate programs
    usage      processor time, page faults and memory of a loader, in a separate program for each loader
    processes  processor time, page faults and memory of a process and its descendants
    cases      what is loaded: samples, batch size and number of batches
    datasets   the datasets, and the data in them
    loaders    sets up each library: a class for each library
    variants   sets up the same libraries in other ways
    decoding   loaders that decode images with their own decoder
    bare       the limit: a loop that only fills batches
    copying    the limit: processes that only copy
    against    compares with another commit
    report     the tables that are printed, and the description of the machine
    page       the results as a page of Markdown

These modules are separate programs:

    plot       draws a page of results as pictures, in the two themes of `themes`
    balance    speed of an epoch if batches take different times
    bulk       speed of bulk reads, and memory of a list of tuples
    images     speed of the decoders and of ImagePipeline, and page faults
    ndarrays   batches of NDArrays, compared with MXNet
    sharing    memory and speed of ranks that share their workers
    stations   counts the functions that run for a small batch

If a library is not installed, the benchmarks run without it, and the results say that it is missing.
"""
