"""Co-rank searches on the host: the textbook's worked examples, and every search against a stable argsort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

A = np.array([1, 7, 8, 9, 10])
B = np.array([7, 10, 10, 12])
SEARCHES = {"textbook": 0, "binary": 2, "radix 4": 4, "radix 32": 32}


def stable_co_rank(k: int, a: np.ndarray, b: np.ndarray) -> int:
    return int((np.argsort(np.concatenate([a, b]), kind="stable")[:k] < a.size).sum())


def test_the_trace_of_rank_3(kernels):
    """Rank 3 of [1,7,8,9,10] and [7,10,10,12]: (i_low, i, j, j_low) at each iteration."""
    states = np.zeros((8, 4), np.int64)
    steps = kernels("merge").value("co_rank_trace", 3, A, 5, B, 4, states)
    assert steps == 3
    assert states[:3].tolist() == [[0, 3, 0, 0], [0, 1, 2, 0], [1, 2, 1, 0]]


@pytest.mark.parametrize(("rank", "i", "j"), [(0, 0, 0), (3, 2, 1), (6, 5, 1), (9, 5, 4)])
@pytest.mark.parametrize("how", SEARCHES)
def test_the_three_thread_table(kernels, how, rank, i, j):
    """Three threads share nine outputs: their boundaries' co-ranks."""
    found = kernels("merge").value("co_rank_by", SEARCHES[how], rank, A, 5, B, 4)
    assert (found, rank - found) == (i, j)


@pytest.mark.parametrize("how", SEARCHES)
def test_every_rank_against_a_stable_sort(kernels, how):
    lib = kernels("merge")

    @settings(deadline=None)
    @given(m=st.integers(0, 40), n=st.integers(0, 40), values=st.sampled_from([1, 3, 1000]), seed=st.integers(0, 10**6))
    def check(m, n, values, seed):
        rng = np.random.default_rng(seed)
        a, b = np.sort(rng.integers(0, values, m)), np.sort(rng.integers(0, values, n))
        for k in range(m + n + 1):
            assert lib.value("co_rank_by", SEARCHES[how], k, a, m, b, n) == stable_co_rank(k, a, b)

    check()


@pytest.mark.parametrize("how", [0, 2, 4])
def test_ranks_beyond_32_bits(kernels, how):
    """a[i] = i // 3 and b[i] = i // 5 share out any rank in closed form, whole values at a time."""
    lib = kernels("merge")
    value = (1 << 38) + 12345
    found = lib.value("co_rank_staircase", how, 8 * value, 3, 1 << 41, 5, 1 << 41)
    assert found == 3 * value  # the first `value` values: three of each from a, five from b
    found = lib.value("co_rank_staircase", how, 8 * value + 4, 3, 1 << 41, 5, 1 << 41)
    assert found == 3 * value + 3  # a goes first on the tie


@pytest.mark.parametrize("kind", ["random", "few values", "all equal", "disjoint", "one long run", "empty"])
def test_many_runs(kernels, schedules, kind):
    lib = kernels("merge")

    @settings(deadline=None)
    @given(data=st.data(), seed=st.integers(0, 10**6))
    def check(data, seed):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 200, 8)
        if kind == "one long run":
            lengths = np.array([0, 1, 3, 900, 0, 2, 1, 5])
        if kind == "empty":
            lengths[:] = 0
        top = {"few values": 3, "all equal": 1}.get(kind, 2**63)
        runs = [np.sort(rng.integers(0, top, n, dtype=np.uint64)) for n in lengths]
        if kind == "disjoint":
            runs = [np.sort(rng.integers(r * 1000, r * 1000 + 500, n, dtype=np.uint64)) for r, n in enumerate(lengths)]
        total = int(lengths.sum())
        start = int(rng.integers(0, total + 1)) * int(rng.integers(0, 2))
        tile = total // int(rng.integers(1, 12)) + 1
        count = -(-(total - start) // tile) + 1
        table = np.array([r.ctypes.data for r in runs] + lengths.tolist() + [0] * 16, np.uint64)
        cuts = np.full((count, 8), 2**40, np.uint64)
        lib.schedule(**data.draw(schedules))
        lib("run_cuts", table, start, total, tile, count, cuts)
        of = np.repeat(np.arange(8), lengths)[np.argsort(np.concatenate(runs), kind="stable")]
        expected = [np.bincount(of[: min(start + c * tile, total)], minlength=8) for c in range(count)]
        np.testing.assert_array_equal(cuts, np.array(expected))

    check()
