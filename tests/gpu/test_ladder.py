"""The textbook's sorts and the row sorts on a GPU, against NumPy."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

SIZES = [1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 10**5 + 3]
KINDS = ["random", "few", "equal", "sorted", "reversed", "padding"]
RUNGS: list[tuple[str, dict[str, Any]]] = [
    ("radix_1bit", {}),
    *(("radix_scatter", {"bits": r, "coarsening": c}) for r, c in ((1, 1), (4, 1), (8, 4))),
    *(("radix_local_sort", {"bits": r, "coarsening": c}) for r, c in ((1, 1), (2, 1), (4, 1), (8, 1), (4, 16), (8, 7))),
    ("merge_sort", {}),
]


@pytest.fixture(scope="module")
def cupy() -> ModuleType:
    module = pytest.importorskip("cupy")
    try:
        module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")
    return module


def draw(kind: str, n: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    top = np.iinfo(dtype).max
    keys = rng.integers(0, top, n, dtype, endpoint=True)
    match kind:
        case "few":
            return keys % 3 * (top // 2)
        case "equal":
            return np.full(n, top // 3, dtype)
        case "sorted":
            return np.sort(keys)
        case "reversed":
            return np.sort(keys)[::-1].copy()
        case "padding":
            return np.where(rng.random(n) < 0.5, np.array(top, dtype), keys)
    return keys


@pytest.mark.parametrize("dtype", ["u4", "u8"])
@pytest.mark.parametrize(("rung", "options"), RUNGS, ids=[f"{name}-{o}" for name, o in RUNGS])
def test_a_rung(cupy, rung, options, dtype):
    from distsort.backends import cupy_ladder

    for i, n in enumerate(SIZES):
        for kind in ("random" if n > 1000 else KINDS[i % len(KINDS)], "padding"):
            keys = draw(kind, n, dtype, n)
            given = cupy.asarray(keys)
            out = cupy_ladder.sort(rung, given, **options)
            np.testing.assert_array_equal(out.get(), np.sort(keys), err_msg=f"{rung} {kind} n={n}")
            np.testing.assert_array_equal(given.get(), keys, err_msg="the input changed")


@pytest.mark.parametrize("rung", ["radix_1bit", "radix_local_sort", "merge_sort"])
def test_a_rung_at_millions(cupy, rung):
    from distsort.backends import cupy_ladder

    for n in (2**20 - 1, 2**20 + 1, 2**24 + 1):
        keys = cupy.random.randint(0, 2**32, n, dtype=cupy.uint32)
        out = cupy_ladder.sort(rung, keys)
        assert bool((out[1:] >= out[:-1]).all())
        assert bool((cupy.bincount(out >> 16) == cupy.bincount(keys >> 16)).all())
        assert int(out.sum(dtype=cupy.uint64)) == int(keys.sum(dtype=cupy.uint64))


def test_the_scan_is_exclusive(cupy):
    from distsort.backends import cupy_ladder

    for n in (1, 4095, 4096, 4097, 10**6 + 7, 2**26 + 3):
        values = cupy.random.randint(0, 50, n, dtype=cupy.uint32)
        scan = cupy_ladder._Scan(n)
        expected = values
        for _ in range(3):  # over the same status words: older epochs must not be believed
            expected = cupy.concatenate([cupy.zeros(1, cupy.uint32), cupy.cumsum(expected, dtype=cupy.uint32)[:-1]])
            scan(values)
            assert bool((values == expected).all()), n


@pytest.mark.parametrize("kind", KINDS)
def test_wide_keys(cupy, kind):
    from distsort.backends import cupy_ladder

    for n in (1, 2, 2047, 2048, 2049, 4097, 10**5):
        keys = np.stack([draw("few", n, "u8", n), draw(kind, n, "u8", n + 1)], axis=1)
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        np.testing.assert_array_equal(cupy_ladder.merge_argsort(cupy.asarray(keys)).get(), order)
        np.testing.assert_array_equal(cupy_ladder.merge_sort(cupy.asarray(keys)).get(), keys[order])


@pytest.mark.parametrize("network", ["bitonic", "odd_even_merge", "odd_even_transposition"])
def test_a_network(cupy, network):
    from distsort.backends import cupy_ladder

    for n in (1, 2, 3, 31, 32, 33, 1000, 1024, 1025, 4096, 6000):
        for dtype in ("u4", "u8"):
            keys = draw("random", n, dtype, n)
            out = cupy_ladder.sort(f"network_{network}", cupy.asarray(keys))
            np.testing.assert_array_equal(out.get(), np.sort(keys))


ROW_LENGTHS = [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 2048, 4096]


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "i4", "u4", "f4", "i8", "u8", "f8"])
@pytest.mark.parametrize("descending", [False, True])
def test_rows(cupy, dtype, descending):
    from distsort.backends import cupy_rows

    rng = np.random.default_rng(5)
    kind, itemsize = np.dtype(dtype).kind, np.dtype(dtype).itemsize
    unsigned = f"u{itemsize}"
    for n in (*ROW_LENGTHS, *((8192,) if itemsize < 8 else ())):
        rows = 137 if n < 1000 else 3  # more and fewer than multiprocessors: two shapes
        bits = rng.integers(0, 256, (rows, n * itemsize), np.uint8)
        values = (bits % 2).astype(bool) if kind == "b" else bits.view(dtype)
        if kind == "f":
            special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1], dtype)
            values = np.where(rng.random((rows, n)) < rng.random((rows, 1)), rng.choice(special, (rows, n)), values)
        order = np.stack([stable_order(row, descending) for row in values])
        given = cupy.asarray(values)
        columns = cupy_rows.argsort_rows(given, descending)
        np.testing.assert_array_equal(columns.get(), order, err_msg=f"n={n}")
        expected = np.take_along_axis(values, order, axis=1).view(unsigned)
        out = cupy_rows.sort_rows(given, descending)
        np.testing.assert_array_equal(out.get().view(unsigned), expected, err_msg=f"n={n}")
        cupy_rows.sort_rows(given, descending, out=given)
        np.testing.assert_array_equal(given.get().view(unsigned), expected, err_msg=f"in place, n={n}")


def stable_order(row: np.ndarray, descending: bool) -> np.ndarray:
    """Return NumPy's stable order; nulls last in both directions."""
    _, rank = np.unique(row, return_inverse=True)
    null = np.isnan(row) if row.dtype.kind == "f" else np.zeros(row.shape, bool)
    return np.argsort(np.where(null, row.size, -rank if descending else rank), kind="stable")


def test_empty_rows_and_no_rows(cupy):
    from distsort.backends import cupy_rows

    assert cupy_rows.sort_rows(cupy.empty((2, 0), "f4")).shape == (2, 0)
    assert cupy_rows.argsort_rows(cupy.empty((0, 5), "f4")).shape == (0, 5)


def test_what_fits():
    from distsort.backends import cupy_rows

    assert cupy_rows.fits(np.dtype("f4"), 8192, False)
    assert not cupy_rows.fits(np.dtype("f4"), 8193, False)
    assert not cupy_rows.fits(np.dtype("f8"), 8192, True)
    assert not cupy_rows.fits(np.dtype("c8"), 4, False)
