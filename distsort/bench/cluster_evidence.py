"""The rows of evidence that need two GPUs, each beside its peer in the same run.

    cluster                  rows, in the order of their weight
    two GPUs                 two_vs_one (its first half), exchange_gbs, dask_share_ms, skew, balance, ..._vs_default
    one GPU                  two_vs_one
    two GPUs, UCX            rows_int64_vs_tasks
    cudf-polars' own         rows_int64_vs_cudf_polars, rows_int64_f64_vs_cudf_polars

What stands on our side of a row is measured in the first cluster, and kept for the rows whose peer runs in another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distsort.bench.cluster import Case, Measured, cluster, dask_share, measure
from distsort.bench.cluster_polars import measure_cudf_polars

ROWS = 1 << 28
Row = dict[str, Any]
Keep = Callable[[str, float, Callable[[], Row]], None]

POLARS = {"rows_int64_vs_cudf_polars": 0, "rows_int64_f64_vs_cudf_polars": 1}
"""Rows beside cudf-polars, with their columns of float64."""
FAST_DISK = Path("/dev/shm")


def evidence_rows(keep: Keep, wants: Callable[[str], bool] = lambda row: True, rows: int = ROWS) -> None:
    """Measure on the first two GPUs of this machine.

    Parameters
    ----------
    keep
        Called with each row's id, the seconds that it may need, and what makes its fields: n, ours, unit, peer,
        peer_value, ratio. It calls that, or does not; what is raised there concerns that row only.
    wants
        Whether a row is asked for; a cluster that none of them needs is not started.
    rows
        Of one partition; the cases of the table are 2 x 2^28 and, for Dask's default shuffle, 2 x 2^26.
    """
    ours: dict[str, Measured] = {}
    keys = Case(rows, frame=True, device=True)
    flat = Case(rows, device=True)
    wide = Case(8 * rows, dtype="u4", device=True)

    def mine(client: Any, name: str, case: Case, repeats: int = 7) -> Measured:
        if name not in ours:
            ours[name] = measure(client, case, "pull", repeats=repeats)
            print(f"{name}: {ours[name].median:.2f} ms, phases {_short(ours[name])}", flush=True)
        return ours[name]

    def exchange(client: Any) -> Row:
        with _copying(client):
            copied = measure(client, Case(4 * rows, device=True), "pull", repeats=5)
        print(f"exchange: {copied.median:.2f} ms, phases {_short(copied)}", flush=True)
        return row(copied.case.total, copied.gbs or 0.0, "GB/s", peer="NVLink copy", peer_value=397.0)

    def skew(client: Any) -> Row:
        uniform, heavy = mine(client, "uniform", flat), mine(client, "heavy", replace(flat, skew="heavy"))
        times = heavy.median / uniform.median
        return row(flat.total, times, "times uniform", peer="uniform", peer_value=1.0, ratio=round(1 / times, 3))

    def balance(client: Any) -> Row:
        many = Case(rows // 16, 16, 16, payload=1, device=True)
        return row(many.total, measure(client, many, "pull", repeats=3).balance or 0.0, "max/mean rows")

    def default(client: Any) -> Row:
        small = replace(keys, rows=rows // 4)
        theirs = measure(client, small, "default", repeats=1, warm_ups=0)
        return beside(mine(client, "small", small), "dask-cudf default", theirs)

    with _session(keep, wants, ("two_vs_one",), 2) as client:
        if client is not None:
            # What other clusters are compared with; a failure is told by the rows that want it.
            wanted = {
                "two": (wide, ["two_vs_one"]),
                "keys": (keys, ["rows_int64_vs_tasks", "rows_int64_vs_cudf_polars"]),
                "pairs": (replace(keys, payload=1), ["rows_int64_f64_vs_cudf_polars"]),
            }
            for name, (case, asked) in wanted.items():
                if any(map(wants, asked)):
                    with _told(name):
                        mine(client, name, case, 5 if name == "two" else 7)
            keep("exchange_gbs", 20, lambda: exchange(client))
            keep("dask_share_ms", 10, lambda: row(keys.total, dask_share(client, keys), "ms"))
            keep("skew", 20, lambda: skew(client))
            keep("balance", 20, lambda: balance(client))
            keep("rows_int64_vs_default", 60, lambda: default(client))

    if wants("two_vs_one"):

        def alone() -> Row:
            with cluster(1, True, None) as client:
                one = measure(client, wide, "pull", repeats=5)
            print(f"one: {one.median:.2f} ms, phases {_short(one)}", flush=True)
            return beside(_known(ours, "two"), "one GPU, same code", one)

        keep("two_vs_one", 40, alone)

    def tasks() -> Row:
        with cluster(2, True, "ucx") as client:
            theirs = measure(client, keys, "tasks", repeats=5)
        return beside(_known(ours, "keys"), "dask-cudf tasks over UCX", theirs)

    keep("rows_int64_vs_tasks", 45, tasks)

    def polars(payload: int) -> Row:
        mine_ = _known(ours, "pairs" if payload else "keys")
        with tempfile.TemporaryDirectory(dir=FAST_DISK if FAST_DISK.is_dir() else None) as folder:
            return beside(mine_, "cudf-polars DaskEngine", measure_cudf_polars(mine_.case, folder))

    for name, payload in POLARS.items():
        keep(name, 60, partial(polars, payload))


def row(n: int, value: float, unit: str, **more: Any) -> Row:
    """Return the fields of a row."""
    return {"n": n, "ours": round(value, 4), "unit": unit, **more}


def beside(ours: Measured, peer: str, theirs: Measured) -> Row:
    """Return the fields of a row of times."""
    ratio = round(theirs.median / ours.median, 3)
    return row(ours.case.total, ours.median, "ms", peer=peer, peer_value=round(theirs.median, 3), ratio=ratio)


def _known(ours: dict[str, Measured], name: str) -> Measured:
    if name not in ours:
        raise RuntimeError(f"our own side, {name!r}, was not measured: see above")
    return ours[name]


def _short(measured: Measured) -> dict[str, tuple[float, float]]:
    return {name: (round(start, 1), round(stop, 1)) for name, (start, stop) in measured.phases.items()}


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        print(f"{name} was not measured: {type(error).__name__}: {error}", flush=True)


@contextmanager
def _session(keep: Keep, wants: Callable[[str], bool], also: Sequence[str], workers: int) -> Iterator[Any]:
    """Yield a client of the first cluster; None where no row needs it, or where it does not start."""
    here = ("exchange_gbs", "dask_share_ms", "skew", "balance", "rows_int64_vs_default")
    if not any(map(wants, (*here, *also, "rows_int64_vs_tasks", *POLARS))):
        yield None
        return
    started = cluster(workers, True, None)
    try:
        client = started.__enter__()
    except Exception as error:
        reason = f"no cluster of {workers} GPUs: {type(error).__name__}: {error}"
        for name in here:
            keep(name, 0, lambda: _fail(reason))
        yield None
        return
    try:
        yield client
    finally:
        with suppress(Exception):  # what is measured is measured, however the cluster ends
            started.__exit__(None, None, None)


def _fail(reason: str) -> Row:
    raise RuntimeError(reason)


@contextmanager
def _copying(client: Any) -> Iterator[None]:
    """Let workers copy what they read of each other, so that the exchange can be timed apart from the merge."""

    def set_copying(on: bool) -> None:
        from distsort.exchange import device

        device.READ_IN_PLACE = not on

    client.run(set_copying, True)
    try:
        yield
    finally:
        client.run(set_copying, False)
