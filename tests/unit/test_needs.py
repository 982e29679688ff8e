"""What a worker needs: the numbers of the statement, and what is refused."""

from __future__ import annotations

import pytest

from distsort.errors import SortMemoryError
from distsort.needs import BASE, EXCHANGE, MERGE_COPIES, SMALLEST, STORE_SHARE, Workers, least, needs, require, room
from distsort.order import array_order
from distsort.plan import make_plan

MIB = 1 << 20


def of(nbytes, count, limit, threads=1, kept=False):
    return needs(nbytes=nbytes, runs=count, parts=count, workers=Workers(2, threads, limit), kept=kept)


def test_runs_take_their_share_and_the_rest_goes_to_disk():
    limit = 1024 * MIB
    found = of(8000 * MIB, 200, limit)
    assert found.runs == int(STORE_SHARE * limit)
    assert found.spilled == int(4000 * MIB - STORE_SHARE * limit)
    assert found.work == MERGE_COPIES * 40 * MIB
    assert found.peak == BASE + EXCHANGE + found.runs + found.work
    assert found.peak < limit


def test_on_small_workers_all_runs_go_to_disk():
    found = of(2000 * MIB, 200, 320 * MIB)
    assert (found.runs, found.spilled) == (0, 1000 * MIB)


def test_without_a_limit_nothing_spills_and_threads_work_side_by_side():
    found = of(800 * MIB, 8, None, threads=3, kept=True)
    assert (found.runs, found.spilled, found.parts) == (400 * MIB, 0, 400 * MIB)
    assert found.work == 3 * MERGE_COPIES * 100 * MIB


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("largest", [1, 30, 500])
def test_a_limit_that_is_named_is_taken(largest, threads):
    limit = least(largest * MIB, threads)
    require("a partition", largest * MIB, Workers(2, threads, limit))
    with pytest.raises(SortMemoryError, match=r"a partition has .* needs a memory limit of "):
        require("a partition", largest * MIB, Workers(2, threads, limit - 1))
    require("a partition", largest * MIB, Workers(2, threads, None))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("limit", [300, 512, 4096])
def test_partitions_that_suit_a_worker_are_not_refused(limit, threads):
    suits = room(limit * MIB, threads)
    assert suits >= SMALLEST
    require("a partition", suits, Workers(2, threads, limit * MIB))


def test_a_plan_states_the_memory_of_its_workers_and_refuses_what_cannot_fit():
    made = make_plan(
        what="rows", order=array_order(), blocks=100, parts=100, nbytes=4000 * MIB, on_cluster=True, exchange="pull"
    )
    fits = made.fit(Workers(2, 1, 512 * MIB), kept=False)
    assert fits.need() == of(4000 * MIB, 100, 512 * MIB)
    assert "at the peak in each of 2 workers of 512.0 MiB, beside 1.9 GiB of runs on disk" in fits.explain()
    with pytest.raises(SortMemoryError, match=r"input has 40.0 MiB: .* limit of 336.8 MiB .* has 320.0 MiB: use"):
        made.fit(Workers(2, 1, 320 * MIB))
    plain = make_plan(what="rows", order=array_order(), blocks=100, parts=100, nbytes=4000 * MIB)
    assert plain.fit(Workers(2, 1, 320 * MIB)).need() is None


def test_workers_are_read_from_what_a_scheduler_says():
    workers = {"a": {"memory_limit": 300, "nthreads": 1}, "b": {"memory_limit": 200, "nthreads": 4}}
    assert Workers.of({"n_workers": 7, "workers": workers}) == Workers(7, 4, 200)
    assert Workers.of({"workers": {"a": {"memory_limit": 0, "nthreads": 2}}}) == Workers(1, 2, None)
    assert Workers.of({"workers": {}}) is None


def test_a_statement_stays_below_where_workers_are_ended():
    found = of(400 * MIB, 20, 320 * MIB)
    assert found.peak <= 0.95 * 320 * MIB
