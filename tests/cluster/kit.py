"""Clusters to break: sorts whose input is made on the workers, what is left of them afterwards, and how to kill."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import distsort
from distsort.exchange.handles import NAME, BarrierTask, TickTask, task_in

# Everything that waits in these tests ends by itself; no test may take longer than the longest of these.
PATIENCE = 60
CONFIG = {
    "distributed.scheduler.validate": True,
    "distributed.worker.validate": True,
    "distributed.scheduler.allowed-failures": 30,
    "distributed.worker.daemon": True,
    # A cluster takes a worker for lost when it happens to be away at this time after an earlier loss.
    "distributed.deploy.lost-worker-timeout": "1 hour",
}


@contextmanager
def cluster(
    workers: int = 3, *, nanny: bool = True, config: dict[str, Any] | None = None, **kwargs: Any
) -> Iterator[Client]:
    """Start workers in processes of their own; the scheduler runs in this process."""
    with (
        dask.config.set({**CONFIG, **(config or {})}),
        LocalCluster(
            n_workers=workers if nanny else 0,
            processes=True,
            dashboard_address=":0",
            **{"memory_limit": "2 GiB", "threads_per_worker": 1, **kwargs},
        ) as local,
        bare_workers(local, 0 if nanny else workers),
        Client(local) as client,
    ):
        client.wait_for_workers(workers, timeout=PATIENCE)
        yield client


@contextmanager
def bare_workers(local: LocalCluster, count: int) -> Iterator[None]:
    """Start workers without a nanny: whoever is killed stays away."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address, "--no-nanny"]
    options = ["--nthreads", "1", "--no-dashboard", "--memory-limit", "2GiB", "--death-timeout", "60"]
    started = [subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait(PATIENCE)


def block(seed: int, rows: int, distinct: int, pause: float = 0.0) -> np.ndarray:
    """Make one block of an array; `pause` makes its run slow."""
    time.sleep(pause)
    return np.random.default_rng(seed).integers(0, distinct, rows)


def array(
    blocks: int, rows: int, distinct: int = 1 << 40, pause: float = 0.0, seed: int = 0
) -> tuple[da.Array, np.ndarray]:
    """Return a lazy array, made on the workers, and its values."""
    make = dask.delayed(block)
    parts = [da.from_delayed(make(seed + i, rows, distinct, pause), (rows,), np.int64) for i in range(blocks)]
    return da.concatenate(parts), np.concatenate([block(seed + i, rows, distinct) for i in range(blocks)])


def frame_block(seed: int, rows: int, distinct: int, pause: float = 0.0) -> pd.DataFrame:
    """Make one partition of a frame."""
    keys = block(seed, rows, distinct, pause)
    return pd.DataFrame({"k": keys, "v": np.arange(rows) + seed * rows, "s": [f"s{k % 97}" for k in keys]})


def frame(
    blocks: int, rows: int, distinct: int = 100, pause: float = 0.0, seed: int = 0
) -> tuple[dd.DataFrame, pd.DataFrame]:
    """Return a lazy frame, made on the workers, and its rows."""
    meta = frame_block(0, 0, 1).astype({"s": "string[pyarrow]"})
    made = dd.from_map(frame_block, range(seed, seed + blocks), rows=rows, distinct=distinct, pause=pause, meta=meta)
    whole = pd.concat([frame_block(i, rows, distinct) for i in range(seed, seed + blocks)])
    return made, whole.astype({"s": "string[pyarrow]"})


def sorted_bits(result: Any, source: Any) -> bool:
    """Whether a computed result is the stable sort of the source."""
    if isinstance(source, np.ndarray):
        return bool((np.asarray(result) == np.sort(source, kind="stable")).all()) and len(result) == len(source)
    expected = source.sort_values("k", kind="stable")
    return len(result) == len(expected) and bool((result["v"].to_numpy() == expected["v"].to_numpy()).all())


def scheduler_of(client: Client) -> Any:
    """Return the scheduler, which runs in this process."""
    return client.cluster.scheduler


def worker_pids(client: Client) -> dict[str, int]:
    """Return address and process id of every worker."""
    return client.run(os.getpid)


def kill(pid: int) -> None:
    """End a worker the way the kernel does when memory runs out."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def until(condition: Callable[[], Any], timeout: float = PATIENCE, what: str = "") -> Any:
    """Wait for something to become true."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"still not so after {timeout} s: {what or condition}")
        time.sleep(0.005)
    return value


def barrier_of(client: Client) -> Any:
    """Return the task state of the barrier, once there is one."""
    for ts in list(scheduler_of(client).tasks.values()):
        if task_in(ts.run_spec, BarrierTask) is not None:
            return ts
    return None


def left_over(client: Client) -> dict[str, Any]:
    """Return what a sort has left behind and should not have."""

    def on_worker(dask_worker: Any) -> dict[str, Any]:
        service = getattr(dask_worker, "distsort_service", None)
        if service is None:
            return {}
        found = {
            "runs": len(service.store),
            "memory": service.store.in_memory,
            "promises": len(service.promises) + len(service._untold),
            "files": [p.name for p in service.store.directory.glob("*")],
            "pulls": len(service.reader.pulls),
            "calls": sum(map(len, service.reader.calls.values())),
            "in flight": service.reader.limiter.used,
            "leases": len(service._devices.leases) if service._devices is not None else 0,
        }
        return {k: v for k, v in found.items() if v}

    scheduler = scheduler_of(client)
    state = scheduler.extensions.get(NAME)
    found: dict[str, Any] = {w: left for w, left in client.run(on_worker).items() if left}
    clients = [c for c in list(scheduler.clients) if c.startswith(NAME)]
    if clients:
        found["clients"] = clients
    if state is not None and (state.attempts or state.sorts):
        found["scheduler"] = (dict(state.attempts), dict(state.sorts))
    shared = [p.name for p in Path("/dev/shm").glob(f"{NAME}*")]
    return {**found, "shared memory": shared} if shared else found


def assert_clean(client: Client, timeout: float = 10) -> None:
    """Wait until nothing of any sort is left."""
    left: dict[str, Any] = {}

    def clean() -> bool:
        nonlocal left
        try:
            left = left_over(client)
        except OSError:  # a worker that was killed this very moment
            return False
        return not left

    try:
        until(clean, timeout)
    except TimeoutError:
        raise AssertionError(f"left behind: {left}") from None


def slow_down(client: Client, task: str, seconds: float) -> None:
    """Make every `distsort.exchange.pull.<task>` of the workers that run now wait before it works."""
    _wrap(client, task, lambda: time.sleep(seconds))


@contextmanager
def hold(client: Client, task: str, after: int = 0) -> Iterator[Callable[..., bool]]:
    """Hold `distsort.exchange.pull.<task>` of the workers that run now, so that a phase lasts as long as the block.

    The first `after` calls on each worker pass. On any machine the test comes in time, however slow it is. What is
    yielded tells whether a call waits, or so many.
    """
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    gate = folder / "open"
    passes = [after]

    def wait() -> None:
        if passes[0]:
            passes[0] -= 1
            return
        (folder / f"waits-{uuid.uuid4().hex}").touch()
        end = time.monotonic() + 2 * PATIENCE
        while not gate.exists() and time.monotonic() < end:
            time.sleep(0.005)

    _wrap(client, task, wait)
    try:
        yield lambda calls=1: len(list(folder.glob("waits-*"))) >= calls
    finally:
        gate.touch()


def _wrap(client: Client, task: str, wait: Callable[[], None]) -> None:
    def patch() -> None:
        from distsort.exchange import pull

        plain = getattr(pull, task)
        plain = getattr(plain, "plain", plain)

        def late(*args: Any, **kwargs: Any) -> Any:
            wait()
            return plain(*args, **kwargs)

        late.plain = plain  # type: ignore[attr-defined]
        setattr(pull, task, late)

    client.run(patch)


class _Count(SchedulerPlugin):
    """Counts executions of run tasks and of parts, as the scheduler sees them finish."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.counts = {"runs": 0, "parts": 0}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            ts = self.scheduler.tasks[key]
            if not isinstance(ts.run_spec, TickTask) and any(isinstance(d.run_spec, TickTask) for d in ts.dependents):
                self.counts["runs"] += 1
            elif any(isinstance(d.run_spec, BarrierTask) for d in ts.dependencies):
                self.counts["parts"] += 1


def count_tasks(client: Client) -> dict[str, int]:
    """Begin to count; the dict that is returned goes on counting."""
    scheduler = scheduler_of(client)
    plugin = _Count(scheduler)
    scheduler.add_plugin(plugin, name=f"count-{id(plugin)}")
    return plugin.counts


def start(collection: Any) -> Any:
    """Begin to compute a sorted collection, and keep the result on the workers."""
    return collection.persist()


def finish(persisted: Any, timeout: float = PATIENCE) -> Any:
    """Wait for a persisted collection, with an end, and bring it here."""
    wait(persisted, timeout=timeout)
    client = Client.current()
    return client.compute(persisted).result(timeout)


def sort(collection: Any, **kwargs: Any) -> Any:
    """Sort an array or a frame with the pull exchange."""
    if isinstance(collection, da.Array):
        return distsort.sort(collection, exchange="pull", **kwargs)
    return distsort.sort_values(collection, "k", exchange="pull", **kwargs)
