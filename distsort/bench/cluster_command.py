"""`distsort bench cluster`: the command, its table, JSON and plot."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from distsort.errors import DistsortError

PIPE_WIDTH = 160


def size(_: Any, __: Any, text: str) -> int:
    """Read a number of rows: 20e6, 2**28, 1M."""
    try:
        if "**" in text:
            base, _, power = text.partition("**")
            return int(base) ** int(power)
        return int(
            float(text[:-1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[text[-1].lower()] if text[-1].isalpha() else float(text)
        )
    except (ValueError, KeyError):
        raise click.BadParameter(f"{text!r} is not a number of rows: write 20e6, 2**28 or 20M") from None


def scaling_cases(base: Any, workers: int) -> list[tuple[str, Any]]:
    """Return the cases of ``--scaling`` for one number of workers: strong keeps all rows, weak the rows of a worker.

    For one worker they are the same, and stand as weak.
    """
    kinds = {
        "u32 keys": replace(base, dtype="u4", payload=0, frame=False),
        "u64 keys": replace(base, dtype="u8", payload=0, frame=False),
        "u64 key + 8 bytes": replace(base, dtype="u8", payload=1),
        "argsort": replace(base, dtype="u8", payload=0, frame=False, index=True),
    }
    made = []
    for skew in ("uniform", "zipf", "constant"):
        for name, case in kinds.items():
            for how, rows in (("weak", case.rows), ("strong", case.rows // workers))[: 2 if workers > 1 else 1]:
                made.append(
                    (f"{how}, {name}, {skew}", replace(case, rows=rows, partitions=workers, parts=workers, skew=skew))
                )
    return made


def share(row: dict[str, Any]) -> float | None:
    """Return the milliseconds of a measurement in which no phase was at work: Dask's own share."""
    spans = [row["phases"][p] for p in ("run", "cuts", "part") if p in row["phases"]]
    return row["median_ms"] - sum(stop - start for start, stop in spans) if spans else None


