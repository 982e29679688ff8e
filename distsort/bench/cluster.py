"""Measure sorts on a cluster beside those of its other libraries, in one run on the same data.

    method        what                                                              blocks
    pull          distsort, parts pull from run stores                              all
    graph         distsort, plain tasks                                             all
    default       sort_values of Dask dataframes with the default shuffle           frames
    tasks         the same with shuffle_method="tasks"                              frames
    cudf-polars   its Dask engine, results kept on the GPUs                         frames on GPUs

Input is made on the workers and persisted, and frames have no labels to keep (``ignore_index``). A time is that of one
`persist` of the sorted collection until all of it is there, graph building included, the median of `repeats` after a
warm-up. Dask's own share is the time of the same graph over a thousand rows a partition.
"""

from __future__ import annotations

import datetime
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import dask
import numpy as np
import pandas as pd
from distributed import Client, wait

from distsort import arrays, dataframes
from distsort.errors import OptionError
from distsort.exchange.handles import NAME
from distsort.needs import identity

METHODS = ("pull", "graph", "default", "tasks", "cudf-polars")
SKEWS = ("uniform", "zipf", "heavy", "constant", "sorted")
TINY = 1000
TIMEOUT = 120
"""Seconds until a sort, or the making of its input, is given up."""


@dataclass(frozen=True)
class Case:
    """What is sorted.

    Attributes
    ----------
    rows
        Of one input partition.
    partitions, parts
        Of the input and of the result.
    dtype
        Of the keys: i4, i8, u4, u8, f4, f8.
    payload
        Columns of float64 beside the key; with any, or with `frame`, the blocks are dataframes.
    skew
        One of `SKEWS`; "heavy": nine of ten keys are one value.
    index
        Argsort in place of a sort.
    frame, device
        Whether blocks are dataframes; whether they lie in GPU memory.
    """

    rows: int
    partitions: int = 2
    parts: int = 2
    dtype: str = "i8"
    payload: int = 0
    skew: str = "uniform"
    index: bool = False
    frame: bool = False
    device: bool = False

    @property
    def is_frame(self) -> bool:
        """Whether blocks are dataframes."""
        return self.frame or self.payload > 0

    @property
    def total(self) -> int:
        """Rows in all."""
        return self.rows * self.partitions

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return np.dtype(self.dtype).itemsize + 8 * self.payload


@dataclass
class Measured:
    """One method on one case.

    Attributes
    ----------
    ms
        Milliseconds of each repeat.
    phases
        For each phase the milliseconds from the start of the sort to its first task and to the end of its last.
    gbs
        Bytes that a worker received by the second while it was pulling, in GB/s; None where nothing was pulled.
    balance
        Rows of the largest part divided by the mean.
    device_bytes
        Memory in use on the fullest GPU after the last repeat, pools included: what the sort and its data peak at.
    """

    case: Case
    method: str
    ms: list[float]
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    gbs: float | None = None
    balance: float | None = None
    device_bytes: int | None = None

    @property
    def median(self) -> float:
        """Median of the milliseconds."""
        return statistics.median(self.ms)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        rate = self.case.total / self.median / 1e6
        return {**asdict(self), "case": asdict(self.case), "median_ms": self.median, "grows_per_s": rate}


