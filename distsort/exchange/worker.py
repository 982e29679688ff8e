"""What a worker does for the pull exchange: it holds runs, answers questions about them, and pulls for its own parts.

A service is put on the worker by the first task that needs it, and brings the scheduler plugin with it. Nothing has to
be registered beforehand, so late workers, a replaced scheduler and collections of other clients need no care.

Every wait has an end: an answer that does not come within the time limit, a peer that cannot be reached, a run that
its owner does not know and a worker that the scheduler has given up all become `Trouble`, which names the run.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps

from distsort import config
from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.errors import ExchangeError
from distsort.exchange import transport
from distsort.exchange.handles import NAME, Handle, Options, Source
from distsort.exchange.limiter import BytesInFlight
from distsort.exchange.scheduler import PullPlugin
from distsort.exchange.spill import join
from distsort.exchange.store import LostRunError, RunStore
from distsort.exchange.transport import Slice
from distsort.local import Run, Sample, Spec

T = TypeVar("T")

STORE_SHARE = 0.4
"""Share of the worker's memory limit that runs may take; input, output and merges need the rest."""

PRESSURE_BELOW_SPILL = 0.1
"""The store spills when the process is this share of the limit below the point where Dask would begin to."""

REMOVE_AGAIN = (0.1, 0.5, 1.5)
"""Seconds after which connections to a dead worker are cut once more: one begun just after its end is retried long."""

INSTALL_TIMEOUT = 30.0
_LOCK = threading.Lock()


