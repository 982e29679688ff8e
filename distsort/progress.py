"""Which phase a job is in: counted from task keys.

A key's name tells its phase (``sort-run-...`` belongs to "sort"). Dask joins reading and sorting into one task, whose
name begins with ``sort-sort``: it counts as sorting. Who does the counting, and where it is shown, stands in
`progress_watch`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distsort.report import Phase, seconds_text
from distsort.report_html import fragment, heading, tracks

# Names of tasks, each with its phase; phases in the order in which they end.
PHASES: dict[str, str] = {
    "sort-read": "read",
    "sort-run": "sort",
    "sort-sort": "sort",
    "sort-strings": "sort",
    "sort-sample": "cuts",
    "sort-tick": "cuts",
    "sort-search": "cuts",
    "sort-probe": "cuts",
    "sort-cuts": "cuts",
    "sort-slice": "exchange",
    "sort-part": "merge",
    "sort-last": "write",
    "sort-write": "write",
}
ORDER: tuple[str, ...] = ("scan", *dict.fromkeys(PHASES.values()), "publish")


def phase_of(key: Any) -> str | None:
    """Return the phase of a task, or None for tasks of others.

    Examples
    --------
    >>> phase_of(("sort-run-0a1b", 3)), phase_of("sort-cuts-0a1b"), phase_of("sum-17")
    ('sort', 'cuts', None)
    """
    name = key[0] if isinstance(key, tuple) and key else key
    if not isinstance(name, str):
        return None
    found = [phase for prefix, phase in PHASES.items() if prefix in name]
    return max(found, key=ORDER.index) if found else None


@dataclass
class Count:
    """Tasks of one phase: how many, how many are done, when the first began and the last ended (s)."""

    total: int = 0
    done: int = 0
    start: float | None = None
    stop: float = 0.0
    busy: float = 0.0

    def add(self, done: int, total: int, start: float, stop: float, busy: float) -> None:
        """Add a group of tasks (see `group_counts`)."""
        self.done += done
        self.total += total
        self.busy += busy
        if stop > 0:
            self.start = start if self.start is None else min(self.start, start)
            self.stop = max(self.stop, stop)


@dataclass
class Progress:
    """Counts per phase of one job.

    Attributes
    ----------
    began
        time.time() at the start of the job.
    counts
        A `Count` for each phase that has tasks.
    notes
        What else there is to say of a phase.
    """

    began: float = field(default_factory=time.time)
    counts: dict[str, Count] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def phases(self, **known: tuple[int, int]) -> tuple[Phase, ...]:
        """Return the phases so far.

        Parameters
        ----------
        known
            phase=(rows, bytes) where the caller knows them.
        """
        with self._lock:
            return tuple(
                Phase(
                    name,
                    (count.start or self.began) - self.began,
                    max(count.stop, count.start or self.began) - self.began,
                    count.done,
                    count.busy,
                    *known.get(name, (None, None)),
                )
                for name, count in sorted(self.counts.items(), key=_place)
                if count.start is not None
            )

    def snapshot(self) -> dict[str, tuple[int, int]]:
        """Return (done, total) by phase, in the order of phases."""
        with self._lock:
            return {n: (c.done, c.total) for n, c in sorted(self.counts.items(), key=_place)}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one step of the caller as a phase of its own."""
        count = self.counts.setdefault(name, Count(total=1, start=time.time()))
        yield
        count.stop, count.done = time.time(), 1
        count.busy = count.stop - (count.start or count.stop)

    def expect(self, totals: dict[str, int]) -> None:
        """Add tasks that will run."""
        with self._lock:
            for name, total in totals.items():
                self.counts.setdefault(name, Count()).total += total

    def ran(self, name: str, start: float, stop: float) -> None:
        """Note one task that ended; times as of time.time()."""
        with self._lock:
            count = self.counts.setdefault(name, Count())
            count.done += 1
            count.start = start if count.start is None else min(count.start, start)
            count.stop = max(count.stop, stop)
            count.busy += stop - start

    def replace(self, counts: dict[str, Count], **notes: str) -> None:
        """Take the counts that a cluster gave, and what it says of phases."""
        with self._lock:
            self.counts.update(counts)
            self.notes.update(notes)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how far each phase is."""
        bars = []
        for name, (done, total) in self.snapshot().items():
            note = self.notes.get(name)
            bars.append((name, 0, done / max(total, 1), f"{done:,} of {total:,}" + (f", {note}" if note else "")))
        since = seconds_text(time.time() - self.began)
        return fragment(heading("Sorting", f"for {since}"), tracks("Tasks that are done, by phase", bars, 1.0))


def group_counts(group: Any) -> tuple[int, int, float, float, float]:
    """Return (done, total, start, stop, busy) of one of a scheduler's task groups; times as of time.time()."""
    states = dict(group.states)
    done = states.get("memory", 0) + states.get("released", 0) + states.get("forgotten", 0)
    # A released task has run if its group has; waiting ones are counted apart.
    ran = group.stop > 0
    return done if ran else 0, sum(states.values()), float(group.start), float(group.stop), float(group.duration)


def _place(entry: tuple[str, Any]) -> int:
    return ORDER.index(entry[0]) if entry[0] in ORDER else len(ORDER)