def table(found: list[dict[str, Any]]) -> Any:
    """Return what is printed."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("case", "method"):
        made.add_column(name)
    for name in ("workers", "median ms", "Mrows/s", "max/mean", "GB/s pulled", "run", "cuts", "part", "dask", "GiB"):
        made.add_column(name, justify="right")
    for row in found:
        phases = row["phases"]
        cells = [row["name"], row["method"], row["workers"], row["median_ms"], row["grows_per_s"] * 1e3, row["balance"]]
        spans = [phases[p][1] - phases[p][0] if p in phases else None for p in ("run", "cuts", "part")]
        cells += [row["gbs"], *spans, share(row)]
        cells.append(None if row["device_bytes"] is None else row["device_bytes"] / 2**30)
        made.add_row(*("" if c is None else c if isinstance(c, str) else f"{c:,.4g}" for c in cells))
    return made


def plot(found: list[dict[str, Any]], file: Path) -> None:
    """Draw when the phases of every measurement began and ended; they overlap."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.5 * len(found)), layout="constrained")
    for i, phase in enumerate(("run", "tick", "cuts", "part", "other")):
        for at, row in enumerate(found):
            if phase in row["phases"]:
                start, stop = row["phases"][phase]
                axes.barh(at - 0.32 + 0.16 * i, stop - start, 0.15, left=start, color=f"C{i}")
        axes.barh(0, 0, color=f"C{i}", label=phase)
    axes.plot([row["median_ms"] for row in found], range(len(found)), "k|", markersize=16, label="whole")
    axes.set_yticks(range(len(found)), [f"{row['name']}, {row['method']} x{row['workers']}" for row in found])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def scaling_plot(found: list[dict[str, Any]], file: Path) -> None:
    """Draw rows a second over the number of workers: kinds as lines, skews side by side, weak over strong."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rates: dict[tuple[str, ...], dict[int, float]] = {}
    for row in found:
        how, *what = row["name"].split(", ")
        for name in ((how, *what),) if row["workers"] > 1 else (("weak", *what), ("strong", *what)):
            rates.setdefault(name, {})[row["workers"]] = row["grows_per_s"]
    hows, kinds, skews = (list(dict.fromkeys(name[i] for name in rates)) for i in range(3))
    figure, grid = pyplot.subplots(
        len(hows),
        len(skews),
        figsize=(3.4 * len(skews), 2.8 * len(hows)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for (how, kind, skew), by_workers in rates.items():
        axes = grid[hows.index(how)][skews.index(skew)]
        counts = sorted(by_workers)
        axes.plot(counts, [by_workers[c] for c in counts], "o-", color=f"C{kinds.index(kind)}", label=kind)
        axes.set_title(f"{how}, {skew}", fontsize="medium")
        axes.set_xticks(counts)
    for axes in grid.flat:
        axes.set_ylim(bottom=0)
    for axes in grid[-1]:
        axes.set_xlabel("workers")
    for line in grid:
        line[0].set_ylabel("10^9 rows / s")
    grid[0][0].legend(fontsize="small")
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


@click.command("cluster")
@click.option("--rows", default="1M", show_default=True, callback=size, help="Rows of one input partition.")
@click.option("--partitions", default=2, show_default=True, type=click.IntRange(1), help="Of input and result.")
@click.option("--dtype", default="i8", show_default=True, type=click.Choice(["i4", "i8", "u4", "u8", "f4", "f8"]))
@click.option("--payload", default=0, show_default=True, type=click.IntRange(0), help="float64 columns beside the key.")
@click.option("--frame", is_flag=True, help="Dataframes also without payload.")
@click.option(
    "--skew",
    "skews",
    multiple=True,
    default=["uniform"],
    type=click.Choice(["uniform", "zipf", "heavy", "constant", "sorted"]),
    help="Repeatable.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=["pull"],
    show_default=True,
    type=click.Choice(["pull", "graph", "default", "tasks", "cudf-polars"]),
    help="Repeatable; all run on the same data.",
)
@click.option("--gpu", is_flag=True, help="Blocks in GPU memory, on one worker for each GPU.")
@click.option("--workers", type=click.IntRange(1), help="Worker processes; one for each GPU or core if left out.")
@click.option("--protocol", type=click.Choice(["tcp", "ucx"]), help="How workers talk; Dask's default if left out.")
@click.option("--scaling", is_flag=True, help="Weak and strong scaling from one worker to all, over kinds and skews.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1))
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all numbers here.")
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the phases here, or how it scales.",
)
def cluster(
    rows: int,
    partitions: int,
    dtype: str,
    payload: int,
    frame: bool,
    skews: tuple[str, ...],
    methods: tuple[str, ...],
    gpu: bool,
    workers: int | None,
    protocol: str | None,
    scaling: bool,
    repeats: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Measure sorts on a cluster of this machine, beside those of its other libraries."""
    from rich.console import Console

    from distsort.bench import cluster as engine

    base = engine.Case(rows, partitions, partitions, dtype, payload, frame=frame, device=gpu)
    found: list[dict[str, Any]] = []

    def keep(name: str, count: int, measured: Any) -> None:
        found.append({"name": name, "workers": count, **measured.to_dict()})
        if json_file is not None:  # at once: what is measured is measured, however the run ends
            json_file.write_text(json.dumps({"date": engine.now(), "rows": found}, indent=1))
        click.echo(f"{name}: {measured.method} {measured.median:,.1f} ms", err=True)

    # Dask's shuffle warns of each of its own starts and ends.
    logging.getLogger("distributed.shuffle").setLevel(logging.ERROR)
    try:
        if scaling:
            _scaling(engine, base, workers, gpu, protocol, repeats, keep)
        else:
            _side_by_side(engine, base, skews, methods, workers, gpu, protocol, repeats, keep)
    except DistsortError as error:
        raise click.ClickException(str(error)) from error
    # A pipe has no width: nothing is to be cut off there.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table(found))
    if plot_file is not None:
        (scaling_plot if scaling else plot)(found, plot_file)


def _side_by_side(
    engine: Any,
    base: Any,
    skews: tuple[str, ...],
    methods: tuple[str, ...],
    workers: int | None,
    gpu: bool,
    protocol: str | None,
    repeats: int,
    keep: Any,
) -> None:
    import tempfile

    from distsort.needs import identity

    with engine.cluster(workers, gpu, protocol) as client:
        count = len(identity(client)["workers"])
        for skew in skews:
            case = replace(base, skew=skew)
            for method in methods:
                if method != "cudf-polars":
                    engine.sorter(method, case)
            data = engine.collection(client, case)
            for method in methods:
                if method != "cudf-polars":
                    keep(skew, count, engine.measure(client, case, method, repeats=repeats, data=data))
            del data
    if "cudf-polars" in methods:
        from distsort.bench.cluster_polars import measure_cudf_polars

        for skew in skews:
            with tempfile.TemporaryDirectory() as folder:
                keep(skew, count, measure_cudf_polars(replace(base, skew=skew), folder, repeats=repeats))


def _scaling(
    engine: Any, base: Any, workers: int | None, gpu: bool, protocol: str | None, repeats: int, keep: Any
) -> None:
    import os

    if workers is None and gpu:
        import cupy

        workers = int(cupy.cuda.runtime.getDeviceCount())
    last = workers or os.cpu_count() or 1
    counts = sorted({*(1 << k for k in range(last.bit_length()) if 1 << k <= last), last})
    for count in counts:
        with engine.cluster(count, gpu, protocol) as client:
            for name, case in scaling_cases(base, count):
                keep(name, count, engine.measure(client, case, "pull", repeats=repeats))
