"""Who counts the tasks of a job, and where that is shown: one bar per phase on a terminal or in a notebook.

In-process schedulers report each task through a Dask callback. A cluster is looked at twice, before and after; on the
way only if somebody sees it::

    pull exchange    its scheduler plugin tells how far its tasks are, what was pulled and spilled: topic `TOPIC`
    graph exchange   the scheduler is asked for its task groups every `distsort.progress.interval`

Either reads counts per group of tasks, whatever their number. Nothing is drawn, and so nothing asked for, in pipes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from dask.callbacks import Callback

from distsort import config
from distsort.progress import Count, Progress, group_counts, phase_of
from distsort.report import bytes_text

TOPIC = "distsort-progress"
"""Of the events that the pull exchange sends to those who watch."""

REDRAW = 0.1
"""Seconds between two drawings of the bars."""


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
    """Counts the tasks of a cluster.

    Groups that were there before the watch began belong to other jobs and are left out.

    Parameters
    ----------
    progress
        Gets the counts.
    client
        Of the cluster.
    follow
        How to keep up: "events" of the pull exchange, "polls" of the scheduler, or None to look only when `look` is
        called.
    """

    def __init__(self, progress: Progress, client: Any, follow: str | None = None) -> None:
        self.progress = progress
        self.client = client
        self.follow = follow
        self._before: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="distsort-progress", daemon=True)

    def __enter__(self) -> ClusterWatch:
        self._before = set(self._ask())
        if self.follow == "events":
            self.client.subscribe_topic(TOPIC, self.hear)
        elif self.follow == "polls":
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self.follow == "events":
            with suppress(ValueError):  # another sort of the same client has done so
                self.client.unsubscribe_topic(TOPIC)
        elif self.follow == "polls":
            self._thread.join()

    def look(self) -> None:
        """Take the counts of this moment."""
        self._take(self._ask())

    def hear(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Take what the pull exchange tells (see `PullState.tell`), if this client waits for that sort."""
        told = event[1]
        wanted = {str(key[0] if isinstance(key, tuple) else key) for key in list(self.client.futures)}
        if self._ended.is_set() or not wanted & set(told["tasks"]):
            return
        moved = [f"{bytes_text(told['pulled'])} pulled"] if told["pulled"] else []
        moved += [f"imbalance {told['imbalance']:.2f}"] if told["imbalance"] else []
        moved += [f"{told['lost']} runs lost"] if told["lost"] else []
        spilled = f"{bytes_text(told['spilled'])} spilled" if told["spilled"] else ""
        self._take(told["tasks"], sort=spilled, merge=", ".join(moved))

    def _take(self, groups: Mapping[str, tuple[int, int, float, float, float]], **notes: str) -> None:
        counts: dict[str, Count] = {}
        for name, group in groups.items():
            phase = phase_of(name)
            if name not in self._before and phase is not None:
                counts.setdefault(phase, Count()).add(*group)
        self.progress.replace(counts, **notes)

    def _ask(self) -> dict[str, tuple[int, int, float, float, float]]:
        answer: dict[str, tuple[int, int, float, float, float]] = self.client.run_on_scheduler(_task_groups)
        return answer

    def _poll(self) -> None:
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


@contextmanager
def watch(
    progress: Progress, client: Any = None, show: bool = False, exchange: str | None = None
) -> Iterator[Callable[[], None]]:
    """Count, and where wanted show, the tasks that run inside the block.

    Parameters
    ----------
    progress
        Gets the counts.
    client
        The distributed client that computes; None for an in-process scheduler.
    show
        Draw a bar for each phase, in a notebook or on stderr; where that is neither, nothing is drawn.
    exchange
        Of the plan: "pull" tells of itself.

    Yields
    ------
    callable
        Brings the counts up to date now; call it while results are still held.
    """
    notebook = in_notebook()
    show = show and (notebook or on_terminal())
    with ExitStack() as stack:
        refresh: Callable[[], None] = _nothing
        if client is None:
            stack.enter_context(LocalWatch(progress))
        else:
            follow = ("events" if exchange == "pull" else "polls") if show else None
            refresh = stack.enter_context(ClusterWatch(progress, client, follow)).look
        if show:
            stack.enter_context(_page(progress) if notebook else _bars(progress))
        yield refresh


def on_terminal() -> bool:
    """Whether stderr is a terminal that can redraw lines."""
    from rich.console import Console

    console = Console(stderr=True)
    return bool(console.is_terminal and not console.is_dumb_terminal)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", _nothing)()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _repeated(draw: Callable[[], None], interval: float) -> Iterator[None]:
    """Draw inside the block, time and again, and once more at its end."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(interval):
            draw()

    thread = threading.Thread(target=run, name="distsort-bars", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        draw()


@contextmanager
def _page(progress: Progress) -> Iterator[None]:
    """Show a progress in the notebook's cell, renewed in its place."""
    from IPython.display import display

    handle = display(progress, display_id=True)
    with _repeated(lambda: handle.update(progress), config.get_seconds("progress.interval")):
        yield


@contextmanager
def _bars(progress: Progress) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=Console(stderr=True),
        transient=True,
    )
    shown: dict[str, Any] = {}

    def draw() -> None:
        for name, (done, total) in progress.snapshot().items():
            if name not in shown:
                shown[name] = bars.add_task(name, total=total, note="")
            bars.update(shown[name], completed=done, total=total, note=progress.notes.get(name, ""))

    with bars, _repeated(draw, REDRAW):
        yield


def _nothing() -> None:
    pass
