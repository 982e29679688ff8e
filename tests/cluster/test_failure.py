"""A worker dies, freezes or leaves in each phase: right rows, only what was lost done again, nothing left over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

from distsort.errors import ExchangeError
from tests.cluster import kit, soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

RUNS, PARTS = 6, 6


def parts_done(client: Client) -> int:
    barrier = kit.barrier_of(client)
    return sum(d.state == "memory" for d in barrier.dependents) if barrier is not None else 0


def in_state(client: Client, *states: str) -> bool:
    barrier = kit.barrier_of(client)
    return barrier is not None and barrier.state in states


PHASES = {  # the task that is held in that phase, and how many pass on each worker before
    "run": ("make", 1),
    "cuts, their worker": ("find_cuts", 0),
    "cuts, another": ("find_cuts", 0),
    "pull": ("make_part", 0),
    "a third of the parts": ("make_part", 1),
    "all parts": (None, 0),
}


def wait_for_phase(client: Client, phase: str) -> None:
    scheduler = kit.scheduler_of(client)
    if phase == "run":
        kit.until(lambda: (s := scheduler.extensions.get("distsort")) is not None and len(s.attempts) >= 2)
    elif phase.startswith("cuts"):
        kit.until(lambda: in_state(client, "processing"))
    elif phase == "pull":
        kit.until(lambda: in_state(client, "memory"))
    elif phase == "a third of the parts":
        kit.until(lambda: parts_done(client) >= PARTS // 3)
    else:
        kit.until(lambda: parts_done(client) == PARTS or in_state(client, "released"))


def choose_victim(client: Client, phase: str) -> int:
    pids = kit.worker_pids(client)
    barrier = kit.barrier_of(client)
    if phase.startswith("cuts") and barrier is not None and barrier.processing_on is not None:
        on_it = barrier.processing_on.address
        if phase == "cuts, their worker":
            return pids[on_it]
        return next(pid for address, pid in pids.items() if address != on_it)
    return next(iter(pids.values()))


def survive(client: Client, phase: str) -> dict[str, int]:
    """Sort with a kill in that phase; return how many runs and parts were executed."""
    lazy, source = kit.frame(RUNS, 2000, distinct=50)
    task, after = PHASES[phase]
    counts = kit.count_tasks(client)
    with kit.hold(client, task, after) if task is not None else nullcontext():
        result = kit.start(kit.sort(lazy, npartitions=PARTS))
        wait_for_phase(client, phase)
        kit.kill(choose_victim(client, phase))
    assert kit.sorted_bits(kit.finish(result), source)
    del result
    kit.assert_clean(client)
    return counts


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_worker_comes_back(phase):
    with kit.cluster(3) as client:
        counts = survive(client, phase)
        if phase not in ("run", "all parts"):
            # The lost runs, with their like on the other workers, but not all of them.
            assert counts["runs"] < 2 * RUNS


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_worker_stays_away(phase):
    with kit.cluster(3, nanny=False) as client:
        survive(client, phase)
        assert len(kit.scheduler_of(client).workers) == 2


def test_a_worker_that_joins_later_knows_which_runs_are_dead():
    """It may get a task that still names them, and was not there when the others were told."""

    def known() -> set[str]:
        from distributed import get_worker

        from distsort.exchange.worker import service_of

        return set(service_of(get_worker()).reader._dead)

    with kit.cluster(2) as client:
        survive(client, "pull")
        state = kit.scheduler_of(client).extensions["distsort"]
        assert state.dead
        kit.until(lambda: len(kit.worker_pids(client)) == 2)
        for address in kit.worker_pids(client):
            assert client.submit(known, workers=[address], pure=False).result(30) >= set(state.dead)


def test_a_search_that_is_not_wanted_any_more_ends():
    """Its answers would come from a worker that is frozen: the task must not wait for them to the end."""

    def asks(dask_worker: Any) -> int:
        return sum(map(len, dask_worker.distsort_service.reader.calls.values()))

    with kit.cluster(2, config={"distsort.pull.timeout": "1 hour"}) as client, frozen_in_the_cuts(client) as frozen:
        result, _, address = frozen
        others = [a for a in kit.scheduler_of(client).workers if a != address]
        kit.until(lambda: any(client.run(asks, workers=others).values()))
        client.cancel(result)
        kit.until(lambda: not any(client.run(asks, workers=others).values()), 20)


def test_cuts_that_outlast_the_memory_manager():
    """It drops copies every two seconds, of handles too if they were gathered; then a death would cost every run."""
    with kit.cluster(3, config={"distributed.scheduler.active-memory-manager.interval": "0.3s"}) as client:
        lazy, source = kit.frame(RUNS, 2000)
        counts = kit.count_tasks(client)
        with kit.hold(client, "find_cuts"):
            result = kit.start(kit.sort(lazy, npartitions=PARTS))
            kit.until(lambda: in_state(client, "processing"))
            time.sleep(1.5)  # several rounds of the memory manager
            kit.kill(kit.worker_pids(client)[kit.barrier_of(client).processing_on.address])
        assert kit.sorted_bits(kit.finish(result), source)
        assert counts["runs"] < 2 * RUNS
        kit.assert_clean(client)


@contextmanager
def frozen_in_the_cuts(client: Client) -> Iterator[tuple[Any, Any, str]]:
    """Start a sort and stop a worker that holds runs while another makes the cuts; it goes on, or dies, at the end.

    Yields the result, its source and the address of the worker.
    """
    lazy, source = kit.frame(RUNS, 2000, pause=0.1)
    with kit.hold(client, "find_cuts") as waits:
        result = kit.start(kit.sort(lazy, npartitions=PARTS))
        kit.until(waits)
        cutter = kit.barrier_of(client).processing_on.address
        holders = {run.address for run in kit.scheduler_of(client).extensions["distsort"].attempts.values()}
        address = min(holders - {cutter})
        pid = kit.worker_pids(client)[address]
        os.kill(pid, signal.SIGSTOP)
    try:
        yield result, source, address
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_frozen_worker_is_an_error():
    # Set where the sort is built, and nowhere else.
    with kit.cluster(3) as client, dask.config.set({"distsort.pull.timeout": "0.5s", "distsort.pull.retries": 2}):
        with (
            frozen_in_the_cuts(client) as (result, _, _),
            pytest.raises(ExchangeError, match=r"run .* on worker tcp.* no answer in 0\.5 s"),
        ):
            kit.finish(result, 100)
        del result
        kit.assert_clean(client)


def test_a_worker_that_freezes_for_long_is_left_behind():
    """Dask takes it for dead after `distributed.scheduler.worker-ttl`, and its nanny kills it; the sort goes on."""
    with (
        kit.cluster(3, config={"distributed.scheduler.worker-ttl": "6s"}) as client,
        frozen_in_the_cuts(client) as (result, source, address),
    ):
        assert kit.sorted_bits(kit.finish(result, 100), source)
        assert address not in kit.scheduler_of(client).workers


def test_scale_down_waits_for_runs():
    with kit.cluster(3) as client:
        lazy, source = kit.array(RUNS, 2000)
        scheduler = kit.scheduler_of(client)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: in_state(client, "memory"))
            assert client.sync(_workers_to_close, scheduler) == []
        assert (kit.finish(result) == np.sort(source)).all()
        del result
        kit.assert_clean(client)
        assert len(client.sync(_workers_to_close, scheduler)) == 1


async def _workers_to_close(scheduler):
    return scheduler.workers_to_close(n=1)


def test_a_retired_worker_costs_its_runs():
    with kit.cluster(3) as client:
        lazy, source = kit.array(RUNS, 2000)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: in_state(client, "memory"))
            client.retire_workers([next(iter(kit.worker_pids(client)))])
        assert (kit.finish(result) == np.sort(source)).all()
        del result
        kit.assert_clean(client)


def test_client_restart_leaves_nothing():
    with kit.cluster(2) as client:
        lazy, source = kit.array(RUNS, 2000)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: in_state(client, "memory"))
            client.restart(timeout=kit.PATIENCE)
            del result
        kit.assert_clean(client)
        assert (kit.sort(lazy).compute() == np.sort(source)).all()


def test_soak():
    """Fifty sorts, each with a worker killed at a random moment."""
    with kit.cluster(3) as client:
        took = soak.soak(client, int(os.environ.get("DISTSORT_SOAK", "50")), seed=20260804)
    assert max(took) < kit.PATIENCE


def test_cancelled_and_asked_for_again_at_once():
    """The worker may go on with the run that was cancelled, whose place in the store is gone."""
    with kit.cluster(2) as client:
        lazy, source = kit.array(4, 2000)
        kit.slow_down(client, "make_run", 0.6)
        for _ in range(3):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: (s := kit.scheduler_of(client).extensions.get("distsort")) is not None and s.attempts)
            time.sleep(0.1)
            del result  # which cancels it; Client.cancel would send news that hit the next futures of these keys
            kit.until(lambda: not kit.scheduler_of(client).tasks, 30)
        assert (kit.finish(kit.start(kit.sort(lazy))) == np.sort(source)).all()
        kit.assert_clean(client)
