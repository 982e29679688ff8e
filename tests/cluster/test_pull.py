"""pull == graph == oracle, bit for bit; laziness, culling, sharing; nothing left over."""

from __future__ import annotations

import time
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, futures_of, wait

import distsort
from distsort.errors import KeyTypeError
from tests.cluster import kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RNG = np.random.default_rng(7)
ROWS = 4001
DTYPES = ["i1", "u4", "i8", "f2", "f4", "f8", "c16", "M8[ns]", "m8[s]", "bool"]
SKEWS = ["uniform", "constant", "heavy", "zipf", "sorted", "reversed"]


def values(dtype: str, skew: str) -> np.ndarray:
    """Values of a dtype with NaNs of both signs, zeros of both signs and infinities where it has them."""
    kind = np.dtype(dtype).kind
    draw = {
        "uniform": lambda: RNG.integers(-1000, 1000, ROWS),
        "constant": lambda: np.full(ROWS, 3),
        "heavy": lambda: np.where(RNG.random(ROWS) < 0.9, 5, RNG.integers(-100, 100, ROWS)),
        "zipf": lambda: np.minimum(RNG.zipf(1.3, ROWS), 10_000),
        "sorted": lambda: np.arange(ROWS),
        "reversed": lambda: np.arange(ROWS)[::-1],
    }[skew]()
    if kind in "iub":
        return draw.astype(dtype)
    if kind in "mM":
        made = draw.astype("i8").view("m8[s]" if kind == "m" else "M8[ns]")
        made[::97] = np.array("NaT", dtype=made.dtype)
        return made
    made = draw.astype("f8") / 7
    with np.errstate(over="ignore"):
        made = made.astype(dtype)
    made[::89], made[1::91], made[2::101], made[3::103] = np.nan, -0.0, 0.0, np.inf
    if kind == "f":
        made[4::107] = -made[0]
    return made


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays(pair, dtype):
    skews = SKEWS if dtype in ("i8", "f8") else SKEWS[:3]
    for i, skew in enumerate(skews):
        source = values(dtype, skew)
        x = da.from_array(source, chunks=(1000, 1, 1500, ROWS - 2501))
        options = {"npartitions": [1, 3, 7][i % 3], "descending": bool(i % 2)}
        index = distsort.argsort(x, exchange="pull", **options)
        pulled, plain, index = dask.compute(
            distsort.sort(x, exchange="pull", **options), distsort.sort(x, exchange="graph", **options), index
        )
        assert bits(pulled) == bits(plain) == bits(source[index])
        with dask.config.set(scheduler="sync"):
            expected = distsort.argsort(da.from_array(source, chunks=-1), descending=options["descending"]).compute()
        assert (index == expected).all()
        if dtype != "c16" and not options["descending"]:
            assert (index == np.argsort(source, kind="stable")).all()
    kit.assert_clean(pair)


@pytest.mark.parametrize("skew", SKEWS)
def test_frames(pair, skew):
    keys = values("i8", skew)
    source = pd.DataFrame(
        {
            "k": keys,
            "f": values("f8", "uniform"),
            "c": pd.Categorical([f"c{k % 5}" for k in keys], [f"c{i}" for i in (3, 1, 4, 0, 2)]),
            "n": pd.array(np.where(keys % 3 == 0, None, keys), dtype="Int64"),
            "s": pd.array([None if k % 7 == 0 else f"s{k % 11}" for k in keys], dtype="string[pyarrow]"),
            "t": values("M8[ns]", "uniform"),
        },
        index=pd.Index(RNG.integers(0, 50, ROWS), name="i"),
    )
    frame = dd.from_pandas(source, npartitions=5, sort=False)
    cases = [
        ("k", {}, 3),
        (["s", "k"], {"na_position": "first"}, 4),
        (["c", "n"], {"ascending": [False, True]}, 1),
        ("t", {"ignore_index": True, "ascending": False}, 7),
    ]
    for by, options, parts in cases:
        pulled, plain = (
            distsort.sort_values(frame, by, npartitions=parts, exchange=e, **options) for e in ("pull", "graph")
        )
        pulled, plain = dask.compute(pulled, plain)
        pd.testing.assert_frame_equal(pulled, plain, check_exact=True)
        if by != ["c", "n"]:  # pandas has one direction for all nulls only
            expected = source.sort_values(by, kind="stable", **options)
            pd.testing.assert_frame_equal(pulled.reset_index(drop=True), expected.reset_index(drop=True))
    kit.assert_clean(pair)


