"""cudf-polars on the GPUs of this machine, the peer of sorts of frames: a cluster and an engine of its own."""

from __future__ import annotations

import time

from distsort.bench.cluster import Case, Measured, draw


def measure_cudf_polars(case: Case, folder: str, *, repeats: int = 5, warm_ups: int = 2) -> Measured:
    """Time cudf-polars on the GPUs of this machine, resident in and out.

    Parameters
    ----------
    case
        Frames on GPUs.
    folder
        Where the input is written once, as Parquet: its engine reads files.
    repeats, warm_ups
        Timed runs, and runs before them.
    """
    import cupy
    import polars as pl
    from cudf_polars.engine.dask import DaskEngine

    for i in range(case.partitions):
        draw(i, case).to_parquet(f"{folder}/{i:05}.parquet", compression=None)
    cupy.get_default_memory_pool().free_all_blocks()
    times = []
    with DaskEngine() as engine:
        for turn in range(warm_ups + repeats):
            # A result is consumed by its next use, so each run reads first, outside the time.
            resident = engine.execute(pl.scan_parquet(f"{folder}/*.parquet"))
            lazy = resident.lazy().sort("key")
            begun = time.perf_counter()
            result = engine.execute(lazy)
            took = (time.perf_counter() - begun) * 1e3
            result.release()
            del result, lazy, resident
            if turn >= warm_ups:
                times.append(took)
    return Measured(case, "cudf-polars", times)
