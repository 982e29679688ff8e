"""Parquet out: parts that say by which columns they are sorted, as far as Parquet can say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from distsort import config
from distsort.io.storage import Store
from distsort.order import Order

METADATA = "_metadata"


@dataclass(frozen=True)
class ParquetSink:
    """Parts as Parquet files."""

    suffix: str = ".parquet"

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Any:
        """Begin a file; its row groups say by which columns they are sorted."""
        claims = [] if sorted_by is None else sorting_columns(schema, sorted_by)
        compression = config.get("files.compression")
        return _Writer(pq.ParquetWriter(file, schema, compression=compression, sorting_columns=claims or None))

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int:
        """Return the row count of the footer."""
        return int(pq.read_metadata(file).num_rows)


@dataclass(frozen=True)
class _Writer:
    parquet: Any

    def write(self, table: pa.Table) -> None:
        self.parquet.write_table(table, row_group_size=config.get("files.row-group-rows"))

    def close(self) -> None:
        self.parquet.close()


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