def draw(seed: int, case: Case) -> Any:
    """Make one input block on a worker, in the memory that the case names."""
    rows, dtype = case.rows, np.dtype(case.dtype)
    xp: Any = importlib.import_module("cupy" if case.device else "numpy")
    dice: Any = xp.random.RandomState(seed)  # NumPy's and cupy's alike

    def words(top: int) -> Any:
        return dice.randint(0, top, rows, dtype=xp.uint32)

    if case.skew == "uniform" and dtype.kind == "f":
        keys = dice.random_sample(rows).astype(dtype) - dtype.type(0.5)
    elif case.skew == "uniform":
        keys = words(1 << 32)
        if dtype.itemsize == 8:
            keys = keys.astype(xp.uint64) << xp.uint64(32) | words(1 << 32)
        keys = keys.view(dtype)
    elif case.skew == "zipf":
        # P(X > x) = 1 / x^0.3, as of the Zipf law of exponent 1.3, by inversion
        keys = xp.minimum((1 - dice.random_sample(rows)) ** (-1 / 0.3), 1 << 30).astype(dtype)
    elif case.skew == "heavy":
        keys = xp.where(dice.random_sample(rows) < 0.9, xp.uint32(42), words(1 << 30)).astype(dtype)
    elif case.skew == "constant":
        keys = xp.full(rows, 42, dtype)
    else:
        keys = (xp.arange(rows, dtype=xp.int64) + seed * rows).astype(dtype)
    if not case.is_frame:
        return keys
    columns = {"key": keys, **{f"v{i}": dice.random_sample(rows) for i in range(case.payload)}}
    if case.device:
        import cudf

        return cudf.DataFrame(columns)
    return pd.DataFrame(columns)


def collection(client: Client, case: Case) -> Any:
    """Return the persisted input, its blocks dealt out evenly over the workers."""
    addresses = sorted(identity(client)["workers"])
    made = [
        client.submit(draw, i, case, workers=[addresses[i % len(addresses)]], pure=False, allow_other_workers=False)
        for i in range(case.partitions)
    ]
    _finish(made)
    empty = replace(case, rows=0)
    meta = client.submit(draw, 0, empty, pure=False).result() if case.device else draw(0, empty)
    if case.is_frame:
        import dask.dataframe as dd

        made = dd.from_delayed(made, meta=meta, verify_meta=False).persist()
    else:
        import dask.array as da

        blocks = [da.from_delayed(dask.delayed(f), (case.rows,), meta=meta, dtype=meta.dtype) for f in made]
        made = da.concatenate(blocks).persist()
    wait(made, timeout=TIMEOUT)
    return made


def sorter(method: str, case: Case) -> Callable[[Any], Any]:
    """Return what turns an input collection into a sorted one.

    Raises
    ------
    OptionError
        The method is unknown, or does not sort such blocks.
    """
    if method in ("pull", "graph"):
        if case.is_frame:
            return lambda c: dataframes.sort_values(
                c, "key", npartitions=case.parts, exchange=method, ignore_index=True
            )
        sort = arrays.argsort if case.index else arrays.sort
        return lambda c: sort(c, npartitions=case.parts, exchange=method)
    if method not in METHODS:
        raise OptionError(f"method {method!r} is unknown: use {', '.join(METHODS)}")
    if not case.is_frame:
        raise OptionError(
            f"method {method!r} sorts dataframes: Dask has no sort for arrays; leave it out, or add --frame"
        )
    if method == "cudf-polars":
        raise OptionError("cudf-polars runs on a cluster of its own: see distsort.bench.cluster_polars")
    shuffle = {"shuffle_method": "tasks"} if method == "tasks" else {}
    return lambda c: c.sort_values("key", npartitions=case.parts, ignore_index=True, **shuffle)


def measure(
    client: Client, case: Case, method: str, *, repeats: int = 7, warm_ups: int = 2, data: Any = None
) -> Measured:
    """Time one method on one case.

    Parameters
    ----------
    client
        Of the cluster.
    case, method
        What and how.
    repeats, warm_ups
        Timed runs, and runs before them.
    data
        The input, if it was made already.
    """
    sort = sorter(method, case)
    if case.device:
        client.run(_unmap)  # on all of them before any frees what another has mapped
        client.run(_empty_pools)
    data = collection(client, case) if data is None else data
    times: list[float] = []
    phases: dict[str, list[tuple[float, float]]] = {}
    gbs: list[float] = []
    balance = None
    for turn in range(warm_ups + repeats):
        before = _pulled(client)
        begun, clock = time.perf_counter(), time.time()
        result = sort(data).persist()
        _finish(result)
        took = (time.perf_counter() - begun) * 1e3
        if turn >= warm_ups:
            times.append(took)
            for name, span in _phases(client, clock).items():
                phases.setdefault(name, []).append(span)
            nbytes, seconds = (b - a for a, b in zip(before, _pulled(client), strict=True))
            if seconds:
                gbs.append(nbytes / seconds / 1e9)
        if turn == 0:
            balance = _balance(client, result)
        del result
        _settle(client)
    device_bytes = max(client.run(_device_bytes).values()) if case.device else None
    medians = {
        name: (statistics.median(start for start, _ in spans), statistics.median(stop for _, stop in spans))
        for name, spans in phases.items()
    }
    return Measured(case, method, times, medians, statistics.median(gbs) if gbs else None, balance, device_bytes)


