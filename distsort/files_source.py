"""What users name becomes a source: formats by name or content, keys by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from distsort.errors import InputError, OptionError
from distsort.io import csv, parquet
from distsort.io.source import Source
from distsort.io.storage import Store, expand

Location = str | os.PathLike[str]
FORMATS = ("parquet", "csv")
_ENDINGS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def open_source(
    src: Location | Iterable[Location],
    *,
    keys: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    part_size: int | None = None,
) -> Source:
    """Look at input files without reading their rows.

    Parameters
    ----------
    part_size
        Aim for the bytes of one piece in memory; as configured if None.

    The others are as in `sort_files`.
    """
    files = expand(src)
    kinds = {format or _format_of(store, path) for store, path, _ in files}
    if len(kinds) > 1:
        raise InputError(f"the input mixes {' and '.join(sorted(kinds))} files: sort one format at a time")
    kind = kinds.pop()
    if kind not in FORMATS:
        raise OptionError(f"format={kind!r}: it must be one of {', '.join(FORMATS)}")
    if kind == "parquet":
        if delimiter is not None:
            raise OptionError("delimiter= is for CSV files, the input is Parquet: leave it out")
        return parquet.scan(files, columns=columns, keys=keys, part_size=part_size)
    if delimiter is None:
        delimiter = "\t" if all(".tsv" in path.rsplit("/", 1)[-1] for _, path, _ in files) else ","
    if len(delimiter) != 1:
        raise OptionError(f"delimiter={delimiter!r}: it must be one character")
    return csv.scan(files, columns=columns, keys=keys, delimiter=delimiter, part_size=part_size)


def _format_of(store: Store, path: str) -> str:
    name = path.lower().rsplit("/", 1)[-1]
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    with store.open(path) as file:
        if file.read(4) == b"PAR1":
            return "parquet"
    raise InputError(f"{store.url(path)}: its name does not tell its format: say --format (format=) parquet or csv")


def key_name(name: object) -> str:
    """Return the name of a key, which in a file is a string."""
    if not isinstance(name, str):
        raise OptionError(f"by={name!r}: columns of files are named by strings")
    return name
