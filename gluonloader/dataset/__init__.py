"""Map-style datasets: of arrays, lists, tables, files and other datasets; and iterable datasets."""
