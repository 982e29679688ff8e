"""What a reader promises: columns, pieces and sizes, known before a row is read; and how rows become frames.

Rows travel as pandas frames of Arrow-backed columns, so that int64 with nulls stays int64, decimals stay decimals and
nested columns are carried along untouched. Two kinds of columns change clothes on the way and get them back when they
are written: dictionaries travel as their plain values, except a key whose categories have an order of their own, which
travels as a pandas Categorical; views travel as plain strings.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from distsort.errors import InputError, OptionError
from distsort.io.sink import Sink

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """An input that has been looked at but not read.

    Attributes
    ----------
    format
        "parquet", "csv", "arrow", "npy", "records" or "text".
    pieces
        What one task reads, in input order; at least one.
    reader
        Reads one piece to a table with exactly the columns of `schema`.
    schema
        The columns as they travel.
    written
        The same columns as they will be written.
    categories
        The order of the values of each key that travels as a Categorical.
    rows
        Row count, None where only reading tells.
    nbytes
        About how large all rows are in memory.
    stored
        Bytes of the files.
    files
        How many there are.
    notes
        What a person should know: why a file is read whole, which types were widened.
    sizes
        About how large each piece is in memory, in bytes.
    sink
        How parts are written.
    """

    format: str
    pieces: tuple[Any, ...]
    reader: Callable[[Any], pa.Table]
    schema: pa.Schema
    written: pa.Schema
    categories: Mapping[str, pa.Array]
    rows: int | None
    nbytes: int
    stored: int
    files: int
    notes: tuple[str, ...]
    sizes: tuple[int, ...]
    sink: Sink

    @property
    def meta(self) -> pd.DataFrame:
        """The frame of no rows."""
        return to_frame(conform(self.schema.empty_table(), self.schema, self.categories))

    def with_note(self, note: str) -> Source:
        """Return the source with one more note."""
        return replace(self, notes=(*self.notes, note))


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table that was read as the frame that travels; columns are shared, not copied."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_arrow_dtype, ignore_metadata=True)
    return frame


def to_table(frame: pd.DataFrame, written: pa.Schema) -> pa.Table:
    """Return a frame that has travelled as the table to write.

    Parameters
    ----------
    frame
        Rows of a source, in any order; its index is left out.
    written
        The columns to write.
    """
    return pa.Table.from_arrays([_written(frame[field.name], field) for field in written], schema=written)


def _arrow_dtype(kind: pa.DataType) -> pd.ArrowDtype | None:
    return None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)


def _written(column: pd.Series, field: pa.Field) -> pa.ChunkedArray:
    array = pa.array(column, from_pandas=True)
    chunked = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    return chunked if chunked.type == field.type else chunked.cast(field.type)


def travelling(field: pa.Field, ordered: bool = False) -> pa.Field:
    """Return a field as it travels; `ordered` says that it is a key with categories in an order of their own."""
    kind = field.type
    if pa.types.is_dictionary(kind) and not ordered:
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    elif pa.types.is_binary_view(kind):
        kind = pa.large_binary()
    return field.with_type(kind)


def written_field(field: pa.Field, travels: pa.Field) -> pa.Field:
    """Return a field as it is written: a dictionary again, with codes wide enough for the values of all files."""
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(travels.type):
        if pa.types.is_nested(travels.type):
            return travels
        return field.with_type(pa.dictionary(pa.int32(), travels.type))
    return travels


def conform(table: pa.Table, schema: pa.Schema, categories: Mapping[str, pa.Array]) -> pa.Table:
    """Give a table the columns and types of `schema`; a column it lacks is all null.

    Raises
    ------
    InputError
        A value does not fit its column's type or categories.
    """
    columns = []
    for field in schema:
        place = table.schema.get_field_index(field.name)
        if place < 0:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table.column(place)
        try:
            if field.name in categories:
                column = _recode(column, field, categories[field.name])
            elif column.type != field.type:
                if pa.types.is_dictionary(column.type):
                    column = column.cast(column.type.value_type)
                column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"column {field.name!r}: {error}; cast it when you write the file") from error
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _recode(column: pa.ChunkedArray, field: pa.Field, values: pa.Array) -> pa.ChunkedArray:
    """Code a column by the categories of the whole input."""
    chunks = []
    for chunk in column.chunks:
        if not (isinstance(chunk, pa.DictionaryArray) and chunk.dictionary.equals(values)):
            plain = chunk.cast(field.type.value_type)
            codes = pc.index_in(plain, values)
            if codes.null_count != plain.null_count:
                raise InputError(
                    f"column {field.name!r}: a value is not among its categories: write the files with one set"
                )
            chunk = pa.DictionaryArray.from_arrays(
                codes.cast(field.type.index_type), values, ordered=field.type.ordered
            )
        chunks.append(chunk)
    if not chunks:
        empty = pa.array([], field.type.index_type)
        chunks = [pa.DictionaryArray.from_arrays(empty, values, ordered=field.type.ordered)]
    return pa.chunked_array(chunks, type=field.type)


def check_columns(columns: object) -> None:
    """Refuse columns to keep that are no list, or of which one is named twice.

    Raises
    ------
    OptionError
    """
    if columns is None:
        return
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise OptionError(f"columns={columns!r}: give a list of names, as in columns=['fare']")
    repeated = sorted({repr(name) for name in columns if columns.count(name) > 1})
    if repeated:
        raise OptionError(f"columns= (--columns) names {', '.join(repeated)} more than once: name each column once")


def require_columns(wanted: Iterable[str], present: Sequence[str], what: str, where: str) -> None:
    """Refuse a column that is not there, naming what comes close.

    Raises
    ------
    InputError
    """
    for name in wanted:
        if name in present:
            continue
        near = difflib.get_close_matches(str(name), present, n=3, cutoff=0.5)
        near = near or [p for p in present if p.lower() == str(name).lower()]
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        shown = ", ".join(repr(p) for p in present[:20]) + (", ..." if len(present) > 20 else "")
        raise InputError(f"{what} {name!r} is not a column of {where}; {hint or f'its columns are {shown}'}")


def join_neighbours(units: Sequence[T], sizes: Sequence[int], target: int, minimum: int) -> list[list[T]]:
    """Group neighbours to about `target` each, but to no fewer than `minimum` groups where there are that many.

    A unit larger than the target stays alone; no unit is cut.

    Examples
    --------
    >>> join_neighbours("abcdef", [4, 4, 4, 4, 9, 1], target=8, minimum=1)
    [['a', 'b'], ['c', 'd'], ['e'], ['f']]
    >>> len(join_neighbours(range(12), [1] * 12, target=100, minimum=16))
    12
    """
    limit = min(target, -(-sum(sizes) // minimum))
    groups: list[list[T]] = []
    filled = 0
    for unit, size in zip(units, sizes, strict=True):
        if not groups or filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(unit)
        filled += size
    return groups
