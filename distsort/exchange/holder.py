"""What the exchange has of one worker: its runs, its threads and loop, the way to its GPU, its share of memory.

    tasks --> WorkerService   answers what others ask --+
                    |                                   +--> Holder   runs, promised and kept
                    +-----> Reader   asks the others ---+

Both ends of the exchange stand on it: what is asked for lies in the same store as what is read without asking.
"""

from __future__ import annotations

import asyncio
import pickle
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import Worker
from distributed.comm import CommClosedError

from distsort import config
from distsort.cuts import IntArray
from distsort.device_memory import device_memory
from distsort.exchange.handles import NAME
from distsort.exchange.promises import Promises
from distsort.exchange.store import RunStore
from distsort.io.scratch import scratch_folder
from distsort.memory import give_back
from distsort.needs import CEILING, MESSAGE_SHARE, STORE_SHARE, Workers, require

if TYPE_CHECKING:
    from distsort.exchange.device import DeviceTransport

T = TypeVar("T")

DEVICE_SHARE = 0.4
"""Share of the worker's GPU that runs may take; input, output and merges need the rest."""


class Holder:
    """Runs of one worker, and what it takes to read them.

    Parameters
    ----------
    worker
        Whose they are.

    Attributes
    ----------
    store, promises
        Runs that are made, and those that will be.
    size
        The worker, as plans see it.
    threads
        For work on rows, which must not stop the loop.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loop = worker.loop.asyncio_loop
        memory = worker.memory_manager
        limit = memory.memory_limit
        budget = int(STORE_SHARE * limit) if limit else None
        self.size = Workers(1, worker.state.nthreads, limit)
        self._until_closed = ExitStack()
        directory = self._until_closed.enter_context(_spill_directory(worker))
        self.store = RunStore(directory, budget, self.excess, _device_budget)
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="distsort")
        self.promises = Promises(self.store, lambda: self.devices.room_ahead)
        self._devices: DeviceTransport | None = None
        self._making = threading.Lock()

    @property
    def address(self) -> str:
        """Address of the worker."""
        return str(self.worker.address)

    @property
    def devices(self) -> DeviceTransport:
        """What moves rows in GPU memory; made on first use, since it needs cupy."""
        with self._making:
            if self._devices is None:
                from distsort.exchange.device import DeviceTransport

                self._devices = DeviceTransport(self.address.startswith("ucx"))
            return self._devices

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the worker's loop from a task thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def close(self) -> None:
        """Let everything go: the worker is closing."""
        self.store.clear()
        self._until_closed.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.promises.close()
        if self._devices is not None:
            self._devices.close()

    def require(self, what: str, nbytes: float) -> None:
        """Refuse to sort a block, or to merge parts, of a size for which this worker is too small."""
        require(what, nbytes, self.size)

    def read_keys(self, attempts: Sequence[str], asked: Sequence[IntArray]) -> bytes:
        """Read keys of several runs of this worker, pickled into one piece: a frame for each would cost more."""
        found = [self.store.keys_at(a, p) for a, p in zip(attempts, asked, strict=True)]
        return pickle.dumps(found, protocol=5)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Work on rows in an own thread, never on the loop: it would stop every other answer."""
        return await asyncio.wrap_future(self.start(function, *args))

    def start(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Begin to work in such a thread.

        Raises
        ------
        CommClosedError
            This worker is closing. Whoever asked loses the connection, and takes it for what it is.
        """
        try:
            return self.threads.submit(function, *args)
        except RuntimeError as error:
            raise CommClosedError(f"worker {self.address} is closing") from error

    def message(self, wanted: int) -> int:
        """Return the bytes of one answer, which is held some times over where it is made: less for small workers."""
        return wanted if self.size.limit is None else min(wanted, int(MESSAGE_SHARE * self.size.limit))

    def excess(self) -> int:
        """Return how many bytes this process holds above its ceiling, having given back what it does not use."""
        if self.size.limit is None:
            return 0
        ceiling = int(CEILING * self.size.limit)
        if self.worker.monitor.get_process_memory() > ceiling:
            give_back()
        return max(self.worker.monitor.get_process_memory() - ceiling, 0)


def _device_budget() -> int:
    return int(DEVICE_SHARE * device_memory())


@contextmanager
def _spill_directory(worker: Worker) -> Iterator[Path]:
    """Yield the folder for run files, which goes in the end; if a place was chosen, as the folder of a job there."""
    chosen = config.get("temporary-directory")
    if chosen is not None:
        with suppress(OSError):  # said by what comes next
            Path(chosen).mkdir(parents=True, exist_ok=True)
        with scratch_folder(chosen) as folder:
            yield folder
        return
    folder = Path(worker.local_directory) / NAME
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
