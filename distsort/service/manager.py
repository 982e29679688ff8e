"""The queue at work: it starts the process of each job, watches it, and keeps the records.

    submit ---> Book ---> due? ---> process: distsort.service.runner ---> Client ---> this scheduler
      |          |                   |  ^ SIGTERM, then SIGKILL: stop
      |          |                   |  v its end: answer.json
      +-------> Records <------------+

Why a process for each job, and not a thread of the scheduler or a task of the cluster: a sort can be ended at any
moment, even inside pyarrow, by a signal; its memory comes back whole; what it imports and prints stays apart; a scan of
many footers does not hold up the scheduler's event loop; and when a worker dies, the job does not die with it. It costs
one interpreter, about a second before a job begins.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from time import time
from typing import Any

from distsort.errors import ServiceError
from distsort.service.jobs import Book, Job, Limits, State
from distsort.service.process import RUNNER, clean, death, end, order, spawn
from distsort.service.records import Records
from distsort.service.roots import Roots
from distsort.service.spec import Spec
from distsort.spans import alive, current, look

logger = logging.getLogger("distsort.service")

TOPIC = "distsort-jobs"
"""Topic of Dask's event log that tells of every change of a job."""

LOOK = 0.5
"""Seconds between two looks at the progress of a job."""


@dataclass
class Running:
    """A job that has, or is about to have, a process."""

    task: asyncio.Task[None] | None = None
    process: asyncio.subprocess.Process | None = None
    stopping: str | None = None
    lost: bool = False
    progress: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Totals:
    """What all jobs did since the service started."""

    finished: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    rows: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)


