"""Parquet in and out.

A scan reads footers only: it knows every row count, so the pieces are known before a row is read. Files may differ in
columns that are all null, in string layouts and in zero-row files; any other difference is refused with the names of
both files. Folders named ``key=value`` give columns (hive). Written parts say by which columns they are sorted only
when the caller has checked that they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distsort import config
from distsort.errors import InputError
from distsort.io.filters import Ends, Filters, filtered, make_where
from distsort.io.parquet_schema import folder_types, folder_values, unify, without_range_index
from distsort.io.parquet_sink import ParquetSink
from distsort.io.source import Source, conform, join_neighbours, require_columns, travelling, written_field
from distsort.io.storage import Store


@dataclass(frozen=True)
class Groups:
    """Some row groups of one file.

    Attributes
    ----------
    store, path
        The file.
    groups
        Numbers of the row groups, ascending.
    folders
        (name, value) of the hive folders above it.
    """

    store: Store
    path: str
    groups: tuple[int, ...]
    folders: tuple[tuple[str, Any], ...]


Piece = tuple[Groups, ...]


@dataclass(frozen=True)
class Reader:
    """Reads pieces; the only thing that tasks need."""

    schema: pa.Schema
    categories: dict[str, pa.Array]

    def __call__(self, piece: Piece) -> pa.Table:
        """Return the rows of a piece with the columns of the scan."""
        if not piece:
            return conform(self.schema.empty_table(), self.schema, self.categories)
        return pa.concat_tables([self._read(groups) for groups in piece])

    def _read(self, unit: Groups) -> pa.Table:
        where = unit.store.url(unit.path)
        try:
            with unit.store.open(unit.path) as file, pq.ParquetFile(file) as parquet:
                inside = set(parquet.schema_arrow.names)
                names = [name for name in self.schema.names if name in inside]
                table = parquet.read_row_groups(list(unit.groups), columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{where}: cannot be read ({error}); is the file whole?") from error
        for name, value in unit.folders:
            if name in self.schema.names and name not in inside:
                kind = self.schema.field(name).type
                table = table.append_column(name, pa.repeat(pa.scalar(value, kind), table.num_rows))
        return conform(table, self.schema, self.categories)


def scan(
    files: Sequence[tuple[Store, str, str]],
    *,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    part_size: int | None = None,
    filters: Filters | None = None,
) -> Source:
    """Look at the footers of Parquet files.

    Parameters
    ----------
    files
        (store, path, root) as `storage.expand` gives them.
    columns
        The columns to read; all if None. The keys are read in any case.
    keys
        The sort keys: a key with categories keeps their order.
    part_size
        Aim for the size of one piece in memory, in bytes; the configured one if None.
    filters
        Which rows to read: row groups that cannot hold one are left out, others are filtered row by row.

    Raises
    ------
    InputError
        A file is not Parquet, schemas disagree, or a column is missing.
    """
    footers = [_footer(store, path) for store, path, _ in files]
    folders = folder_values([(path, root) for _, path, root in files])
    where = files[0][0].url(files[0][2] if len(files) > 1 else files[0][1])
    whole = unify(
        [
            (store.url(path), footer.schema.to_arrow_schema(), footer.num_rows)
            for (store, path, _), footer in zip(files, footers, strict=True)
        ]
    )
    for name, kind in folder_types(folders).items():
        if name not in whole.names:
            whole = whole.append(pa.field(name, kind))
    if len(set(whole.names)) < len(whole.names):
        twice = next(name for name in whole.names if whole.names.count(name) > 1)
        raise InputError(f"{where}: column {twice!r} is there twice: rename one of them")
    require_columns(keys, whole.names, "key", where)
    require_columns(columns or (), whole.names, "column", where)
    passing = None if filters is None else make_where(filters, whole, where)
    keep = whole.names if columns is None else list(dict.fromkeys([*columns, *keys]))
    if columns is not None:
        chosen = list(dict.fromkeys([*keep, *(passing.columns if passing else ())]))
        whole = pa.schema([whole.field(name) for name in chosen], metadata=whole.metadata)
    whole = whole.with_metadata(without_range_index(whole))

    categories, notes = _categories(files, whole, keys)
    schema = pa.schema([travelling(field, field.name in categories) for field in whole])
    written = pa.schema([written_field(field, schema.field(field.name)) for field in whole], metadata=whole.metadata)
    units, sizes = [], []
    skipped = 0
    for (store, path, _), footer, values in zip(files, footers, folders, strict=True):
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if passing is not None and not passing.possible(_ends(group, passing.columns, values)):
                skipped += 1
            elif group.num_rows:
                units.append(Groups(store, path, (number,), tuple(values.items())))
                sizes.append(_size(group, schema))
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    size_of = {(unit.path, unit.groups[0]): size for unit, size in zip(units, sizes, strict=True)}
    groups = join_neighbours(units, sizes, target, config.get("files.minimum-partitions"))
    pieces = tuple(_joined(group) for group in groups) or ((),)
    if passing is not None:
        total = sum(footer.num_row_groups for footer in footers)
        notes.append(f"{total - skipped:,} of {total:,} row groups are read; in the others no row can pass the filters")
    source = Source(
        "parquet",
        pieces,
        Reader(schema, categories),
        schema,
        written,
        categories,
        sum(footer.num_rows for footer in footers),
        sum(sizes),
        sum(store.size(path) for store, path, _ in files),
        len(files),
        tuple(notes),
        tuple(sum(size_of[unit.path, number] for unit in piece for number in unit.groups) for piece in pieces),
        ParquetSink(),
    )
    return source if passing is None else filtered(source, passing, keep)


def by_file(source: Source) -> Source:
    """Return a source none of whose pieces reads from two files."""
    pieces: list[Piece] = []
    sizes: list[int] = []
    for piece, size in zip(source.pieces, source.sizes, strict=True):
        count = sum(len(groups.groups) for groups in piece)
        pieces += [(groups,) for groups in piece] or [()]
        sizes += [size * len(groups.groups) // count for groups in piece] or [size]
    return replace(source, pieces=tuple(pieces), sizes=tuple(sizes))


def _footer(store: Store, path: str) -> Any:
    try:
        with store.open(path) as file:
            return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{store.url(path)}: is not a whole Parquet file ({error}); name only Parquet files, or say --format"
        ) from error


def _categories(
    files: Sequence[tuple[Store, str, str]], schema: pa.Schema, keys: Sequence[str]
) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the category order of the keys that have one: pandas' categoricals and ordered dictionaries."""
    described = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("columns", [])
    pandas = {column.get("field_name") for column in described if column.get("pandas_type") == "categorical"}
    found: dict[str, pa.Array] = {}
    notes = []
    for name in keys:
        kind = schema.field(name).type
        if not pa.types.is_dictionary(kind) or not (kind.ordered or name in pandas):
            continue
        sets = []
        for store, path, _ in files:
            with store.open(path) as file, pq.ParquetFile(file) as parquet:
                if parquet.metadata.num_rows:
                    sets += [chunk.dictionary for chunk in parquet.read_row_group(0, columns=[name])[name].chunks]
        if sets and all(values.equals(sets[0]) for values in sets):
            found[name] = sets[0]
        elif sets and kind.ordered:
            raise InputError(f"key {name!r}: the files order its categories differently: write them with one set")
        elif sets:
            notes.append(f"key {name!r}: the files have different categories, so its values are sorted as values")
    return found, notes