def dask_share(client: Client, case: Case, repeats: int = 15) -> float:
    """Return the milliseconds of the same graph over a thousand rows a partition: hops, graph and messages alone."""
    return measure(client, replace(case, rows=TINY), "pull", repeats=repeats).median


def _finish(result: Any) -> None:
    """Wait for all of a result, and raise its error.

    No future may outlive this: its part would still be in memory when it is asked for again, and would not be made.
    """
    for future in wait(result, timeout=TIMEOUT).done:
        if future.status == "error":
            future.result()


def _unmap(dask_worker: Any) -> None:
    service = getattr(dask_worker, f"{NAME}_service", None)
    if service is not None:
        service.devices.unmap()


def _empty_pools() -> None:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def _device_bytes() -> int:
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


def _balance(client: Client, result: Any) -> float:
    from distributed import futures_of

    sizes = client.gather(client.map(len, futures_of(result), pure=False))
    return max(sizes) * len(sizes) / max(sum(sizes), 1)


def _pulled(client: Client) -> tuple[float, float]:
    """Bytes and seconds that all workers have pulled so far."""

    def on_worker(dask_worker: Any) -> tuple[float, float]:
        service = getattr(dask_worker, f"{NAME}_service", None)
        return (service.reader.pulled, service.reader.seconds) if service is not None else (0, 0.0)

    counts = list(client.run(on_worker).values())
    return sum(n for n, _ in counts), sum(s for _, s in counts)


def _phases(client: Client, since: float) -> dict[str, tuple[float, float]]:
    """Milliseconds from a moment to the first start and to the last end of the tasks of each phase."""
    spans: dict[str, list[float]] = {}
    for record in client.get_task_stream(start=since):
        name = str(record["key"])
        phase = next((p for p in ("run", "tick", "cuts", "part") if f"sort-{p}" in name), "other")
        for span in record["startstops"]:
            if span["action"] == "compute" and span["start"] >= since:
                known = spans.setdefault(phase, [span["start"], span["stop"]])
                known[:] = min(known[0], span["start"]), max(known[1], span["stop"])
    if "run" in spans:  # a promised run is made when its task has long ended
        spans["run"][1] = max(spans["run"][1], *client.run(_last_made).values())
    return {name: ((start - since) * 1e3, (stop - since) * 1e3) for name, (start, stop) in spans.items()}


def _last_made(dask_worker: Any) -> float:
    service = getattr(dask_worker, f"{NAME}_service", None)
    return service.promises.made if service is not None else 0.0


def _settle(client: Client) -> None:
    """Let the cluster forget the last result before the next run."""
    time.sleep(0.1)
    client.run(lambda: None)


@contextmanager
def cluster(workers: int | None, device: bool, protocol: str | None) -> Iterator[Client]:
    """Start a cluster of this machine: a process for each GPU, or for each core, with one thread each."""
    options: dict[str, Any] = {"dashboard_address": ":0"}
    if protocol is not None:
        options["protocol"] = protocol
    if workers is not None:
        options["n_workers"] = workers
    if device:
        from dask_cuda import LocalCUDACluster as Local
    else:
        from distributed import LocalCluster as Local

        options["threads_per_worker"] = 1
    with Local(**options) as local, Client(local) as client:
        # The task stream is only recorded from the moment when it is first asked for.
        client.get_task_stream(count=1)
        yield client


def now() -> str:
    """Return the time of a report."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
