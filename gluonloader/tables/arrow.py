"""`ArrowDataset`: the rows of tables and Parquet files, read in bulk.

A Parquet file is read by row groups; a table in memory counts as one row group. A row group is decoded column by
column, and the most recently used ones stay in memory. No file stays open and no thread starts: forks are safe.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, compress, islice, pairwise
from typing import Any, Final
from zlib import crc32

import numpy as np

from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, split_where_changed
from ..describe import call, short_repr
from ..errors import ColumnError, bad_argument, warn
from ..indices import Indices, between, checked_index, checked_indices, known_indices
from ..locks import Lock
from ..messages import message
from ..rows import Rows
from ..stores.cache import Needed, NodeCache, RemoteFile, check_cache
from ..stores.objects import full_path, is_url
from .arrow_columns import (
    CURE,
    Column,
    Layout,
    columns_of,
    counts_nulls,
    layout_of,
    names_in,
    null_count,
    pyarrow,
)
from .parquet_footer import ColumnChunk, column_chunks
from .unreadable import is_of_content, reading

_BUFFER: Final = 4  # row groups that BlockShuffleSampler mixes by default
_CHANGED: Final = "make a new ArrowDataset if the file was changed"
_DECRYPT: Final = "pass the table of pyarrow.parquet.read_table(path, decryption_properties=...)"


class ArrowDataset(Dataset):
    """A dataset of the rows of a table or of Parquet files; a sample is a dict by column name.

    Numbers, bools, dates and times become NumPy scalars: decimals become float64, and times with a time zone become
    UTC. Text becomes str, binary data bytes, a list of numbers or a tensor an array, a category its value, an extension
    type what it stores, and everything else the Python object that pyarrow returns. A null becomes NaN in a column of
    numbers, NaT in dates and times, and None in other columns. If any row of a column of ints or bools is null, the
    whole column is float64, as in pandas.

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
        cache: a `NodeCache`, through which the files are read, if the paths are URLs. Without it, pyarrow itself reads
            URLs.

    Raises:
        StoreError: a file cannot be fetched, or was changed. Also raised when a sample is read.
        MissingExtraError: pyarrow is not installed.
        ValueError: a column is missing, its type differs between files, or it has no numbers for a 2-D array.
        ColumnError: a file is damaged, a column is encrypted, or NumPy cannot store its values.
    """

    def __init__(
        self,
        source: Any,
        columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        keep: int = 8,
        cache: NodeCache | None = None,
    ) -> None:
        layout = layout_of(columns)
        if not isinstance(keep, (int, np.integer)) or keep < 1:
            raise bad_argument("keep", keep, "must be an int >= 1")
        self._source = _open(source, layout, cache)
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
        self._kept.rows += 1
        try:
            return {key: column.get(decoded[key], row) for key, column in self._source.columns.items()}
        except ColumnError as error:
            raise self._located(error, [group]) from error

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = checked_indices(indices, len(self))
        if not len(keys) or not self._source.columns:
            return [{} for _ in keys]
        groups = np.searchsorted(self._bounds[1:], keys, side="right")
        try:
            return self._rows(keys, groups)
        except ColumnError as error:
            raise self._located(error, groups) from error

    def _rows(self, keys: Indices, groups: Indices) -> Rows:
        """The rows with these keys, which lie in these row groups."""
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

    def needed_blocks(self, indices: Any) -> list[Needed]:
        """The blocks of a cache in which rows lie; see `gluonloader.declared`."""
        rows = known_indices(indices, len(self))
        groups = np.unique(np.searchsorted(self._bounds[1:], rows, side="right"))
        return self._source.needed(groups.tolist())

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

    def _located(self, error: ColumnError, groups: Iterable[int]) -> ColumnError:
        """The error with the files of these row groups, if it names no file."""
        files = dict.fromkeys(self._source.path_of(int(group)) for group in groups)
        return ColumnError(error.reason, error.file or ", ".join(islice(filter(None, files), 3)), error.column)

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
        nulls = {field.name for field in fields if counts_nulls(field.type) and null_count(table.column(field.name))}
        self.columns = columns_of(layout, fields, nulls)
        self._decoded = {key: _own(values) for key, values in _decoded(self.columns, table, "").items()}

    def read(self, group: int) -> dict[str, Any]:
        return self._decoded

    def path_of(self, group: int) -> str:
        return ""

    def needed(self, groups: Sequence[int]) -> list[Needed]:
        return []


def _own(values: Any) -> Any:
    """The values in memory of their own, since the user's program may write to a frame of pandas."""
    return values.copy() if isinstance(values, np.ndarray) and not values.flags.owndata else values


