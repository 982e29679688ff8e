"""The runs that one worker holds for the parts to come, on the device, on the host or, beyond its budget, in run files.

Dask neither counts these bytes nor spills them, and a worker above its pause threshold never starts another task: if
all workers stood there, the sort could not end. So the store keeps its own account and spills the oldest runs first::

    device --> pinned host memory --> run file          each step when the budget of the tier before it is exceeded

What a reader gets lies where the run was made: slices of a run that left the device go back to it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from distsort import blocks
from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.errors import OutputError
from distsort.exchange.spill import RunFile
from distsort.io.commit import explain
from distsort.local import Run, Spec

T = TypeVar("T")


class LostRunError(KeyError):
    """The store holds no such run: it was freed, or belonged to another life of this worker."""


@dataclass(frozen=True)
class _Held:
    """A run and where it is; replaced when it moves, so that whoever reads has both as they were at one time."""

    run: Run | RunFile
    spec: Spec
    nbytes: int
    from_device: bool
    tier: str

    @property
    def at_home(self) -> bool:
        """Whether it lies in the memory where it was made."""
        return self.tier == ("device" if self.from_device else "host")


class RunStore:
    """Runs by attempt id. May be used from any thread.

    Parameters
    ----------
    directory
        Where runs are spilled; made on the first spill.
    budget
        Bytes of runs to keep in host memory; None for no limit.
    device_budget
        Asked when the first run on a device comes: bytes of runs to keep there; None for no limit.
    excess
        Asked on each `put`: how many bytes the process as a whole should let go of, whatever the budget says.
    """

    def __init__(
        self,
        directory: Path,
        budget: int | None,
        excess: Callable[[], int] = lambda: 0,
        device_budget: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.directory = directory
        self.budget = budget
        self.excess = excess
        self.device_budget = device_budget
        self.spilled = 0
        self.spills = 0
        self._held: dict[str, _Held] = {}
        self._freed: deque[str] = deque(maxlen=10_000)
        self._lock = threading.Lock()
        self._spilling = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, attempt: str) -> bool:
        return attempt in self._held

    def bytes_in(self, tier: str) -> int:
        """Bytes of runs on the "device" or the "host"."""
        with self._lock:
            return sum(h.nbytes for h in self._held.values() if h.tier == tier)

    @property
    def in_memory(self) -> int:
        """Bytes of runs in memory, of the device and of the host."""
        return self.bytes_in("device") + self.bytes_in("host")

    @property
    def on_disk(self) -> int:
        """Bytes of runs in files."""
        with self._lock:
            return sum(h.run.nbytes for h in self._held.values() if isinstance(h.run, RunFile))

    def put(self, attempt: str, run: Run, spec: Spec) -> bool:
        """Keep a run, spilling older ones where the budget asks for it; False if it was freed while it was made.

        Raises
        ------
        OutputError
            The disk refused the spill: the run is not kept.
        """
        with self._lock:
            if attempt in self._freed:
                self._freed.remove(attempt)
                return False
            on_device = blocks.on_device(run.rows)
            self._held[attempt] = _Held(run, spec, run.nbytes, on_device, "device" if on_device else "host")
        try:
            self.shrink()
        except OutputError:
            with self._lock:
                self._held.pop(attempt, None)
            raise
        return True

    def free(self, attempts: Sequence[str]) -> None:
        """Let runs go, those too that are still being made."""
        with self._lock:
            gone = [self._held.pop(attempt, None) for attempt in attempts]
            self._freed.extend(a for a, held in zip(attempts, gone, strict=True) if held is None)
        for held in gone:
            if held is not None and isinstance(held.run, RunFile):
                held.run.close()

    def was_freed(self, attempt: str) -> bool:
        """Whether a run that could not be made has been freed meanwhile; asked once, in the place of `put`."""
        with self._lock:
            freed = attempt in self._freed
            if freed:
                self._freed.remove(attempt)
            return freed

    def clear(self) -> None:
        """Let all runs go."""
        self.free(list(self._held))

    def row_bytes(self, attempt: str) -> float:
        """Return the mean size of a row, in bytes; asking each slice would cost more than to copy it."""
        held = self._find(attempt)
        return held.nbytes / max(len(held.run), 1)

    def descends(self, attempt: str) -> bool:
        """Whether a run is in descending order of its first key."""
        return self._find(attempt).spec.descending

    def from_device(self, attempt: str) -> bool:
        """Whether what is read of this run lies on the device."""
        return self._find(attempt).from_device

    def is_spilled(self, attempt: str) -> bool:
        """Whether this run left the memory where it was made, so that reading it takes time."""
        return not self._find(attempt).at_home

    def cut(self, attempt: str, start: int, stop: int) -> Run:
        """Return rows ``[start, stop)`` of a run.

        Raises
        ------
        LostRunError
            There is no such run.
        """
        return self._read(attempt, lambda held: _home(held, held.run.cut(start, stop)))

    def whole(self, attempt: str) -> Run | None:
        """Return a run that lies in the memory where it was made; None if it has left that.

        Raises
        ------
        LostRunError
            There is no such run.
        """
        held = self._find(attempt)
        return held.run if held.at_home and isinstance(held.run, Run) else None

    def keys_at(self, attempt: str, positions: IntArray) -> tuple[Column, ...]:
        """Read the keys of a run at some positions, in any order, to host memory."""
        return self._read(attempt, lambda held: _keys(held, positions))

    def _find(self, attempt: str) -> _Held:
        held = self._held.get(attempt)
        if held is None:
            raise LostRunError(attempt)
        return held

    def _read(self, attempt: str, read: Callable[[_Held], T]) -> T:
        held = self._find(attempt)
        try:
            return read(held)
        except FileNotFoundError:  # freed while it was being read
            raise LostRunError(attempt) from None

    def shrink(self) -> None:
        """Move what exceeds a tier's budget, or what the process should hold, one tier down.

        Raises
        ------
        OutputError
            The disk refused a spill.
        """
        with self._spilling:
            if self.bytes_in("device"):
                for attempt in self._surplus("device", self.device_budget(), 0):
                    self._move(attempt, "device", "host")
            for attempt in self._surplus("host", self.budget, self.excess()):
                self._move(attempt, "host", "disk")

    def _surplus(self, tier: str, budget: int | None, excess: int) -> Sequence[str]:
        """Return what a tier must give up to stay within its budget and end an excess, the oldest run first."""
        with self._lock:
            here = [(a, h.nbytes) for a, h in self._held.items() if h.tier == tier]
        over = max(excess, sum(n for _, n in here) - budget if budget is not None else 0)
        chosen = []
        for attempt, nbytes in here:
            if over <= 0:
                break
            chosen.append(attempt)
            over -= nbytes
        return chosen

    def _move(self, attempt: str, tier: str, to: str) -> None:
        held = self._held.get(attempt)
        if held is None or held.tier != tier or not isinstance(held.run, Run):
            return
        moved: Run | RunFile
        if to == "host":
            from distsort.backends import cupy_park

            moved = held.run.each(cupy_park.park)
        else:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                moved = RunFile(held.run, self.directory / attempt, held.spec)
            except OSError as error:
                raise explain(str(self.directory), error) from error
        with self._lock:
            kept = self._held.get(attempt) is held
            if kept:
                self._held[attempt] = replace(held, run=moved, tier=to)
                self.spilled += held.nbytes
                self.spills += 1
        if not kept and isinstance(moved, RunFile):
            moved.close()


def _home(held: _Held, piece: Run) -> Run:
    """Bring a slice back to where its run was made."""
    if not held.from_device or held.at_home:
        return piece
    from distsort.backends import cupy_park

    return piece.each(cupy_park.unpark)


def _keys(held: _Held, positions: IntArray) -> tuple[Column, ...]:
    """Read keys; those of a run that left the device go by it, so that they come with the types of all others."""
    found = held.run.keys_at(positions, held.spec)
    if not held.from_device or held.at_home:
        return found
    from distsort.backends import cupy_park

    return tuple(blocks.to_host(cupy_park.unpark(column)) for column in found)
