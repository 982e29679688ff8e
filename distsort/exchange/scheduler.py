"""The scheduler's side of the pull exchange: how long runs live, and what is done again when some are lost.

Two rules, and nothing else::

    life       A run lives exactly as long as the key of its handle is in memory. While its barrier is needed, a client
               that exists in name only wants that key, so that Dask itself redoes a lost handle, and redoes no other.

    recovery   What is lost is released, with every copy of it between run and barrier, and with the barrier. Dask then
               runs the lost runs, the cuts and the unfinished parts again.

        run 0 --- tick 0 ---+                       run 1 is lost: the handle may still be in memory on another worker,
        run 1 --- tick 1 ---+--- cuts --- parts     so run 1, tick 1 and the cuts are released in one step. Finished
        run 2 --- tick 2 ---+                       parts stay, and so do runs 0 and 2.

A run announces itself when its task starts, one that is promised when its task ends, on the stream that will say
"finished": the announcement comes first. From then on memory is freed by the id of that one execution, so that a late
message can never hit a later execution; a store refuses a run that was freed while it was made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from time import time
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from distsort import config
from distsort.exchange.handles import NAME, BarrierTask, task_in
from distsort.exchange.news import Attempt, News, Sorting
from distsort.exchange.page import add_page
from distsort.exchange.placing import deal, place_of

PATIENCE = 1.0
"""Seconds to wait for the news that an unreachable worker is dead, before the run is taken for lost."""

REMEMBERED = 10_000
"""How many runs of dead workers are known; those of sorts that are over are never asked for again."""

_OVER = ("released", "forgotten", "erred")


class PullPlugin(SchedulerPlugin):
    """Hands Dask's hooks on to the one `PullState` of a scheduler; may be registered any number of times."""

    state: PullState

    async def start(self, scheduler: Scheduler) -> None:
        """Adopt the state of this scheduler, or make it; no await before that, since two may start at once."""
        state = scheduler.extensions.get(NAME)
        if state is None:
            state = scheduler.extensions[NAME] = PullState(scheduler)
        self.state = state

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """See `PullState.transition`."""
        self.state.transition(key, start, finish)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """See `PullState.worker_gone`."""
        self.state.worker_gone(worker, stimulus_id)

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """Keep workers that hold runs: they cannot be moved, only done again."""
        busy = {a.address for a in self.state.attempts.values()}
        return [ws for ws in workers if ws.address not in busy]

    def restart(self, scheduler: Scheduler) -> None:
        """See `PullState.restart`."""
        self.state.restart()


