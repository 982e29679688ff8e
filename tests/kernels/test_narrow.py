"""Keys that become offsets and keys again: dense, spread, both in one run, up and down, signed and unsigned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.build import aligned

ROWS, ITEMS = 2048, 8  # NARROW_ROWS of narrow.cuh; what `low` is a multiple of

WIDTHS = {"u4 u2 up": "narrow_u32_u16_up", "u4 u2 down": "narrow_u32_u16_down"}
WIDTHS |= {"u8 u2 up": "narrow_u64_u16_up", "u8 u4 down": "narrow_u64_u32_down"}


def keys_of(rng: np.random.Generator, n: int, dtype: str, kind: str, limit: int) -> np.ndarray:
    """Return sorted keys whose blocks fit, do not fit, or both; at the limit to the last step."""
    top = np.iinfo(dtype).max
    if kind == "dense":
        return np.sort(rng.integers(0, max(n // 2, 1), n).astype(dtype) + np.array(top // 3, dtype))
    if kind == "spread":
        return np.sort(rng.integers(np.iinfo(dtype).min, top, n, dtype, endpoint=True))
    keys = np.sort(rng.integers(0, 50, n).astype(dtype))
    for block in range(0, n, ROWS):
        reach = [limit - 1, limit, limit + 1, 0][int(rng.integers(0, 4))]
        keys[block : block + ROWS] = np.minimum(keys[block : block + ROWS], keys[block])
        keys[min(block + ROWS, n) - 1] = keys[block] + np.array(min(reach, top - int(keys[block])), dtype)
    return np.sort(keys)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", ["dense", "spread", "at the limit"])
def test_keys_come_back(kernels, schedules, width, signed, kind):
    lib = kernels("merge")
    key, offset, direction = width.split()
    dtype = f"i{key[1]}" if signed else key

    @settings(deadline=None, max_examples=25)
    @given(n=st.integers(1, 3 * ROWS + 5), seed=st.integers(0, 10**6), s=schedules)
    def check(n, seed, s):
        rng = np.random.default_rng(seed)
        keys = keys_of(rng, n, dtype, kind, np.iinfo(offset).max)
        if signed:
            keys = np.sort(keys - np.array(n // 4, dtype)) if kind != "spread" else keys
        keys = np.ascontiguousarray(keys[::-1] if direction == "down" else keys)
        start = int(rng.integers(0, -(-n // ROWS) + 1)) * ROWS
        stop = int(rng.integers(start, n + 1)) if start < n else start
        begin, end = sorted(rng.integers(0, n + 1, 2).tolist())
        skip = int(rng.integers(0, stop - start + 1)) // ITEMS * ITEMS  # what is copied need not begin with a block
        offsets = aligned(max(stop - start, 1), offset)
        ends = np.zeros(2 * (-(-n // ROWS) + 1), key)
        out = np.zeros(end - begin + 1, key)
        lib.schedule(**s)
        lib(WIDTHS[width], aligned(keys.view(key)), start, stop, skip, begin, end, offsets, ends, out)
        np.testing.assert_array_equal(out[:-1].view(dtype), keys[begin:end])

    check()
