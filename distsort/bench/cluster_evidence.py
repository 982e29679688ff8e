"""The rows of evidence that need two GPUs, each beside its peer in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from distsort.bench.cluster import Case, Measured, cluster, dask_share, measure
from distsort.bench.cluster_polars import measure_cudf_polars

ROWS = 1 << 28
FRAME = Case(ROWS, frame=True, device=True)


def evidence_rows(rows: int = ROWS, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Measure on the first two GPUs of this machine.

    Parameters
    ----------
    rows
        Of one partition; the cases of the table are 2 x 2^28 and, for Dask's default shuffle, 2 x 2^26.
    say
        Called with each row as it is made.

    Returns
    -------
    list of dict
        As in the evidence file: id, n, ours, unit, peer, peer_value, ratio. Rows whose peer is not installed, or that
        fail, are left out, with a word to `say`.
    """
    made: list[dict[str, Any]] = []

    def add(row: str, n: int, ours: float, unit: str, **more: Any) -> None:
        made.append({"id": row, "n": n, "ours": round(ours, 4), "unit": unit, **more})
        say(str(made[-1]))

    def beside(row: str, ours: Measured, peer: str, theirs: Measured) -> None:
        ratio = theirs.median / ours.median
        add(
            row,
            ours.case.total,
            ours.median,
            "ms",
            peer=peer,
            peer_value=round(theirs.median, 3),
            ratio=round(ratio, 3),
        )

    keys = replace(FRAME, rows=rows)
    pairs = replace(keys, payload=1)
    with cluster(2, True, None) as client:
        rows_of_keys = measure(client, keys, "pull")
        say(f"phases {rows_of_keys.phases}")
        rows_of_pairs = measure(client, pairs, "pull")
        small = replace(keys, rows=rows // 4)
        with _optional("rows_int64_vs_default", say):
            theirs = measure(client, small, "default", repeats=1, warm_ups=0)
            beside("rows_int64_vs_default", measure(client, small, "pull"), "dask-cudf default", theirs)
        with _optional("exchange_gbs", say):
            large = measure(client, Case(4 * rows, device=True), "pull", repeats=5)
            add("exchange_gbs", large.case.total, large.gbs or 0.0, "GB/s", peer="NVLink copy", peer_value=397.0)
        with _optional("skew", say):
            uniform = measure(client, Case(rows, device=True), "pull")
            heavy = measure(client, Case(rows, device=True, skew="heavy"), "pull")
            ratio = heavy.median / uniform.median
            add(
                "skew",
                heavy.case.total,
                ratio,
                "times uniform",
                peer="uniform",
                peer_value=1.0,
                ratio=round(1 / ratio, 3),
            )
        with _optional("balance", say):
            many = Case(rows // 16, 16, 16, payload=1, device=True)
            add("balance", many.total, measure(client, many, "pull", repeats=3).balance or 0.0, "max/mean rows")
        add("dask_share_ms", keys.total, dask_share(client, keys), "ms")
        with _optional("two_vs_one", say):
            two = measure(client, Case(8 * rows, dtype="u4", device=True), "pull", repeats=5)
    with _optional("two_vs_one", say), cluster(1, True, None) as client:
        one = measure(client, Case(8 * rows, dtype="u4", device=True), "pull", repeats=5)
        beside("two_vs_one", two, "one GPU, same code", one)
    with _optional("rows_int64_vs_tasks", say), cluster(2, True, "ucx") as client:
        beside(
            "rows_int64_vs_tasks", rows_of_keys, "dask-cudf tasks over UCX", measure(client, keys, "tasks", repeats=5)
        )
    for row, ours in (("rows_int64_vs_cudf_polars", rows_of_keys), ("rows_int64_f64_vs_cudf_polars", rows_of_pairs)):
        with _optional(row, say), tempfile.TemporaryDirectory() as folder:
            beside(row, ours, "cudf-polars DaskEngine", measure_cudf_polars(ours.case, folder))
    return made


@contextmanager
def _optional(row: str, say: Callable[[str], None]) -> Iterator[None]:
    """One row that fails, or whose peer is not installed, must not cost the others."""
    try:
        yield
    except Exception as error:
        say(f"{row} was not measured: {type(error).__name__}: {error}")
