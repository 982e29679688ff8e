"""A preload that makes workers do with host memory what they do on GPUs: promise runs, and map those of others.

    LocalCluster(preload="tests.cluster.lending")
    with graphs_of_gpus(): ...

Files take the place of mapped memory. Now and then a worker finds that it cannot map what another has. Graphs of GPUs
have no ticks, and their parts are dealt out.
"""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Worker

from distsort import blocks, graph
from distsort.exchange import pull
from distsort.exchange.worker import WorkerService
from distsort.local import Run, Spec, order_of

REFUSES = 0.1
"""How often memory cannot be mapped."""


class Files:
    """What the service of a worker asks of `distsort.exchange.device.DeviceTransport`."""

    host, lends, room_ahead = "this host", True, 1 << 16

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.of_thread = threading.local()
        self.leases: dict[str, tuple[str, Path]] = {}
        self.lent = 0

    def maps(self, owner: str, host: str) -> bool:
        return host == self.host and random.random() >= REFUSES

    def packing(self) -> Any:
        return nullcontext()

    def lend(
        self, runs: Sequence[Run], down: Sequence[bool], share: tuple[float, float], host: str, reader: str
    ) -> dict[str, Any]:
        self.lent += 1
        lease = f"lent-{self.lent}"
        path = self.directory / lease
        path.write_bytes(pickle.dumps(runs))
        self.leases[lease] = (reader, path)
        forms = random.random() < 0.5
        return {"lease": lease, "path": str(path), "complete": time.time() + random.choice([0, 0.003]) if forms else 0}

    def attach(self, owner: str, answer: dict[str, Any], runs: Sequence[Run]) -> bool:
        """Note what must be complete before this thread merges: until then its offsets are no keys."""
        assert all(isinstance(run, Run) for run in runs)
        if answer["complete"]:
            self.forming().add(answer["lease"])
        return bool(answer["complete"])

    def complete(self, owner: str, answer: dict[str, Any]) -> bool:
        if time.time() < answer["complete"]:
            return False
        self.forming().discard(answer["lease"])
        return True

    def forming(self) -> set[str]:
        """Return the leases of this thread's part whose narrow forms have not been seen complete."""
        if not hasattr(self.of_thread, "leases"):
            self.of_thread.leases = set()
        return self.of_thread.leases

    def end_lease(self, lease: str) -> None:
        self.leases.pop(lease)[1].unlink()

    def forget(self, peer: str, reader: str) -> None:
        for lease in [name for name, (who, _) in self.leases.items() if who == reader]:
            self.end_lease(lease)

    def hold(self, owner: str) -> bool:
        return True

    def unpack(self, owner: str, answer: dict[str, Any], in_place: bool) -> list[Run]:
        return pickle.loads(Path(answer["path"]).read_bytes())

    def release(self, owners: Iterable[str]) -> None:
        self.forming().clear()

    def tidy(self, now: float) -> None:
        pass

    def close(self) -> None:
        pass


def _files(service: WorkerService) -> Files:
    with service._making:
        if service._devices is None:
            service._devices = Files(service.worker.local_directory)
        return service._devices


def co_ranks(runs: Sequence[Run], spec: Spec, start: int, stop: int) -> Any:
    """What `distsort.merge.co_ranks` does on a GPU; now and then the keys are none that it could compare."""
    if random.random() < REFUSES:
        return None
    keys = [run.keys or blocks.key_columns(run.rows, spec.order) for run in runs]
    of = np.repeat(np.arange(len(runs)), [len(run) for run in runs])[order_of(keys, spec)]
    return np.stack([np.bincount(of[:rank], minlength=len(runs)) for rank in (start, stop)], axis=1)


def _merge_runs(*args: Any, plain: Any = pull.merge_runs) -> Any:
    devices = pull._service().devices
    assert not devices.forming(), "runs were merged whose narrow forms may not be complete"
    return plain(*args)


@contextmanager
def graphs_of_gpus() -> Iterator[None]:
    """Build the graphs that sorts on GPUs have, in this process."""
    plain = graph._pull_layer
    graph._pull_layer = lambda name, token, runs, spec, plan: plain(
        name, token, runs, spec, replace(plan, backend="cupy")
    )
    try:
        yield
    finally:
        graph._pull_layer = plain


def dask_setup(worker: Worker) -> None:
    """Patch the process of a worker before its first task."""
    pull.promises = lambda block: True
    pull.merge_runs = _merge_runs
    pull.co_ranks = co_ranks
    WorkerService.devices = property(_files)
