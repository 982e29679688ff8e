"""How a worker reads runs: keys for the cuts, slices for its parts, with an end to every wait.

An answer that does not come within the time limit, a peer that cannot be reached, a run that its owner does not know
and a worker that the scheduler has given up all become `Trouble`, which names the run. The task then tells the
scheduler, and is run again once that has changed something.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed.protocol import to_serialize

from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.errors import ExchangeError
from distsort.exchange import transport
from distsort.exchange.handles import Options, Source
from distsort.exchange.limiter import BytesInFlight
from distsort.exchange.scheduler import REMEMBERED
from distsort.exchange.spill import join
from distsort.exchange.store import LostRunError
from distsort.exchange.transport import Slice
from distsort.local import Run

if TYPE_CHECKING:
    from distsort.exchange.holder import Holder

T = TypeVar("T")
Held = list[tuple[Source, str]]
"""Leases of one part, each with a source of its owner."""

NEWS_AFTER = 0.003
"""Seconds that news wait: the end of a part is to be told before the end of its leases."""

MAPPED_MESSAGE = 1 << 40
"""Bytes of one answer that is mapped memory: all that is asked for."""


class Trouble(Exception):
    """A run could not be read. `reason` is "lost", "gone", "unreachable" or "silent"."""

    def __init__(self, source: Source, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.source, self.reason, self.detail = source, reason, detail


class Reader:
    """Questions of one worker to the stores of all. Lives on the worker's loop; called from task threads."""

    def __init__(self, holder: Holder, in_flight: int) -> None:
        self.holder = holder
        self.worker = holder.worker
        self.store = holder.store
        self.pulled = 0
        self.seconds = 0.0
        self.limiter = BytesInFlight(in_flight)
        self.calls: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)
        self.pulls: defaultdict[Any, set[asyncio.Task[Any]]] = defaultdict(set)
        self._dead: dict[str, None] = {}
        self._news: set[asyncio.Task[None]] = set()

    def probe(self, sources: Sequence[Source], positions: Sequence[IntArray], options: Options) -> list[Any]:
        """Read keys of all runs at once, one question a worker; called from a task thread."""
        return self.holder.call(self._probe(self.worker.get_current_task(), sources, positions, options))

    async def _probe(
        self, key: Any, sources: Sequence[Source], positions: Sequence[IntArray], options: Options
    ) -> list[Any]:
        keys: list[tuple[Column, ...] | None] = [None] * len(sources)

        async def ask(address: str, mine: list[int]) -> None:
            names = [sources[i].attempt for i in mine]
            asked = [positions[i] for i in mine]
            if address == self.holder.address:
                await self.holder.promises.kept(names)
                try:
                    data = await self.holder.in_thread(self.holder.read_keys, names, asked)
                except LostRunError as error:
                    raise Trouble(next(s for s in sources if s.attempt == error.args[0]), "lost") from None
            else:
                counts = [len(p) for p in asked]
                question = {"attempts": names, "positions": to_serialize(np.concatenate(asked)), "counts": counts}
                data = (await self.ask([sources[i] for i in mine], "distsort_keys", question, options))["keys"]
            for i, found in zip(mine, pickle.loads(data), strict=True):
                keys[i] = found

        with self.cancellable(key):
            await self.all_of(ask(address, mine) for address, mine in by_address(sources))
        return keys

    @contextlib.contextmanager
    def pull(self, slices: Sequence[Slice], options: Options) -> Iterator[list[Run]]:
        """Bring slices here; called from the thread of a part task.

        Several slices may be views of another worker's GPU memory: all are good until the context ends.

        Raises
        ------
        Trouble
            A run could not be read.
        CancelledError
            The task is not wanted any more.
        """
        held: Held | None = [] if len(slices) > 1 else None
        with self.until_read(held, options):
            with self.reading():
                pieces = self.holder.call(self._pull(self.worker.get_current_task(), slices, options, held))
            # What is read in place has only come when it has been merged.
            with self.reading() if held else contextlib.nullcontext():
                whole = [join(p) for p in _one_by_one(pieces)]
                yield whole

    @contextlib.contextmanager
    def until_read(self, held: Held | None, options: Options) -> Iterator[None]:
        """End the leases in `held` when what came with them has been read."""
        try:
            yield
        finally:
            if held:
                try:
                    self.holder.devices.release([source.address for source, _ in held])
                finally:  # also where this GPU is broken: the others' memory is theirs
                    self.holder.loop.call_soon_threadsafe(self._end_leases, held, options)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Count time in which bytes of others come here."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - begun

    def count(self, pieces: Sequence[Run], sources: Sequence[Source]) -> None:
        """Count the bytes of mapped slices: they come here when they are merged."""
        theirs = zip(pieces, sources, strict=True)
        self.pulled += sum(piece.nbytes for piece, source in theirs if source.address != self.holder.address)

    @contextlib.contextmanager
    def cancellable(self, key: Any) -> Iterator[None]:
        """Let `cancel` end what this task on the loop does for a part."""
        task = asyncio.current_task()
        assert task is not None
        self.pulls[key].add(task)
        try:
            yield
        finally:
            self.pulls[key].discard(task)
            if not self.pulls[key]:
                del self.pulls[key]

    def _end_leases(self, held: Held, options: Options) -> None:
        for source, lease in held:
            self._later(self.ask([source], "distsort_copied", {"lease": lease}, options))

    async def _pull(self, key: Any, slices: Sequence[Slice], options: Options, held: Held | None) -> list[list[Run]]:
        """Bring slices; note in `held` the leases of those that are read in place."""
        self.limiter.limit = options.in_flight
        pieces: list[list[Run]] = [[] for _ in slices]

        async def fetch(address: str, mine: list[int]) -> None:
            if address == self.holder.address:
                for i in mine:
                    pieces[i] = [await self._local(slices[i])]
                return
            # What is mapped is copied once, straight to its place: no need to come in small messages.
            host = slices[mine[0]].source.host
            mapped = bool(host) and self.holder.devices.maps(address, host)
            limit = MAPPED_MESSAGE if mapped else self.holder.message(options.message)
            for batch in transport.batches([slices[i] for i in mine], limit):
                runs = await self._fetch(address, [s for _, s in batch], options, held)
                for (at, _), run in zip(batch, runs, strict=True):
                    pieces[mine[at]].append(run)

        with self.cancellable(key):
            await self.all_of(fetch(address, mine) for address, mine in by_address([s.source for s in slices]))
        return pieces

    async def _fetch(self, address: str, batch: Sequence[Slice], options: Options, held: Held | None) -> list[Run]:
        """Bring slices from one worker with one question."""
        sources = [s.source for s in batch]
        wanted = [(s.source.attempt, s.start, s.stop) for s in batch]
        size = sum(s.nbytes for s in batch)
        on_device = bool(sources[0].host)
        mapped = on_device and self.holder.devices.maps(address, sources[0].host)
        fields = {"wanted": wanted, "host": self.holder.devices.host if mapped else "", "reader": self.worker.id}
        async with self.limiter.hold(0 if mapped else size):
            answer = await self.ask(sources, "distsort_slices", fields, options)
        self.pulled += size
        if "device" not in answer:
            return transport.unpack(answer, [len(s) for s in batch])
        devices, lease = self.holder.devices, answer["lease"]
        in_place = bool(lease) and held is not None and devices.hold(address)
        if in_place and held is not None:
            held.append((sources[0], lease))
        try:
            runs = await self.holder.in_thread(devices.unpack, address, answer, in_place)
        finally:
            if lease and not in_place:
                self._end_leases([(sources[0], lease)], options)
        if runs is None:
            return await self._fetch(address, batch, options, held)
        return transport.cut_apart(runs, [len(s) for s in batch]) if answer["packed"] else runs

    async def _local(self, piece: Slice) -> Run:
        attempt = piece.source.attempt
        await self.holder.promises.kept([attempt])
        try:
            if self.store.is_spilled(attempt):
                return await self.holder.in_thread(self.store.cut, attempt, piece.start, piece.stop)
            return self.store.cut(attempt, piece.start, piece.stop)
        except LostRunError:
            raise Trouble(piece.source, "lost") from None

    async def ask(self, sources: Sequence[Source], question: str, fields: dict[str, Any], options: Options) -> Any:
        """Ask the owner of `sources`; all of them have one address."""
        address = sources[0].address
        for source in sources:
            self.look(source)
        call = asyncio.ensure_future(getattr(self.worker.rpc(address), question)(**fields))
        self.calls[address].add(call)
        answered = False
        try:
            await asyncio.wait({call}, timeout=options.timeout)
            if not call.done():
                raise Trouble(sources[0], "silent", f"no answer in {options.timeout:g} s")
            if call.cancelled():
                raise Trouble(sources[0], "gone")
            answer: Any = call.result()
            answered = True
        except OSError as error:
            raise Trouble(sources[0], "unreachable", str(error)) from error
        finally:
            if fields.get("host") and not answered:
                # The owner has leased memory, or will have, to an answer that nobody takes.
                call.add_done_callback(lambda late: self._end_late(sources[0], late, options))
            else:
                call.cancel()
                self.calls[address].discard(call)
        if answer is not None and answer["lost"] is not None:
            raise Trouble(next(s for s in sources if s.attempt == answer["lost"]), "lost")
        if answer is not None and answer.get("failed"):
            raise pickle.loads(answer["failed"])
        return answer

    def _end_late(self, source: Source, call: asyncio.Future[Any], options: Options) -> None:
        """End the lease of an answer that came when its reader had gone, or was going."""
        self.calls[source.address].discard(call)
        if not call.cancelled() and call.exception() is None and (lease := call.result().get("lease")):
            self._end_leases([(source, lease)], options)

    def _later(self, question: Coroutine[Any, Any, Any]) -> None:
        """Send news that nobody waits for, after what somebody does; if the owner is dead, so is what it would do."""

        async def send() -> None:
            await asyncio.sleep(NEWS_AFTER)
            # A closing worker has no connections any more, which Dask tells by a RuntimeError.
            with contextlib.suppress(Trouble, RuntimeError):
                await question

        task = asyncio.ensure_future(send())
        self._news.add(task)
        task.add_done_callback(self._news.discard)

    async def all_of(self, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
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
        gave_up = self.holder.call(self.worker.scheduler.distsort_trouble(**fields))
        if gave_up:
            raise ExchangeError(
                f"run {source.key!r} on worker {source.address} could not be read in {gave_up} attempts"
                f" ({trouble.reason}{': ' + trouble.detail if trouble.detail else ''}). Look at that worker's log;"
                " distsort.pull.timeout and distsort.pull.retries say how long to try"
            ) from trouble

    def look(self, source: Source) -> None:
        """Raise `Trouble` for a run of a worker that the scheduler has given up."""
        if source.attempt in self._dead:
            raise Trouble(source, "gone")

    def forget(self, address: str, attempts: Iterable[str]) -> None:
        """Stop waiting for a dead worker, if it is named, and do not ask for those runs again."""
        remember(self._dead, attempts)
        for call in list(self.calls.pop(address, ())):
            call.cancel()

    def cancel(self, key: Any) -> None:
        """End what is asked for a task that is not wanted any more."""
        for task in list(self.pulls.get(key, ())):
            task.cancel()


def remember(known: dict[str, None], names: Iterable[str]) -> None:
    """Add what is dead to what is known so, and let go of the oldest."""
    known.update(dict.fromkeys(names))
    while len(known) > REMEMBERED:
        del known[next(iter(known))]


def _one_by_one(lists: list[list[T]]) -> Iterator[list[T]]:
    """Yield lists from the first to the last, and keep none of them."""
    lists.reverse()
    while lists:
        yield lists.pop()


def by_address(sources: Sequence[Source]) -> list[tuple[str, list[int]]]:
    """Return for each worker which of the sources are its."""
    grouped: dict[str, list[int]] = {}
    for i, source in enumerate(sources):
        grouped.setdefault(source.address, []).append(i)
    return list(grouped.items())
