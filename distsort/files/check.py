"""Looking at files: are they sorted, what are their first rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from distsort.errors import DistsortError, InputError, NotSortedError
from distsort.files.seen import compare_neighbours
from distsort.files.source import Location, key_name, open_source, order_of_files
from distsort.io import csv
from distsort.io.checksum import table_checksum
from distsort.io.markers import MANIFEST
from distsort.io.records import Layout
from distsort.io.source import Source, to_frame
from distsort.io.storage import resolve
from distsort.order import Order, make_order


@dataclass(frozen=True)
class Check:
    """The answer of `check_files`.

    Attributes
    ----------
    rows
        Rows that were looked at; all of them if in order.
    fault
        Where the first row out of order is, with its keys and those of the row above it; None if there is none.
    duplicates
        Rows whose keys are those of the row above them.
    checksum
        Order-independent checksum of whole rows, where the format makes reading them no more work than reading keys
        (records, text, .npy); else None.
    ends
        Keys of the first and the last row.
    """

    rows: int
    fault: str | None
    duplicates: int
    checksum: int | None
    ends: pd.DataFrame

    def __bool__(self) -> bool:
        return self.fault is None


def check_files(
    path: Location | Iterable[Location],
    by: str | Sequence[str] | None = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    format: str | None = None,
    delimiter: str | None = None,
    layout: Layout | None = None,
) -> Check:
    """Read the keys of files, in the order of their names, and say whether they are sorted.

    Only the key columns are read, one piece at a time. Arguments as in `sort_files`.

    Raises
    ------
    InputError
        A file or column is missing or unreadable, or rows are missing or altered by the output's own manifest.
    """
    order = order_of_files(path, by, ascending, na_position, format)
    checked = _look(path, order, format, delimiter, layout, whole=by is None)
    if checked and isinstance(path, str | os.PathLike):
        _check_manifest(path, checked)
    return checked


def not_sorted(
    path: Location | Iterable[Location],
    order: Order,
    format: str | None,
    delimiter: str | None,
    layout: Layout | None,
) -> NotSortedError:
    """Return an error that names the file and its row: the task that found out saw rows in memory only."""
    try:
        fault = _look(path, order, format, delimiter, layout, whole=False, apart=True).fault
    except (DistsortError, OSError):
        fault = None
    return NotSortedError(
        f"{fault or 'an input file has a row that stands too late'}: it is not sorted by {order}: "
        "use sort_files, or distsort sort without -m, for files that are not sorted"
    )


def _look(
    path: Location | Iterable[Location],
    order: Order,
    format: str | None,
    delimiter: str | None,
    layout: Layout | None,
    whole: bool,
    apart: bool = False,
) -> Check:
    names = [key_name(key.name) for key in order.keys]
    columns = None if whole else names
    source = open_source(path, keys=names, columns=columns, format=format, delimiter=delimiter, layout=layout)
    while True:
        try:
            return _check(source, order, whole, apart)
        except csv.WiderTypes as wider:
            source = csv.widen(source, wider.types)


def _shown(value: Any) -> str:
    """Return a key as a person reads it: bytes that are text as that text."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text if text.isprintable() else repr(value)


def _check(source: Source, order: Order, whole: bool, apart: bool) -> Check:
    """Look at all rows; with `apart` a file need not follow the one before it."""
    above: pa.Table | None = None
    first: pa.Table | None = None
    rows = duplicates = checksum = 0
    seen: dict[str, int] = {}
    names = [str(key.name) for key in order.keys]
    for piece in source.pieces:
        for where, unit in _units(piece):
            table = source.reader(unit)
            keys = table.select(names)
            if apart and where not in seen:
                above = None
            frame = to_frame(keys if above is None else pa.concat_tables([above, keys]))
            falls, ties = compare_neighbours(frame, order)
            if falls.any():
                row = int(falls.argmax()) + 1
                before, after = (
                    ", ".join(f"{name}={_shown(value)}" for name, value in frame.iloc[i].items())
                    for i in (row - 1, row)
                )
                row -= above is not None
                place = f"{where}, row {seen.get(where, 0) + row:,}"
                return Check(rows + row, f"{place}: {after} stands below {before}", duplicates, None, frame.iloc[:0])
            rows += table.num_rows
            duplicates += int(ties.sum())
            checksum += table_checksum(table.select(source.written.names)) if whole else 0
            seen[where] = seen.get(where, 0) + table.num_rows
            if table.num_rows:
                above = keys.slice(table.num_rows - 1)
                first = keys.slice(0, 1) if first is None else first
    ends = to_frame(pa.concat_tables([first, above])) if first is not None and above is not None else source.meta
    return Check(rows, None, duplicates, checksum % 2**64 if whole else None, ends[names])


