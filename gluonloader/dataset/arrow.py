"""`ArrowDataset`: the rows of tables and Parquet files, read in bulk.

A Parquet file is read by row groups; a table in memory counts as one row group. A row group is decoded column by
column, and the most recently used ones stay in memory. No file stays open and no thread starts: forks are safe.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from ..describe import call, short_repr
from ..errors import add_note, bad_argument, warn
from ..indices import between, checked_index, checked_indices
from ..locks import Lock
from ..rows import Rows
from .arrow_columns import Layout, columns_of, counts_nulls, layout_of, names_in, pyarrow
from .base import Dataset
from .bulk import bulk_read, split_where_changed

_BUFFER: Final = 4  # row groups that BlockShuffleSampler mixes by default


class ArrowDataset(Dataset):
    """A dataset of the rows of a table or of Parquet files; a sample is a dict by column name.

    Numbers, bools, dates and times become NumPy scalars: decimals become float64, and times with a time zone become
    UTC. Text becomes str, binary data bytes, a list of numbers an array, a category its value, and everything else the
    Python object that pyarrow returns. A null becomes NaN in a column of numbers, NaT in dates and times, and None in
    other columns. If any row of a column of ints or bools is null, the whole column is float64, as in pandas.

    A batch costs one copy per column, or two if its samples lie in several row groups. To shuffle Parquet files, use
    `BlockShuffleSampler(dataset.row_groups)`: then each worker decodes each row group only once per epoch. A loader
    refuses a random order over more than `keep` row groups.

    Args:
        source: a pyarrow Table; a DataFrame of pandas (without its index) or polars; the path of a Parquet file, or a
            list of paths; or a `pyarrow.dataset` of Parquet files. Each worker reads the files itself.
        columns: names of the columns to read, in that order; None reads all columns. In a dict, each key is a field of
            the samples, and its value the name of a column, or a list of columns of numbers and bools: then the field
            is an array of shape (columns,), and in a batch it is one 2-D array of shape (rows, columns). Its dtype is
            the one to which NumPy promotes the dtypes of the columns.
        keep: number of decoded row groups that each process keeps in memory.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ValueError: a column is missing, its type differs between files, or it has no numbers for a 2-D array.
    """

    def __init__(
        self,
        source: Any,
        columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        keep: int = 8,
    ) -> None:
        layout = layout_of(columns)
        if not isinstance(keep, (int, np.integer)) or keep < 1:
            raise bad_argument("keep", keep, "must be an int >= 1")
        self._source = _open(source, layout)
        if any(column.dtype is None for column in self._source.columns.values()):
            # It imports pandas, if that is installed, which takes 0.3 s. Otherwise each forked worker would import it.
            pyarrow().array([""]).to_numpy(zero_copy_only=False)
        self._ends = list(accumulate(self._source.lengths))
        self._bounds = np.array([0, *self._ends])  # for bulk reads
        self._keep = int(keep)
        self._kept = _Kept()

    @property
    def row_groups(self) -> list[int]:
        """The number of rows in each row group of all files: the blocks for `BlockShuffleSampler`."""
        return list(self._source.lengths)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        if isinstance(index, str):
            right = f"samples are rows; use dataset[i][{index!r}], or ArrowDataset(source, [{index!r}]) for a column"
            raise TypeError(f"index={index!r}: {right}")
        index = checked_index(index, len(self))
        group = bisect_right(self._ends, index)
        row = index - (self._ends[group] - self._source.lengths[group])
        decoded = self._group(group)
        return {key: column.get(decoded[key], row) for key, column in self._source.columns.items()}

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = checked_indices(indices, len(self))
        if not len(keys):
            return []
        groups = np.searchsorted(self._bounds[1:], keys, side="right")
        if (groups == groups[0]).all():
            decoded, rows = self._group(int(groups[0])), keys - self._bounds[groups[0]]
            self._kept.rows += len(keys)
            return Rows({key: column.pick(decoded[key], rows) for key, column in self._source.columns.items()})
        order = np.argsort(keys)
        parts = {int(groups[part[0]]): keys[part] for part in split_where_changed(order, groups)}
        kept, taken = self._kept.groups, {}
        for group in sorted(parts, key=lambda group: group not in kept):  # kept groups first: others replace them
            decoded, rows = self._group(group), parts[group] - self._bounds[group]
            taken[group] = [column.take(decoded[key], rows) for key, column in self._source.columns.items()]
        self._kept.rows += len(keys)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        columns = zip(self._source.columns.items(), zip(*[taken[group] for group in parts], strict=True), strict=True)
        return Rows({key: column.join(values, inverse) for (key, column), values in columns})

    _parts = ()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        mixed, keep = self._count_groups(range(len(self)) if indices is None else indices), self._keep
        if mixed <= keep:
            return ""
        what = f"ArrowDataset keeps {keep} decoded row groups, but this order mixes the rows of {mixed:,}, so it would"
        if indices is None:
            blocks = f"(rows.row_groups{'' if keep >= _BUFFER else f', buffer={keep}'})"
            where = "where rows is the ArrowDataset"
        else:  # a block of these rows may lie in two row groups
            buffer = "" if keep >= 2 * _BUFFER else f", buffer={max(1, keep // 2)}"
            blocks = f".of_size(len(dataset), {max(1, len(indices) // mixed)}{buffer})"
            where = "for a dataset of these rows in the order of the files, e.g. Subset(rows, np.sort(indices))"
        right = f"shuffle in blocks: DataLoader(dataset, batch_size, sampler=BlockShuffleSampler{blocks}), {where}"
        memory = f"or keep all of them in the memory of each worker: ArrowDataset(..., keep={mixed})"
        return f"{what} decode them again and again; {right}; {memory}"

    @short_repr
    def __repr__(self) -> str:
        return call(self, f"{len(self):,} rows of {len(self._source.columns):,} columns")

    def _group(self, group: int) -> dict[str, Any]:
        kept = self._kept
        if kept.pid != os.getpid():  # forked: a thread of the parent may have held the lock
            kept = self._kept = _Kept()
        with kept.lock:
            if group not in kept.groups:
                kept.groups[group] = self._source.read(group)
                kept.reads += 1
                if len(kept.groups) > self._keep:
                    kept.groups.popitem(last=False)
                self._warn_of_repeated_decoding(kept)
            kept.groups.move_to_end(group)
            return kept.groups[group]

    def _count_groups(self, indices: Any) -> int:
        """The number of row groups in which the rows at `indices`, an array or range, lie."""
        if isinstance(indices, range):
            return sum(1 for start, end in pairwise([0, *self._ends]) if between(indices, start, end))
        found = np.zeros(len(self._ends) + 1, np.bool_)
        found[np.searchsorted(self._bounds[1:], np.asarray(indices), side="right")] = True
        return int(np.count_nonzero(found))

    def _warn_of_repeated_decoding(self, kept: _Kept) -> None:
        decoded_rows = kept.reads * len(self) // len(self._ends)  # estimated by the mean length
        if kept.reads > 8 * self._keep and decoded_rows > 100 * kept.rows and not kept.warned:
            kept.warned = True
            warn(
                f"ArrowDataset: {kept.reads:,} row groups were decoded for {kept.rows:,} samples; shuffle in blocks "
                "with sampler=BlockShuffleSampler(dataset.row_groups), or pass a larger keep to ArrowDataset",
            )


class _Kept:
    """The row groups that one process keeps; the most recently used one comes last."""

    def __init__(self) -> None:
        self.pid, self.lock = os.getpid(), Lock()
        self.groups: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self.reads = self.rows = 0
        self.warned = False

    def __reduce__(self) -> Any:
        return _Kept, ()  # a pickled dataset keeps no row groups


class _Table:
    """A table in memory: one row group, decoded in the constructor."""

    def __init__(self, table: Any, layout: Layout | None) -> None:
        fields = _fields(table.schema, names_in(layout), "the table")
        self.lengths = [table.num_rows]
        self.columns = columns_of(layout, fields, {f.name for f in fields if table.column(f.name).null_count})
        self._decoded = {key: _own(column.decode(table)) for key, column in self.columns.items()}

    def read(self, group: int) -> dict[str, Any]:
        return self._decoded


def _own(values: Any) -> Any:
    """The values in memory of their own, since the user's program may write to a frame of pandas."""
    return values.copy() if isinstance(values, np.ndarray) and not values.flags.owndata else values


