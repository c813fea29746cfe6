"""DLIO, the benchmark behind MLPerf Storage, with gluonloader as its data loader.

plugin.py       the loader that DLIO loads by its name
__main__.py     runs DLIO's workloads with each loader in turn, and prints what DLIO reports

`nox -s dlio` installs what this needs, and runs it.
"""
