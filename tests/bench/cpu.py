"""Measure sorts on CPUs beside Dask's own and polars, all in one run: ``python -m tests.bench.cpu``.

Absolute seconds depend on the machine; the ratios are what counts. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

import distsort


def median(what: Callable[[], Any], repeat: int, forgotten: Callable[[], object] = lambda: None) -> float:
    """Median seconds; `forgotten` waits until a result is gone, or the next turn would find it made already."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        done = what()
        times.append(time.perf_counter() - start)
        del done
        forgotten()
    return statistics.median(times)


def forgetter(client: Client) -> Callable[[], object]:
    """Return a wait until the scheduler knows no more tasks than now."""
    count = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    def wait_for_it() -> None:
        while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > count:
            time.sleep(0.05)

    return wait_for_it


def block(i: int, rows: int, parts: int) -> pd.DataFrame:
    rng = np.random.default_rng(i)
    n = rows // parts
    return pd.DataFrame({"k": rng.integers(-(2**62), 2**62, n), "v": rng.random(n)})


def frames(rows: int, repeat: int, parts: int) -> dict[str, float]:
    """int64 key and float64 payload on 2 workers of one thread, persisted before and after."""
    out: dict[str, float] = {}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        meta = block(0, 10, 1).iloc[:0]
        df = dd.from_map(block, range(parts), rows=rows, parts=parts, meta=meta).persist()
        wait(df)
        forgotten = forgetter(client)

        def persisted(collection: Any) -> Any:
            done = collection.persist()
            wait(done)
            return done

        for exchange in ("graph", "pull"):
            out[f"distsort {exchange}"] = median(
                lambda e=exchange: persisted(distsort.sort_values(df, "k", exchange=e)), repeat, forgotten
            )
        out["dask tasks"] = median(
            lambda: persisted(df.sort_values("k", shuffle_method="tasks")), max(1, repeat // 2), forgotten
        )
        out["dask default"] = median(lambda: persisted(df.sort_values("k")), max(1, repeat // 2), forgotten)
        whole = df.compute()
    try:
        import polars

        table = polars.from_pandas(whole)
        out["polars"] = median(lambda: table.sort("k", maintain_order=True), repeat)
    except ImportError:
        pass
    return out


def arrays(rows: int, repeat: int) -> dict[str, float]:
    """int64 keys in memory, threads of this process."""
    values = np.random.default_rng(0).integers(-(2**62), 2**62, rows)
    x = da.from_array(values, chunks=rows // 8)
    with dask.config.set(scheduler="threads"):
        return {
            "distsort.sort": median(lambda: distsort.sort(x).persist(), repeat),
            "np.sort": median(lambda: np.sort(values), repeat),
        }


def small(repeat: int) -> dict[str, float]:
    """A thousand rows in four partitions, in this process."""
    frame = pd.DataFrame({"k": np.random.default_rng(0).permutation(1000), "v": 1.0})
    df = dd.from_pandas(frame, npartitions=4)
    distsort.sort_values(df, "k").compute()
    return {"distsort 1,000 rows": median(lambda: distsort.sort_values(df, "k").compute(), repeat * 3)}


def tasks(repeat: int) -> dict[str, float]:
    """What 64 runs x 64 parts of hardly any rows cost the scheduler."""
    out = {}
    frame = pd.DataFrame({"k": np.random.default_rng(0).permutation(64_000)})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        df = dd.from_pandas(frame, npartitions=64).persist()
        wait(df)
        forgotten = forgetter(client)
        for exchange in ("graph", "pull"):
            plan = distsort.plan_sort_values(df, "k", exchange=exchange)
            lazy = functools.partial(distsort.sort_values, df, "k", exchange=exchange)
            seconds = median(lambda s=lazy: wait(s().persist()), repeat, forgotten)
            out[f"64 x 64 {exchange}, {plan.tasks} tasks"] = seconds
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=["frames", "arrays", "small", "tasks"])
    args = parser.parse_args()
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "small": lambda: small(args.repeat),
        "arrays": lambda: arrays(args.rows, args.repeat),
        "frames": lambda: frames(args.rows, args.repeat, args.parts),
        "tasks": lambda: tasks(args.repeat),
    }
    result: dict[str, dict[str, float]] = {}
    for name, run in parts.items():
        if args.only in (None, name):
            result[name] = run()
            base = next(iter(result[name].values()))
            for label, seconds in result[name].items():
                print(f"{name:8} {label:28} {seconds:9.4f} s   {seconds / base:6.2f} x", flush=True)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
