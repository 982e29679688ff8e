"""What a worker does for the pull exchange: it makes runs, answers questions about them, and reads those of others.

A service is put on the worker by the first task that needs it, and brings the scheduler plugin with it. Nothing has to
be registered beforehand, so late workers, a replaced scheduler and collections of other clients need no care.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from distributed import Reschedule, Status, Worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from distsort import config
from distsort.cuts import IntArray
from distsort.errors import OutputError
from distsort.exchange import transport
from distsort.exchange.handles import NAME, Handle, Source
from distsort.exchange.holder import Holder
from distsort.exchange.reader import Reader, remember
from distsort.exchange.scheduler import PullPlugin
from distsort.exchange.store import LostRunError
from distsort.local import Run, Sample, Spec

REMOVE_AGAIN = (0.1, 0.5, 1.5)
"""Seconds after which connections to a dead worker are cut once more: one begun just after its end is retried long."""

LOOK_AGAIN = 0.5
"""Seconds between two looks at the memory of a process that holds runs."""

FEW_KEYS = 8192
FEW_RUNS = 4
"""A question about so many keys of so many runs is answered at once: to change threads would take longer."""

INSTALL_TIMEOUT = 30.0
_ENDS = ("memory", "error", "rescheduled")
"""What the end of a task's work brings about; one that was cancelled before that works on, and may be wanted again."""

_LOCK = threading.Lock()


def service_of(worker: Worker) -> WorkerService:
    """Return the service of a worker, installing it on the first call. Called from task threads."""
    with _LOCK:
        service = getattr(worker, "distsort_service", None)
        if service is None:
            service = worker.distsort_service = WorkerService(worker)
    service.ready()
    return service


