"""The runs that one worker holds for the parts to come, in memory or, beyond its budget, in run files.

Dask neither counts these bytes nor spills them, and a worker above its pause threshold never starts another task: if
all workers stood there, the sort could not end. So the store keeps its own account and spills the oldest runs first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from distsort import blocks
from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.exchange.spill import RunFile
from distsort.local import Run, Spec

T = TypeVar("T")


class LostRunError(KeyError):
    """The store holds no such run: it was freed, or belonged to another life of this worker."""


@dataclass
class _Held:
    run: Run | RunFile
    spec: Spec
    nbytes: int


class RunStore:
    """Runs by attempt id. May be used from any thread.

    Parameters
    ----------
    directory
        Where runs are spilled; made on the first spill.
    budget
        Bytes of runs to keep in memory; None for no limit.
    pressure
        Asked on each `put`: whether the process as a whole is short of memory, so that the run goes to disk at once.
    """

    def __init__(self, directory: Path, budget: int | None, pressure: Callable[[], bool] = lambda: False) -> None:
        self.directory = directory
        self.budget = budget
        self.pressure = pressure
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

    @property
    def in_memory(self) -> int:
        """Bytes of runs in memory."""
        with self._lock:
            return sum(h.nbytes for h in self._held.values() if isinstance(h.run, Run))

    @property
    def on_disk(self) -> int:
        """Bytes of runs in files."""
        with self._lock:
            return sum(h.run.nbytes for h in self._held.values() if isinstance(h.run, RunFile))

    def put(self, attempt: str, run: Run, spec: Spec) -> bool:
        """Keep a run, spilling older ones where the budget asks for it; False if it was freed while it was made."""
        with self._lock:
            if attempt in self._freed:
                self._freed.remove(attempt)
                return False
            self._held[attempt] = _Held(run, spec, run.nbytes)
        self._shrink()
        return True

    def free(self, attempts: Sequence[str]) -> None:
        """Let runs go, those too that are still being made."""
        with self._lock:
            gone = [self._held.pop(attempt, None) for attempt in attempts]
            self._freed.extend(a for a, held in zip(attempts, gone, strict=True) if held is None)
        for held in gone:
            if held is not None and isinstance(held.run, RunFile):
                held.run.close()

    def clear(self) -> None:
        """Let all runs go."""
        self.free(list(self._held))

    def is_spilled(self, attempt: str) -> bool:
        """Whether reading this run means reading a file."""
        return isinstance(self._find(attempt).run, RunFile)

    def cut(self, attempt: str, start: int, stop: int) -> Run:
        """Return rows ``[start, stop)`` of a run.

        Raises
        ------
        LostRunError
            There is no such run.
        """
        return self._read(attempt, lambda run, _: run.cut(start, stop))

    def keys_at(self, attempt: str, positions: IntArray) -> tuple[Column, ...]:
        """Read the keys of a run at ascending positions, to host memory."""
        return self._read(attempt, lambda run, spec: run.keys_at(positions, spec))

    def _find(self, attempt: str) -> _Held:
        held = self._held.get(attempt)
        if held is None:
            raise LostRunError(attempt)
        return held

    def _read(self, attempt: str, read: Callable[[Run | RunFile, Spec], T]) -> T:
        held = self._find(attempt)
        try:
            return read(held.run, held.spec)
        except FileNotFoundError:  # freed while it was being read
            raise LostRunError(attempt) from None

    def _shrink(self) -> None:
        with self._spilling:
            for attempt in self._surplus():
                self._spill(attempt)

    def _surplus(self) -> Sequence[str]:
        """Return what to spill, the oldest run first."""
        with self._lock:
            warm = [(a, h.nbytes) for a, h in self._held.items() if isinstance(h.run, Run)]
        if self.pressure():
            return [a for a, _ in warm]
        over = sum(n for _, n in warm) - self.budget if self.budget is not None else 0
        chosen = []
        for attempt, nbytes in warm:
            if over <= 0:
                break
            chosen.append(attempt)
            over -= nbytes
        return chosen

    def _spill(self, attempt: str) -> None:
        held = self._held.get(attempt)
        if held is None or not isinstance(held.run, Run):
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        file = RunFile(_on_host(held.run), self.directory / attempt)
        with self._lock:
            kept = self._held.get(attempt) is held
            if kept:
                held.run = file
                self.spilled += file.nbytes
                self.spills += 1
        if not kept:
            file.close()


def _on_host(run: Run) -> Run:
    if not blocks.on_device(run.rows):
        return run
    return Run(blocks.to_host(run.rows), tuple(map(blocks.to_host, run.keys)) if run.keys is not None else None)