def _decoded(columns: Mapping[str, Column], table: Any, file: str) -> dict[str, Any]:
    decoded = {}
    for key, column in columns.items():
        with reading("it cannot be converted to NumPy", CURE, file, column.name):
            decoded[key] = column.decode(table)
    return decoded


@message(frozen=True, slots=True)
class _Footer:
    """What the end of a Parquet file says about it.

    Attributes:
        lengths: the number of rows in each row group.
        leaves: the columns as Parquet stores them; "a.b" is field b of column a.
        chunks: these columns in each row group.
        checksum: of its bytes.
    """

    schema: Any
    lengths: list[int]
    leaves: list[str]
    chunks: list[list[ColumnChunk]]
    checksum: int


class _Files:
    """Parquet files of one schema; the constructor reads only their footers."""

    def __init__(
        self, paths: Sequence[str], filesystem: Any, layout: Layout | None, cache: NodeCache | None = None
    ) -> None:
        self._paths, self._filesystem = paths, filesystem
        self._remote: list[RemoteFile] = []  # empty if the files are not read through a cache
        if cache is not None:
            for path in paths:
                check_cache("source", path, cache)
            self._remote = list(map(cache.open, paths))
        self._spans: list[list[tuple[int, int]]] = []  # where the columns of each row group lie
        names = names_in(layout)
        self.lengths: list[int] = []
        self._footers: list[int] = []  # their checksums, by number of the file
        self._groups: list[tuple[int, int]] = []  # number of the file, number of the row group in it
        nulls: set[str] = set()
        for number, path in enumerate(paths):
            footer = self._footer(number)
            here = {field.name: field for field in _fields(footer.schema, names, path)}
            if number == 0:
                fields, columns, self.schema = here, _columns_in(path, here), footer.schema
            else:
                _check_same(fields, columns, here, path, paths[0])
            nulls |= _check_chunks(footer, here, path)
            self.lengths += footer.lengths
            self._footers.append(footer.checksum)
            self._groups += [(number, group) for group in range(len(footer.lengths))]
            wanted = [leaf in here or leaf.partition(".")[0] in here for leaf in footer.leaves]
            self._spans += [
                [(chunk.start, chunk.stop) for chunk in compress(chunks, wanted)] for chunks in footer.chunks
            ]
        self._names: list[str] = list(fields)
        self.columns = columns_of(layout, list(fields.values()), nulls)

    def path_of(self, group: int) -> str:
        return self._paths[self._groups[group][0]]

    def needed(self, groups: Sequence[int]) -> list[Needed]:
        """The blocks of a cache in which row groups lie, for each file."""
        spans: list[list[tuple[int, int]]] = [[] for _ in self._remote]
        for group in groups if self._remote else ():
            spans[self._groups[group][0]] += self._spans[group]
        bounds = (np.array(some, np.int64).reshape(-1, 2) for some in spans)
        return [file.needed(ends[:, 0], ends[:, 1]) for file, ends in zip(self._remote, bounds, strict=True)]

    def read(self, group: int) -> dict[str, Any]:
        path, row_group = self.path_of(group), self._groups[group][1]
        try:
            table = self._read(group, self._names)
        except ColumnError:
            raise
        except Exception as error:
            column = self._column_that_fails(group) if is_of_content(error) else ""
            with reading(f"row group {row_group} cannot be read", CURE, path, column):
                raise
        if table.num_rows != self.lengths[group]:
            what = f"row group {row_group} has {table.num_rows:,} rows, but had {self.lengths[group]:,}"
            raise ColumnError(f"{what} when the dataset was made; {_CHANGED}", path)
        return _decoded(self.columns, table, path)

    def _read(self, group: int, names: list[str]) -> Any:
        path, (number, row_group) = self.path_of(group), self._groups[group]
        with self._opened(number) as source:
            # In a store, this would be one more request; a cache compares versions.
            is_local = self._filesystem is None and not is_url(path.removeprefix("file://"))
            if is_local and crc32(_bytes_of_footer(source, path)) != self._footers[number]:
                raise ColumnError(f"its footer is another one than when the dataset was made; {_CHANGED}", path)
            return _parquet_file(source).read_row_group(row_group, columns=names, use_threads=False)

    def _column_that_fails(self, group: int) -> str:
        """The column because of which a row group cannot be read; an empty text if it is no single column."""
        for name in self._names:
            try:
                self._read(group, [name])
            except Exception as error:
                if not is_of_content(error):
                    raise
                return name
        return ""

    def _footer(self, number: int) -> _Footer:
        path = self._paths[number]
        with (
            reading("not a Parquet file, or a damaged one", "copy the file again, or remove it", path),
            self._opened(number) as source,
        ):
            written = _bytes_of_footer(source, path)
            file = _parquet_file(source)
            metadata, chunks = file.metadata, column_chunks(written)
            lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            leaves = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
            if min(lengths, default=0) < 0 or list(map(len, chunks)) != [len(leaves)] * len(lengths):
                raise ValueError("a row group has a negative length or not as many columns as the schema")
            return _Footer(file.schema_arrow, lengths, leaves, chunks, crc32(written))

    def _opened(self, number: int) -> Any:
        path, filesystem = self._paths[number], self._filesystem
        if self._remote:
            return pyarrow().PythonFile(self._remote[number].stream(), mode="r")
        if filesystem is None:
            systems = pyarrow("pyarrow.fs")
            if "://" in path:
                filesystem, path = systems.FileSystem.from_uri(path)
            else:
                filesystem = systems.LocalFileSystem()
        return filesystem.open_input_file(path)


