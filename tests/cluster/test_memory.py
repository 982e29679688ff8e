"""A sort larger than the stores' memory ends by spilling; what the store holds is counted, reported and freed."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort.exchange.handles import Source
from distsort.exchange.limiter import BytesInFlight
from distsort.exchange.spill import RunFile
from distsort.exchange.store import LostRunError, RunStore
from distsort.exchange.transport import Slice, batches, cut_apart, pack, unpack
from distsort.io.scratch import scratch_folder
from distsort.local import Run, Spec
from distsort.order import array_order, make_order
from tests.cluster import kit

VALUES = Spec(array_order(), "values")
ROWS = Spec(make_order("k"), "rows")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_four_times_the_memory_of_the_stores():
    def shrink(dask_worker):
        from distsort.exchange import holder

        holder.STORE_SHARE = 0.05
        return int(holder.STORE_SHARE * dask_worker.memory_manager.memory_limit)

    with kit.cluster(2, memory_limit="800 MiB") as client:
        budget = sum(client.run(shrink).values())
        blocks, rows = 40, 1_250_000
        assert blocks * rows * 8 > 4 * budget > 0
        lazy, _ = kit.array(blocks, rows)
        result = kit.sort(lazy, npartitions=blocks)
        ends = result.map_blocks(
            lambda part: np.array([len(part), part.sum(dtype=np.uint64)], np.uint64), dtype=np.uint64
        )
        ends = client.compute(ends).result(2 * kit.PATIENCE)
        expected = lazy.map_blocks(lambda part: np.array([part.sum(dtype=np.uint64)], np.uint64), dtype=np.uint64)
        assert ends.reshape(-1, 2)[:, 0].tolist() == [rows] * blocks
        assert ends.reshape(-1, 2)[:, 1].sum(dtype=np.uint64) == expected.compute().sum(dtype=np.uint64)
        reports = client.run(lambda dask_worker: dask_worker.distsort_service.report())
        assert all(r["spills"] > 0 and r["spilled"] > 0 for r in reports.values()), reports
        kit.assert_clean(client)


def _report(dask_worker):
    return dask_worker.distsort_service.report()


def _fill(dask_worker, share):
    """Make a worker hold so much of its limit."""
    limit = dask_worker.memory_manager.memory_limit
    missing = share * limit - dask_worker.monitor.get_process_memory()
    dask_worker.ballast = np.ones(max(int(missing), 0), np.uint8)
    return len(dask_worker.ballast)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_paused_workers_spill_their_runs_and_go_on():
    """They start no task, and only a task that puts a run made the store spill."""
    config = {"distributed.worker.memory.terminate": False}
    with kit.cluster(2, memory_limit="1 GiB", config=config) as client:
        lazy, source = kit.array(12, 3_000_000)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy, npartitions=48))
            kit.until(lambda: (barrier := kit.barrier_of(client)) is not None and barrier.state == "memory")
            assert not any(r["spills"] for r in client.run(_report).values())
            assert all(client.run(_fill, share=0.84).values())
            kit.until(lambda: all(r["spills"] for r in client.run(_report).values()), 30)
        ends = client.compute(result.map_blocks(lambda part: part[[0, -1]], dtype=np.int64)).result(kit.PATIENCE)
        assert ends.tolist() == np.sort(source).reshape(48, -1)[:, [0, -1]].ravel().tolist()
        del result
        kit.assert_clean(client)


def test_run_files_of_a_killed_worker_go_with_the_next(tmp_path):
    memory = dict.fromkeys(("pause", "terminate", "spill", "target"), False)
    config = {
        "distsort.temporary-directory": str(tmp_path),
        **{f"distributed.worker.memory.{name}": value for name, value in memory.items()},
    }
    with kit.cluster(2, memory_limit="260 MiB", config=config) as client:
        lazy, source = kit.array(8, 400_000)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: (barrier := kit.barrier_of(client)) is not None and barrier.state == "memory")
            assert list(tmp_path.glob("*/*"))
            kit.kill(next(iter(kit.worker_pids(client).values())))
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)
    assert len(list(tmp_path.iterdir())) <= 1  # that of the dead
    with scratch_folder(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_store_reports_through_the_metrics_of_its_worker(pair):
    lazy, source = kit.array(4, 50_000)
    workers = kit.scheduler_of(pair).workers.values()
    with kit.hold(pair, "make_part"):
        result = kit.start(kit.sort(lazy))
        kit.until(lambda: sum(ws.metrics.get("distsort", {}).get("memory", 0) for ws in workers) == source.nbytes)
    kit.finish(result)
    del result
    kit.assert_clean(pair)


def spilled_to(directory):
    """Sort with every run spilled below a directory; return the names that were seen there."""
    seen: set[str] = set()
    with kit.cluster(2, config={"distsort.temporary-directory": str(directory)}) as client:

        def press() -> None:
            from distsort.exchange import holder

            holder.STORE_SHARE = 0

        client.run(press)
        lazy, source = kit.array(4, 50_000)
        with kit.hold(client, "make_part"):
            result = kit.start(kit.sort(lazy))
            kit.until(lambda: seen.update(p.parent.name for p in directory.glob("*/*")) or len(seen) == 2)
        assert (kit.finish(result) == np.sort(source)).all()
        del result
        kit.assert_clean(client)
    return seen


@pytest.mark.slow
def test_runs_spill_where_they_are_told_and_leave_nothing_there(tmp_path):
    seen = spilled_to(tmp_path)
    assert all(name.startswith("distsort-") for name in seen)
    kit.until(lambda: not list(tmp_path.iterdir()), 10)


def frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(rows), "s": pd.array([f"s{i}" for i in range(rows)], dtype="string[pyarrow]")})


def test_a_run_file_answers_in_the_order_of_the_question(tmp_path):
    run = Run(frame(300_000))
    positions = np.random.default_rng(0).integers(0, 300_000, 1000)
    (found,) = RunFile(run, tmp_path / "run", ROWS).keys_at(positions, ROWS)
    assert found.tolist() == positions.tolist()


@pytest.mark.parametrize("keys", [("k",), ("k", "s"), ("label", "k")])
def test_a_search_reads_keys_and_no_rows(tmp_path, keys):
    """With all rows of the file overwritten, the keys are still there."""
    rows = frame(20_000).assign(payload="x" * 200)
    rows.index = pd.Index(np.arange(20_000)[::-1], name="label")
    run, spec = Run(rows), Spec(make_order(list(keys)), "rows")
    file = RunFile(run, tmp_path / "run", spec)
    with file.path.open("r+b") as written:
        written.write(bytes(20_000 * 200))
    positions = np.random.default_rng(0).integers(0, 20_000, 500)
    for found, known in zip(file.keys_at(positions, spec), run.keys_at(positions, spec), strict=True):
        assert np.asarray(found).tolist() == np.asarray(known).tolist()


@pytest.mark.parametrize("rows", [0, 1, 1000, 300_000])
def test_a_run_file_reads_as_its_run(tmp_path, rows):
    for run, spec in (
        (Run(np.arange(rows)), VALUES),
        (Run(frame(rows)), ROWS),
        (Run(np.arange(rows), (frame(rows)["k"],)), ROWS),
    ):
        file = RunFile(run, tmp_path / "run", spec)
        for start, stop in ((0, rows), (0, 0), (rows, rows), (rows // 3, rows // 2), (max(rows - 1, 0), rows)):
            read, plain = file.cut(start, stop), run.cut(start, stop)
            assert len(read) == stop - start
            pd.testing.assert_frame_equal(pd.DataFrame(read.rows), pd.DataFrame(plain.rows))
        positions = np.unique(np.linspace(0, max(rows - 1, 0), 50, dtype=np.int64))[: rows or 0]
        for found, known in zip(file.keys_at(positions, spec), run.keys_at(positions, spec), strict=True):
            assert np.asarray(found).tolist() == np.asarray(known).tolist()
        file.close()
        assert not list(tmp_path.iterdir())


def test_the_store_spills_the_oldest_runs_and_frees_files(tmp_path):
    store = RunStore(tmp_path / "runs", budget=2 * 8000)
    attempts = [f"a{i}" for i in range(5)]
    for i, attempt in enumerate(attempts):
        store.put(attempt, Run(np.arange(1000) + i), VALUES)
    assert [store.is_spilled(a) for a in attempts] == [True, True, True, False, False]
    assert store.in_memory == 2 * 8000
    assert store.on_disk > 3 * 8000
    for i, attempt in enumerate(attempts):
        assert store.cut(attempt, 10, 20).rows.tolist() == list(range(10 + i, 20 + i))
        assert store.keys_at(attempt, np.array([0, 999]))[0].tolist() == [i, 999 + i]
    store.free(attempts[:2])
    assert len(list((tmp_path / "runs").iterdir())) == 1
    with pytest.raises(LostRunError):
        store.cut(attempts[0], 0, 1)
    store.clear()
    assert (len(store), store.in_memory, store.on_disk, list((tmp_path / "runs").iterdir())) == (0, 0, 0, [])


class OnDevice(np.ndarray):
    """Stands for an array in GPU memory."""


def test_runs_leave_the_device_first_and_come_back_to_it(tmp_path, monkeypatch):
    pytest.importorskip("cupy")
    from distsort.backends import cupy_park

    moves = []
    monkeypatch.setattr("distsort.blocks.on_device", lambda block: isinstance(block, OnDevice))
    monkeypatch.setattr("distsort.blocks.to_host", np.asarray)
    monkeypatch.setattr("distsort.local.device_work", lambda here: nullcontext())
    monkeypatch.setattr(cupy_park, "park", lambda block: moves.append("down") or np.asarray(block))
    monkeypatch.setattr(cupy_park, "unpark", lambda block: moves.append("up") or block.view(OnDevice))
    store = RunStore(tmp_path / "runs", budget=8000, device_budget=lambda: 8000)
    for i in range(3):
        store.put(f"a{i}", Run((np.arange(1000) + i).view(OnDevice)), VALUES)
    assert [store.bytes_in(tier) for tier in ("device", "host")] == [8000, 8000]
    assert [store.is_spilled(f"a{i}") for i in range(3)] == [True, True, False]
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert moves == ["down", "down"]
    for i in range(3):
        piece = store.cut(f"a{i}", 5, 9).rows
        assert isinstance(piece, OnDevice)
        assert piece.tolist() == list(range(5 + i, 9 + i))
        assert store.keys_at(f"a{i}", np.array([7]))[0].tolist() == [7 + i]
    assert moves.count("up") == 4
    store.clear()
    assert not list((tmp_path / "runs").iterdir())


def test_a_run_that_moves_is_read_as_it_was(tmp_path, monkeypatch):
    """A slice is cut, then the run leaves the device, then the slice is brought home: it is there already."""
    pytest.importorskip("cupy")
    from distsort.backends import cupy_park

    def unpark(block):
        assert not isinstance(block, OnDevice), "it is on the device"
        return block.view(OnDevice)

    monkeypatch.setattr("distsort.blocks.on_device", lambda block: isinstance(block, OnDevice))
    monkeypatch.setattr("distsort.local.device_work", lambda here: nullcontext())
    monkeypatch.setattr(cupy_park, "park", lambda block: np.array(block).view(np.ndarray))
    monkeypatch.setattr(cupy_park, "unpark", unpark)
    store = RunStore(tmp_path, budget=None, device_budget=lambda: 100)
    store.put("old", Run(np.arange(10).view(OnDevice)), VALUES)
    plain = Run.cut

    def cut(run, start, stop):
        piece = plain(run, start, stop)
        monkeypatch.setattr(Run, "cut", plain)
        store.put("new", Run(np.arange(10).view(OnDevice)), VALUES)
        assert store.is_spilled("old")
        assert store.whole("old") is None
        return piece

    monkeypatch.setattr(Run, "cut", cut)
    assert store.cut("old", 2, 5).rows.tolist() == [2, 3, 4]
    assert isinstance(store.cut("old", 2, 5).rows, OnDevice)
    assert isinstance(store.whole("new").rows, OnDevice)


def test_what_the_process_has_too_much_goes_to_disk(tmp_path):
    store = RunStore(tmp_path, budget=None, excess=lambda: 1)
    store.put("a", Run(np.arange(10)), VALUES)
    assert store.is_spilled("a")
    for name in "bcd":
        store.excess = lambda name=name: 8000 * (name == "d")
        store.put(name, Run(np.arange(1000)), VALUES)
    assert [store.is_spilled(name) for name in "abcd"] == [True, True, False, False]


def test_a_run_that_was_freed_while_it_was_made_is_not_kept(tmp_path):
    store = RunStore(tmp_path, budget=None)
    store.free(["a"])
    assert not store.put("a", Run(np.arange(10)), VALUES)
    assert "a" not in store


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(1, 3000))
def test_questions_cover_every_slice_once(lengths, limit):
    slices = [Slice(Source(i, f"a{i}", "w", 8.0), 5, 5 + n) for i, n in enumerate(lengths)]
    asked = [piece for batch in batches(slices, limit) for piece in batch]
    for i, whole in enumerate(slices):
        mine = [piece for at, piece in asked if at == i]
        assert mine[0].start == whole.start
        assert mine[-1].stop == whole.stop
        assert all(a.stop == b.start for a, b in itertools.pairwise(mine))
    for batch in batches(slices, limit):
        assert len(batch) == 1 or sum(piece.nbytes for _, piece in batch) <= limit


@pytest.mark.parametrize("rows", [3, 100_000])
def test_slices_come_out_of_an_answer_as_they_went_in(rows):
    for run in (Run(np.arange(rows)), Run(frame(rows)), Run(np.arange(rows), (np.arange(rows) * 2,))):
        pieces = [run.cut(0, rows // 2), run.cut(rows // 2, rows)]
        answer = pack(pieces, sum(p.nbytes for p in pieces))
        answer["rows"] = [s.data for s in answer["rows"]]
        answer["keys"] = answer["keys"] and [[s.data for s in keys] for keys in answer["keys"]]
        found = unpack(answer, [len(p) for p in pieces])
        assert [len(f) for f in found] == [len(p) for p in pieces]
        for got, sent in zip(found, pieces, strict=True):
            assert pickle.dumps(np.asarray(got.rows)) == pickle.dumps(np.asarray(sent.rows))
            assert (got.keys is None) == (sent.keys is None)
    assert [len(r) for r in cut_apart([Run(np.arange(5))], [2, 0, 3])] == [2, 0, 3]


def test_bytes_in_flight():
    async def main() -> None:
        limit = BytesInFlight(100)
        order: list[str] = []

        async def take(name: str, nbytes: int, seconds: float) -> None:
            async with limit.hold(nbytes):
                order.append(name)
                assert limit.used <= 100 or limit.used == nbytes
                await asyncio.sleep(seconds)

        tasks = [
            asyncio.create_task(take(*t)) for t in (("a", 60, 0.02), ("b", 30, 0.02), ("huge", 500, 0), ("c", 10, 0))
        ]
        await asyncio.sleep(0.005)
        assert order == ["a", "b"]  # first come, first served: the small one does not overtake the large one
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "huge", "c"]
        waiting = [asyncio.create_task(take("x", 100, 1)), asyncio.create_task(take("y", 100, 1))]
        last = asyncio.create_task(take("z", 1, 0))
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        waiting[0].cancel()
        await last
        assert limit.used == 0

    asyncio.run(main())
