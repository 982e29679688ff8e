"""Dask spans for the phases of a job: set by its process, read back on the scheduler.

A span tags the tasks of a graph, and the scheduler keeps counts and times for each. Tasks of one sort are in one graph,
so the tag is not a value but a function of the task's key, which Dask calls for every task:

    distsort > <job> > <attempt> > read | sort | cuts | exchange | merge | write
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask

from distsort.progress import ORDER, Count, group_counts, phase_of

OTHER = "other"


@dataclass(frozen=True)
class PhaseSpan:
    """The span of a task, by its key."""

    tags: tuple[str, ...]
    ids: tuple[str, ...]

    def __call__(self, key: Any) -> dict[str, tuple[str, ...]]:
        """Return Dask's annotation for a task."""
        phase = phase_of(key) or OTHER
        return {"name": (*self.tags, phase), "ids": (*self.ids, f"{self.ids[-1]}-{phase}")}


@contextmanager
def phase_spans(*tags: str) -> Iterator[None]:
    """Put every task that is computed inside the block into the span of its phase, below `tags`."""
    # Frames warn that they forget annotations; these are meant for the tasks, and Dask adds them when it computes.
    with (
        warnings.catch_warnings(),
        dask.annotate(span=PhaseSpan(tags, tuple(uuid.uuid4().hex for _ in tags))),
    ):
        warnings.filterwarnings("ignore", message="Dask annotations", category=UserWarning)
        yield


def look(scheduler: Any, tag: str, began: float) -> list[dict[str, Any]]:
    """Return the phases of the tasks below a tag, in order.

    Parameters
    ----------
    scheduler
        The scheduler itself.
    tag
        A tag that `phase_spans` was given.
    began
        When the job began (s, as of time.time()).

    Returns
    -------
    list of dict
        phase, done and total (tasks), start and seconds (from the first task's start to the last one's end, in
        seconds since `began`), busy (s, summed over tasks).
    """
    counts: dict[str, Count] = {}
    for phase, group in _groups(scheduler, tag):
        counts.setdefault(phase, Count()).add(*group_counts(group))
    return [
        {
            "phase": phase,
            "done": count.done,
            "total": count.total,
            "start": None if count.start is None else round(max(0.0, count.start - began), 3),
            "seconds": 0.0 if count.start is None else round(count.stop - count.start, 3),
            "busy": round(count.busy, 3),
        }
        for phase, count in sorted(counts.items(), key=lambda item: _place(item[0]))
        if phase != OTHER
    ]


def alive(scheduler: Any, tag: str) -> bool:
    """Whether tasks below a tag are known still: those that were cancelled look as if they were done."""
    return any(
        count for _, group in _groups(scheduler, tag) for state, count in group.states.items() if state != "forgotten"
    )


def current(progress: Sequence[dict[str, Any]]) -> str:
    """Return the phase that a running job is in: the first that is not done.

    Examples
    --------
    >>> current([]), current([{"phase": "sort", "done": 1, "total": 2}, {"phase": "merge", "done": 0, "total": 2}])
    ('scan', 'sort')
    """
    if not progress:
        return "scan"
    return next((str(p["phase"]) for p in progress if p["done"] < p["total"]), "publish")


def _groups(scheduler: Any, tag: str) -> Iterator[tuple[str, Any]]:
    extension = scheduler.extensions.get("spans")
    for span in () if extension is None else extension.spans_search_by_tag.get(tag, ()):
        for group in span.groups:
            yield span.name[-1], group


def _place(phase: str) -> int:
    return ORDER.index(phase) if phase in ORDER else len(ORDER)
