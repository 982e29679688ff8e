"""Sorting files: from a scan to an output that is published whole.

    scan --> read pieces --> sort_values --> write parts --> check --> publish
    footers  tally each      exact, lazy     check each     whole     one rename

Small inputs are sorted by threads of this process; larger ones by a cluster: the one that is connected, else a
LocalCluster sized to the machine, which is closed in the end. Whatever goes wrong before the publish, the staging
folder goes and what was there before stays.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dask
import pyarrow as pa

import distsort
from distsort import config
from distsort.errors import InputError, OptionError
from distsort.files_parts import Written, check_whole, first_fault, make_tasks, read_tallies
from distsort.io import csv, parquet
from distsort.io.commit import MANIFEST, Stage, begin
from distsort.io.source import Source, to_frame
from distsort.io.storage import Store, expand, resolve
from distsort.order import Order, make_order
from distsort.progress import Progress, watch
from distsort.report import Part, Report, bytes_text

Location = str | os.PathLike[str]
FORMATS = ("parquet", "csv")
_ENDINGS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def sort_files(
    src: Location | Iterable[Location],
    dst: Location,
    by: str | Sequence[str],
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    overwrite: bool = False,
    npartitions: int | None = None,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    backend: str | None = None,
    exchange: str | None = None,
    client: Any = None,
    show_progress: bool = False,
) -> Report:
    """Sort Parquet or CSV files into a folder of Parquet parts.

    Parameters
    ----------
    src
        Files, folders or globs, paths or URLs (fsspec): one or a list. Rows that tie keep the order of the input: files
        of a folder by name, entries of a list as listed.
    dst
        The output folder: ``part-00000.parquet`` ... in key order, a manifest and ``_SUCCESS``. It appears whole or not
        at all.
    by
        Key column or columns, the most significant first.
    ascending, na_position
        For all keys, or one for each; ties keep input order in both directions.
    overwrite
        Replace an existing output; the old one stands until the new one is complete.
    npartitions
        Number of parts, equal to the row; if None as many as input pieces, more if they would be large.
    columns
        Columns to keep, in this order; only these and the keys are read.
    format
        "parquet" or "csv"; if None told from the names of the files.
    delimiter
        Of CSV fields; if None a tab for ``.tsv``, else a comma.
    backend, exchange
        As in `sort_values`.
    client
        A distributed client or the address of a scheduler. If None the client that is connected; without one small
        input is sorted by threads and larger input by a LocalCluster.
    show_progress
        Draw a bar for each phase on stderr.

    Returns
    -------
    Report

    Raises
    ------
    InputError
        A file or column is missing or unreadable; schemas disagree.
    OptionError
        An option is wrong, or the output is the input.
    OutputError
        The output exists, or cannot be written.
    ValidationError
        The parts are not the input in order; nothing was published.

    Examples
    --------
    >>> import pandas as pd, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> pd.DataFrame({"k": [3, 1, 2]}).to_csv(folder / "in.csv", index=False)
    >>> report = sort_files(folder / "in.csv", folder / "out", by="k", ascending=False)
    >>> report.rows, pd.read_parquet(folder / "out")["k"].tolist()
    (3, [3, 2, 1])
    """
    progress = Progress()
    order = make_order(list(by) if isinstance(by, (list, tuple)) else by, ascending, na_position)
    names = [_key_name(key.name) for key in order.keys]
    if npartitions is not None and npartitions < 1:
        raise OptionError(f"npartitions={npartitions}: ask for at least one part")
    with progress.stage("scan"):
        named = [resolve(url) for url in _several(src)]
        source = open_source(src, keys=names, columns=columns, format=format, delimiter=delimiter)
    stage = begin(dst, named, overwrite)
    try:
        with _scheduler(source, stage, client) as (connected, scheduler):
            while True:
                try:
                    with watch(progress, connected, show_progress) as refresh:
                        written = _compute(
                            source, order, stage, columns, npartitions, backend, exchange, connected, refresh
                        )
                    break
                except csv.WiderTypes as wider:
                    source = csv.widen(source, wider.types)
        with progress.stage("publish"):
            read = read_tallies(stage.store, stage.folder, len(source.pieces))
            for piece in read:
                progress.ran("read", piece.start, piece.stop)
            whole = check_whole(read, written, order)
            parts = tuple(Part(part.name, part.tally.rows, part.stored) for part in written)
            stage.publish([part.name for part in written], _manifest(source, order, written, whole.checksum, named))
    except BaseException:
        stage.abort()
        raise
    sizes = (whole.rows, whole.nbytes)
    return Report(
        output=stage.store.url(stage.target),
        order=str(order),
        rows=whole.rows,
        nbytes=whole.nbytes,
        stored_in=source.stored,
        files_in=source.files,
        seconds=time.time() - progress.began,
        phases=progress.phases(read=sizes, sort=sizes, exchange=sizes, merge=sizes, write=sizes),
        parts=parts,
        checksum=f"{whole.checksum:016x}",
        scheduler=scheduler,
        notes=source.notes,
    )


def open_source(
    src: Location | Iterable[Location],
    *,
    keys: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
) -> Source:
    """Look at input files without reading their rows; arguments as in `sort_files`."""
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
        return parquet.scan(files, columns=columns, keys=keys)
    if delimiter is None:
        delimiter = "\t" if all(".tsv" in path.rsplit("/", 1)[-1] for _, path, _ in files) else ","
    if len(delimiter) != 1:
        raise OptionError(f"delimiter={delimiter!r}: it must be one character")
    return csv.scan(files, columns=columns, keys=keys, delimiter=delimiter)


@dataclass(frozen=True)
class Check:
    """The answer of `check_files`.

    Attributes
    ----------
    rows
        Rows that were looked at; all of them if in order.
    fault
        Where the first row out of order is, with its keys and those of the row above it; None if there is none.
    """

    rows: int
    fault: str | None

    def __bool__(self) -> bool:
        return self.fault is None


def check_files(
    path: Location | Iterable[Location],
    by: str | Sequence[str],
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    format: str | None = None,
    delimiter: str | None = None,
) -> Check:
    """Read the keys of files, in the order of their names, and say whether they are sorted.

    Only the key columns are read, one piece at a time. Arguments as in `sort_files`.

    Raises
    ------
    InputError
        A file or column is missing or unreadable, or rows are missing by the output's own manifest.
    """
    order = make_order(list(by) if isinstance(by, (list, tuple)) else by, ascending, na_position)
    names = [_key_name(key.name) for key in order.keys]
    source = open_source(path, keys=names, columns=names, format=format, delimiter=delimiter)
    while True:
        try:
            checked = _check(source, order)
            break
        except csv.WiderTypes as wider:
            source = csv.widen(source, wider.types)
    if checked and isinstance(path, str | os.PathLike):
        _check_manifest(path, checked.rows)
    return checked


def _check(source: Source, order: Order) -> Check:
    above: pa.Table | None = None
    rows = 0
    seen: dict[str, int] = {}
    for piece in source.pieces:
        for where, unit in _units(piece):
            table = source.reader(unit)
            frame = to_frame(table if above is None else pa.concat_tables([above, table]))
            row = first_fault(frame, order)
            if row is not None:
                before, after = (
                    ", ".join(f"{name}={value}" for name, value in frame.iloc[i].items()) for i in (row - 1, row)
                )
                row -= above is not None
                place = f"{where}, row {seen.get(where, 0) + row:,}"
                return Check(rows + row, f"{place}: {after} stands below {before}")
            rows += table.num_rows
            seen[where] = seen.get(where, 0) + table.num_rows
            if table.num_rows:
                above = table.slice(table.num_rows - 1)
    return Check(rows, None)


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


def _check_manifest(path: Location, rows: int) -> None:
    import json

    store, folder = resolve(path)
    try:
        promised = json.loads(store.read(f"{folder}/{MANIFEST}"))["rows"]
    except (OSError, ValueError, KeyError):
        return
    if promised != rows:
        raise InputError(f"{store.url(folder)}: has {rows:,} rows, but its manifest says {promised:,}")


def _compute(
    source: Source,
    order: Order,
    stage: Stage,
    columns: Sequence[str] | None,
    npartitions: int | None,
    backend: str | None,
    exchange: str | None,
    client: Any,
    refresh: Any,
) -> list[Written]:
    """Read, sort and write; nothing is published."""
    import dask.dataframe as dd

    from distsort.dataframes import sort_values

    parts = npartitions or max(len(source.pieces), -(-source.nbytes // config.get_bytes("files.part-size")))
    read, write = make_tasks(source, order, columns, stage.store, stage.folder)
    write = replace(write, parts=parts)
    # Columns travel as they are: Dask must not turn them into its own strings.
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_map(
            read,
            range(len(source.pieces)),
            source.pieces,
            meta=source.meta,
            label="sort-read",
            enforce_metadata=False,
        )
        result = sort_values(
            frame,
            [key.name for key in order.keys],
            ascending=[not key.descending for key in order.keys],
            na_position=["first" if key.nulls_first else "last" for key in order.keys],
            ignore_index=True,
            npartitions=parts,
            backend=backend,
            exchange=exchange,
        )
        token = uuid.uuid4().hex
        make = dask.delayed(write, pure=False)
        writes = [
            make(part, number, dask_key_name=(f"sort-write-{token}", number))
            for number, part in enumerate(result.to_delayed())
        ]
        if client is None:
            return list(dask.compute(*writes))
        from distributed import wait

        futures = client.compute(writes)
        try:
            wait(futures)
            refresh()
            return list(client.gather(futures))
        finally:
            client.cancel(futures, force=True)


@contextmanager
def _scheduler(source: Source, stage: Stage, client: Any) -> Iterator[tuple[Any, str]]:
    """Yield (client or None, what to call it): where the tasks will run."""
    memory_only = any(_in_process(store) for store in {stage.store.fs: stage.store, **_stores(source)}.values())
    distributed = sys.modules.get("distributed")
    if client is None and distributed is not None and not memory_only:
        try:
            client = distributed.default_client()
        except ValueError:
            client = None
    if client is not None and memory_only:
        raise OptionError("memory:// files are in this process only: give no client, or name files that workers see")
    if client is not None:
        from distributed import Client

        if isinstance(client, str):
            with Client(client) as connected:
                yield connected, _cluster_text(connected)
        else:
            with client.as_current(), dask.config.set(scheduler="dask.distributed"):
                yield client, _cluster_text(client)
        return
    if memory_only or source.nbytes <= config.get_bytes("files.in-process"):
        with dask.config.set(scheduler="threads"):
            yield None, f"{os.cpu_count()} threads of this process"
        return
    with _local_cluster(len(source.pieces)) as connected:
        yield connected, _cluster_text(connected)


@contextmanager
def _local_cluster(pieces: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    above = config.get("temporary-directory") or dask.config.get("temporary-directory", None)
    folder = tempfile.mkdtemp(prefix="distsort-", dir=above)
    try:
        with (
            dask.config.set({"temporary-directory": folder}),
            LocalCluster(
                n_workers=max(1, min(os.cpu_count() or 1, pieces)),
                threads_per_worker=1,
                local_directory=folder,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cluster_text(client: Any) -> str:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    memory = sum(worker["memory_limit"] or 0 for worker in workers.values())
    threads = sum(worker["nthreads"] for worker in workers.values())
    return f"{len(workers)} workers with {threads} threads and {bytes_text(memory)}"


def _stores(source: Source) -> dict[Any, Store]:
    return {
        unit.store.fs: unit.store
        for piece in source.pieces
        for unit in (piece if isinstance(piece, tuple) else (piece,))
    }


def _in_process(store: Store) -> bool:
    protocol = store.fs.protocol
    return "memory" in ([protocol] if isinstance(protocol, str) else protocol)


def _manifest(
    source: Source,
    order: Order,
    written: Sequence[Written],
    checksum: int,
    named: Sequence[tuple[Store, str]],
) -> dict[str, Any]:
    parts = []
    for part in written:
        ends = part.ends.astype(object).where(part.ends.notna(), None).to_dict("records")
        parts.append(
            {
                "file": part.name,
                "rows": part.tally.rows,
                "bytes": part.stored,
                "first": ends[0] if ends else None,
                "last": ends[-1] if ends else None,
            }
        )
    return {
        "format": "parquet",
        "made_by": f"distsort {distsort.__version__}, Python {platform.python_version()}",
        "sources": [store.url(path) for store, path in named],
        "order": [
            {
                "column": key.name,
                "direction": "desc" if key.descending else "asc",
                "nulls": "first" if key.nulls_first else "last",
            }
            for key in order.keys
        ],
        "rows": sum(part.tally.rows for part in written),
        "checksum": f"{checksum:016x}",
        "parts": parts,
    }


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


def _several(src: Location | Iterable[Location]) -> list[Location]:
    return [src] if isinstance(src, str | os.PathLike) else list(src)


def _key_name(name: object) -> str:
    if not isinstance(name, str):
        raise OptionError(f"by={name!r}: columns of files are named by strings")
    return name


__all__ = ["FORMATS", "Check", "check_files", "first_rows", "open_source", "sort_files"]
