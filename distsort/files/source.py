"""What users name becomes a source: formats by name or content, keys by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from distsort.errors import InputError, OptionError
from distsort.io import arrow, csv, lines, parquet, records
from distsort.io.filters import Filters
from distsort.io.source import Source, check_columns
from distsort.io.storage import Store, expand
from distsort.order import Order, make_order

Location = str | os.PathLike[str]
# Formats, and the key of those that have but one.
FORMATS: dict[str, str | None] = {
    "parquet": None,
    "csv": None,
    "arrow": None,
    "npy": arrow.VALUE,
    "records": records.KEY,
    "text": lines.LINE,
}
_ENDINGS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npy": "npy",
    ".rec": "records",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def open_source(
    src: Location | Iterable[Location],
    *,
    keys: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    layout: records.Layout | None = None,
    part_size: int | None = None,
    filters: Filters | None = None,
) -> Source:
    """Look at input files without reading their rows.

    Parameters
    ----------
    src, columns, format, delimiter, layout, filters
        As in `sort_files`.
    keys
        The sort keys, which are read even if `columns` lacks them.
    part_size
        Aim for the bytes of one piece in memory; as configured if None.
    """
    check_columns(columns)
    files = expand(src)
    kind = _format_of_all(files, format)
    _refuse(delimiter is not None and kind != "csv", "delimiter= is for CSV files", kind)
    _refuse(layout is not None and kind != "records", "layout= is for records", kind)
    _refuse(filters is not None and kind != "parquet", "filters= (--where) is for Parquet files", kind)
    only = FORMATS[kind]
    if only is not None:
        _refuse(columns is not None and list(columns) != [only], "columns= is for files with columns", kind)
        for key in keys or ():
            if key != only:
                raise InputError(f"key {key!r} is not there: {kind} files have the one key {only!r}; leave it out")
    if kind == "records":
        return records.scan_records(files, layout, part_size=part_size)
    if kind == "text":
        return lines.scan_lines(files, part_size=part_size)
    if kind == "npy":
        return arrow.scan_npy(files, part_size=part_size)
    keys = list(keys or ())
    if kind == "arrow":
        return arrow.scan_ipc(files, columns=columns, keys=keys, part_size=part_size)
    if kind == "parquet":
        return parquet.scan(files, columns=columns, keys=keys, part_size=part_size, filters=filters)
    if delimiter is None:
        delimiter = "\t" if all(".tsv" in path.rsplit("/", 1)[-1] for _, path, _ in files) else ","
    if len(delimiter) != 1:
        raise OptionError(f"delimiter={delimiter!r}: it must be one character")
    return csv.scan(files, columns=columns, keys=keys, delimiter=delimiter, part_size=part_size)


def order_of_files(
    src: Location | Iterable[Location],
    by: str | Sequence[str] | None,
    ascending: bool | Sequence[bool],
    na_position: str | Sequence[str],
    format: str | None,
) -> Order:
    """Return the order that a user asked for; arguments as in `sort_files`."""
    if by is None:
        by = default_key(src, format)
    return make_order(list(by) if isinstance(by, (list, tuple)) else by, ascending, na_position)


def default_key(src: Location | Iterable[Location], format: str | None) -> str:
    """Return the key of files that have but one.

    Raises
    ------
    OptionError
        They have columns, so one must be named.
    """
    kind = _format_of_all(expand(src), format)
    only = FORMATS[kind]
    if only is None:
        raise OptionError(f"by= (-k) is missing: name the column or columns that {kind} files are to be sorted by")
    return only


def _format_of_all(files: Sequence[tuple[Store, str, str]], format: str | None) -> str:
    kinds = {format or _format_of(store, path) for store, path, _ in files}
    if len(kinds) > 1:
        raise InputError(f"the input mixes {' and '.join(sorted(kinds))} files: sort one format at a time")
    kind = kinds.pop()
    if kind not in FORMATS:
        raise OptionError(f"format={kind!r}: it must be one of {', '.join(FORMATS)}")
    return kind


def _refuse(wrong: bool, what: str, kind: str) -> None:
    if wrong:
        raise OptionError(f"{what}, the input is {kind}: leave it out")


def _format_of(store: Store, path: str) -> str:
    name = path.lower().rsplit("/", 1)[-1]
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    with store.open(path) as file:
        head = file.read(6)
    for magic, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\x93NUMPY", "npy")):
        if head.startswith(magic):
            return kind
    raise InputError(
        f"{store.url(path)}: its name does not tell its format: say --format (format=) {', '.join(FORMATS)}"
    )


def key_name(name: object) -> str:
    """Return the name of a key, which in a file is a string."""
    if not isinstance(name, str):
        raise OptionError(f"by={name!r}: columns of files are named by strings")
    return name
