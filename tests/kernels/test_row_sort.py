"""Sort and argsort of many short rows on the host, against NumPy's rules for every kind of key."""

from __future__ import annotations

import numpy as np
import pytest
from distsort.kernels import policy
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = ["u1", "i2", "f2", "u4", "i4", "f4", "u8", "f8", "m8[s]"]


def draw_rows(seed: int, rows: int, n: int, dtype: str) -> np.ndarray:
    """Return rows of keys of one kind: floats with both zeros, infinities, NaNs of both signs and many payloads."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    bits = rng.integers(0, 256, (rows, n * dtype.itemsize), np.uint8).view(f"u{dtype.itemsize}")
    few = rng.integers(0, 3, (rows, n)).astype(bits.dtype)
    bits = np.where(rng.random((rows, 1)) < 0.5, bits, few)
    bits[rng.random((rows, n)) < 0.05] = np.iinfo(bits.dtype).max  # the padding's value
    values = bits.view(dtype)
    if dtype.kind == "f":
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0], dtype)
        values = np.where(rng.random((rows, n)) < rng.random((rows, 1)), rng.choice(special, (rows, n)), values)
    if dtype.kind == "m":
        values[rng.random((rows, n)) < 0.1] = np.timedelta64("NaT")
    return np.ascontiguousarray(values)


def stable_order(row: np.ndarray, descending: bool) -> np.ndarray:
    """Return NumPy's stable order; nulls last in both directions."""
    _, rank = np.unique(row, return_inverse=True)
    null = np.isnan(row) if row.dtype.kind in "fm" else np.zeros(row.shape, bool)
    rank = np.where(null, row.size, -rank if descending else rank)
    return np.argsort(rank, kind="stable")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [0, 64, 256], ids=["by lanes", "by block", "by a large block"])
@pytest.mark.parametrize("action", ["sort", "argsort"])
def test_rows(kernels, schedules, flavour, dtype, threads, action):
    if flavour == "tsan" and dtype not in ("f4", "u8"):
        pytest.skip("the kernels share memory in the same way for every dtype")
    if threads == 256 and dtype not in ("f4", "u8"):
        pytest.skip("more warps differ in the merge rounds only")
    lib = kernels("row_sort")
    itemsize = np.dtype(dtype).itemsize
    edges, longest = [1, 2, 8, 31, 32, 33, 255, 256], max(256, 4 * threads)

    @given(
        rows=st.integers(1, 9 if threads == 0 else 2),
        n=st.sampled_from(edges) | st.integers(1, longest),
        seed=SEEDS,
        schedule=schedules,
        descending=st.booleans(),
        in_place=st.booleans(),
    )
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(rows, n, seed, schedule, descending, in_place):
        values = draw_rows(seed, rows, n, dtype)
        order = np.stack([stable_order(row, descending) for row in values])
        c = policy.codec(np.dtype(dtype).kind, itemsize, descending, unified=action == "argsort")
        codec = np.array([c.negative, c.flip, c.lift, c.infinity, c.nan], np.uint64)
        lanes = 0 if threads else max(1, 1 << (n - 1).bit_length() >> 3)
        lib.schedule(**schedule)
        if action == "sort":
            expected = np.take_along_axis(values, order, axis=1)
            out = values if in_place else np.zeros_like(values)
            lib("sort_rows", itemsize, values, out, 0, rows, n, lanes, threads, codec)
            np.testing.assert_array_equal(out.view(f"u{itemsize}"), expected.view(f"u{itemsize}"))
        else:
            columns = np.full((rows, n), -1, np.int64)
            lib("sort_rows", itemsize, values, 0, columns, rows, n, lanes, threads, codec)
            np.testing.assert_array_equal(columns, order)

    check()


@pytest.mark.parametrize("word", [1, 2, 4, 8])
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("rows", [1, 128, 129, 10**6])
def test_the_policy_gives_each_length_room(word, index, rows):
    longest = 4096 if index and word == 8 else 8192
    assert policy.row_shape(word, index, longest + 1, rows) is None
    for n in [*range(300), 511, 512, 513, 2048, 2049, longest]:
        shape = policy.row_shape(word, index, n, rows)
        assert (shape.lanes or shape.threads) * shape.items >= n
        if shape.lanes:
            assert 32 % shape.lanes == 0
            assert shape.shared == 0
        else:
            warps = shape.threads // 32
            assert shape.threads == warps * 32 <= shape.most_threads
            assert warps & (warps - 1) == 0
            assert shape.shared <= 99 << 10  # what a block may have on every device from 8.0 on
