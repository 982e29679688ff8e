"""Sorting files: from a scan to an output that is published whole.

    scan --> read pieces --> sort_values --> write parts --> check --> publish
    footers  tally each      exact, lazy     check each     whole     one rename

Small inputs are sorted by threads of this process; larger ones by a cluster: the one that is connected, else a
LocalCluster sized to the machine, which is closed in the end. Whatever goes wrong before the publish, the staging
folder goes and what was there before stays.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask

from distsort import config
from distsort.clusters import temporary_directory
from distsort.errors import NotSortedError, OptionError
from distsort.files import budget
from distsort.files.check import Check, check_files, combine_checks, first_rows, not_sorted
from distsort.files.manifest import make_manifest
from distsort.files.parts import Read, Written, check_whole, make_tasks, read_tallies
from distsort.files.seen import Tally, last_keys
from distsort.files.source import FORMATS, Location, key_name, open_source, order_of_files
from distsort.files.where import check_client, memory_size, parts_of, piece_size, where_to_run
from distsort.io import csv
from distsort.io.commit import Stage, begin, explained
from distsort.io.filters import Filters
from distsort.io.parquet import by_file
from distsort.io.parquet_sink import METADATA, join_metadata
from distsort.io.records import Layout
from distsort.io.scratch import scratch_folder
from distsort.io.source import Source
from distsort.io.storage import resolve
from distsort.local import Spec
from distsort.needs import Workers, identity
from distsort.order import Order
from distsort.plan import check_parts
from distsort.progress import Progress
from distsort.progress_watch import watch
from distsort.report import Part, Report, Worker
from distsort.report_workers import watch_workers


def sort_files(
    src: Location | Iterable[Location],
    dst: Location,
    by: str | Sequence[str] | None = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    overwrite: bool = False,
    npartitions: int | None = None,
    columns: Sequence[str] | None = None,
    filters: Filters | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    layout: Layout | None = None,
    presorted: bool = False,
    unique: bool = False,
    metadata_file: bool = False,
    backend: str | None = None,
    exchange: str | None = None,
    memory: str | int | None = None,
    client: Any = None,
    show_progress: bool = False,
) -> Report:
    """Sort files into a folder of parts.

    Parquet and CSV become Parquet; Arrow IPC, .npy, records and text stay what they are.

    Parameters
    ----------
    src
        Files, folders or globs, paths or URLs (fsspec): one or a list. Rows that tie keep the order of the input: files
        of a folder by name, entries of a list as listed.
    dst
        The output folder: ``part-00000.parquet`` ... in key order, a manifest and ``_SUCCESS``. It appears whole or not
        at all.
    by
        Key column or columns, the most significant first. Left out for records, text and .npy files, which have but one
        key.
    ascending, na_position
        For all keys, or one for each; ties keep input order in both directions. NaN in Parquet and Arrow floats is no
        null: see `sort_values`.
    overwrite
        Replace the output of an earlier run, which stands until the new one is complete. A folder that holds what no
        run wrote is refused.
    npartitions
        Number of parts, which differ by one row at most; if None about `distsort.files.part-size` each.
    columns
        Columns to keep, in this order; only these and the keys are read.
    filters
        Which rows of Parquet files to sort, as pandas, Dask and pyarrow take them: ``[("fare", ">=", 10), ...]``, all
        of which must hold, or a list of such lists, one of which must. Row groups whose statistics rule them out are
        not read.
    format
        "parquet", "csv", "arrow", "npy", "records" or "text"; if None told from the names of the files.
    delimiter
        Of CSV fields; if None a tab for ``.tsv``, else a comma.
    layout
        Of records; if None 100 bytes with a key in the first 10.
    presorted
        Each input file is in order already: check and merge, sort nothing again.
    unique
        Of rows with equal keys keep the first only. Parts are as equal as they were with all rows.
    metadata_file
        Also write ``_metadata``, the footers of all Parquet parts in one file.
    backend, exchange
        As in `sort_values`.
    memory
        Bytes that this process may hold ("2 GiB"): the sort runs in it, spilling to `distsort.temporary-directory`,
        however large the input. Not with a client.
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
    NotSortedError
        `presorted` was said of a file that is not in order; the message names it, the row and its keys.
    OptionError
        An option is wrong, or the output is the input.
    OutputError
        The output exists, or cannot be written.
    SortMemoryError
        `memory`, or a worker, is too small for the largest piece of the input; the message says what would do.
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
    config.check()
    progress = Progress()
    order = order_of_files(src, by, ascending, na_position, format)
    names = [key_name(key.name) for key in order.keys]
    if npartitions is not None:
        npartitions = check_parts(npartitions, 1)
    check_client(client)
    limit = None if memory is None else memory_size(memory)
    if limit is not None and client is not None:
        raise OptionError("memory= is for a sort in this process: workers of a cluster have limits of their own")
    with progress.stage("scan"):
        size = piece_size(client, limit)
        named = [resolve(url) for url in _several(src)]
        source = open_source(
            src,
            keys=names,
            columns=columns,
            format=format,
            delimiter=delimiter,
            layout=layout,
            part_size=size,
            filters=filters,
        )
    if metadata_file and source.sink.suffix != ".parquet":
        raise OptionError("metadata_file= (--metadata-file) is for Parquet output")
    if unique and source.format == "npy":
        raise OptionError("unique= (-u) is not for .npy files, whose header states their rows before they are written")
    if presorted and source.format == "parquet":
        source = by_file(source)
    count = parts_of(source, npartitions, size if limit is None else None)
    job = Job(source, order, columns, count, backend, exchange, presorted, unique)
    stage = begin(dst, named, overwrite)
    try:
        while True:
            try:
                if limit is None:
                    done = _on_dask(job, stage, client, progress, show_progress)
                else:
                    done = _within(job, stage, limit, progress, show_progress)
                break
            except csv.WiderTypes as wider:
                job = replace(job, source=csv.widen(job.source, wider.types))
            except NotSortedError as error:
                raise not_sorted(src, order, format, delimiter, layout) from error
        source, written = job.source, done.written
        with progress.stage("publish"):
            for piece in done.read:
                progress.ran("read", piece.start, piece.stop)
            whole = check_whole(done.read, written, order)
            kept = sum((part.tally for part in written), Tally())
            parts = tuple(Part(part.name, part.tally.rows, part.stored) for part in written)
            names = [part.name for part in written]
            manifest = make_manifest(source, order, written, kept.checksum, named)
            if metadata_file:
                with explained(stage.store.url(stage.target)):
                    join_metadata(stage.store, stage.folder, names)
                names.append(METADATA)
            stage.publish(names, manifest)
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
        checksum=f"{kept.checksum:016x}",
        dropped=whole.rows - kept.rows,
        scheduler=done.scheduler,
        plan=done.plan,
        notes=source.notes,
        workers=done.workers,
        planned_memory=done.planned,
    )