class Trouble(Exception):
    """A run could not be read. `reason` is "lost", "gone", "unreachable" or "silent"."""

    def __init__(self, source: Source, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.source, self.reason, self.detail = source, reason, detail


def service_of(worker: Worker) -> WorkerService:
    """Return the service of a worker, installing it on the first call. Called from task threads."""
    with _LOCK:
        service = getattr(worker, "distsort_service", None)
        if service is None:
            service = worker.distsort_service = WorkerService(worker)
    service.ready()
    return service


class WorkerService:
    """Runs, questions and pulls of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loop = worker.loop.asyncio_loop
        memory = worker.memory_manager
        limit = memory.memory_limit
        self.store = RunStore(_spill_directory(worker), None if not limit else int(STORE_SHARE * limit), self._pressure)
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="distsort")
        self.pulled = 0
        self._limiter = BytesInFlight(config.get_bytes("pull.bytes-in-flight"))
        self._dead: deque[str] = deque(maxlen=10_000)
        self._calls: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)
        self._pulls: defaultdict[Any, set[asyncio.Task[Any]]] = defaultdict(set)
        self._installing = asyncio.Lock()
        self._ready = False

    @property
    def address(self) -> str:
        """Address of the worker."""
        return str(self.worker.address)

    # Installation

    def ready(self) -> None:
        """Install handlers here and the plugin on the scheduler, once."""
        if not self._ready:
            self.call(self._install(), INSTALL_TIMEOUT)

    async def _install(self) -> None:
        async with self._installing:
            if self._ready:
                return
            worker = self.worker
            worker.handlers.update(distsort_keys=self.answer_keys, distsort_slices=self.answer_slices)
            worker.stream_handlers.update({"distsort-free": self.on_free, "distsort-gone": self.on_gone})
            worker.metrics[NAME] = lambda worker: self.report()
            if NAME not in worker.plugins:
                await worker.plugin_add(_Watch(self), name=NAME)
            await worker.scheduler.register_scheduler_plugin(plugin=dumps(PullPlugin()), name=NAME, idempotent=True)
            await worker.scheduler.distsort_join(worker=self.address)
            self._ready = True

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the worker's loop from a task thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def close(self) -> None:
        """Let everything go: the worker is closing."""
        self.store.clear()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def report(self) -> dict[str, int]:
        """Return what ``worker.metrics`` shows, in bytes and counts."""
        return {
            "runs": len(self.store),
            "memory": self.store.in_memory,
            "disk": self.store.on_disk,
            "spilled": self.store.spilled,
            "spills": self.store.spills,
            "pulled": self.pulled,
        }

    # Runs of this worker

    def keep(self, run: Run, spec: Spec, sample: Sample) -> Handle:
        """Put a run into the store and tell the scheduler, before it hears that the task is done."""
        key = self.worker.get_current_task()
        attempt = self.store.put(run, spec)
        message = {"op": "distsort-run", "run": key, "attempt": attempt}
        self.loop.call_soon_threadsafe(self.worker.batched_send, message)
        row_bytes = sample.nbytes / max(sample.length, 1)
        return Handle(Source(key, attempt, self.address, row_bytes), sample)

    def on_free(self, attempts: Iterable[str]) -> None:
        """Free runs that the scheduler says are not needed any more."""
        self.store.free(attempts)

    async def answer_keys(self, attempts: list[str], positions: IntArray, counts: list[int]) -> dict[str, Any]:
        """Answer a peer: the keys of several runs at some positions."""
        asked = np.split(positions, np.cumsum(counts)[:-1])
        try:
            data = await self._in_thread(self._keys, attempts, asked)
        except LostRunError as error:
            return {"lost": error.args[0]}
        return {"lost": None, "keys": to_serialize(data)}

    async def answer_slices(self, wanted: list[tuple[str, int, int]]) -> dict[str, Any]:
        """Answer a peer: slices of several runs."""
        try:
            answer = await self._in_thread(self._pack, wanted)
        except LostRunError as error:
            return {"lost": error.args[0]}
        return {"lost": None, **answer}

    def _keys(self, attempts: Sequence[str], asked: Sequence[IntArray]) -> bytes:
        found = [self.store.keys_at(a, p) for a, p in zip(attempts, asked, strict=True)]
        return pickle.dumps(found, protocol=5)

    def _pack(self, wanted: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
        return transport.pack([self.store.cut(*w) for w in wanted])

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        """Work on rows in an own thread, never on the loop: it would stop every other answer."""
        return await self.loop.run_in_executor(self.threads, function, *args)

    # Questions to peers

    def probe(self, sources: Sequence[Source], positions: Sequence[IntArray], options: Options) -> list[Any]:
        """Read keys of all runs at once, one question a worker; called from a task thread."""
        return self.call(self._probe(sources, positions, options))

    async def _probe(self, sources: Sequence[Source], positions: Sequence[IntArray], options: Options) -> list[Any]:
        keys: list[tuple[Column, ...] | None] = [None] * len(sources)

        async def ask(address: str, mine: list[int]) -> None:
            names = [sources[i].attempt for i in mine]
            asked = [positions[i] for i in mine]
            if address == self.address:
                try:
                    data = await self._in_thread(self._keys, names, asked)
                except LostRunError as error:
                    raise Trouble(next(s for s in sources if s.attempt == error.args[0]), "lost") from None
            else:
                counts = [len(p) for p in asked]
                question = {"attempts": names, "positions": to_serialize(np.concatenate(asked)), "counts": counts}
                data = (await self._ask([sources[i] for i in mine], "distsort_keys", question, options))["keys"]
            for i, found in zip(mine, pickle.loads(data), strict=True):
                keys[i] = found

        await self._all(ask(address, mine) for address, mine in _by_address(sources))
        return keys

    def pull(self, slices: Sequence[Slice], options: Options) -> list[Run]:
        """Bring slices here; called from the thread of a part task.

        Raises
        ------
        Trouble
            A run could not be read.
        CancelledError
            The task is not wanted any more.
        """
        return self.call(self._pull(self.worker.get_current_task(), slices, options))

    async def _pull(self, key: Any, slices: Sequence[Slice], options: Options) -> list[Run]:
        task = asyncio.current_task()
        assert task is not None
        self._pulls[key].add(task)
        self._limiter.limit = options.in_flight
        pieces: list[list[Run]] = [[] for _ in slices]

        async def fetch(address: str, mine: list[int]) -> None:
            if address == self.address:
                for i in mine:
                    pieces[i] = [await self._local(slices[i])]
                return
            for batch in transport.batches([slices[i] for i in mine], options.message):
                async with self._limiter.hold(sum(s.nbytes for _, s in batch)):
                    wanted = [(s.source.attempt, s.start, s.stop) for _, s in batch]
                    sources = [s.source for _, s in batch]
                    answer = await self._ask(sources, "distsort_slices", {"wanted": wanted}, options)
                runs = transport.unpack(answer, [len(s) for _, s in batch])
                self.pulled += transport.nbytes(runs)
                for (at, _), run in zip(batch, runs, strict=True):
                    pieces[mine[at]].append(run)

        try:
            await self._all(fetch(address, mine) for address, mine in _by_address([s.source for s in slices]))
        finally:
            self._pulls[key].discard(task)
            if not self._pulls[key]:
                del self._pulls[key]
        return [join(p) for p in pieces]

    async def _local(self, piece: Slice) -> Run:
        attempt = piece.source.attempt
        try:
            if self.store.is_spilled(attempt):
                return await self._in_thread(self.store.cut, attempt, piece.start, piece.stop)  # type: ignore[no-any-return]
            return self.store.cut(attempt, piece.start, piece.stop)
        except LostRunError:
            raise Trouble(piece.source, "lost") from None

    async def _ask(
        self, sources: Sequence[Source], question: str, fields: dict[str, Any], options: Options
    ) -> dict[str, Any]:
        """Ask the owner of `sources`; all of them have one address."""
        address = sources[0].address
        for source in sources:
            if source.attempt in self._dead:
                raise Trouble(source, "gone")
        call = asyncio.ensure_future(getattr(self.worker.rpc(address), question)(**fields))
        self._calls[address].add(call)
        try:
            await asyncio.wait({call}, timeout=options.timeout)
            if not call.done():
                raise Trouble(sources[0], "silent", f"no answer in {options.timeout:g} s")
            if call.cancelled():
                raise Trouble(sources[0], "gone")
            answer: dict[str, Any] = call.result()
        except OSError as error:
            raise Trouble(sources[0], "unreachable", str(error)) from error
        finally:
            call.cancel()
            self._calls[address].discard(call)
        if answer["lost"] is not None:
            raise Trouble(next(s for s in sources if s.attempt == answer["lost"]), "lost")
        return answer

    async def _all(self, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Wait for all; the first error ends the others."""
        tasks = [asyncio.ensure_future(c) for c in coroutines]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def report_trouble(self, trouble: Trouble, barrier: Any, options: Options) -> None:
        """Tell the scheduler, which answers once it has changed something; then the task is to be run again.

        Raises
        ------
        ExchangeError
            The scheduler counts too many strikes.
        """
        source = trouble.source
        fields = {
            "barrier": barrier,
            "run": source.key,
            "attempt": source.attempt,
            "address": source.address,
            "reason": trouble.reason,
            "asker": self.worker.get_current_task(),
            "retries": options.retries,
        }
        gave_up = self.call(self.worker.scheduler.distsort_trouble(**fields))
        if gave_up:
            raise ExchangeError(
                f"run {source.key!r} on worker {source.address} could not be read in {gave_up} attempts"
                f" ({trouble.reason}{': ' + trouble.detail if trouble.detail else ''}). Look at that worker's log;"
                " distsort.pull.timeout and distsort.pull.retries say how long to try"
            ) from trouble

    # What the scheduler and Dask tell

    def on_gone(self, address: str, attempts: list[str]) -> None:
        """Stop waiting for a dead worker, and do not ask for its runs again."""
        self._dead.extend(attempts)
        for call in list(self._calls[address]):
            call.cancel()
        for seconds in REMOVE_AGAIN:
            self.loop.call_later(seconds, self._disconnect, address)

    def _disconnect(self, address: str) -> None:
        self.worker.rpc.remove(address)

    def cancel(self, key: Any) -> None:
        """End the pulls of a part that is not wanted any more."""
        for task in list(self._pulls.get(key, ())):
            task.cancel()

    def _pressure(self) -> bool:
        memory = self.worker.memory_manager
        if not memory.memory_limit or not memory.memory_spill_fraction:
            return False
        share = self.worker.monitor.get_process_memory() / memory.memory_limit
        return bool(share > memory.memory_spill_fraction - PRESSURE_BELOW_SPILL)


class _Watch(WorkerPlugin):
    """Lets the service see that a pulling part was cancelled, and that its worker closes."""

    def __init__(self, service: WorkerService) -> None:
        self.service = service

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish in ("cancelled", "released", "forgotten"):
            self.service.cancel(key)

    def teardown(self, worker: Worker) -> None:
        self.service.close()


def _spill_directory(worker: Worker) -> Path:
    chosen = config.get("temporary-directory")
    if chosen is None:
        return Path(worker.local_directory) / NAME
    return Path(chosen) / f"{NAME}-{worker.id}"


def _by_address(sources: Sequence[Source]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for i, source in enumerate(sources):
        grouped.setdefault(source.address, []).append(i)
    return list(grouped.items())
