"""Prometheus metrics of the service, in the scheduler's own /metrics.

| metric                                   | unit | what                                            |
|------------------------------------------|------|-------------------------------------------------|
| distsort_jobs{state}                     | 1    | jobs that are remembered                        |
| distsort_jobs_finished_total{state}      | 1    | since the scheduler started                     |
| distsort_attempts_total                  | 1    | processes started for jobs                      |
| distsort_queue_limit                     | 1    | jobs that may wait                              |
| distsort_queue_oldest_seconds            | s    | how long the first job in the queue has waited  |
| distsort_running_oldest_seconds          | s    | how long the longest running job has run        |
| distsort_sorted_rows_total, _bytes_total | 1, B | of jobs that succeeded                          |
| distsort_sort_seconds_total              | s    | the same                                        |
| distsort_phase_busy_seconds_total{phase} | s    | the same, summed over tasks                     |
"""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from distsort.service.jobs import State
from distsort.service.manager import Manager


class Collector:
    """Reads the numbers of a manager when they are asked for."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        book, totals, now = self.manager.book, self.manager.totals, time()
        jobs = GaugeMetricFamily("distsort_jobs", "Sort jobs that are remembered.", labels=["state"])
        finished = CounterMetricFamily("distsort_jobs_finished", "Sort jobs that ended.", labels=["state"])
        for state in State:
            jobs.add_metric([state.lower()], book.count(state))
            if not state.active:
                finished.add_metric([state.lower()], totals.finished[str(state)])
        yield jobs
        yield finished
        yield CounterMetricFamily("distsort_attempts", "Processes started for sort jobs.", value=totals.attempts)
        yield GaugeMetricFamily("distsort_queue_limit", "Sort jobs that may wait.", value=book.limits.queued)
        for name, state, what in (
            ("queue", State.PENDING, "the first sort job in the queue has waited"),
            ("running", State.RUNNING, "the longest running sort job has run"),
        ):
            since = [
                (job.started if state is State.RUNNING else job.submitted) or now for job in book if job.state is state
            ]
            oldest = now - min(since, default=now)
            yield GaugeMetricFamily(f"distsort_{name}_oldest_seconds", f"Seconds for which {what}.", value=oldest)
        yield CounterMetricFamily("distsort_sorted_rows", "Rows of sort jobs that succeeded.", value=totals.rows)
        yield CounterMetricFamily("distsort_sorted_bytes", "Bytes of these rows in memory.", value=totals.nbytes)
        yield CounterMetricFamily("distsort_sort_seconds", "Seconds that these sorts took.", value=totals.seconds)
        phases = CounterMetricFamily(
            "distsort_phase_busy_seconds",
            "Seconds of these sorts by phase, summed over tasks.",
            labels=["phase"],
        )
        for phase, seconds in totals.phases.items():
            phases.add_metric([phase], seconds)
        yield phases

    def register(self) -> None:
        """Add the metrics to what /metrics shows."""
        REGISTRY.register(self)

    def unregister(self) -> None:
        """Take them away again."""
        REGISTRY.unregister(self)
