"""What people see of pull exchanges: events of phases, how far every sort is, and what the page of the scheduler shows.

Nothing here changes a sort. It reads what `distsort.exchange.scheduler` knows, and what the stores report of themselves
with the heartbeats of their workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any

from distributed import Scheduler

from distsort.exchange.handles import NAME
from distsort.progress import group_counts
from distsort.progress_watch import TOPIC


@dataclass(frozen=True)
class Attempt:
    """One execution of a run task, and the worker whose store holds the run."""

    id: str
    address: str


@dataclass
class Sorting:
    """A barrier that is needed: the runs it stands on, and who has complained of them how often.

    ``where[run]`` is None from the moment the run is taken for lost until it announces itself again. `lost` counts such
    runs; `heard` are complaints (run, attempt, asker) of attempts that were not the living ones; `placed` are the parts
    that were given a worker; `before` holds what each worker had pulled and spilled when the sort began, in bytes.
    """

    where: dict[Any, Attempt | None] = field(default_factory=dict)
    strikes: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    heard: set[tuple[Any, str, Any]] = field(default_factory=set)
    placed: set[Any] = field(default_factory=set)
    spread: bool = False
    began: float = field(default_factory=time)
    lost: int = 0
    before: dict[str, dict[str, int]] = field(default_factory=dict)


class News:
    """What there is to tell.

    Parameters
    ----------
    scheduler
        Whose tasks and workers are looked at.
    attempts, sorts
        Those of `PullState`, which goes on changing them.
    """

    def __init__(self, scheduler: Scheduler, attempts: Mapping[Any, Attempt], sorts: Mapping[Any, Sorting]) -> None:
        self.scheduler = scheduler
        self.attempts = attempts
        self.sorts = sorts

    def reports(self) -> dict[str, dict[str, int]]:
        """Return what each worker has reported of its store. It comes with heartbeats, so it is a little old."""
        return {ws.address: w for ws in self.scheduler.workers.values() if (w := ws.metrics.get(NAME))}

    def _moved(self, sort: Sorting, name: str) -> list[int]:
        """Return what each worker has "pulled" or "spilled" since a sort began, in bytes."""
        before = {address: report[name] for address, report in sort.before.items()}
        return [max(now[name] - before.get(address, 0), 0) for address, now in self.reports().items()]

    def _facts(self, barrier: Any, phase: str) -> dict[str, Any]:
        """Return what is known of a sort by now."""
        sort = self.sorts[barrier]
        facts = {"sort": str(barrier), "phase": phase, "seconds": time() - sort.began, "lost": sort.lost}
        return {**facts, **{name: sum(self._moved(sort, name)) for name in ("pulled", "spilled")}}

    def log(self, barrier: Any, phase: str | None) -> None:
        """Tell subscribers of the topic "distsort" of a new phase, with what is known by then."""
        if phase is None:
            return
        event = self._facts(barrier, phase)
        if phase in ("over", "failed"):
            event["imbalance"] = self._imbalance(barrier)
        self.scheduler.log_event(NAME, event)

    def tell(self) -> None:
        """Tell those who watch how far every sort is: see `progress_watch.ClusterWatch`.

        Tasks are counted by group, of whatever stands right before and behind the exchange. The imbalance is that of
        what workers have pulled so far: most / mean.
        """
        for barrier, sort in self.sorts.items():
            ts = self.scheduler.tasks.get(barrier)
            if ts is None:
                continue
            near = [ts, *ts.dependencies, *ts.dependents]
            around = {task for each in near for task in (each, *each.dependencies, *each.dependents)}
            groups = {group.name: group_counts(group) for group in {task.group for task in around}}
            pulled = self._moved(sort, "pulled")
            imbalance = max(pulled) * len(pulled) / sum(pulled) if any(pulled) else None
            facts = self._facts(barrier, _phase(ts))
            self.scheduler.log_event(TOPIC, {**facts, "imbalance": imbalance, "tasks": groups})

    def _imbalance(self, barrier: Any) -> float | None:
        """Bytes of finished parts on the fullest worker, divided by the mean over all; None once they are gone."""
        ts = self.scheduler.tasks.get(barrier)
        held: Counter[str] = Counter()
        for part in ts.dependents if ts is not None else ():
            for ws in part.who_has or ():
                held[ws.address] += part.nbytes
        return max(held.values()) * len(self.scheduler.workers) / held.total() if held.total() else None

    def overview(self) -> dict[str, Any]:
        """Return what the page shows: the sorts that run now, and the report of every store."""
        sorts = []
        for barrier, sort in self.sorts.items():
            ts = self.scheduler.tasks.get(barrier)
            if ts is None:
                continue
            made = sum(run in self.attempts and self.scheduler.tasks[run].state == "memory" for run in sort.where)
            sorts.append(
                {
                    "sort": str(barrier),
                    "phase": _phase(ts),
                    "runs": len(ts.dependencies),
                    "runs_made": made,
                    "parts": len(ts.dependents),
                    # A part that was let go has been used up.
                    "parts_made": sum(
                        d.state == "memory" or (d.state == "released" and bool(d.dependents) and not d.waiters)
                        for d in ts.dependents
                    ),
                    "seconds": time() - sort.began,
                    "lost": sort.lost,
                }
            )
        return {"sorts": sorts, "workers": self.reports()}


def _phase(barrier: Any) -> str:
    return {"processing": "cuts", "memory": "parts"}.get(barrier.state, "runs")
