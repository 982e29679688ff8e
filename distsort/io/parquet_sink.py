"""Parquet out: parts that say by which columns they are sorted, as far as Parquet can say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distsort import config
from distsort.io.storage import Store
from distsort.order import Order

METADATA = "_metadata"
# What Arrow's writer lets a dictionary have before it gives it up.
DICTIONARY_BYTES = 1 << 20
# Rows that are looked at.
_SAMPLE = 1 << 12


@dataclass(frozen=True)
class ParquetSink:
    """Parts as Parquet files."""

    suffix: str = ".parquet"

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Any:
        """Begin a file; its row groups say by which columns they are sorted."""
        claims = [] if sorted_by is None else sorting_columns(schema, sorted_by)
        options = {"compression": config.get("files.compression"), "sorting_columns": claims or None}
        return _Writer(file, schema, options)

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int:
        """Return the row count of the footer."""
        return int(pq.read_metadata(file).num_rows)


@dataclass
class _Writer:
    """Begins the file with the first table, which tells what a dictionary is worth."""

    file: IO[bytes]
    schema: pa.Schema
    options: dict[str, Any]
    parquet: Any = None

    def write(self, table: pa.Table) -> None:
        size = config.get("files.row-group-rows")
        if self.parquet is None:
            self._begin(dictionary_columns(table.slice(0, size)))
        self.parquet.write_table(table, row_group_size=size)

    def close(self) -> None:
        if self.parquet is None:
            self._begin(True)
        self.parquet.close()

    def _begin(self, dictionary: list[str] | bool) -> None:
        self.parquet = pq.ParquetWriter(self.file, self.schema, use_dictionary=dictionary, **self.options)


def dictionary_columns(group: pa.Table) -> list[str] | bool:
    """Return the columns of a row group to write with a dictionary: not those whose dictionary would outgrow its page.

    A writer begins one for every column and gives it up when it is full, which is a good part of all its work. How many
    values there are is told by how many of a sample agree by chance, as birthdays do.
    """
    rows = group.num_rows
    # Parquet calls the leaves of nested columns by names of its own.
    if rows < 2 * _SAMPLE or any(pa.types.is_nested(kind) for kind in group.schema.types):
        return True
    sample = group.take(np.arange(_SAMPLE) * rows // _SAMPLE)
    return [name for name in group.column_names if not _outgrows(sample[name], group[name].nbytes / rows)]


def _outgrows(sample: pa.ChunkedArray, width: float) -> bool:
    kind = sample.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind) or _is_text(kind)):
        return False
    again = len(sample) - pc.count_distinct(sample, mode="all").as_py()
    return bool(len(sample) ** 2 / 2 * width > DICTIONARY_BYTES * max(again, 1))


def _is_text(kind: pa.DataType) -> bool:
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return bool(wide or pa.types.is_string(kind) or pa.types.is_binary(kind))


def join_metadata(store: Store, folder: str, names: Sequence[str]) -> None:
    """Write ``_metadata`` beside parts: their footers in one file, each row group with the name of its part."""
    whole: Any = None
    for name in names:
        with store.open(f"{folder}/{name}") as file:
            footer = pq.read_metadata(file)
        footer.set_file_path(name)
        if whole is None:
            whole = footer
        else:
            whole.append_row_groups(footer)
    with store.open(f"{folder}/{METADATA}", "wb") as file:
        whole.write_metadata_file(file)


def sorting_columns(schema: pa.Schema, order: Order) -> list[Any]:
    """Return what Parquet can say about an order: the longest prefix of the keys that it has a place for.

    Parquet knows columns by the number of their leaf, and orders values, not categories.
    """
    claims: list[Any] = []
    leaves = {}
    count = 0
    for field in schema:
        leaves[field.name] = count
        count += _leaves(field.type)
    for key in order.keys:
        name = cast(str, key.name)
        if name not in leaves:
            break
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or (pa.types.is_dictionary(kind) and kind.ordered):
            break
        claims.append(pq.SortingColumn(leaves[name], key.descending, key.nulls_first))
    return claims


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaves(kind.value_type)
    return 1