class _Files:
    """Parquet files of one schema; the constructor reads only their footers."""

    def __init__(self, paths: Sequence[str], filesystem: Any, layout: Layout | None) -> None:
        self._paths, self._filesystem = paths, filesystem
        names = names_in(layout)
        self.lengths: list[int] = []
        self._groups: list[tuple[int, int]] = []  # number of the file, number of the row group in it
        nulls: set[str] = set()
        for number, path in enumerate(paths):
            with self._file(number) as file:
                here = {field.name: field for field in _fields(file.schema_arrow, names, path)}
                if number == 0:
                    fields, self.schema = here, file.schema_arrow
                _check_same(fields, here, path, paths[0])
                counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                nulls |= _with_nulls(file.metadata, {name for name in here if counts_nulls(here[name].type)})
            self.lengths += counts
            self._groups += [(number, group) for group in range(len(counts))]
        self._names = list(fields)
        self.columns = columns_of(layout, list(fields.values()), nulls)

    def read(self, group: int) -> dict[str, Any]:
        number, group = self._groups[group]
        try:
            with self._file(number) as file:
                table = file.read_row_group(group, columns=self._names, use_threads=False)
            return {key: column.decode(table) for key, column in self.columns.items()}
        except Exception as error:
            add_note(error, f"gluonloader: in row group {group} of {self._paths[number]}")
            raise

    def _file(self, number: int) -> Any:
        try:
            return pyarrow("pyarrow.parquet").ParquetFile(self._paths[number], filesystem=self._filesystem)
        except pyarrow().ArrowInvalid as error:
            raise ValueError(f"{self._paths[number]}: not a Parquet file ({error})") from error


