"""Runs that are promised and mapped, as on GPUs, with files in the place of mapped memory: right, and nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from distributed import futures_of, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import distsort
from distsort.errors import ExchangeError
from distsort.exchange.pull import LENT_RUNS
from distsort.exchange.scheduler import PullState
from tests.cluster import kit, soak
from tests.cluster.lending import graphs_of_gpus
from tests.cluster.test_failure import PHASES, survive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LENDING = "tests.cluster.lending"


def task_states(dask_worker) -> list[str]:
    return [ts.state for ts in dask_worker.state.tasks.values()]


def processing(client, what: str) -> int:
    """How many tasks of that name run now."""
    return sum(what in str(ts.key) and ts.state == "processing" for ts in kit.scheduler_of(client).tasks.values())


@pytest.fixture(scope="module")
def client():
    with kit.cluster(3, preload=LENDING) as client:
        yield client


@pytest.fixture(autouse=True)
def as_on_gpus():
    with graphs_of_gpus():
        yield


@pytest.mark.parametrize("make", [kit.array, kit.frame])
@pytest.mark.parametrize(("runs", "parts"), [(2, 2), (6, 6), (8, 3), (5, 20), (1, 3), (12, 5)])
def test_right(client, make, runs, parts):
    lazy, source = make(runs, 2000, distinct=50)
    result = kit.sort(lazy, npartitions=parts)
    assert kit.sorted_bits(kit.finish(kit.start(result)), source)
    sizes = {len(p) for p in client.gather(client.compute(list(np.ravel(result.to_delayed()))))}
    assert max(sizes) - min(sizes) <= 1
    kit.assert_clean(client)


def test_runs_were_lent(client):
    def lent(dask_worker):
        service = getattr(dask_worker, "distsort_service", None)
        return 0 if service is None else service.devices.lent

    lazy, _ = kit.array(4, 2000)
    before = sum(client.run(lent).values())
    for _ in range(5):
        kit.finish(kit.start(kit.sort(lazy, npartitions=4)))
    assert sum(client.run(lent).values()) > before


def test_what_goes_wrong_with_a_promised_run_is_the_error_of_the_sort(client):
    def refuse(block, spec, meta=None):
        raise MemoryError("no room for this run")

    def patch(on):
        from distsort.exchange import pull

        plain = getattr(pull, "plain_make_run", pull.make_run)
        pull.plain_make_run = plain
        pull.make_run = refuse if on else plain

    client.run(patch, on=True)
    try:
        for runs in (1, 4, 12):
            lazy, _ = kit.array(runs, 100)
            with pytest.raises(MemoryError, match="no room for this run"):
                kit.finish(kit.start(kit.sort(lazy, npartitions=3)))
    finally:
        client.run(patch, on=False)
    kit.assert_clean(client)


@pytest.mark.parametrize("phase", [p for p in PHASES if p != "all parts"])
def test_a_killed_worker(phase):
    with kit.cluster(3, preload=LENDING) as client:
        survive(client, phase)


def test_a_worker_is_killed_while_parts_wait_for_its_run():
    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(3, 2000, distinct=50)
        with kit.hold(client, "make_run"):
            result = kit.start(kit.sort(lazy, npartitions=3))
            kit.until(lambda: processing(client, "sort-part") == 3)
            kit.kill(next(iter(kit.worker_pids(client).values())))
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


def test_a_reader_that_died_while_it_waited_leaves_no_lease():
    """All know that it has died before the run is made that it had asked for."""

    def know(dask_worker):
        service = getattr(dask_worker, "distsort_service", None)
        return service is not None and bool(service._gone)

    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(3, 2000, distinct=50)
        with kit.hold(client, "make_run"):
            result = kit.start(kit.sort(lazy, npartitions=3))
            kit.until(lambda: processing(client, "sort-part") == 3)
            time.sleep(0.5)  # until all have asked
            kit.kill(next(iter(kit.worker_pids(client).values())))
            kit.until(lambda: list(client.run(know, on_error="return").values()).count(True) == 2)
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


def test_what_a_dead_reader_asked_for_is_not_lent():
    from distsort.exchange.worker import WorkerService

    ended = []
    service = WorkerService.__new__(WorkerService)
    service._gone = {"dead": None}
    service._devices, service._making = SimpleNamespace(end_lease=ended.append), threading.Lock()
    for reader, gone in (("dead", True), ("alive", False)):
        answer = {"lease": reader, "headers": []}
        assert service._unless_gone(answer, reader) == ({"lease": ""} if gone else answer)
    assert ended == ["dead"]
    assert service._unless_gone({"device": "host"}, "dead") == {"device": "host"}


def test_an_owner_that_is_closing_is_left_behind():
    """Its threads end before its connections do: what is asked meanwhile must not be the end of the sort."""

    async def close_slowly(dask_worker):
        plain = dask_worker.preloads.teardown

        async def teardown():
            await asyncio.sleep(1)
            await plain()

        dask_worker.preloads.teardown = teardown
        asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(dask_worker.close(nanny=False)))

    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(6, 20_000, distinct=50)
        with kit.hold(client, "make_part") as waits:
            result = kit.start(kit.sort(lazy, npartitions=6))
            kit.until(lambda: waits(3))
            client.run(close_slowly, workers=[next(iter(kit.worker_pids(client)))])
            time.sleep(0.2)
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


def test_a_sort_that_is_cancelled_while_parts_wait_frees_everything(client):
    lazy, source = kit.array(3, 2000, distinct=50)
    with kit.hold(client, "make_run"):
        result = kit.start(kit.sort(lazy, npartitions=3))
        kit.until(lambda: processing(client, "sort-part") == 3)
        del result
        kit.until(lambda: not processing(client, "sort-part"), 30)
    kit.assert_clean(client)
    assert kit.sorted_bits(kit.finish(kit.start(kit.sort(lazy))), source)


@pytest.mark.parametrize("count", [2, LENT_RUNS + 2])
def test_a_handle_of_a_run_that_was_given_up_is_made_again(tmp_path, count):
    """A worker goes on with a task that was cancelled and made elsewhere, and hands what it has to the cuts.

    Of few runs the parts find that it is stale, of many the cuts themselves.
    """
    gate = tmp_path / "open"

    def hold_first(path):
        from distsort.exchange import pull

        plain, calls = pull.promises, []

        def late(block):
            calls.append(block)
            while len(calls) == 1 and not path.exists():
                time.sleep(0.01)
            return plain(block)

        pull.promises = late

    class Place(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            if finish == "waiting" and (worker := chosen(key)) is not None:
                scheduler.set_restrictions({key: {worker}})

    with kit.cluster(2, preload=LENDING, threads_per_worker=2) as client:
        scheduler = kit.scheduler_of(client)
        one, two = client.scheduler_info(n_workers=-1)["workers"]
        client.run(hold_first, gate, workers=[one])
        lazy, source = kit.frame(count, 1000, distinct=50)
        runs = {("frame_block", i): two if i else one for i in range(count)}

        def chosen(key):
            name, number = (key[0], key[-1]) if isinstance(key, tuple) else (key, None)
            return next((w for (part, i), w in runs.items() if part in name and i in (number, None)), None)

        scheduler.add_plugin(Place(), name="place")
        result = kit.start(kit.sort(lazy))
        kit.until(lambda: processing(client, "frame_block") == 1)
        del result
        kit.until(lambda: not processing(client, "frame_block"))
        runs = {("sort-cuts", None): one, **dict.fromkeys(runs, two)}
        result = kit.start(kit.sort(lazy))
        kit.until(lambda: "resumed" in client.run(task_states, workers=[one])[one])
        gate.touch()
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


@pytest.mark.parametrize("again", [False, True], ids=["for good", "and asked for again"])
def test_a_task_that_is_cancelled_before_it_promises_leaves_nothing(client, again):
    lazy, source = kit.array(3, 2000, distinct=50)
    with kit.hold(client, "promises") as waits:
        result = kit.start(kit.sort(lazy))
        kit.until(lambda: waits(3))
        del result
        kit.until(lambda: not processing(client, "sort-run"), 30)
        result = kit.start(kit.sort(lazy)) if again else None
    if again:
        assert kit.sorted_bits(kit.finish(result), source)
        del result
    kit.until(lambda: not any(client.run(lambda dask_worker: len(dask_worker.state.executing)).values()))
    kit.assert_clean(client)


def test_a_frozen_owner_is_an_error():
    config = {"distsort.pull.timeout": "0.5s", "distsort.pull.retries": 2}
    with kit.cluster(2, preload=LENDING, config=config) as client:
        lazy, _ = kit.frame(2, 2000)
        with kit.hold(client, "make_part") as waits:
            result = kit.start(kit.sort(lazy, npartitions=2))
            # Both: a part that waits for a result on the frozen worker would be Dask's to end.
            kit.until(lambda: waits(2))
            pid = next(iter(kit.worker_pids(client).values()))
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ExchangeError, match=r"no answer in 0\.5 s"):
                client.compute(result).result(30)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(300)
def test_soak():
    """Sorts, each with a worker killed at a random moment."""
    sorts = int(os.environ.get("DISTSORT_SOAK", "20"))
    with kit.cluster(3, preload=LENDING) as client:
        took = soak.soak(client, sorts, seed=20261130)
    assert max(took) < kit.PATIENCE


def test_skew_and_order(client):
    lazy, source = kit.array(5, 3000, distinct=3)
    assert (np.asarray(kit.finish(kit.start(kit.sort(lazy, npartitions=7)))) == np.sort(source)).all()
    down = kit.finish(kit.start(kit.sort(lazy, npartitions=7, descending=True)))
    assert (np.asarray(down) == np.sort(source)[::-1]).all()


def skewed(blocks, rows):
    """Blocks that are not alike."""
    rng = np.random.default_rng(5)
    pieces = [np.sort(rng.integers(i * 100, i * 100 + 150, rows)) for i in range(blocks)]
    pieces[0][::2] += 10_000
    return np.concatenate(pieces)


@pytest.mark.parametrize("blocks", [2, 3, 4, 8])
def test_blocks_that_are_not_alike(client, blocks):
    source = skewed(blocks, 3000)
    for values in (source, source[::-1].copy()):
        lazy = da.from_array(values, chunks=3000)
        found = kit.finish(kit.start(kit.sort(lazy, npartitions=3)))
        assert np.asarray(found).tobytes() == np.sort(values).tobytes()
        index = kit.finish(kit.start(distsort.argsort(lazy, npartitions=5, exchange="pull")))
        assert (np.asarray(index) == np.argsort(values, kind="stable")).all()
    kit.assert_clean(client)


def in_order(client, runs: int) -> tuple[da.Array, np.ndarray]:
    """Return an array that is sorted already, block i on worker i modulo 3."""
    source = np.arange(runs * 1000)
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    made = [client.submit(np.array, s, workers=workers[i % 3]) for i, s in enumerate(np.split(source, runs))]
    blocks = [da.from_delayed(m, (1000,), dtype=source.dtype, meta=source[:0]) for m in made]
    return da.concatenate(blocks), source


def where(client, result) -> list[str]:
    """Return the worker of each block of a result, in order."""
    futures = futures_of(result)
    wait(futures, 60)
    held = client.who_has(futures)
    return [held[future.key][0] for future in sorted(futures, key=lambda future: future.key[1])]


@pytest.mark.parametrize(
    ("runs", "parts", "column"),
    [(3, 3, False), (12, 12, False), (12, 12, True), (12, 24, False), (4, 14, False), (7, 2, False)],
)
def test_parts_go_where_the_run_of_their_place_is(client, runs, parts, column):
    """Of keys that are in order already none crosses. No worker makes more parts than its share."""
    lazy, source = in_order(client, runs)
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    result = kit.sort(lazy, npartitions=parts)
    result = kit.start(result[:, None] * 1 if column else result)
    chosen = where(client, result)
    assert (np.asarray(kit.finish(result)).ravel() == source).all()
    homes = [workers[j * runs // parts % 3] for j in range(parts)]
    most = -(-parts // 3)
    assert max(map(chosen.count, workers)) <= most
    if max(map(homes.count, workers)) <= most:
        assert chosen == homes
    del result
    kit.assert_clean(client)


def test_the_runs_of_blocks_that_are_made_in_their_tasks_are_found(client):
    """There the key that the cuts know is another name of the run's."""
    lazy, source = kit.array(6, 1000)
    seen = []
    state = kit.scheduler_of(client).extensions["distsort"]
    plain = state._home
    state._home = lambda run: seen.append(plain(run)) or seen[-1]
    try:
        assert kit.sorted_bits(kit.finish(kit.start(kit.sort(lazy))), source)
    finally:
        del state._home
    assert len(seen) == 6
    assert set(seen) <= set(client.scheduler_info(n_workers=-1)["workers"])
    kit.assert_clean(client)