def _bytes_of_footer(source: Any, path: str) -> bytes:
    end = source.size() - 8  # then come the length of the footer, and 4 bytes that say what kind of file it is
    last = source.read_at(8, end) if end > 0 else b""
    if last[4:] == b"PARE":
        raise ColumnError(f"its footer is encrypted; {_DECRYPT}", path)
    length = int.from_bytes(last[:4], "little")
    if not 0 < length <= end:  # pyarrow does not survive a read of a Python file before its start
        raise ValueError(f"it contains no footer of {length:,} bytes")
    written: bytes = source.read_at(length, end - length)
    return written


def _parquet_file(source: Any) -> Any:
    return pyarrow("pyarrow.parquet").ParquetFile(
        source, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
    )


def _open(source: Any, layout: Layout | None, cache: NodeCache | None = None) -> _Table | _Files:
    pa = pyarrow()
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        for path in source:
            if os.path.isdir(path):
                raise bad_argument("source", path, "it is a folder; pass sorted(Path(folder).glob('*.parquet'))")
            if set("*?[") & set(os.fspath(path)) and not os.path.exists(path):
                right = "pass a list of URLs" if is_url(os.fspath(path)) else "pass sorted(glob.glob(pattern))"
                raise bad_argument("source", path, f"it is a pattern; {right}")
        return _Files(list(map(full_path, source)), None, layout, cache)
    if cache is not None:
        raise bad_argument("cache", cache, "only for URLs of Parquet files; remove it")
    if hasattr(source, "files") and hasattr(source, "filesystem"):  # a pyarrow.dataset of files
        if source.format.default_extname != "parquet":
            raise bad_argument("source", source, "its files are not Parquet files; pass source.to_table()")
        is_local = source.filesystem.type_name == "local"
        paths = list(map(full_path, source.files) if is_local else source.files)
        files = _Files(paths, None if is_local else source.filesystem, layout)
        same = source.count_rows() == sum(files.lengths) and source.schema.equals(files.schema)
        # `count_rows` also counts the row groups that a fragment leaves out.
        if not same or sum(part.num_row_groups for part in source.get_fragments()) != len(files.lengths):
            right = "it has a filter, only some row groups, or partition columns or a schema that its files lack"
            right += "; pass source.to_table()"
            raise bad_argument("source", source, right)
        return files
    return _Table(_as_table(source, pa, names_in(layout)), layout)