def combine_checks(
    checks: Sequence[Check],
    by: str | Sequence[str],
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
) -> Check:
    """Combine the answers for parts that were checked apart, as if they had been checked in one go.

    Parameters
    ----------
    checks
        Of the parts, in the order in which they stand.
    by, ascending, na_position
        As in `check_files`; "key", "line" and "value" are the keys of records, text and .npy files.

    Examples
    --------
    >>> import pandas as pd
    >>> low, high = (Check(2, None, 0, 7, pd.DataFrame({"key": ends})) for ends in ([1, 3], [3, 9]))
    >>> both = combine_checks([low, high], "key")
    >>> both.rows, both.duplicates, both.checksum, bool(both), bool(combine_checks([high, low], "key"))
    (4, 1, 14, True, False)
    """
    order = make_order(list(by) if isinstance(by, (list, tuple)) else by, ascending, na_position)
    fault = next((check.fault for check in checks if check.fault is not None), None)
    filled = [(number, check.ends) for number, check in enumerate(checks) if len(check.ends)]
    ends = pd.concat([each for _, each in filled], ignore_index=True) if filled else pd.DataFrame()
    duplicates = sum(check.duplicates for check in checks)
    if fault is None and filled:
        falls, ties = compare_neighbours(ends, order)
        # Every other pair of neighbours is the last row of a part and the first of the next.
        duplicates += int(ties[1::2].sum())
        if falls[1::2].any():
            number = filled[int(falls[1::2].argmax()) + 1][0]
            fault = f"part {number}: its first row should stand before the last row of the part above it"
    sums = [check.checksum for check in checks if check.checksum is not None]
    checksum = sum(sums) % 2**64 if len(sums) == len(checks) else None
    return Check(sum(check.rows for check in checks), fault, duplicates, checksum, ends.iloc[[0, -1][: len(ends)]])


def _units(piece: Any) -> Iterator[tuple[str, Any]]:
    """Yield (file, piece) for each file that a piece reads from."""
    if isinstance(piece, tuple):
        for groups in piece:
            yield groups.store.url(groups.path), (groups,)
    else:
        yield piece.store.url(piece.path), piece


def first_rows(path: Location, count: int) -> pa.Table:
    """Return the first rows of files, in the order of their names."""
    source = open_source(path)
    tables: list[pa.Table] = []
    left = count
    for piece in source.pieces:
        for _, unit in _units(piece):
            tables.append(source.reader(unit).slice(0, left))
            left -= tables[-1].num_rows
            if left == 0:
                return pa.concat_tables(tables)
    return pa.concat_tables(tables) if tables else source.schema.empty_table()


def _check_manifest(path: Location, found: Check) -> None:
    store, folder = resolve(path)
    try:
        manifest = json.loads(store.read(f"{folder}/{MANIFEST}"))
        rows, checksum = manifest["rows"], manifest["checksum"]
    except (OSError, ValueError, KeyError):
        return
    if rows != found.rows:
        raise InputError(f"{store.url(folder)}: has {found.rows:,} rows, but its manifest says {rows:,}")
    if found.checksum is not None and checksum != f"{found.checksum:016x}":
        raise InputError(f"{store.url(folder)}: its rows are not those of its manifest, their checksums differ")