@dataclass(frozen=True)
class Job:
    """What is to be sorted and how."""

    source: Source
    order: Order
    columns: Sequence[str] | None
    parts: int
    backend: str | None
    exchange: str | None
    presorted: bool
    unique: bool


@dataclass(frozen=True)
class Done:
    """What was read and written, where, by which plan, and what it took."""

    read: Sequence[Read]
    written: Sequence[Written]
    scheduler: str
    plan: str
    workers: tuple[Worker, ...]
    planned: int | None


def _on_dask(job: Job, stage: Stage, client: Any, progress: Progress, show: bool) -> Done:
    """Read, sort and write on a cluster or on threads; nothing is published."""
    import dask.dataframe as dd

    from distsort.dataframes import merge_rows, plan_sort_values, sort_values

    source = job.source
    read, write = make_tasks(source, job.order, job.columns, stage.store, stage.folder, job.parts, job.unique)
    by = [key.name for key in job.order.keys]
    options: dict[str, Any] = {
        "ascending": [not key.descending for key in job.order.keys],
        "na_position": ["first" if key.nulls_first else "last" for key in job.order.keys],
        "npartitions": job.parts,
        "backend": job.backend,
        "exchange": job.exchange,
    }
    with (
        where_to_run(source, stage.store, client) as (connected, scheduler),
        # Columns travel as they are: Dask must not turn them into its own strings.
        dask.config.set({"dataframe.convert-string": False}),
    ):
        held = watch_workers(connected)
        frame = dd.from_map(
            read,
            range(len(source.pieces)),
            source.pieces,
            meta=source.meta,
            label="sort-read",
            enforce_metadata=False,
        )
        plan = replace(plan_sort_values(frame, by, **options), rows=source.rows, nbytes=source.nbytes)
        size = None if connected is None else Workers.of(identity(connected))
        if size is not None:
            plan = plan.fit(size, kept=False)
        token = uuid.uuid4().hex
        make = dask.delayed(write, pure=False)
        arrange = merge_rows if job.presorted else sort_values
        last = dask.delayed(last_keys, pure=False)
        writes, above = [], None
        for number, part in enumerate(arrange(frame, by, ignore_index=True, **options).to_delayed()):
            writes.append(make(part, number, above, dask_key_name=(f"sort-write-{token}", number)))
            if job.unique:
                above = last(part, above, job.order, dask_key_name=(f"sort-last-{token}", number))
        with watch(progress, connected, show, plan.exchange) as refresh:
            written = list(dask.compute(*writes)) if connected is None else _gather(connected, writes, refresh)
        read_all = read_tallies(stage.store, stage.folder, len(source.pieces))
        workers = held()
        need = plan.need()
        if need is None:
            needed = (plan.peak(len(workers)) or 0) + budget.LIBRARIES
        else:
            needed = max(need.peak - max((worker.base for worker in workers), default=0), 0)
        return Done(read_all, written, scheduler, plan.explain(), workers, needed)


def _gather(client: Any, writes: Sequence[Any], refresh: Any) -> list[Written]:
    from distributed import wait

    futures = client.compute(writes)
    try:
        wait(futures)
        refresh()
        return list(client.gather(futures))
    finally:
        client.cancel(futures, force=True)


def _within(job: Job, stage: Stage, memory: int, progress: Progress, show: bool) -> Done:
    """Read, sort and write in this process and `memory` bytes; nothing is published."""
    from distsort.files.external import sort_external

    _, write = make_tasks(job.source, job.order, job.columns, stage.store, stage.folder, job.parts, job.unique)
    held = watch_workers(None)
    room = budget.make_budget(job.source, job.parts, memory)
    spec = Spec(job.order, "rows", backend=job.backend, ignore_index=True, presorted=job.presorted)
    with scratch_folder(temporary_directory()) as folder, watch(progress, show=show):
        read, written, spilled = sort_external(job.source, spec, write, room, folder, progress)
    workers = tuple(replace(worker, spilled=spilled) for worker in held())
    place = f"{room.threads} of {os.cpu_count()} threads of this process"
    return Done(read, written, place, room.explain(), workers, room.peak - workers[0].base)


def _several(src: Location | Iterable[Location]) -> list[Location]:
    return [src] if isinstance(src, str | os.PathLike) else list(src)


__all__ = ["FORMATS", "Check", "check_files", "combine_checks", "first_rows", "open_source", "sort_files"]