def _as_table(source: Any, pa: Any, names: Sequence[str] | None) -> Any:
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
    else:
        with reading(
            "it cannot be converted to Arrow", "convert the column, or remove it", f"this {type(source).__name__}"
        ):
            table = _converted(source, pa, names)
    if not isinstance(table, pa.Table):
        raise TypeError(f"source: {type(source)}; {right}")
    return table


def _converted(source: Any, pa: Any, names: Sequence[str] | None) -> Any:
    """A table of pandas, polars or another library as one of pyarrow; anything else as it is."""
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(type(source), "iterrows"):
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "to_arrow"):  # polars: this avoids string views, which pyarrow supports only in part
        schema = source.schema if isinstance(source.schema, Mapping) else {}
        for name, dtype in schema.items():
            if str(dtype) == "Object" and (names is None or name in names):  # polars would export addresses
                raise ColumnError("its values are Python objects; cast it, or pass columns=[...] without it", "", name)
        return source.to_arrow()
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, (pa.Table, pa.ChunkedArray)):
        return pa.table(source)
    return source


def _fields(schema: Any, names: Sequence[str] | None, where: str) -> list[Any]:
    """The fields to read; raises ValueError if a column is missing, or if two columns have the same name."""
    names = schema.names if names is None else names
    for name in names:
        if schema.names.count(name) != 1:
            what = "more than one column" if name in schema.names else "no column"
            raise ValueError(f"{where}: there is {what} named {name!r}; the columns are {schema.names}")
    return [schema.field(name) for name in names]


def _columns_in(path: str, fields: dict[str, Any]) -> Mapping[str, Column]:
    """How the columns of a file are read; raises ColumnError if one cannot be."""
    try:
        return columns_of(None, list(fields.values()), set())
    except ColumnError as error:
        raise ColumnError(error.reason, path, error.column) from error


def _check_same(
    fields: dict[str, Any], columns: Mapping[str, Column], here: dict[str, Any], path: str, first: str
) -> None:
    if list(here) != list(fields) and set(here) != set(fields):
        extra = min(set(here) ^ set(fields))
        raise ValueError(f"{path}: column {extra!r} is not in both this file and {first}; pass columns=[...]")
    found = _columns_in(path, here)
    for name, column in columns.items():
        if found[name] != column:
            what = f"column {name!r} has type {here[name].type}, but {fields[name].type} in {first}"
            raise ValueError(f"{path}: {what}; cast it in one of the files, or pass columns=[...] without it")


def _check_chunks(footer: _Footer, fields: Mapping[str, Any], path: str) -> set[str]:
    """The ints and bools among these fields that have nulls according to the file's statistics.

    Raises:
        ColumnError: one of the fields is encrypted.
    """
    nulls = set()
    for chunks in footer.chunks:
        for leaf, chunk in zip(footer.leaves, chunks, strict=True):
            name = leaf if leaf in fields else leaf.partition(".")[0]
            if chunk.encrypted and name in fields:
                raise ColumnError(f"it is encrypted; pass columns=[...] without it, or {_DECRYPT}", path, name)
            if chunk.nulls and leaf in fields and counts_nulls(fields[leaf].type):
                nulls.add(leaf)
    return nulls