def _open(source: Any, layout: Layout | None) -> _Table | _Files:
    pa = pyarrow()
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        for path in source:
            if os.path.isdir(path):
                raise bad_argument("source", path, "it is a folder; pass sorted(Path(folder).glob('*.parquet'))")
            if set("*?[") & set(os.fspath(path)) and not os.path.exists(path):
                raise bad_argument("source", path, "it is a pattern; pass sorted(glob.glob(pattern))")
        return _Files(list(map(os.fspath, source)), None, layout)
    if hasattr(source, "files") and hasattr(source, "filesystem"):  # a pyarrow.dataset of files
        if source.format.default_extname != "parquet":
            raise bad_argument("source", source, "its files are not Parquet files; pass source.to_table()")
        files = _Files(list(source.files), source.filesystem, layout)
        if source.count_rows() != sum(files.lengths) or not source.schema.equals(files.schema):
            right = "it has a filter, partition columns or a schema that its files lack; pass source.to_table()"
            raise bad_argument("source", source, right)
        return files
    return _Table(_as_table(source, pa), layout)


def _as_table(source: Any, pa: Any) -> Any:
    table = source
    right = "pass a pyarrow Table, a pandas or polars DataFrame, the path of a Parquet file, or a list of paths"
    if hasattr(type(source), "to_frame"):
        right = "it is a single column; pass source.to_frame()"
    elif type(source).__name__ == "LazyFrame":
        right = "it is not computed yet; pass source.collect()"
    elif isinstance(source, Mapping):
        right = "pass pyarrow.table(source), or use StackDataset(**source)"
    elif isinstance(source, (list, tuple)) and not source:
        right = "it is empty; pass at least one path"
    elif type(source).__module__.partition(".")[0] == "pandas" and hasattr(type(source), "iterrows"):
        table = pa.Table.from_pandas(source, preserve_index=False)
    elif hasattr(source, "to_arrow"):  # polars: this avoids string views, which pyarrow supports only in part
        table = source.to_arrow()
    elif hasattr(source, "__arrow_c_stream__") and not isinstance(source, (pa.Table, pa.ChunkedArray)):
        table = pa.table(source)
    if not isinstance(table, pa.Table):
        raise TypeError(f"source: {type(source)}; {right}")
    return table


def _fields(schema: Any, names: Sequence[str] | None, where: str) -> list[Any]:
    """The fields to read; raises ValueError if a column is missing, or if two columns have the same name."""
    names = schema.names if names is None else names
    for name in names:
        if schema.names.count(name) != 1:
            what = "more than one column" if name in schema.names else "no column"
            raise ValueError(f"{where}: there is {what} named {name!r}; the columns are {schema.names}")
    return [schema.field(name) for name in names]


def _check_same(fields: dict[str, Any], here: dict[str, Any], path: str, first: str) -> None:
    if list(here) != list(fields) and set(here) != set(fields):
        extra = min(set(here) ^ set(fields))
        raise ValueError(f"{path}: column {extra!r} is not in both this file and {first}; pass columns=[...]")
    for name, field in fields.items():
        if here[name].type != field.type:
            raise ValueError(f"{path}: column {name!r} has type {here[name].type}, but {field.type} in {first}")


def _with_nulls(metadata: Any, names: set[str]) -> set[str]:
    """Those of the columns `names` that have nulls according to the file's statistics."""
    found = set()
    for i in range(metadata.num_columns):
        name = metadata.schema.column(i).path
        for group in range(metadata.num_row_groups if name in names else 0):
            statistics = metadata.row_group(group).column(i).statistics
            if statistics is not None and statistics.null_count:
                found.add(name)
    return found
