"""The radix ladder on the host: every rung against NumPy, and the worked examples of the textbook's exercises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

RUNGS = {  # name: (threads, r, coarsening, scatter); r = 0 is the one-bit sort
    "radix_1bit": (64, 0, 1, 0),
    "radix_scatter r=1": (64, 1, 1, 1),
    "radix_scatter r=4": (64, 4, 2, 1),
    "radix_local_sort r=1": (64, 1, 1, 0),
    "radix_local_sort r=2": (64, 2, 1, 0),
    "radix_local_sort r=4": (64, 4, 1, 0),
    "radix_local_sort r=4, 3 keys a thread": (64, 4, 3, 0),
    "radix_local_sort r=8": (256, 8, 1, 0),
}


def random_keys(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Return keys of one of the kinds that break sorts: random, few values, equal, padding-valued, sorted."""
    top = np.iinfo(dtype).max
    match rng.integers(6):
        case 0:
            return rng.integers(0, top, n, dtype, endpoint=True)
        case 1:
            return rng.integers(0, 4, n, dtype) * dtype_step(dtype)
        case 2:
            return np.full(n, rng.integers(0, top, 1, dtype)[0])
        case 3:  # the padding is all ones
            return np.where(rng.random(n) < 0.5, np.array(top, dtype), rng.integers(0, top, n, dtype))
        case 4:
            return np.sort(rng.integers(0, top, n, dtype))
        case _:
            return np.sort(rng.integers(0, top, n, dtype))[::-1].copy()


def dtype_step(dtype: str) -> np.unsignedinteger:
    """Return a factor that spreads small integers over all bits."""
    return np.array(0x4000000000000001 if dtype == "u8" else 0x40000001, dtype)[()]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_a_rung_sorts(kernels, schedules, sizes, flavour, rung, dtype):
    lib = kernels("radix_ladder")
    threads, r, coarsening, scatter = RUNGS[rung]

    @given(n=sizes(threads * coarsening, 3 if threads == 64 else 2), seed=st.integers(0, 2**32 - 1), schedule=schedules)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(n, seed, schedule):
        if n == 0:
            return  # the host code launches nothing
        keys = random_keys(np.random.default_rng(seed), n, dtype)
        out = np.zeros_like(keys)
        lib.schedule(**schedule)
        lib(f"ladder_u{8 * keys.itemsize}", keys, out, n, threads, r, coarsening, scatter)
        np.testing.assert_array_equal(out, np.sort(keys))

    check()


def test_the_scan_over_many_tiles(kernels, schedules, sizes):
    lib = kernels("radix_ladder")

    @given(n=sizes(128, 40), launches=st.integers(1, 2), seed=st.integers(0, 2**32 - 1), schedule=schedules)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(n, launches, seed, schedule):
        if n == 0:
            return
        values = np.random.default_rng(seed).integers(0, 1000, n, np.uint32)
        expected = values
        for _ in range(launches):  # twice over one status array: the first launch's words must not be believed
            expected = np.concatenate([np.zeros(1, np.uint32), np.cumsum(expected, dtype=np.uint32)[:-1]])
        lib.schedule(**{**schedule, "resident": schedule["resident"] + 1})
        lib("scan", values, n, launches)
        np.testing.assert_array_equal(values, expected)

    check()


def test_destinations_of_a_1bit_pass(kernels):
    # The exercise's eight bits: exclusive scan [0,1,1,2,3,3,3,4], four ones in all.
    bits = np.array([1, 0, 1, 1, 0, 0, 1, 0], np.uint32)
    keys = bits | np.arange(8, dtype=np.uint32) << 1  # the index above the bit
    before, out = np.zeros(9, np.uint32), np.zeros(8, np.uint32)
    kernels("radix_ladder")("one_bit", keys, before, out, 8, 0)
    assert before.tolist() == [0, 1, 1, 2, 3, 3, 3, 4, 4]
    destination = np.empty(8, int)
    destination[out >> 1] = np.arange(8)
    assert destination[2] == 8 - 4 + 1 == 5  # bit 1: n - ones in all + ones before
    assert destination[4] == 4 - 3 == 1  # bit 0: i - ones before
    assert sorted(destination[bits == 0]) == [0, 1, 2, 3]
    assert sorted(destination[bits == 1]) == [4, 5, 6, 7]


def test_the_bucket_table_is_row_major(kernels):
    # Four blocks, r = 1: [s00 s01 s02 s03 | s10 s11 s12 s13], then its exclusive scan.
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 2**32, 4 * 64, np.uint32)
    tiles = keys.reshape(4, 64)
    sorted_tiles, table, scanned = np.zeros_like(keys), np.zeros(9, np.uint32), np.zeros(9, np.uint32)
    kernels("radix_ladder")("bucket_table", keys, sorted_tiles, table, scanned, keys.size, 3, 1)
    ones = (tiles >> 3 & 1).sum(axis=1)
    assert table.tolist() == [*(64 - ones), *ones, 0]
    assert scanned.tolist() == [0, *np.cumsum(table[:-1])]
    assert scanned[4] == table[:4].sum()  # bucket 1 of block 0 comes after bucket 0 of every block
    stable = np.argsort(tiles >> 3 & 1, axis=1, kind="stable")
    np.testing.assert_array_equal(sorted_tiles.reshape(4, 64), np.take_along_axis(tiles, stable, axis=1))


@pytest.mark.parametrize("r", [2, 4])
def test_the_bucket_table_of_r_bits(kernels, r):
    keys = np.random.default_rng(r).integers(0, 2**32, 3 * 64 - 5, np.uint32)  # the last tile is not full
    size = (3 << r) + 1
    sorted_tiles, table, scanned = np.zeros_like(keys), np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    kernels("radix_ladder")("bucket_table", keys, sorted_tiles, table, scanned, keys.size, 8, r)
    digits = keys >> 8 & (2**r - 1)
    counts = np.array([[(digits[b * 64 : b * 64 + 64] == d).sum() for b in range(3)] for d in range(2**r)])
    assert table.tolist() == [*counts.ravel(), 0]
    assert scanned.tolist() == [0, *np.cumsum(counts.ravel())]
