"""The pull exchange between GPUs: bits, every transport, a killed worker, nothing left over."""

from __future__ import annotations

import warnings

import dask
import numpy as np
import pandas as pd
import pytest

pytestmark = [pytest.mark.multi_gpu, pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = 1_000_003


def _gpus() -> int:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


if _gpus() < 2:
    pytest.skip("needs two GPUs", allow_module_level=True)

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from distributed import Client  # noqa: E402

import distsort  # noqa: E402
from tests.cluster import kit  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def client():
    from dask_cuda import LocalCUDACluster

    with (
        warnings.catch_warnings(action="ignore"),
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCUDACluster(n_workers=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def on_gpu(block):
    import cupy

    return cupy.asarray(block)


def array(source, chunks):
    import cupy

    return da.from_array(source, chunks=chunks).map_blocks(on_gpu, dtype=source.dtype, meta=cupy.empty(0, source.dtype))


def to_host(block):
    return block.get() if hasattr(block, "get") else block


def check(client, source, **options):
    x = array(source, 130_000)
    values = distsort.sort(x, exchange="pull", npartitions=5, **options)
    index = distsort.argsort(x, exchange="pull", npartitions=3, **options)
    values, index = dask.compute(
        values.map_blocks(to_host, dtype=source.dtype, meta=np.empty(0, source.dtype)),
        index.map_blocks(to_host, dtype=np.int64, meta=np.empty(0, np.int64)),
    )
    if not options.get("descending"):
        assert (index == np.argsort(source, kind="stable")).all()
    assert values.tobytes() == source[index].tobytes()
    kit.assert_clean(client)


@pytest.mark.parametrize("dtype", ["i8", "u4", "f4", "f8"])
@pytest.mark.parametrize("descending", [False, True])
def test_arrays(client, dtype, descending):
    rng = np.random.default_rng(3)
    source = rng.integers(0, 50_000, ROWS).astype(dtype)
    if dtype[0] == "f":
        source[::1001], source[1::997], source[2::991] = np.nan, -0.0, 0.0
    check(client, source, descending=descending)


def test_most_rows_are_one_value(client):
    rng = np.random.default_rng(4)
    check(client, np.where(rng.random(ROWS) < 0.9, 7, rng.integers(0, 100, ROWS)))


@pytest.mark.parametrize("runs", [2, 3, 4, 8, 9])
@pytest.mark.parametrize("order", ["shuffled", "sorted", "backwards", "by turns"])
def test_blocks_alike_and_not_alike(client, runs, order):
    source = np.sort(np.random.default_rng(runs).integers(0, 1 << 40, ROWS))
    if order == "shuffled":
        np.random.default_rng(1).shuffle(source)
    elif order == "backwards":
        source = source[::-1].copy()
    elif order == "by turns":
        source = np.roll(source, ROWS // 3)
    x = array(source, -(-ROWS // runs))
    for descending in (False, True):
        values = distsort.sort(x, exchange="pull", npartitions=4, descending=descending)
        index = distsort.argsort(x, exchange="pull", npartitions=2, descending=descending)
        values, index = dask.compute(
            values.map_blocks(to_host, dtype=source.dtype, meta=np.empty(0, source.dtype)),
            index.map_blocks(to_host, dtype=np.int64, meta=np.empty(0, np.int64)),
        )
        assert values.tobytes() == (np.sort(source)[::-1] if descending else np.sort(source)).tobytes()
        assert (source[index] == values).all()
    kit.assert_clean(client)


def test_dense_keys_cross_as_offsets(client):
    """Large runs of bare integers, here not so large ones; floats do not."""

    def small(on):
        from distsort.kernels import policy

        from distsort.backends import cupy_merge
        from distsort.exchange import device_narrow as room

        if on:
            policy.kept, room.plain, room.made = policy.NARROW_LEAST, room.offsets_for, []
            policy.NARROW_LEAST, cupy_merge.STRETCH = 1 << 16, 1 << 19
            room.offsets_for = lambda *a: room.made.append(room.plain(*a)) or room.made[-1]
            return None
        policy.NARROW_LEAST, cupy_merge.STRETCH, room.offsets_for = policy.kept, 1 << 27, room.plain
        return [(known.values.itemsize, len(known.values)) for known in room.made]

    rng = np.random.default_rng(12)
    source = rng.integers(0, 8 * ROWS, 4 * ROWS).astype("u4")
    heavy = np.where(rng.random(4 * ROWS) < 0.9, 7, source // 4).astype("u4")  # parts want other rows than have offsets
    dense = ((source, 2), (source.astype("i8") << 14, 4), (heavy, 2), (heavy.astype("i8") << 14, 4))
    for values, wanted in (*dense, (source.astype("f8"), None)):
        client.run(small, on=True)
        for descending in (False, True):
            x = array(values, 2 * ROWS)
            found = distsort.sort(x, exchange="pull", descending=descending)
            found = found.map_blocks(to_host, dtype=values.dtype, meta=np.empty(0, values.dtype)).compute()
            assert found.tobytes() == (np.sort(values)[::-1] if descending else np.sort(values)).tobytes()
        kit.assert_clean(client)
        made = [known for found in client.run(small, on=False).values() for known in found]
        if wanted is None:
            assert not made
        else:
            assert {width for width, _ in made} == {wanted}
            assert all(ROWS < length < 1.1 * ROWS for _, length in made)


def test_memory_came_over_ipc(client):
    check(client, np.arange(ROWS)[::-1].copy())
    maps = client.run(lambda dask_worker: len(dask_worker.distsort_service.devices._mappings))
    assert all(maps.values()), maps


def test_without_ipc_through_pinned_memory(client):
    def refuse(dask_worker, on):
        from distsort.backends import cupy_ipc

        plain = getattr(cupy_ipc, "plain_export", cupy_ipc.export)
        cupy_ipc.plain_export = plain
        cupy_ipc.export = (lambda frames: None) if on else plain

    client.run(refuse, on=True)
    try:
        check(client, np.random.default_rng(5).integers(0, 1 << 60, ROWS))
    finally:
        client.run(refuse, on=False)


def test_pandas_rows_with_keys_on_the_gpu(client):
    rng = np.random.default_rng(6)
    source = pd.DataFrame({"k": rng.integers(0, 1000, ROWS), "v": np.arange(ROWS)})
    frame = dd.from_pandas(source, npartitions=6, sort=False)
    result = distsort.sort_values(frame, "k", backend="cupy", exchange="pull").compute()
    pd.testing.assert_frame_equal(result, source.sort_values("k", kind="stable"))
    kit.assert_clean(client)


def test_cudf_frames(client):
    cudf = pytest.importorskip("cudf")
    rng = np.random.default_rng(8)
    source = pd.DataFrame(
        {"k": rng.integers(0, 1000, ROWS), "f": rng.random(ROWS), "s": [f"s{i % 71}" for i in range(ROWS)]}
    )
    frame = dd.from_pandas(source, npartitions=6, sort=False).map_partitions(cudf.from_pandas)
    for by in ("k", ["s", "k"]):
        result = distsort.sort_values(frame, by, exchange="pull", npartitions=4).map_partitions(lambda p: p.to_pandas())
        expected = source.sort_values(by, kind="stable")
        pd.testing.assert_frame_equal(result.compute(), expected, check_dtype=False)
    kit.assert_clean(client)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("ignore_index", [False, True])
def test_cudf_frames_of_plain_columns(client, ignore_index, nulls):
    """They travel as bare columns, but for partitions with nulls; NaN stays NaN, and large integers stay apart."""
    cudf = pytest.importorskip("cudf")
    rng = np.random.default_rng(14)
    key = (1 << 60) + rng.integers(0, 1000, ROWS)
    source = pd.DataFrame({"k": key, "f": rng.random(ROWS), "b": rng.random(ROWS) < 0.5, "n": np.arange(ROWS)})
    source.loc[::97, "f"] = np.nan

    def to_device(part):
        frame = cudf.from_pandas(part, nan_as_null=False)
        if nulls and part["n"].iloc[0] == 0:
            frame.loc[frame["n"] % 1000 == 3, "k"] = None
        return frame

    frame = dd.from_pandas(source, npartitions=6, sort=False).map_partitions(to_device)
    if nulls:
        first = -(-ROWS // 6)
        source["k"] = source["k"].astype("Int64")
        source.loc[(source.index < first) & (source["n"] % 1000 == 3), "k"] = pd.NA
    for by, ascending in (("k", True), (["b", "f"], [False, True])):
        result = distsort.sort_values(
            frame, by, ascending=ascending, exchange="pull", npartitions=4, ignore_index=ignore_index
        )
        found = result.map_partitions(lambda p: p.to_pandas(nullable=True)).compute()
        expected = source.sort_values(by, ascending=ascending, kind="stable", ignore_index=ignore_index)
        assert found["n"].tolist() == expected["n"].tolist()
        assert found.index.tolist() == expected.index.tolist()
        assert found["k"].astype("Int64").equals(expected["k"].astype("Int64"))
        assert found["b"].tolist() == expected["b"].tolist()
        assert found["f"].to_numpy(np.float64, na_value=np.nan).tobytes() == expected["f"].to_numpy().tobytes()
    parts = distsort.sort_values(frame, "k", exchange="pull", npartitions=4, ignore_index=ignore_index)
    counts = parts.map_partitions(lambda p: cudf.Series([p["f"].null_count, len(p)])).compute().to_pandas().tolist()
    assert counts[::2] == [0, 0, 0, 0]
    assert max(counts[1::2]) - min(counts[1::2]) <= 1
    kit.assert_clean(client)


def test_cudf_series_and_empty_parts(client):
    cudf = pytest.importorskip("cudf")
    source = pd.Series([3, 1, 2], index=[7, 8, 9], name="s")
    series = dd.from_pandas(source, npartitions=3, sort=False).map_partitions(cudf.from_pandas)
    result = distsort.sort_values(series, exchange="pull", npartitions=5)
    found = result.map_partitions(lambda p: p.to_pandas()).compute()
    assert (found.name, found.tolist(), found.index.tolist()) == ("s", [1, 2, 3], [8, 9, 7])
    frame = series.to_frame().assign(v=1.5)
    found = distsort.sort_values(frame, "s", exchange="pull", npartitions=5).map_partitions(lambda p: p.to_pandas())
    assert found.compute().to_dict("list") == {"s": [1, 2, 3], "v": [1.5] * 3}
    kit.assert_clean(client)


def test_slices_may_be_copied_before_they_are_merged(client):
    def set_copying(on):
        from distsort.exchange import device

        device.READ_IN_PLACE = not on

    client.run(set_copying, True)
    try:
        check(client, np.random.default_rng(12).integers(0, 1 << 60, ROWS))
    finally:
        client.run(set_copying, False)


def test_runs_that_leave_the_device_come_back(client):
    """Each store keeps less than one run on its GPU: the others are read from pinned memory, with their own dtypes."""

    def set_budget(dask_worker, small):
        from distsort.exchange.holder import _device_budget

        dask_worker.distsort_service.store.device_budget = (lambda: 1 << 16) if small else _device_budget

    def spills(dask_worker):
        return dask_worker.distsort_service.store.spills

    rng = np.random.default_rng(13)
    source = rng.integers(0, 1 << 60, ROWS)
    check(client, source[:1000])  # brings the services
    client.run(set_budget, small=True)
    try:
        check(client, source)
        assert all(n > 0 for n in client.run(spills).values())
        cudf = pytest.importorskip("cudf")
        text = pd.Series(rng.choice(["x", "yy", "z"], ROWS))
        rows = pd.DataFrame({"k": rng.integers(0, 1000, ROWS), "s": text, "c": text.astype("category")})
        rows["n"] = pd.Series(rng.integers(0, 9, ROWS)).where(rng.random(ROWS) < 0.9).astype("Int64")
        frame = dd.from_pandas(rows, npartitions=6, sort=False).map_partitions(cudf.from_pandas)
        order = rows.sort_values("k", kind="stable").index
        result = distsort.sort_values(frame, "k", exchange="pull", npartitions=4).map_partitions(
            lambda p: p.to_pandas()
        )
        found = result.compute()
        assert found.index.tolist() == order.tolist()
        for name in rows:
            got, want = found[name], rows[name].loc[order]
            assert got.isna().tolist() == want.isna().tolist()
            assert got.dropna().astype(str).str.removesuffix(".0").tolist() == want.dropna().astype(str).tolist()
        kit.assert_clean(client)
    finally:
        client.run(set_budget, small=False)


def test_a_killed_worker(client):
    source = np.random.default_rng(9).integers(0, 1 << 60, ROWS)
    x = array(source, 130_000)
    kit.slow_down(client, "make_part", 0.5)
    result = distsort.sort(x, exchange="pull").map_blocks(to_host, dtype=source.dtype, meta=np.empty(0, source.dtype))
    result = result.persist()
    kit.until(lambda: (ts := kit.barrier_of(client)) is not None and ts.state == "memory")
    kit.kill(next(iter(kit.worker_pids(client).values())))
    assert (kit.finish(result, 100) == np.sort(source)).all()
    del result
    kit.assert_clean(client)


def _rmm_for_cupy():
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    cupy.cuda.set_allocator(rmm_cupy_allocator)


@pytest.mark.parametrize(
    ("options", "mapped"),
    [({"rmm_pool_size": "4GB"}, True), ({"rmm_async": True}, False), ({"protocol": "ucx"}, True)],
    ids=["rmm pool", "rmm async", "ucx"],
)
def test_other_memory_and_other_comms(options, mapped):
    """Memory of CUDA's own pools cannot be exported: then rows go through pinned memory."""
    pytest.importorskip("rmm")
    if "protocol" in options:
        pytest.importorskip("ucxx")
    from dask_cuda import LocalCUDACluster

    with LocalCUDACluster(n_workers=2, dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        if "protocol" not in options:
            client.run(_rmm_for_cupy)
        source = np.random.default_rng(11).integers(0, 1 << 60, ROWS)
        check(client, source)
        maps = client.run(lambda dask_worker: len(dask_worker.distsort_service.devices._mappings))
        assert all(bool(n) == mapped for n in maps.values()), maps
