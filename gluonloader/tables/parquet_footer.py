"""The footer of a Parquet file: which columns have nulls, which are encrypted, and where they lie.

pyarrow knows both, but its functions for them end the process if a column is encrypted, or if the footer is damaged:
they let exceptions of C++ pass where none may pass. So this reads the footer itself. It is in the compact protocol of
Thrift: structs whose fields have numbers, and values of which each kind has its own length.
"""

from __future__ import annotations

from typing import Any, Final

from ..messages import message

_Fields = dict[int, Any]

# The numbers of the kinds of values.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTS: Final = (4, 5, 6)  # of 16, 32 and 64 bits

# The fields that are read, by their numbers in parquet.thrift; the value says which fields of the structs in it.
_STATISTICS: Final[_Fields] = {3: {}}  # null_count
# total_compressed_size, data_page_offset, dictionary_page_offset
_COLUMN_META_DATA: Final[_Fields] = {7: {}, 9: {}, 11: {}, 12: _STATISTICS}
_COLUMN_CHUNK: Final = {3: _COLUMN_META_DATA, 8: {}}  # meta_data, crypto_metadata
_FILE_META_DATA: Final = {4: {1: _COLUMN_CHUNK}}  # row_groups, and their columns


@message(frozen=True, slots=True)
class ColumnChunk:
    """One column of a row group.

    Attributes:
        nulls: how many there are; None if the file does not say so.
        start, stop: where it lies in the file; both 0 if it is encrypted.
    """

    nulls: int | None
    encrypted: bool
    start: int
    stop: int


def column_chunks(footer: bytes) -> list[list[ColumnChunk]]:
    """The columns of each row group.

    Raises:
        ValueError: the footer is damaged.
    """
    try:
        groups = _struct(footer, 0, _FILE_META_DATA)[0].get(4, [])
        return [[_chunk(column) for column in group.get(1, [])] for group in groups]
    except (LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _chunk(column: _Fields) -> ColumnChunk:
    about = column.get(3, {})
    start = min(offset for offset in (about.get(11), about.get(9, 0)) if offset is not None)
    return ColumnChunk(about.get(12, {}).get(3), 8 in column, start, start + about.get(7, 0))


def _struct(data: bytes, at: int, wanted: _Fields) -> tuple[_Fields, int]:
    """The wanted fields of the struct at this place, and the place after it."""
    fields: _Fields = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _int(data, at)
        kind = head & 15
        if number in wanted:
            fields[number], at = _value(data, at, kind, wanted[number])
        elif kind not in (_TRUE, _FALSE):
            at = _skip(data, at, kind)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, wanted: _Fields) -> tuple[Any, int]:
    if kind == _STRUCT:
        return _struct(data, at, wanted)
    if kind in _INTS:
        return _int(data, at)
    if kind != _LIST:
        raise ValueError(f"a value of kind {kind} at byte {at}")
    count, kind, at = _list_head(data, at)
    values = []
    for _ in range(count):
        value, at = _value(data, at, kind, wanted)
        values.append(value)
    return values, at


def _skip(data: bytes, at: int, kind: int) -> int:
    """The place after a value."""
    if kind in _INTS:
        while data[at] & 128:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        return at + length
    if kind == _STRUCT:
        return _struct(data, at, {})[1]
    if kind == _LIST:
        count, kind, at = _list_head(data, at)
        if kind in (_TRUE, _FALSE):
            return at + count
        for _ in range(count):
            at = _skip(data, at, kind)
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    raise ValueError(f"a value of kind {kind} at byte {at}")


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """The length of a list, the kind of its values, and the place of the first one."""
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _unsigned(data, at)
    return count, kind, at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"an int of more than 64 bits at byte {at}")


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return value >> 1 ^ -(value & 1), at
