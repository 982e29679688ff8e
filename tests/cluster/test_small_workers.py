"""Workers that are small for what they sort: it ends right and no worker is restarted, or it is refused at once."""

from __future__ import annotations

from collections.abc import Callable

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import distsort
from distsort.errors import SortMemoryError
from distsort.memory import peak_bytes
from distsort.needs import Workers, needs
from tests.cluster import kit


def rows_of(number: int, rows: int) -> pd.DataFrame:
    keys = np.random.default_rng(number).integers(0, 2**62, rows)
    return pd.DataFrame({"k": keys, "id": np.arange(rows) + number * rows})


def zeros_of(number: int, rows: int) -> pd.DataFrame:
    """Rows that take no more memory while they are made than they do then."""
    return pd.DataFrame(np.zeros((rows, 2), np.int64), columns=["k", "id"], copy=False)


def ends_of(part: pd.DataFrame) -> pd.DataFrame:
    facts = {"n": [len(part)], "ids": [part.id.sum()], "ordered": [part.k.is_monotonic_increasing]}
    return pd.DataFrame({**facts, "first": [part.k.iloc[0]], "last": [part.k.iloc[-1]]})


def lazily(partitions: int, rows: int, make: Callable[[int, int], pd.DataFrame] = rows_of) -> dd.DataFrame:
    return dd.from_map(make, range(partitions), rows=rows, meta=rows_of(0, 0), enforce_metadata=False)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("limit", "partitions", "rows"),
    [
        pytest.param(320 << 20, 80, 500_000, id="larger than all their memory"),
        pytest.param(288 << 20, 24, 500_000, id="the smallest workers"),
        pytest.param(320 << 20, 8, 1_200_000, id="the largest partitions"),
    ],
)
def test_small_workers_sort_what_is_larger_than_they_are_and_none_is_restarted(limit, partitions, rows):
    with kit.cluster(2, memory_limit=limit) as client:
        pids = kit.worker_pids(client)
        ordered = distsort.sort_values(lazily(partitions, rows), "k", exchange="pull")
        ends = client.compute(ordered.map_partitions(ends_of)).result(3 * kit.PATIENCE)
        reports = client.run(lambda dask_worker: dask_worker.distsort_service.report())
        peaks = client.run(peak_bytes)
        assert kit.worker_pids(client) == pids
        del ordered
        kit.assert_clean(client)
    count = partitions * rows
    assert ends.n.tolist() == [rows] * partitions
    assert ends.ids.sum() == count * (count - 1) // 2
    assert ends.ordered.all()
    assert (ends["last"].to_numpy()[:-1] <= ends["first"].to_numpy()[1:]).all()
    assert sum(report["spilled"] for report in reports.values()) > 0.8 * count * 24
    assert max(peaks.values()) < limit
    stated = needs(nbytes=24 * count, runs=partitions, parts=partitions, workers=Workers(2, 1, limit), kept=False)
    assert max(peaks.values()) < 1.2 * stated.peak


@pytest.fixture(scope="module")
def small():
    with kit.cluster(2, memory_limit="320 MiB") as client:
        yield client


def test_chunks_that_small_workers_cannot_sort_are_refused_before_anything_runs(small):
    counts = kit.count_tasks(small)
    array = da.ones(100_000_000, chunks=10_000_000)
    with pytest.raises(SortMemoryError, match=r"input has 76\.3 MiB: .* limit of 451\.\d MiB .* has 320\.0 MiB"):
        distsort.sort(array, exchange="pull")
    with pytest.raises(SortMemoryError, match=r"or partitions of at most 34\.7 MiB"):
        distsort.plan_sort(array, exchange="pull")
    assert counts == {"runs": 0, "parts": 0}


def test_below_the_smallest_workers_it_is_refused():
    with kit.cluster(2, memory_limit="256 MiB") as client:
        pids = kit.worker_pids(client)
        ordered = distsort.sort_values(lazily(40, 500_000), "k", exchange="pull")
        with pytest.raises(SortMemoryError, match=r"limit of 259\.\d MiB .* has 256\.0 MiB: .* of at most 4\.8 MiB"):
            client.compute(ordered.map_partitions(len)).result(kit.PATIENCE)
        assert kit.worker_pids(client) == pids


def test_partitions_of_unknown_size_are_refused_by_the_first_worker_that_sees_one(small):
    pids = kit.worker_pids(small)
    ordered = distsort.sort_values(lazily(8, 2_500_000, zeros_of), "k", exchange="pull")
    with pytest.raises(SortMemoryError, match=r"a partition of the input has 38\.\d MiB: .* and has 320\.0 MiB"):
        small.compute(ordered.map_partitions(len)).result(kit.PATIENCE)
    few = distsort.sort_values(lazily(16, 200_000), "k", npartitions=1, exchange="pull")
    with pytest.raises(SortMemoryError, match=r"a partition of the result has 73\.\d MiB"):
        small.compute(few.map_partitions(len)).result(kit.PATIENCE)
    assert kit.worker_pids(small) == pids
    del ordered, few
    kit.assert_clean(small)
