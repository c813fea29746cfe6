"""Measures gluonloader and other data loaders: `python -m benchmarks TOPIC --help`.

    __main__    parses the arguments, and runs a topic
    harness     topics and tables; measures the rows of a table in rounds
    programs    programs that get something ready, and then measure it each time that they are asked to
    report      times, sizes and tables as text, and the description of the machine
    processes   processor time, page faults and memory of a process and its descendants

Each topic is a file with its cases:

    comparison  gluonloader beside other loaders, and beside another commit; the default
    actors      workers that are actors of Ray
    balance     speed of an epoch if batches take different times
    bulk        speed of bulk reads, and memory of a list of tuples
    dlio        the benchmark behind MLPerf Storage; `dlio_plugin` is its loader
    images      speed of the decoders and of ImagePipeline, and page faults
    keeping     memory of a program that keeps a part of each batch
    ndarrays    batches of NDArrays, compared with MXNet
    scale       orders and states of very large runs
    serving     programs that read the same batches from one server
    sharing     memory and speed of ranks that share their workers
    stations    counts the functions that run for a small batch
    stores      loaders that read from an object store (`store_loaders`); a warm cache beside local files
    text        packed rows and mixtures of tokens
    tuning      the choice of `tune`, compared with a sweep

The comparison has several files:

    cases       what is loaded: samples, batch size and number of batches
    datasets    the datasets, and the data in them
    loaders     sets up each library: a class for each library
    variants    sets up the same libraries in other ways
    decoding    loaders that decode images with their own decoder
    limits      the limits of the hardware: loops that only fill batches
    measure     times the loaders of a case, in a separate program for each loader
    usage       processor time, page faults and memory of a loader, in a separate program
    against     compares with another commit
    page        the results as a page of Markdown
    tables      writes the tables of README.md, docs/speed.md and docs/stores.md from the pages of results
    plot        draws the picture of the landing page, in the two themes of `themes`

If a library is not installed, the benchmarks run without it, and the results say that it is missing.
"""
