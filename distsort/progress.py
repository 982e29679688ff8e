"""Which phase a job is in: counted from task keys, shown as one bar per phase on a terminal, quiet in pipes.

A key's name tells its phase (``sort-run-...`` belongs to "sort"). Dask joins reading and sorting into one task, whose
name begins with ``sort-sort``: it counts as sorting. In-process schedulers report
each task through a Dask callback. A cluster is asked every `distsort.progress.interval` for its task groups: that
reads counts per group, whatever the number of tasks, and changes nothing there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dask.callbacks import Callback

from distsort import config
from distsort.report import Phase

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


@dataclass
class Progress:
    """Counts per phase of one job.

    Attributes
    ----------
    began
        time.time() at the start of the job.
    counts
        A `Count` for each phase that has tasks.
    """

    began: float = field(default_factory=time.time)
    counts: dict[str, Count] = field(default_factory=dict)
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

    def replace(self, counts: dict[str, Count]) -> None:
        """Take the counts that a cluster gave."""
        with self._lock:
            self.counts.update(counts)


class LocalWatch(Callback):
    """Counts the tasks of Dask's in-process schedulers."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress
        self._started: dict[Any, float] = {}

    def _start_state(self, dsk: Any, state: Any) -> None:
        totals: dict[str, int] = {}
        for key in (*state["ready"], *state["waiting"]):
            phase = phase_of(key)
            if phase is not None:
                totals[phase] = totals.get(phase, 0) + 1
        self.progress.expect(totals)

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self._started[key] = time.time()

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        phase = phase_of(key)
        now = time.time()
        start = self._started.pop(key, now)
        if phase is not None:
            self.progress.ran(phase, start, now)


class ClusterWatch:
    """Asks a cluster for its task groups, now and then, in a thread of its own.

    Groups that were there before the watch began belong to other jobs and are left out.
    """

    def __init__(self, progress: Progress, client: Any) -> None:
        self.progress = progress
        self.client = client
        self._before: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="distsort-progress", daemon=True)

    def __enter__(self) -> ClusterWatch:
        self._before = set(self._ask())
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Take the counts of this moment."""
        counts: dict[str, Count] = {}
        for name, (done, total, start, stop, busy) in self._ask().items():
            phase = phase_of(name)
            if name in self._before or phase is None:
                continue
            count = counts.setdefault(phase, Count())
            count.done += done
            count.total += total
            count.busy += busy
            if stop > 0:
                count.start = start if count.start is None else min(count.start, start)
                count.stop = max(count.stop, stop)
        self.progress.replace(counts)

    def _ask(self) -> dict[str, tuple[int, int, float, float, float]]:
        answer: dict[str, tuple[int, int, float, float, float]] = self.client.run_on_scheduler(_task_groups)
        return answer

    def _run(self) -> None:
        interval = config.get_seconds("progress.interval")
        while not self._ended.wait(interval):
            try:
                self.look()
            except Exception:
                # The cluster is closing; whoever computes there gets the error.
                return


def _task_groups(dask_scheduler: Any = None) -> dict[str, tuple[int, int, float, float, float]]:
    """Return (done, total, start, stop, busy) by group; runs on the scheduler."""
    return {name: group_counts(group) for name, group in dask_scheduler.task_groups.items()}


def group_counts(group: Any) -> tuple[int, int, float, float, float]:
    """Return (done, total, start, stop, busy) of one of a scheduler's task groups; times as of time.time()."""
    states = dict(group.states)
    done = states.get("memory", 0) + states.get("released", 0) + states.get("forgotten", 0)
    # A released task has run if its group has; waiting ones are counted apart.
    ran = group.stop > 0
    return done if ran else 0, sum(states.values()), float(group.start), float(group.stop), float(group.duration)


@contextmanager
def watch(progress: Progress, client: Any = None, show: bool = False) -> Iterator[Callable[[], None]]:
    """Count, and where wanted show, the tasks that run inside the block.

    Parameters
    ----------
    progress
        Gets the counts.
    client
        The distributed client that computes; None for an in-process scheduler.
    show
        Draw a bar for each phase on stderr.

    Yields
    ------
    callable
        Brings the counts up to date now; call it while results are still held.
    """
    with ExitStack() as stack:
        refresh: Callable[[], None] = _nothing
        if client is None:
            stack.enter_context(LocalWatch(progress))
        else:
            refresh = stack.enter_context(ClusterWatch(progress, client)).look
        if show:
            stack.enter_context(_bars(progress))
        yield refresh


def on_terminal() -> bool:
    """Whether stderr is a terminal that can redraw lines."""
    from rich.console import Console

    console = Console(stderr=True)
    return bool(console.is_terminal and not console.is_dumb_terminal)


@contextmanager
def _bars(progress: Progress) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    bars = Bars(
        TextColumn("{task.description:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    shown: dict[str, Any] = {}
    ended = threading.Event()

    def draw() -> None:
        for name, (done, total) in progress.snapshot().items():
            if name not in shown:
                shown[name] = bars.add_task(name, total=total)
            bars.update(shown[name], completed=done, total=total)

    def run() -> None:
        while not ended.wait(0.1):
            draw()

    thread = threading.Thread(target=run, name="distsort-bars", daemon=True)
    with bars:
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            draw()


def _place(entry: tuple[str, Any]) -> int:
    return ORDER.index(entry[0]) if entry[0] in ORDER else len(ORDER)


def _nothing() -> None:
    pass