class WorkerService(Holder):
    """Runs, questions and pulls of one worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.reader = Reader(self, config.get_bytes("pull.bytes-in-flight"))
        self._installing = asyncio.Lock()
        self._ready = False
        self._gone: dict[str, None] = {}
        self._untold: dict[Any, str] = {}

    # Installation

    def ready(self) -> None:
        """Install handlers here and the plugin on the scheduler, once.

        Raises
        ------
        Reschedule
            The scheduler has not answered yet.
        """
        if not self._ready:
            try:
                self.call(self._install(), INSTALL_TIMEOUT)
            except TimeoutError:  # the scheduler is busy, as it may be
                raise Reschedule from None

    async def _install(self) -> None:
        async with self._installing:
            if self._ready:
                return
            worker = self.worker
            worker.handlers.update(
                distsort_keys=self.answer_keys,
                distsort_slices=self.answer_slices,
                distsort_lend=self.answer_lend,
                distsort_copied=self.on_copied,
            )
            worker.stream_handlers.update({"distsort-free": self.on_free, "distsort-gone": self.on_gone})
            worker.metrics[NAME] = lambda worker: self.report()
            if NAME not in worker.periodic_callbacks:
                look = worker.periodic_callbacks[NAME] = PeriodicCallback(self._look, LOOK_AGAIN * 1000)
                look.start()
            if NAME not in worker.plugins:
                await worker.plugin_add(_Watch(self), name=NAME)
            await worker.scheduler.register_scheduler_plugin(plugin=dumps(PullPlugin()), name=NAME, idempotent=True)
            self.reader.forget("", await worker.scheduler.distsort_join(worker=self.address, reader=worker.id))
            self._ready = True

    def report(self) -> dict[str, int]:
        """Return what ``worker.metrics`` shows, in bytes and counts."""
        return {
            "runs": len(self.store),
            "memory": self.store.in_memory,
            "disk": self.store.on_disk,
            "spilled": self.store.spilled,
            "spills": self.store.spills,
            "pulled": self.reader.pulled,
        }

    # Runs of this worker

    def begin(self) -> tuple[Any, str]:
        """Tell the scheduler that a run is being made, on the stream that will say "finished"; return key and attempt.

        Said now and not at the end, since the stream pauses for some milliseconds after each message.
        """
        key, attempt = self.worker.get_current_task(), uuid.uuid4().hex
        self.loop.call_soon_threadsafe(self._announce, key, attempt)
        return key, attempt

    def keep(self, key: Any, attempt: str, run: Run, spec: Spec, sample: Sample) -> Handle:
        """Put a run into the store.

        Raises
        ------
        Reschedule
            The run was freed while it was made. Either nobody waits for it, or it was cancelled and asked for again.
        """
        if not self.store.put(attempt, run, spec):
            raise Reschedule
        source = Source(key, attempt, self.address, sample.nbytes / max(sample.length, 1))
        return Handle(source, sample.length, sample.nbytes, sample)

    def promise(self, length: int, nbytes: int, spec: Spec, make: Callable[[], Run]) -> Handle:
        """Hand out the handle of a run that begins to be made, so that what follows can get ready meanwhile.

        The task ends before the stream to the scheduler would be free again, so the run is told of with its end.

        Parameters
        ----------
        length, nbytes
            Rows that it will have, and about how many bytes.
        spec, make
            The sort; what makes the run.
        """
        key, attempt = self.worker.get_current_task(), uuid.uuid4().hex
        self._untold[key] = attempt
        self.promises.give(attempt, nbytes, spec, make)
        source = Source(key, attempt, self.address, nbytes / max(length, 1), self.devices.host)
        return Handle(source, length, nbytes, None, self.devices.lends)

    def ended(self, key: Any, well: bool) -> None:
        """Tell of the run that a task has promised, just before Dask says "finished", or let go of it."""
        attempt = self._untold.pop(key, None)
        if attempt is not None and well:
            self._announce(key, attempt)
        elif attempt is not None:
            self.on_free([attempt])

    def _announce(self, key: Any, attempt: str) -> None:
        self.worker.batched_send({"op": "distsort-run", "run": key, "attempt": attempt})

    async def _look(self) -> None:
        """Give memory back between tasks too: a paused worker starts none, and could stay paused for ever."""
        if len(self.store) and self.worker.status is Status.paused:
            with contextlib.suppress(OutputError):  # the disk is full: the next run says so
                await self.in_thread(self.store.shrink)
        elif len(self.store):
            await self.in_thread(self.excess)
        if self._devices is not None:
            await self.in_thread(self._devices.tidy, time.monotonic())

    def on_free(self, attempts: Sequence[str]) -> None:
        """Free runs that the scheduler says are not needed any more."""
        self.store.free(attempts)
        self.promises.forget(attempts)

    async def answer_keys(self, attempts: list[str], positions: IntArray, counts: list[int]) -> dict[str, Any]:
        """Answer a peer: the keys of several runs at some positions."""
        asked = np.split(positions, np.cumsum(counts)[:-1])
        few = len(positions) <= FEW_KEYS and len(attempts) <= FEW_RUNS
        if failed := await self._failed(attempts):
            return failed
        try:
            if few and not any(map(self.store.is_spilled, attempts)):
                data = self.read_keys(attempts, asked)
            else:
                data = await self.in_thread(self.read_keys, attempts, asked)
        except LostRunError as error:
            return {"lost": error.args[0]}
        return {"lost": None, "keys": to_serialize(data)}

    async def answer_slices(self, wanted: list[tuple[str, int, int]], host: str, reader: str) -> dict[str, Any]:
        """Answer a peer: slices of several runs."""
        if failed := await self._failed([attempt for attempt, _, _ in wanted]):
            return failed
        if reader in self._gone:
            host = ""
        try:
            answer = await self.in_thread(self._pack, wanted, host, reader)
        except LostRunError as error:
            return {"lost": error.args[0]}
        return {"lost": None, **self._unless_gone(answer, reader)}

    async def answer_lend(
        self, attempts: list[str], host: str, reader: str, share: tuple[float, float]
    ) -> dict[str, Any]:
        """Answer a peer that maps memory of this host: whole runs, once they are made, where they lie."""
        try:
            answer = await self.promises.follow(
                attempts, partial(self._lend, attempts, host, reader, share), self.start
            )
        except LostRunError as error:
            return await self._failed(attempts) or {"lost": error.args[0]}
        return {"lost": None, **self._unless_gone(answer, reader)}

    def _unless_gone(self, answer: dict[str, Any], reader: str) -> dict[str, Any]:
        """Return an answer as it can be taken: a reader that has died, before or meanwhile, ends no lease."""
        if answer.get("lease") and reader in self._gone:
            self.devices.end_lease(answer["lease"])
            return {"lease": ""}
        return answer

    async def _failed(self, attempts: Sequence[str]) -> dict[str, Any] | None:
        """Wait for promised runs; return the answer that says what went wrong with one."""
        try:
            await self.promises.kept(attempts)
        except Exception as error:
            return {"lost": None, "failed": dumps(error)}
        return None

    def _lend(self, attempts: Sequence[str], host: str, reader: str, share: tuple[float, float]) -> dict[str, Any]:
        runs = [run for run in map(self.store.whole, attempts) if run is not None]
        if len(runs) < len(attempts):
            return {"lease": ""}
        return self.devices.lend(runs, [self.store.descends(a) for a in attempts], share, host, reader)

    def _pack(self, wanted: Sequence[tuple[str, int, int]], host: str, reader: str) -> dict[str, Any]:
        nbytes = sum((stop - start) * self.store.row_bytes(attempt) for attempt, start, stop in wanted)
        if any(self.store.from_device(attempt) for attempt, _, _ in wanted):
            with self.devices.packing():
                return transport.pack([self.store.cut(*w) for w in wanted], nbytes, self.devices, host, reader)
        answer = transport.pack([self.store.cut(*w) for w in wanted], nbytes)
        self.excess()
        return answer

    def on_copied(self, lease: str) -> None:
        """Let go of device memory that a peer has read."""
        self.devices.end_lease(lease)

    # What the scheduler and Dask tell

    def on_gone(self, address: str, reader: str, attempts: list[str]) -> None:
        """Stop waiting for a dead worker, and do not ask for its runs again."""
        self.reader.forget(address, attempts)
        remember(self._gone, (reader,))
        if self._devices is not None:
            with contextlib.suppress(RuntimeError):  # this worker is closing, too
                self.threads.submit(self._devices.forget, address, reader)
        for seconds in REMOVE_AGAIN:
            self.loop.call_later(seconds, self._disconnect, address)

    def _disconnect(self, address: str) -> None:
        self.worker.rpc.remove(address)


class _Watch(WorkerPlugin):
    """Lets the service see how tasks end that promise runs, that a pulling part was cancelled, and its worker's end."""

    def __init__(self, service: WorkerService) -> None:
        self.service = service

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish in _ENDS:
            self.service.ended(key, well=start in ("executing", "long-running") and finish == "memory")
        elif finish in ("cancelled", "released", "forgotten"):
            self.service.reader.cancel(key)

    def teardown(self, worker: Worker) -> None:
        self.service.close()