def test_parts_are_exactly_balanced(pair):
    lazy, _ = kit.frame(6, 1001, distinct=2)
    sizes = kit.sort(lazy, npartitions=5).map_partitions(len).compute().tolist()
    assert sizes == [(j + 1) * 6006 // 5 - j * 6006 // 5 for j in range(5)]


def test_key_function_and_series(pair):
    source = pd.Series(RNG.integers(0, 10_000, ROWS), name="x")
    series = dd.from_pandas(source, npartitions=4, sort=False)
    result = distsort.sort_values(series, key=lambda s: s % 100, exchange="pull").compute()
    pd.testing.assert_series_equal(result, source.sort_values(key=lambda s: s % 100, kind="stable"))


def test_nothing_runs_before_it_is_asked_for(pair):
    lazy, _ = kit.array(3, 100)
    kit.until(lambda: not kit.scheduler_of(pair).tasks)  # those of the test before are being let go
    kit.sort(lazy)
    assert not kit.scheduler_of(pair).tasks


def test_one_part_asked_is_one_part_made(pair):
    lazy, source = kit.array(4, 500)
    result = kit.sort(lazy, npartitions=8)
    made = result.blocks[3].persist()
    assert (made.compute() == np.sort(source)[750:1000]).all()
    parts = [k for k in kit.scheduler_of(pair).tasks if "sort-part" in str(k) or "make_part" in str(k)]
    assert len(parts) <= 1
    lazy, source = kit.frame(4, 500)
    head = kit.sort(lazy, npartitions=8).head(5)
    assert (head["v"].to_numpy() == source.sort_values("k", kind="stable")["v"].to_numpy()[:5]).all()
    kit.assert_clean(pair)


def test_several_sorts_at_once_and_the_same_one_again(pair):
    a, a_source = kit.array(5, 300, seed=1)
    b, b_source = kit.frame(4, 300, seed=2)
    first, second = kit.sort(a), kit.sort(b, npartitions=3)
    for _ in range(2):
        x, y, z = dask.compute(first, second, first)
        assert kit.sorted_bits(x, a_source)
        assert kit.sorted_bits(y, b_source)
        assert (x == z).all()
    assert kit.sorted_bits(kit.sort(kit.sort(a)).compute(), a_source)
    # Two numbers of parts from one input share its runs.
    two, three = dask.compute(kit.sort(a, npartitions=2), kit.sort(a, npartitions=3))
    assert (two == three).all()
    kit.assert_clean(pair)


def test_persisted_parts_outlive_the_runs(pair):
    lazy, source = kit.array(4, 300)
    result = kit.sort(lazy).persist()
    kit.finish(result)
    kit.assert_clean(pair)
    assert (result.compute() == np.sort(source)).all()


def test_no_rows_and_one_row(pair):
    for rows in ([0, 0, 0], [0, 1, 0]):
        lazy = da.concatenate([da.zeros(n, chunks=max(n, 1)) for n in rows if n or not sum(rows)])
        lazy = da.concatenate([lazy, da.zeros(0, chunks=1)])
        assert len(kit.sort(lazy, npartitions=3).compute()) == sum(rows)
    empty = dd.from_pandas(kit.frame_block(0, 10, 5), npartitions=5).query("k > 100")
    assert len(kit.sort(empty, npartitions=3).compute()) == 0
    kit.assert_clean(pair)


def test_an_input_that_fails_leaves_nothing(pair):
    def broken(part):
        if part["k"].iloc[0] == part["k"].iloc[0] and part["v"].iloc[0] >= 600:
            raise ZeroDivisionError("a bad partition")
        return part

    lazy, _ = kit.frame(5, 300)
    with pytest.raises(ZeroDivisionError, match="a bad partition"):
        kit.sort(lazy.map_partitions(broken, meta=lazy._meta)).compute()
    kit.assert_clean(pair)
    mixed = dd.from_map(
        lambda i: pd.DataFrame({"k": pd.Series([1, "a", i], dtype=object)}), range(3), meta={"k": object}
    )
    with dask.config.set({"dataframe.convert-string": False}), pytest.raises(KeyTypeError, match="k"):
        kit.sort(mixed).compute()
    kit.assert_clean(pair)


@pytest.mark.parametrize("phase", ["runs", "cuts", "parts"])
def test_a_cancelled_sort_leaves_nothing(phase):
    with kit.cluster(2) as client:
        lazy, source = kit.array(6, 2000)
        with kit.hold(client, {"runs": "make_run", "cuts": "find_cuts", "parts": "make_part"}[phase]):
            result = kit.start(kit.sort(lazy))
            state = {"runs": "waiting", "cuts": "processing", "parts": "memory"}[phase]
            kit.until(lambda: (ts := kit.barrier_of(client)) is not None and ts.state == state)
            if phase == "runs":
                kit.until(lambda: kit.scheduler_of(client).extensions.get("distsort") is not None)
            client.cancel(result)
            del result
        kit.assert_clean(client)
        kit.until(lambda: not kit.scheduler_of(client).tasks, 30)
        assert (kit.finish(kit.start(kit.sort(lazy))) == np.sort(source)).all()
        kit.assert_clean(client)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_without_a_cluster_the_handles_carry_the_runs(scheduler):
    source = values("f8", "heavy")
    x = da.from_array(source, chunks=700)
    with dask.config.set(scheduler=scheduler):
        assert (distsort.argsort(x, exchange="pull").compute() == np.argsort(source, kind="stable")).all()


def test_three_hundred_runs_to_three_hundred_parts():
    """1,500 tasks, and at most twice what two idle cores do in 5 s: CPU seconds hardly grow with other load."""
    with kit.cluster(4) as client:

        def spent() -> float:
            return time.process_time() + sum(client.run(time.process_time).values())

        lazy, source = kit.array(300, 1000)
        kit.sort(kit.array(8, 10)[0]).compute()  # everything is installed and imported now
        result = kit.sort(lazy, npartitions=300)
        begun = spent()
        result = result.persist()
        kit.wait(result, timeout=kit.PATIENCE)
        took = spent() - begun
        assert took < 2 * 10
        assert len(kit.scheduler_of(client).tasks) <= 1500
        assert (result.compute() == np.sort(source)).all()
        del result
        kit.assert_clean(client)


def test_the_workers_are_known_whatever_the_client_keeps(pair, monkeypatch):
    """An update in the background, which asks for no workers, may come between a client's question and its answer."""
    from distsort.needs import Workers, identity

    async def overwritten(n_workers=0):
        pair._scheduler_identity = await pair.scheduler.identity(n_workers=0)

    monkeypatch.setattr(pair, "_update_scheduler_info", overwritten)
    assert not pair.scheduler_info()["workers"]
    assert len(identity(pair)["workers"]) == 2
    assert Workers.of(identity(pair)).count == 2


@pytest.mark.parametrize("dtype", [">u2", ">f8", ">U3"])  # NumPy pickles dates in the order of the machine
@pytest.mark.parametrize("exchange", ["pull", "graph"])
def test_every_part_keeps_the_byte_order(pair, dtype, exchange):
    source = RNG.integers(0, 99, 100).astype(dtype)
    made = distsort.sort(da.from_array(source, chunks=7), npartitions=3, exchange=exchange)
    parts = dask.compute(*made.to_delayed().ravel())
    assert [part.dtype.str for part in parts] == [dtype] * 3
    assert bits(np.concatenate(parts).astype(dtype)) == bits(np.sort(source).astype(dtype))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_lines_keep_the_byte_order(pair, axis):
    """Dask moves chunks on a cluster in the byte order of the machine, and says that it did not."""
    source = RNG.integers(0, 99, (6, 8)).astype(">u2")
    made = distsort.sort(da.from_array(source, chunks=(3, 2)), axis=axis)
    found = made.compute()
    assert made.dtype == found.dtype == source.dtype
    assert bits(found) == bits(np.sort(source, axis=axis))


@pytest.mark.parametrize("exchange", [None, "pull"])
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_task_may_sort_with_another_scheduler(pair, scheduler, exchange):
    """Its own thread, and those that it starts, run on a worker; what they do is none of the worker's tasks."""

    def inside(scheduler, exchange):
        source = np.random.default_rng(0).random(8000)
        made = distsort.sort(da.from_array(source, chunks=1000), exchange=exchange)
        return bool((made.compute(scheduler=scheduler) == np.sort(source)).all())

    assert pair.submit(inside, scheduler, exchange, pure=False).result(kit.PATIENCE)
    kit.assert_clean(pair)
    with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
        assert client.submit(inside, scheduler, exchange).result(kit.PATIENCE)
        kit.assert_clean(client)


@pytest.mark.parametrize("exchange", ["pull", "graph"])
@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_part_of_one_slice_does_not_keep_its_run(pair, exchange, kind):
    """As a view it would, however small it is and however long it lives."""
    values = np.arange(40_000)
    lazy = da.from_array(values, chunks=10_000)
    if kind == "frame":
        lazy = dd.from_pandas(pd.DataFrame({"k": values}), npartitions=4, sort=False)
    sort = distsort.sort if kind == "array" else partial(distsort.sort_values, by="k")
    result = pair.persist(sort(lazy, npartitions=40, exchange=exchange))

    def kept(part):
        array = part if isinstance(part, np.ndarray) else part["k"].to_numpy()
        while isinstance(array.base, np.ndarray):
            array = array.base
        return array.nbytes

    wait(result)
    by_part = pair.map(kept, futures_of(result))
    found = pair.gather(by_part)
    assert min(found) == 8000
    assert max(found) < 8500  # what comes from elsewhere lies in the memory of its message
    del result, by_part
    kit.assert_clean(pair)


def test_a_scheduler_that_is_busy_for_long_is_waited_for(monkeypatch):
    monkeypatch.setattr("distsort.exchange.worker.INSTALL_TIMEOUT", 0.3)
    with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
        lazy, source = kit.array(4, 500, pause=0.3)
        result = kit.start(kit.sort(lazy))
        kit.until(lambda: any(ts.state == "processing" for ts in kit.scheduler_of(client).tasks.values()))
        client.cluster.scheduler.loop.add_callback(time.sleep, 1.5)
        assert kit.sorted_bits(kit.finish(result), source)
        del result
        kit.assert_clean(client)


@pytest.mark.parametrize("make", [kit.array, kit.frame])
def test_a_delayed_function_of_a_sort(pair, make):
    """Dask wraps all tasks of what such a function is given."""
    lazy, source = make(5, 2000)
    found = pair.compute(dask.delayed(lambda result: result)(kit.sort(lazy))).result(kit.PATIENCE)
    assert kit.sorted_bits(found, source)
    kit.assert_clean(pair)