def test_parts_that_the_user_has_placed_stay_there(client):
    lazy, source = in_order(client, 3)
    first, *_ = client.scheduler_info(n_workers=-1)["workers"]
    result = client.persist(kit.sort(lazy, npartitions=6), workers=[first])
    assert where(client, result) == [first] * 6
    assert (np.asarray(kit.finish(result)) == source).all()
    del result
    kit.assert_clean(client)


def test_what_is_left_after_a_death_is_dealt_out_evenly(monkeypatch):
    """Parts that were used up already are no load."""
    dealt = []

    def spread(state, barrier, plain=PullState._spread):
        plain(state, barrier)
        dealt.append([next(iter(ts.worker_restrictions)) for ts in barrier.waiters])

    monkeypatch.setattr(PullState, "_spread", spread)
    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(3, 2000, distinct=50)
        sizes = kit.sort(lazy, npartitions=12).map_partitions(len, meta=("n", "i8"), enforce_metadata=False)
        with kit.hold(client, "make_part", after=2) as waits:
            result = client.persist(sizes)
            kit.until(lambda: waits(3))
            kit.kill(next(iter(kit.worker_pids(client).values())))
        wait(result, 60)
        assert sum(result.compute()) == len(source)
        del result
        kit.assert_clean(client)
    assert len(dealt[0]) == 12
    assert all(dealt[0].count(worker) == 4 for worker in dealt[0])
    assert len(dealt) >= 2
    for again in dealt[1:]:
        assert 6 <= len(again) < 12
        assert max(map(again.count, again)) <= -(-len(again) // 2)


def test_parts_that_are_lost_after_their_sort_are_dealt_out_again():
    """That the sort had placed them is forgotten with it: they are nobody's choice any more."""
    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(6, 2000)
        result = kit.start(kit.sort(lazy, npartitions=12))
        wait(result, 60)
        scheduler = kit.scheduler_of(client)
        kit.until(lambda: not scheduler.extensions["distsort"].sorts)
        dead, *others = sorted(scheduler.workers)
        kit.kill(kit.worker_pids(client)[dead])
        kit.until(lambda: dead not in scheduler.workers)
        kit.until(lambda: len(scheduler.workers) == 3)
        wait(result, 60)
        held = where(client, result)
        assert dead not in held
        assert [held.count(worker) for worker in others] in ([4, 4], [5, 5], [5, 6], [6, 5], [6, 6])
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


def test_away_from_a_silent_worker_parts_keep_to_those_of_the_user():
    with kit.cluster(3, preload=LENDING) as client:
        lazy, source = kit.frame(3, 2000)
        one, two, three = sorted(client.scheduler_info(n_workers=-1)["workers"])
        scheduler = kit.scheduler_of(client)
        with kit.hold(client, "make_part"):
            mine = client.persist(kit.sort(lazy, npartitions=6), workers=[one, two])
            kit.until(lambda: (barrier := kit.barrier_of(client)) is not None and barrier.state == "memory")
            state = scheduler.extensions["distsort"]
            (sort,) = state.sorts.values()
            part = next(iter(kit.barrier_of(client).dependents))
            state._keep_away(part.key, two, sort.placed)
            assert (part.worker_restrictions, part.loose_restrictions) == ({one}, False)
            state._keep_away(part.key, one, sort.placed)  # there is no other
            assert (part.worker_restrictions, part.loose_restrictions) == ({one}, False)
        assert kit.sorted_bits(kit.finish(mine), source)
        assert three not in where(client, mine)
        del mine
        kit.assert_clean(client)
