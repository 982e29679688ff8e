"""What a format must do to be written: open a file for tables of one schema, and count the rows of a finished one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from distsort.io.commit import whole_file
from distsort.io.storage import Store
from distsort.order import Order


class Writer(Protocol):
    """Takes the tables of one part, in order."""

    def write(self, table: pa.Table) -> None:
        """Append rows."""

    def close(self) -> None:
        """Complete the file; the caller closes it."""


class Sink(Protocol):
    """A format.

    Attributes
    ----------
    suffix
        Of the names of parts.
    """

    @property
    def suffix(self) -> str:
        """How names of parts end."""

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Writer:
        """Begin a file of `rows` rows, if that is known, which are in the order `sorted_by`."""

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int | None:
        """Return the rows of a finished file of `size` bytes, None where only reading it all would tell."""


def write_part(
    store: Store,
    path: str,
    sink: Sink,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    rows: int | None,
    sorted_by: Order | None,
) -> int:
    """Write one part; it gets its name when it is whole, and is looked at again.

    Parameters
    ----------
    store, path, sink
        Where and how.
    schema
        Of all tables.
    tables
        Their rows, one table after the other, are the part.
    rows
        How many there are in all, if that is known before they have gone by.
    sorted_by
        The order that the rows are checked to have by the time they are yielded.

    Returns
    -------
    int
        Bytes written.
    """
    with whole_file(store, path) as file:
        writer = sink.open(file, schema, rows, sorted_by)
        written = 0
        try:
            for table in tables:
                writer.write(table)
                written += table.num_rows
        finally:
            # Also after an error: a writer that is still open would write to a closed file later.
            writer.close()
    size = store.size(path)
    with store.open(path) as file:
        found = sink.count(file, size, schema)
    if found is not None and found != written:
        raise OSError(f"{store.url(path)}: {written} rows were written, but it holds {found}")
    return size


def keys_with_nan(table: pa.Table, order: Order) -> set[str]:
    """Return the keys in which a NaN stands; formats have no place for it in their orders."""
    return {
        str(key.name)
        for key in order.keys
        if key.name in table.column_names
        and pa.types.is_floating(table.schema.field(key.name).type)
        and pc.any(pc.is_nan(table[key.name])).as_py()
    }


def before(order: Order, names: set[str]) -> Order:
    """Return the keys of an order up to the first that `names` has."""
    kept = []
    for key in order.keys:
        if key.name in names:
            break
        kept.append(key)
    return Order(tuple(kept))
