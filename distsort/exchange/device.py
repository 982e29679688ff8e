"""How slices in GPU memory cross between two workers.

    same host     the owner exports the slice, the reader maps the allocation once and reads over NVLink
    ucx           frames stay on the device, the comm moves them
    otherwise     through pinned host memory: the cluster's comm carries plain bytes

Mapped slices that are to be merged are read in place: the merge takes each of their rows once, so a copy before it
would only add a trip through memory. A slice that is a part by itself is copied.

Of few runs on one host a part maps all as a whole, before it knows what it needs of them: they are lent. Large runs of
integers that are evenly spread come with offsets, which cross in their place (`distsort.backends.cupy_narrow`).

The owner keeps what it has exported until the reader says that it has read it, or is gone: a lease. If the memory
cannot be exported, or cannot be mapped, the next way is taken, and remembered for that peer.

Mapped memory stays with its owner's pool, and CUDA wants it unmapped before it is freed. So a reader unmaps what it has
not read for some seconds, and only then does an owner empty its pool::

    reader  reads ... last read |-- UNMAP_AFTER --> unmaps
    owner   lends ... lease ends |-------- EMPTY_AFTER --------> gives its pool's memory back, where others want it
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from distributed.protocol import to_serialize

from distsort import device_memory
from distsort.backends import cupy_ipc
from distsort.device_memory import device_work
from distsort.exchange import device_narrow
from distsort.local import Run

UNMAP_AFTER, EMPTY_AFTER = 5.0, 15.0
"""Seconds since the last use."""

AHEAD_SHARE = 1 / 16
"""Share of the device that blocks may take which wait to be sorted."""

READ_IN_PLACE = True
"""Whether mapped slices are merged where they lie; without, they are copied first, which the bench measures."""


class DeviceTransport:
    """Both ends of the transport of one worker. May be used from any thread.

    Parameters
    ----------
    over_ucx
        Whether the comm of this worker moves device memory.
    """

    def __init__(self, over_ucx: bool) -> None:
        self.over_ucx = over_ucx
        self.host = cupy_ipc.host_id()
        self.leases: dict[str, tuple[str, list[Any]]] = {}
        self._mappings = cupy_ipc.Mappings()
        self._unmappable: set[str] = set()
        self._lock = threading.Lock()
        self._count = 0
        self._read: dict[str, float] = {}
        self._lent: float | None = None

    # Owner

    @contextmanager
    def packing(self, wait: bool = True) -> Iterator[None]:
        """Put slices together apart from the merge that this GPU may be at: an answer does not wait for its end.

        Parameters
        ----------
        wait
            As of `device_work`.
        """
        with cupy_ipc.packing_stream(), device_work(True, wait):
            yield

    @property
    def room_ahead(self) -> float:
        """Bytes of blocks that may wait to be sorted."""
        return AHEAD_SHARE * device_memory.device_memory()

    @property
    def lends(self) -> bool:
        """Whether others of this host can map memory of this process, and are to."""
        return READ_IN_PLACE and self._exportable

    @functools.cached_property
    def _exportable(self) -> bool:
        return cupy_ipc.exportable()

    def lend(
        self, runs: Sequence[Run], down: Sequence[bool], share: tuple[float, float], host: str, reader: str
    ) -> dict[str, Any]:
        """Turn whole runs into an answer for a reader that maps them; an empty lease where it cannot.

        Parameters
        ----------
        runs, down
            The runs, and whether each descends.
        share
            Of each run, about what the reader will need: it may come with a narrow form, which is only begun here.
        host, reader
            As of `pack`.
        """
        with self.packing(wait=False):
            answer, frames = self._taken(runs)
            lent = self._exported(answer, frames, host, reader)
            if lent is None:
                return {"lease": ""}
            try:
                told, narrow = device_narrow.begin(runs, down, share)
            except BaseException:
                self.end_lease(lent["lease"])  # nobody hears of it
                raise
        frames.extend(narrow)
        return {**lent, **told}

    def pack(self, runs: Sequence[Run], host: str, reader: str) -> dict[str, Any]:
        """Turn slices into an answer for a reader, which maps memory of `host` (empty: of no host)."""
        answer, frames = self._taken(runs)
        mapped = self._exported(answer, frames, host, reader)
        if mapped is not None:
            return mapped
        if self.over_ucx:
            return {**answer, "device": "ucx", "frames": [to_serialize(frame) for frame in frames]}
        return {**answer, "frames": [to_serialize(frame) for frame in cupy_ipc.to_host(frames)]}

    def _taken(self, runs: Sequence[Run]) -> tuple[dict[str, Any], list[Any]]:
        """Take runs apart: what an answer says of them, and frames, which are complete."""
        headers: list[list[bytes]] = []
        frames: list[Any] = []
        counts: list[list[int]] = []
        for run in runs:
            taken = [cupy_ipc.dump(block) for block in (run.rows, *(run.keys or ()))]
            headers.append([header for header, _ in taken])
            counts.append([len(own) for _, own in taken])
            frames.extend(frame for _, own in taken for frame in own)
        answer: dict[str, Any] = {"device": "host", "headers": headers, "counts": counts, "lease": ""}
        cupy_ipc.wait_for_packing([run.rows for run in runs])
        return answer, frames

    def _exported(self, answer: dict[str, Any], frames: list[Any], host: str, reader: str) -> dict[str, Any] | None:
        exported = cupy_ipc.export(frames) if host and host == self.host else None
        if exported is None:
            return None
        return {**answer, "device": "ipc", "frames": pickle.dumps(exported), "lease": self._lease(reader, frames)}

    def _lease(self, reader: str, frames: list[Any]) -> str:
        with self._lock:
            self._count += 1
            lease = f"lease-{self._count}"
            self.leases[lease] = (reader, frames)
            self._lent = time.monotonic()
        device_memory.lent = True
        return lease

    def end_lease(self, lease: str) -> None:
        """Let go of what a reader has copied."""
        with self._lock:
            self.leases.pop(lease, None)
            self._lent = time.monotonic()

    def tidy(self, now: float) -> None:
        """Unmap memory that was not read for long, and empty the pool when nobody can have it mapped any more.

        Parameters
        ----------
        now
            Of `time.monotonic`, in seconds.
        """
        with self._lock:
            done = [peer for peer, last in self._read.items() if now - last > UNMAP_AFTER]
            for peer in done:
                del self._read[peer]
            empty = not self.leases and self._lent is not None and now - self._lent > EMPTY_AFTER
            if empty:
                self._lent = None
        for peer in done:
            self._mappings.close(peer)
        if empty:
            device_memory.empty_pool()

    # Reader

    def maps(self, owner: str, host: str) -> bool:
        """Whether memory of an owner on that host can be mapped here, as far as is known."""
        return host == self.host and owner not in self._unmappable

    def hold(self, owner: str) -> bool:
        """Ask whether slices of an owner may be read in place; then its mappings stay open until `release`."""
        if READ_IN_PLACE:
            self._mappings.hold(owner)
        return READ_IN_PLACE

    def release(self, owners: Sequence[str]) -> None:
        """Wait for what this process does on its GPU, then end one `hold` for each name."""
        cupy_ipc.wait()
        self._mappings.release(owners)
        self._note(owners)

    def _note(self, owners: Iterable[str]) -> None:
        with self._lock:
            self._read.update(dict.fromkeys(owners, time.monotonic()))

    def unpack(self, owner: str, answer: dict[str, Any], in_place: bool = False) -> list[Run] | None:
        """Turn an answer into slices; None if it must be asked for in another way.

        They lie in memory of this process, or with `in_place`, in that of the owner, who was asked for by `hold`.
        """
        if answer["device"] == "ipc":
            read = self._mappings.view if in_place else self._mappings.copy
            try:
                frames = read(owner, pickle.loads(answer["frames"]))
            except cupy_ipc.CUDARuntimeError:
                self._unmappable.add(owner)
                return None
            self._note((owner,))
        elif answer["device"] == "ucx":
            frames = list(answer["frames"])
        else:
            frames = cupy_ipc.to_device(answer["frames"])
        runs, at = [], 0
        for headers, counts in zip(answer["headers"], answer["counts"], strict=True):
            made = []
            for header, count in zip(headers, counts, strict=True):
                made.append(cupy_ipc.load(header, frames[at : at + count]))
                at += count
            runs.append(Run(made[0], tuple(made[1:]) or None))
        return runs

    def attach(self, owner: str, answer: dict[str, Any], runs: Sequence[Run]) -> bool:
        """Give mapped runs the narrow forms that an answer tells of; return whether they have any now."""
        if not answer.get("narrow"):
            return False
        with suppress(cupy_ipc.CUDARuntimeError):  # what cannot be mapped is left out
            self._mappings.reached(owner, answer["event"])
            frames = self._mappings.view(owner, pickle.loads(answer["narrow_frames"]))
            device_narrow.attach(runs, answer, frames)
            return True
        return False

    def complete(self, owner: str, answer: dict[str, Any]) -> bool:
        """Whether the narrow forms that were attached are complete."""
        return self._mappings.reached(owner, answer["event"])

    def unmap(self) -> None:
        """Unmap all that is not being read."""
        self._mappings.close()

    def forget(self, peer: str, reader: str) -> None:
        """Unmap what a dead worker had, by its address, and end its leases, by its id."""
        self._mappings.close(peer)
        self._unmappable.discard(peer)
        with self._lock:
            for lease in [k for k, (who, _) in self.leases.items() if who == reader]:
                del self.leases[lease]

    def close(self) -> None:
        """Let go of everything."""
        self._mappings.close()
        self.leases.clear()