class PullState:
    """All that the scheduler knows of pull exchanges.

    Attributes
    ----------
    members
        Addresses of workers that have our handlers and may be sent our messages, with the id of each.
    attempts
        The living run of each run key.
    sorts
        The barriers that are needed.
    dead
        Runs that were lost with their workers, the last of them at the end.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.members: dict[str, str] = {}
        self.attempts: dict[Any, Attempt] = {}
        self.sorts: dict[Any, Sorting] = {}
        self.dead: deque[str] = deque(maxlen=REMEMBERED)
        self._tell_next = 0.0
        scheduler.handlers.update(distsort_join=self.join, distsort_trouble=self.trouble)
        scheduler.stream_handlers["distsort-run"] = self.announce
        self.news = News(scheduler, self.attempts, self.sorts)
        add_page(self.news)

    def join(self, worker: str, reader: str) -> list[str]:
        """Note a worker that has installed our handlers; return the runs of dead workers, of which it has not heard.

        Parameters
        ----------
        worker
            Its address, which another may have later.
        reader
            Its id, which it alone has.
        """
        self.members[worker] = reader
        return list(self.dead)

    # Life

    def announce(self, run: Any, attempt: str, worker: str) -> None:
        """Note the run that a task makes, or has promised, for the store of its worker."""
        ts = self.scheduler.tasks.get(run)
        if ts is None or ts.state != "processing" or ts.processing_on.address != worker:
            self._send(worker, {"op": "distsort-free", "attempts": [attempt]})
            return
        self._free(run)
        made = self.attempts[run] = Attempt(attempt, worker)
        for barrier in self._barriers(ts):
            sort = self._sort(barrier)
            sort.spread = bool(_search_of(barrier).kwargs.get("spread"))
            sort.where[run] = made
            self.scheduler.client_desires_keys([run], client=_client(barrier.key))

    def transition(self, key: Any, start: str, finish: str) -> None:
        """Free a run whose key is no longer in memory, and let go of runs whose barrier is no longer needed."""
        if self.sorts and time() >= self._tell_next:
            self._tell_next = time() + config.get_seconds("progress.interval")
            self.news.tell()
        if key in self.attempts:
            if finish in _OVER:
                self._free(key)
        elif key in self.sorts:
            self.news.log(key, {"waiting": "runs", "processing": "cuts", "memory": "parts"}.get(finish))
            if finish in _OVER:
                # Releasing here would be a transition inside a transition.
                self.scheduler.loop.add_callback(self._settle, key)
            elif finish == "processing" and self.sorts[key].spread:
                self._spread(self.scheduler.tasks[key])

    def _settle(self, barrier: Any) -> None:
        ts = self.scheduler.tasks.get(barrier)
        if barrier not in self.sorts:
            return
        if ts is not None and (ts.state not in _OVER or (ts.state == "released" and (ts.waiters or ts.who_wants))):
            return
        self.news.log(barrier, "failed" if ts is not None and ts.state == "erred" else "over")
        sort = self.sorts.pop(barrier)
        for key in sort.placed:  # those of its parts that are lost later are placed anew
            self._place(key, None)
        client = _client(barrier)
        if client in self.scheduler.clients:
            self.scheduler.client_releases_keys(list(sort.where), client=client, stimulus_id=_stimulus("settle"))
            del self.scheduler.clients[client]

    def _free(self, run: Any) -> None:
        attempt = self.attempts.pop(run, None)
        if attempt is not None:
            self._send(attempt.address, {"op": "distsort-free", "attempts": [attempt.id]})

    def _barriers(self, ts: Any) -> Iterator[Any]:
        return (d for d in self._downstream(ts) if _is_barrier(d))

    def _downstream(self, ts: Any) -> Iterator[Any]:
        """Yield what stands between a run and its barriers, the run first and the barriers too."""
        seen, ahead = {ts}, [ts]
        while ahead:
            here = ahead.pop()
            yield here
            if not _is_barrier(here):
                fresh = here.dependents - seen
                seen |= fresh
                ahead.extend(fresh)

    def _spread(self, barrier: Any) -> None:
        """Deal the parts out, but for those that the user has placed. Loose: if a worker is gone, its go elsewhere."""
        runs, _, parts, _ = _search_of(barrier).args
        placed = self.sorts[barrier.key].placed
        free = [ts for ts in barrier.waiters or () if ts.key in placed or not _is_restricted(ts)]
        free.sort(key=lambda ts: (place_of(ts.key, parts), str(ts.key)))
        homes = [self._home(run.key) for run in runs.args]
        workers = sorted(ws.address for ws in self.scheduler.running)
        for ts, worker in zip(free, deal([place_of(ts.key, parts) for ts in free], parts, homes, workers), strict=True):
            self._place(ts.key, {worker})
            placed.add(ts.key)

    def _place(self, key: Any, workers: set[str] | None) -> None:
        """Have a task run on these workers if one of them is there; None for any."""
        ts = self.scheduler.tasks.get(key)
        if ts is not None:
            self.scheduler.set_restrictions({key: workers})
            ts.loose_restrictions = workers is not None

    def _home(self, run: Any) -> str | None:
        """Return the worker of a run by the key that the barrier knows, which can be another name of it."""
        ts = self.scheduler.tasks[run]
        return next((self.attempts[d.key].address for d in (ts, *ts.dependencies) if d.key in self.attempts), None)

    # Recovery

    def worker_gone(self, address: str, stimulus_id: str) -> None:
        """Undo what stood on a dead worker. Dask has done its own transitions already."""
        reader = self.members.pop(address, "")
        dead = {a.id for a in self.attempts.values() if a.address == address}
        for barrier, sort in list(self.sorts.items()):
            # Not from `attempts`: Dask has released the lost handles by now, and the hook has forgotten them.
            lost = [run for run, a in sort.where.items() if a is not None and a.address == address]
            dead.update(a.id for run in lost if (a := sort.where[run]) is not None)
            self._undo(barrier, sort, lost, stimulus_id)
        self.dead.extend(sorted(dead))
        # Also when it held no run: a tick may be on its way from there, and Dask's own connection is cut with ours.
        for member in self.members:
            self._send(member, {"op": "distsort-gone", "address": address, "reader": reader, "attempts": sorted(dead)})

    def _undo(self, barrier: Any, sort: Sorting, lost: Iterable[Any], stimulus_id: str) -> None:
        ts = self.scheduler.tasks.get(barrier)
        if ts is None or not lost:
            return
        # Recommendations are taken from the end: the barrier stands first so that it is released last, and starts once.
        recommendations: dict[Any, str] = {}
        if ts.state in ("memory", "processing", "queued", "no-worker"):
            recommendations[barrier] = "released"
        for run in lost:
            sort.where[run] = None
            sort.lost += 1
            copies = self._downstream(self.scheduler.tasks[run]) if run in self.scheduler.tasks else ()
            for copy in copies:
                if copy.state == "memory" and not _is_barrier(copy):
                    recommendations[copy.key] = "released"
        self.scheduler.transitions(recommendations, stimulus_id)
        self.scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=stimulus_id)

    async def trouble(
        self, barrier: Any, run: Any, attempt: str, address: str, reason: str, asker: Any, retries: int
    ) -> int:
        """Answer a task that could not read a run: 0 for "again", or the number of attempts when it is time to give up.

        "Again" is only said when something has changed, or a strike was counted.
        """
        deadline = time() + PATIENCE
        while True:
            ts = self.scheduler.tasks.get(barrier)
            if ts is None or ts.state in _OVER:  # a late word of a task that is not wanted any more
                return 0
            sort = self._sort(ts)
            unknown = run in sort.where and ((known := sort.where[run]) is None or known.id != attempt)
            if unknown:
                # Most often the cuts that named it are gone, too. But new ones can have a handle that Dask took from a
                # worker which had worked on when it was told to stop: then the same is heard again.
                current = ts.state == "memory" or (ts.state == "processing" and asker == barrier)
                if not current or (run, attempt, asker) not in sort.heard:
                    sort.heard.add((run, attempt, asker))
                    return 0
                break
            if reason == "silent" or time() > deadline:
                break
            await asyncio.sleep(PATIENCE / 20)
        sort.strikes[run, asker] += 1
        if sort.strikes[run, asker] > retries:
            return sort.strikes[run, asker]
        if reason == "silent" and not unknown:
            self._keep_away(asker, address, sort.placed)
        else:
            self._undo(barrier, sort, [run], _stimulus("trouble"))
        return 0

    def _keep_away(self, asker: Any, silent: str, placed: set[Any]) -> None:
        """Let a task that is asked again not go to the worker that does not answer: looking idle, it would keep it.

        Those that the user has placed keep to the user's other workers.
        """
        ts = self.scheduler.tasks.get(asker)
        if ts is None:
            return
        others = set(ts.worker_restrictions or (ws.address for ws in self.scheduler.running)) - {silent}
        if not others:
            return
        if asker in placed or not _is_restricted(ts):
            self._place(asker, others)
            placed.add(asker)
        elif ts.worker_restrictions:
            self.scheduler.set_restrictions({asker: others})

    def restart(self) -> None:
        """Forget everything, as the scheduler has forgotten all tasks."""
        self.attempts.clear()
        for barrier in self.sorts:
            self.scheduler.clients.pop(_client(barrier), None)
        self.sorts.clear()

    # Messages and beginnings

    def _sort(self, barrier: Any) -> Sorting:
        """Return what is known of the sort of a barrier, which begins now if nothing is."""
        if barrier.key not in self.sorts:
            self.sorts[barrier.key] = Sorting(before=self.news.reports())
            self.news.log(barrier.key, "runs")
        return self.sorts[barrier.key]

    def _send(self, worker: str, message: dict[str, Any]) -> None:
        if worker in self.members and worker in self.scheduler.stream_comms:
            self.scheduler.worker_send(worker, message)


def _is_barrier(ts: Any) -> bool:
    return task_in(ts.run_spec, BarrierTask) is not None


def _search_of(barrier: Any) -> BarrierTask:
    found = task_in(barrier.run_spec, BarrierTask)
    assert found is not None
    return found


def _is_restricted(ts: Any) -> bool:
    return bool(ts.worker_restrictions or ts.host_restrictions or ts.resource_restrictions)


def _client(barrier: Any) -> str:
    return f"{NAME}-{barrier}"


def _stimulus(what: str) -> str:
    return f"{NAME}-{what}-{time()}"
