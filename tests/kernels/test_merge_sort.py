"""Merge sort on the host: block sort and co-rank passes, keys of 32, 64 and 128 bits, alone and with positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32 - 1)
TILES = {
    "sort_u32": 256,
    "sort_u64": 256,
    "sort_u128": 256,
    "argsort_u32": 512,
    "argsort_u64": 256,
    "argsort_u128": 256,
}


def draw_words(seed: int, n: int, dtype: str) -> np.ndarray:
    """Return random words: all, few or one value, with the padding's value among them; sorted or reversed at times."""
    rng = np.random.default_rng(seed)
    top = np.iinfo(dtype).max
    keys = rng.integers(0, [0, 3, n + 1, top][seed % 4], n, dtype, endpoint=True)
    keys[rng.random(n) < 0.05] = top
    if seed % 5 == 0:
        keys.sort()
    return keys[::-1].copy() if seed % 7 == 0 else keys


@pytest.mark.parametrize("driver", TILES)
def test_a_sort(kernels, schedules, sizes, driver):
    lib = kernels("merge_sort")
    action, _, bits = driver.partition("_u")

    @given(n=sizes(TILES[driver], 5), seed=SEEDS, schedule=schedules)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(n, seed, schedule):
        if n == 0:
            return  # the host code launches nothing
        if bits == "128":
            keys = np.stack([draw_words(seed // 3 * 2, n, "u8"), draw_words(seed + 1, n, "u8")], axis=1)
            order = np.lexsort((keys[:, 1], keys[:, 0]))
        else:
            keys = draw_words(seed, n, f"u{int(bits) // 8}")
            order = np.argsort(keys, kind="stable")
        lib.schedule(**schedule)
        if action == "sort":
            out = np.zeros_like(keys)
            lib(driver, keys, out, n)
            np.testing.assert_array_equal(out, keys[order])
        else:
            index = np.zeros(n, np.uint32)
            lib(driver, keys, index, n)
            np.testing.assert_array_equal(index, order)

    check()