def _size(group: Any, schema: pa.Schema) -> int:
    """Estimate the bytes of a row group in memory.

    Fixed widths are known. Texts are as large as they are stored, or, where they are stored as codes of a dictionary,
    as long as the mean of the least and the greatest.
    """
    stored: dict[str, float] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        top = column.path_in_schema
        top = top if top in schema.names else top.split(".")[0]
        stored[top] = stored.get(top, 0) + max(column.total_uncompressed_size, _decoded(column, group.num_rows))
    total = 0
    for field in schema:
        try:
            total += group.num_rows * max(1, field.type.bit_width // 8)
        except ValueError:
            total += int(stored.get(field.name, 0)) + 4 * group.num_rows
    return total


def _ends(group: Any, names: Sequence[str], folders: dict[str, Any]) -> dict[str, Ends | None]:
    """Return what the statistics of a row group and its hive folders say of some columns."""
    found: dict[str, Ends | None] = {
        name: None if folders[name] is None else (folders[name], folders[name]) for name in names if name in folders
    }
    for number in range(group.num_columns):
        column = group.column(number)
        known = column.statistics
        if column.path_in_schema not in names or known is None:
            continue
        if known.has_min_max:
            found[column.path_in_schema] = (known.min, known.max)
        elif known.has_null_count and known.null_count == group.num_rows:
            found[column.path_in_schema] = None
    return found


def _decoded(column: Any, rows: int) -> float:
    """Estimate the bytes of the texts of a column that is stored as codes; 0 for other columns."""
    if column.physical_type != "BYTE_ARRAY" or "RLE_DICTIONARY" not in column.encodings:
        return 0
    found = column.statistics
    if found is None or not found.has_min_max:
        return 0
    ends = [end.encode() if isinstance(end, str) else bytes(end) for end in (found.min_raw, found.max_raw)]
    return rows * sum(map(len, ends)) / 2


def _joined(units: Sequence[Groups]) -> Piece:
    """Join the row groups of one file, so that it is opened once."""
    joined: list[Groups] = []
    for unit in units:
        last = joined[-1] if joined else None
        if last is not None and (last.store, last.path) == (unit.store, unit.path):
            joined[-1] = Groups(last.store, last.path, last.groups + unit.groups, last.folders)
        else:
            joined.append(unit)
    return tuple(joined)