class Manager:
    """All jobs of a scheduler.

    Parameters
    ----------
    scheduler
        Where they run, and whose event loop this object lives on.
    records
        Where they are kept.
    roots
        What they may read and write.
    limits
        Of the queue.
    stop_timeout
        Seconds between SIGTERM and SIGKILL.
    runner
        Command of a job's process.
    """

    def __init__(
        self,
        scheduler: Any,
        records: Records,
        roots: Roots,
        limits: Limits,
        stop_timeout: float,
        runner: tuple[str, ...] = RUNNER,
    ) -> None:
        self.scheduler = scheduler
        self.records = records
        self.roots = roots
        self.stop_timeout = stop_timeout
        self.runner = runner
        self.book = Book(limits)
        self.totals = Totals()
        self.closing = False
        self._running: dict[str, Running] = {}

    # Life of the service

    def start(self) -> None:
        """Read the records; jobs that ran when the last scheduler ended are lost, those that waited go on.

        One that had published its output by then, and said so, has succeeded all the same.
        """
        for job in self.records.load():
            self.book.put(job)
        for job in [job for job in self.book if job.state is State.RUNNING]:
            said = self.records.answer(job.id)
            if said is not None and said["ok"]:
                self._put(job.succeed(time(), said["result"], job.progress))
                continue
            self._put(
                job.fail(time(), "lost: the scheduler was restarted while the job ran; submit it again", job.phase)
            )
            clean(job.spec.dst)
        self._fill()

    async def close(self) -> None:
        """Stop what runs; those jobs are lost, those that wait are kept for the next scheduler."""
        self.closing = True
        reason = "lost: the scheduler was shut down while the job ran; submit it again"
        for running in self._running.values():
            running.lost = True
            self._end(running, reason)
        tasks = [running.task for running in self._running.values() if running.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        self.records.close()

    # What clients ask for

    def submit(self, id: str, spec: Spec) -> tuple[Job, bool]:
        """Queue a job; return it, and whether it is this call that queued it.

        Raises
        ------
        OptionError, ServiceError
            See `Book.submit`, `Roots.check`; 503 when it cannot be stored or the service closes.
        """
        if self.closing:
            raise ServiceError(503, "the scheduler is shutting down: submit again when it is back")
        for src in spec.src:
            self.roots.check(src, "src")
        self.roots.check(spec.dst, "dst")
        before = self.book.jobs.get(id)
        job, queued = self.book.submit(id, spec, time())
        if queued:
            try:
                self.records.save(job)
            except OSError as error:
                if before is None:
                    del self.book.jobs[id]
                else:
                    self.book.put(before)
                raise ServiceError(503, f"the job cannot be stored ({error.strerror}): tell the operator") from error
            self._event(job, "queued")
            self._fill()
        return self.book.get(id), queued

    def stop(self, id: str) -> Job:
        """Stop a job; one that is over stays as it is. A running one is STOPPED once its process has cleaned up."""
        job = self.book.get(id)
        if job.state is State.PENDING:
            return self._put(job.stop(time(), "stopped before it ran"))
        if job.state is State.RUNNING:
            self._event(job, "stopping")
            self._end(self._running[id], "stopped by a user")
        return self.book.get(id)

    def delete(self, id: str) -> None:
        """Forget a finished job, its log too; its output stays."""
        job = self.book.remove(id)
        self.records.remove(id)
        self._event(job, "deleted")

    def view(self, job: Job) -> dict[str, Any]:
        """Return a job as clients see it: with its place in the queue, or its progress at this moment."""
        seen = job.to_dict()
        seen["spec"] = {name: value for name, value in seen["spec"].items() if value is not None}
        if job.state is State.PENDING:
            seen["ahead"] = self.book.ahead(job)
        if job.state is State.RUNNING:
            running = self._running[job.id]
            seen["progress"] = self._look(job, running)
            seen["phase"] = "stopping" if running.stopping else current(seen["progress"])
        if job.started is not None:
            seen["seconds"] = round((job.finished or time()) - job.started, 3)
        return seen

    # One job

    def _fill(self) -> None:
        """Start what is due, and forget what is old."""
        for old in self.book.expired(time()):
            self.delete(old.id)
        while not self.closing and (job := self.book.due()) is not None:
            job = self._put(job.start(time()))
            running = self._running[job.id] = Running()
            running.task = asyncio.create_task(self._run(job, running), name=f"distsort-{job.id}")

    async def _run(self, job: Job, running: Running) -> None:
        """Try a job until it is done, and write down how it went."""
        try:
            for left in reversed(range(self.book.limits.attempts)):
                self.totals.attempts += 1
                said = await self._attempt(job, running)
                if said["ok"] or running.stopping or not said["again"] or not left:
                    break
                logger.warning("job %s, attempt %d: %s; trying again", job.id, job.attempt, said["reason"])
                job = self._put(job.start(time()))
        except Exception as error:
            logger.exception("job %s", job.id)
            said = {"ok": False, "reason": f"the service could not run it: {type(error).__name__}: {error}"}
        finally:
            del self._running[job.id]
        progress, phase = running.progress, current(running.progress)
        if said["ok"]:
            job = job.succeed(time(), said["result"], look(self.scheduler, _tag(job), job.started or 0.0))
        elif running.stopping and not running.lost:
            job = job.stop(time(), running.stopping, phase, progress)
        else:
            job = job.fail(time(), running.stopping or said["reason"], phase, progress)
        self._count(self._put(job))
        self._fill()

    async def _attempt(self, job: Job, running: Running) -> dict[str, Any]:
        """Run the process of a job to its end; return its answer."""
        running.progress = []
        self.records.forget_answer(job.id)
        orders = {
            "id": job.id,
            "attempt": job.attempt,
            "tag": _tag(job),
            "address": self.scheduler.address,
            "spec": job.to_dict()["spec"],
            "roots": list(self.roots.texts),
            "stop_timeout": self.stop_timeout,
        }
        process = await spawn(self.runner, self.records.folder(job.id))
        running.process = process
        if running.stopping:
            self._end(running, running.stopping)
        await order(process, orders)
        try:
            ended = asyncio.ensure_future(process.wait())
            while not (await asyncio.wait({ended}, timeout=LOOK))[0]:
                self._look(job, running)
            code = ended.result()
        finally:
            running.process = None
            if process.stdin is not None:
                process.stdin.close()
        said = self.records.answer(job.id)
        if said is None:
            await asyncio.to_thread(clean, job.spec.dst)
            said = {"ok": False, "reason": death(code), "again": True}
        return said

    def _look(self, job: Job, running: Running) -> list[dict[str, Any]]:
        """Return the progress of a running job, and keep it: once its tasks are cancelled there is none to see."""
        if not running.stopping and alive(self.scheduler, _tag(job)):
            running.progress = look(self.scheduler, _tag(job), job.started or 0.0)
        return running.progress

    def _end(self, running: Running, reason: str) -> None:
        """Ask a process to end, and see to it that it does."""
        running.stopping = running.stopping or reason
        if running.process is not None:
            end(running.process, self.stop_timeout)

    # Keeping track

    def _put(self, job: Job) -> Job:
        """Take the new state of a job that is stored already; what cannot be stored is kept in memory."""
        self.book.put(job)
        try:
            self.records.save(job)
        except OSError as error:
            logger.error("job %s is %s, but that cannot be stored: %s", job.id, job.state, error)
        self._event(job, job.state.lower())
        return job

    def _event(self, job: Job, what: str) -> None:
        """Tell Dask's event log and the scheduler's log, in fields."""
        event = {"event": what, "job": job.id, "state": str(job.state), "attempt": job.attempt}
        if job.reason:
            event["reason"] = job.reason
        if job.finished and job.started and not job.state.active:
            event["seconds"] = round(job.finished - job.started, 3)
        if job.result:
            event.update(rows=job.result["rows"], nbytes=job.result["nbytes"], balance=job.result["balance"])
        self.scheduler.log_event(TOPIC, event)
        logger.info("%s", json.dumps(event))

    def _count(self, job: Job) -> None:
        self.totals.finished[str(job.state)] += 1
        if job.result is not None:
            self.totals.rows += job.result["rows"]
            self.totals.nbytes += job.result["nbytes"]
            self.totals.seconds += job.result["seconds"]
            self.totals.phases.update({p["name"]: p["busy"] for p in job.result["phases"]})


def _tag(job: Job) -> str:
    """Name one attempt of one submission among the spans of the scheduler."""
    return f"{job.id}/{job.number}/{job.attempt}"
