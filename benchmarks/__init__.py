"""Compares gluonloader with other data loaders, in one run over the same data: `python -m benchmarks --help`.

    __main__   arguments, and the cases one after the other
    measure    rounds: what is timed, and in what order
    cases      what is loaded
    loaders    who loads it: one class for each library
    copying    the limit: processes that only copy
    report     what is printed: tables and the machine

It runs with any of the libraries missing, and says which.
"""
