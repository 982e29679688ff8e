"""What a job is, which states follow which, and the rules of the queue. Pure: no clock, no disk, no network.

    submit --> PENDING --> RUNNING --> SUCCEEDED
                  |        |  ^  |
                  |        |  +--+ next attempt
                  |        +---------> FAILED --+
                  +--------+---------> STOPPED -+--> PENDING, when it is submitted again

A submission id is the id of its job. Submitting it again is answered with the job that is there, unless that one
FAILED or was STOPPED: then it is queued again. So a client that got no answer may ask again, and a workflow may retry.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from distsort.errors import OptionError, ServiceError
from distsort.service.spec import Spec

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class State(StrEnum):
    """Where a job stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def active(self) -> bool:
        """Whether the job waits or runs."""
        return self in (State.PENDING, State.RUNNING)


_NEXT: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.RUNNING, State.STOPPED}),
    State.RUNNING: frozenset({State.RUNNING, State.SUCCEEDED, State.FAILED, State.STOPPED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset({State.PENDING}),
    State.STOPPED: frozenset({State.PENDING}),
}


@dataclass(frozen=True)
class Job:
    """One job; every change makes a new one.

    Attributes
    ----------
    id
        The submission id.
    number
        Place in the order of submissions.
    spec
        What to sort.
    state
        See the drawing of this module.
    attempt
        How often it was started.
    submitted, started, finished
        Seconds since the epoch; None for what has not happened. ``started`` is that of the last attempt.
    reason
        Why it FAILED or was STOPPED.
    phase
        The phase it was in when it ended.
    progress
        Tasks done and seconds by phase when it ended, as `distsort.spans.look` gives them.
    result
        What came out: rows, nbytes (B), seconds, balance, parts, checksum and phases.
    """

    id: str
    number: int
    spec: Spec
    state: State
    submitted: float
    attempt: int = 0
    started: float | None = None
    finished: float | None = None
    reason: str | None = None
    phase: str | None = None
    progress: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] | None = None

    def start(self, now: float) -> Job:
        """Return the job with its next attempt running."""
        fresh: dict[str, Any] = {
            "reason": None,
            "phase": None,
            "progress": (),
            "result": None,
            "finished": None,
        }
        return self._to(State.RUNNING, attempt=self.attempt + 1, started=now, **fresh)

    def succeed(self, now: float, result: Mapping[str, Any], progress: Iterable[Mapping[str, Any]] = ()) -> Job:
        """Return the job with its result."""
        return self._to(State.SUCCEEDED, finished=now, result=result, phase="done", progress=tuple(progress))

    def fail(
        self, now: float, reason: str, phase: str | None = None, progress: Iterable[Mapping[str, Any]] = ()
    ) -> Job:
        """Return the job as failed."""
        return self._to(State.FAILED, finished=now, reason=reason, phase=phase, progress=tuple(progress))

    def stop(
        self, now: float, reason: str, phase: str | None = None, progress: Iterable[Mapping[str, Any]] = ()
    ) -> Job:
        """Return the job as stopped by a user."""
        return self._to(State.STOPPED, finished=now, reason=reason, phase=phase, progress=tuple(progress))

    def requeue(self, now: float, number: int) -> Job:
        """Return the job at the end of the queue again; the number of attempts goes on."""
        return self._to(State.PENDING, submitted=now, number=number, started=None, finished=None, reason=None)

    def _to(self, state: State, **changes: Any) -> Job:
        if state not in _NEXT[self.state]:
            raise ServiceError(409, f"job {self.id} is {self.state}: it cannot become {state}")
        return dataclasses.replace(self, state=state, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as they are stored and sent."""
        plain = dataclasses.asdict(self)
        plain["state"] = str(self.state)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Job:
        """Read what `to_dict` gave, after a way through JSON; fields of later versions are left out."""
        names = {f.name for f in dataclasses.fields(cls)}
        known = {name: value for name, value in plain.items() if name in names}
        known["spec"] = Spec.parse({k: v for k, v in plain["spec"].items() if v is not None})
        known["state"] = State(plain["state"])
        known["progress"] = tuple(plain.get("progress", ()))
        return cls(**known)


@dataclass(frozen=True)
class Limits:
    """The limits of a queue.

    Attributes
    ----------
    running, queued
        Jobs that run, and that wait, at the same time.
    attempts
        Starts of one job per submission when the trouble may pass.
    keep
        Finished jobs that are remembered.
    keep_for
        Seconds for which they are.
    """

    running: int = 1
    queued: int = 1000
    attempts: int = 2
    keep: int = 1000
    keep_for: float = 30 * 86400.0


@dataclass
class Book:
    """All jobs of a service, and the rules by which they come and go."""

    limits: Limits
    jobs: dict[str, Job] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Job]:
        return iter(sorted(self.jobs.values(), key=lambda job: job.number))

    def get(self, id: str) -> Job:
        """Return a job.

        Raises
        ------
        ServiceError
            There is none (404).
        """
        try:
            return self.jobs[id]
        except KeyError:
            raise ServiceError(404, f"there is no job {id!r}: see the list of jobs") from None

    def put(self, job: Job) -> Job:
        """Take a job in the place of its earlier state."""
        self.jobs[job.id] = job
        return job

    def count(self, state: State) -> int:
        """Return how many jobs are in a state."""
        return sum(job.state is state for job in self.jobs.values())

    def submit(self, id: str, spec: Spec, now: float) -> tuple[Job, bool]:
        """Return the job of a submission, and whether this call has queued it.

        Raises
        ------
        OptionError
            The id is not valid.
        ServiceError
            The id belongs to another job (409), or the queue is full (429).
        """
        if not ID.fullmatch(id):
            raise OptionError(
                f"submission_id={id!r}: it must be 1 to 64 letters, digits, dots, dashes or underscores, "
                "the first a letter or digit"
            )
        known = self.jobs.get(id)
        if known is not None and known.spec != spec:
            raise ServiceError(
                409, f"submission_id={id!r} belongs to another job: choose another id, or delete that job"
            )
        if known is not None and known.state not in (State.FAILED, State.STOPPED):
            return known, False
        if self.count(State.PENDING) >= self.limits.queued:
            raise ServiceError(429, f"{self.limits.queued} jobs are waiting already: submit again later")
        number = 1 + max((job.number for job in self.jobs.values()), default=0)
        job = Job(id, number, spec, State.PENDING, now) if known is None else known.requeue(now, number)
        return self.put(job), True

    def due(self) -> Job | None:
        """Return the job to start now: the first that waits, if there is room."""
        if self.count(State.RUNNING) >= self.limits.running:
            return None
        return next((job for job in self if job.state is State.PENDING), None)

    def ahead(self, job: Job) -> int:
        """Return how many waiting jobs come before one."""
        return sum(other.state is State.PENDING and other.number < job.number for other in self.jobs.values())

    def expired(self, now: float) -> list[Job]:
        """Return the finished jobs that need not be remembered any more, the oldest first."""
        over = [job for job in self if not job.state.active]
        over.sort(key=lambda job: job.finished or 0.0)
        spare = len(over) - self.limits.keep
        return [job for i, job in enumerate(over) if i < spare or now - (job.finished or 0.0) > self.limits.keep_for]

    def remove(self, id: str) -> Job:
        """Forget a finished job.

        Raises
        ------
        ServiceError
            There is none (404), or it waits or runs (409).
        """
        job = self.get(id)
        if job.state.active:
            raise ServiceError(409, f"job {id} is {job.state}: stop it first")
        return self.jobs.pop(id)
