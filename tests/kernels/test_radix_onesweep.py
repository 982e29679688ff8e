"""The single-pass radix sort on the host: every kind of sort against NumPy, over tile edges and schedules."""

from __future__ import annotations

import numpy as np
import pytest
from distsort.kernels import policy
from hypothesis import given, settings
from hypothesis import strategies as st

TILE = 1024
TILES = 3
PLAIN = policy.codec("u", 8)


def random_keys(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Return unsigned keys of one of the kinds that break sorts."""
    top = np.iinfo(dtype).max
    keys = rng.integers(0, top, n, dtype, endpoint=True)
    match rng.integers(8):
        case 0:
            return keys
        case 1:  # few values, over all digits
            return rng.choice(rng.integers(0, top, 4, dtype, endpoint=True), n)
        case 2:
            return np.full(n, keys[0] if n else 0, dtype)
        case 3:  # the padding is all ones
            return np.where(rng.random(n) < 0.5, np.array(top, dtype), keys)
        case 4:
            return np.sort(keys)
        case 5:
            return np.sort(keys)[::-1].copy()
        case 6:  # constant digits among varying ones
            mask = int.from_bytes(bytes(rng.choice([0, 255], np.dtype(dtype).itemsize).tolist()), "little")
            return keys & np.array(mask, dtype)
        case _:  # one outlier
            keys[:] = 7
            keys[rng.integers(0, n, 1 if n else 0)] = top
            return keys


def numbers(codec: policy.Codec, squeeze: tuple[list[int], list[int], int] | None = None) -> np.ndarray:
    """Return what the drivers take: codec, masks, shifts, constant bits."""
    masks, shifts, constant = squeeze or ([0] * 4, [0] * 4, 0)
    parts = [codec.negative, codec.flip, codec.lift, codec.infinity, codec.nan, *masks, *shifts, constant]
    return np.array(parts, np.uint64)


def run(lib, driver, keys, values=None, codec=PLAIN, squeeze=None, index=np.int64):
    """Run a driver; return sorted keys and values or positions. Outputs start poisoned."""
    n = len(keys)
    out_keys = np.full(n, 0xA5, keys.dtype) if keys.dtype.kind == "u" else np.full(n, 1.5, keys.dtype)
    out_values = np.full(n, 0x5A5A, index if values is None else values.dtype)
    given_values = values if values is not None else np.zeros(1, np.uint32)
    lib(driver, keys, given_values, out_keys, out_values, n, out_values.itemsize, numbers(codec, squeeze))
    return out_keys, out_values


def over_cases(sizes, schedules):
    """Draw a length, a seed for the keys and a schedule."""
    drawn = given(n=sizes(TILE, TILES), seed=st.integers(0, 2**32 - 1), schedule=schedules)
    return lambda test: settings(deadline=None)(drawn(test))


@pytest.mark.parametrize("driver", ["sort_1", "sort_2", "sort_4", "sort_4_wide", "sort_8"])
@pytest.mark.parametrize("descending", [False, True])
def test_keys(kernels, sizes, schedules, driver, descending):
    lib = kernels("radix_onesweep")
    size = int(driver.split("_")[1])

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return  # nothing is launched
        keys = random_keys(np.random.default_rng(seed), n, f"u{size}")
        lib.schedule(**schedule)
        got, _ = run(lib, driver, keys, codec=policy.codec("u", size, descending))
        expected = np.sort(keys)
        np.testing.assert_array_equal(got, expected[::-1] if descending else expected)

    check()


@pytest.mark.parametrize("driver", ["argsort_1", "argsort_2_wide", "argsort_4", "argsort_8", "argsort_8_wide"])
@pytest.mark.parametrize("index", [np.uint32, np.int64])
def test_argsort_is_stable(kernels, sizes, schedules, driver, index):
    lib = kernels("radix_onesweep")
    size = int(driver.split("_")[1])

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        keys = random_keys(np.random.default_rng(seed), n, f"u{size}")
        lib.schedule(**schedule)
        _, got = run(lib, driver, keys, index=index)
        np.testing.assert_array_equal(got, np.argsort(keys, stable=True))

    check()


@pytest.mark.parametrize("size", [4, 8])
def test_argsort_by_a_more_significant_key(kernels, sizes, schedules, size):
    lib = kernels("radix_onesweep")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        rng = np.random.default_rng(seed)
        minor, major = random_keys(rng, n, "u2"), random_keys(rng, n, f"u{size}") & np.array(3, f"u{size}")
        before = np.argsort(minor, stable=True).astype(np.uint32)
        lib.schedule(**schedule)
        _, got = run(lib, f"argsort_by_{size}", major, values=before)
        np.testing.assert_array_equal(got, np.lexsort([minor, major]))

    check()


@pytest.mark.parametrize("driver", ["pairs_4_4", "pairs_8_4", "pairs_8_8", "pairs_4_8"])
def test_pairs(kernels, sizes, schedules, driver):
    lib = kernels("radix_onesweep")
    _, size, value = driver.split("_")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        rng = np.random.default_rng(seed)
        keys = random_keys(rng, n, f"u{size}")
        values = rng.integers(0, 2**32 - 1, n, f"u{value}")
        lib.schedule(**schedule)
        got_keys, got_values = run(lib, driver, keys, values=values)
        order = np.argsort(keys, stable=True)
        np.testing.assert_array_equal(got_keys, keys[order])
        np.testing.assert_array_equal(got_values, values[order])

    check()


@pytest.mark.parametrize("driver", ["sort_8_squeezed", "argsort_8_squeezed"])
def test_squeezed_keys(kernels, sizes, schedules, driver):
    lib = kernels("radix_onesweep")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        rng = np.random.default_rng(seed)
        mask = sum(((1 << int(rng.integers(0, 9))) - 1) << at for at in (rng.choice(6, 4, replace=False) * 10).tolist())
        varying = policy.stretches(mask)
        constant = int(rng.integers(0, 2**63)) & ~mask & (2**64 - 1)
        keys = rng.integers(0, 2**64 - 1, n, np.uint64, endpoint=True) & np.uint64(mask) | np.uint64(constant)
        lib.schedule(**schedule)
        got, order = run(lib, driver, keys, squeeze=(list(varying.masks), list(varying.shifts), constant))
        expected = np.argsort(keys, stable=True)
        if driver == "sort_8_squeezed":
            np.testing.assert_array_equal(got, keys[expected])
        else:
            np.testing.assert_array_equal(order, expected)

    check()


def hard_floats(rng: np.random.Generator, n: int, dtype: np.dtype) -> np.ndarray:
    """Return floats with both zeros, NaNs of several bits, infinities and denormals, or with only some of these."""
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal], dtype)
    bits = special.view(f"u{dtype.itemsize}").copy()
    payload = bits[2] | np.array(5, bits.dtype)
    special = np.append(bits, payload).view(dtype)
    chosen = special[rng.random(len(special)) < 0.5]
    values = rng.standard_normal(n).astype(dtype)
    if len(chosen):
        values = np.where(rng.random(n) < rng.random(), rng.choice(chosen.view(bits.dtype), n).view(dtype), values)
    return values


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("descending", [False, True])
def test_floats_by_numpys_rules_bit_for_bit(kernels, sizes, schedules, size, descending):
    lib = kernels("radix_onesweep")
    dtype = np.dtype(f"f{size}")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        values = hard_floats(np.random.default_rng(seed), n + seed % 4, dtype)[
            seed % 4 :
        ]  # on a 16-byte boundary or off
        lib.schedule(**schedule)
        got, _ = run(lib, f"sort_{size}", values, codec=policy.codec("f", size, descending))
        nan = np.isnan(values)
        order = np.lexsort([np.where(nan, 0, -values if descending else values), nan])
        np.testing.assert_array_equal(got.view(f"u{size}"), values[order].view(f"u{size}"))

    check()


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_argsort_of_floats(kernels, sizes, schedules, size, descending, nulls_first):
    lib = kernels("radix_onesweep")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        values = hard_floats(np.random.default_rng(seed), n, np.dtype(f"f{size}"))
        lib.schedule(**schedule)
        codec = policy.codec("f", size, descending, nulls_first, unified=True)
        _, got = run(lib, f"argsort_{size}", values, codec=codec)
        nan = np.isnan(values)
        order = np.lexsort([np.where(nan, 0, -values if descending else values), ~nan if nulls_first else nan])
        np.testing.assert_array_equal(got, order)

    check()


@pytest.mark.parametrize("driver", ["small_1", "small_2", "small_4", "small_8"])
def test_one_launch_for_small_keys(kernels, sizes, schedules, driver):
    lib = kernels("radix_onesweep")
    size = int(driver.split("_")[1])

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        keys = random_keys(np.random.default_rng(seed), n, f"u{size}").view(f"i{size}")
        lib.schedule(**{**schedule, "resident": TILES})  # all blocks: the launch is cooperative
        got, _ = run(lib, driver, keys, codec=policy.codec("i", size))
        np.testing.assert_array_equal(got, np.sort(keys))

    check()


@pytest.mark.parametrize("driver", ["small_argsort_1", "small_argsort_4", "small_argsort_8"])
@pytest.mark.parametrize("index", [np.uint32, np.int64])
def test_one_launch_for_small_argsort(kernels, sizes, schedules, driver, index):
    lib = kernels("radix_onesweep")
    size = int(driver.split("_")[2])

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        keys = random_keys(np.random.default_rng(seed), n, f"u{size}")
        lib.schedule(**{**schedule, "resident": TILES})
        _, got = run(lib, driver, keys, index=index)
        np.testing.assert_array_equal(got, np.argsort(keys, stable=True))

    check()


@pytest.mark.parametrize("driver", ["finish_keys", "finish_argsort"])
@pytest.mark.parametrize("spread", [8, 11, 40])
def test_finish_of_a_sort_by_top_bits(kernels, sizes, schedules, driver, spread):
    lib = kernels("radix_onesweep")

    @over_cases(sizes, schedules)
    def check(n, seed, schedule):
        if n == 0:
            return
        rng = np.random.default_rng(seed)
        keys = rng.integers(0, 1 << spread, n, np.uint64) << np.uint64(32) | rng.integers(0, 1 << 20, n, np.uint64)
        lib.schedule(**schedule)
        out_keys, out_values = np.full(n, 0xA5, np.uint64), np.full(n, 0x5A5A, np.int64)
        failed = np.zeros(1, np.int64)
        args = (keys, keys, out_keys, out_values, n, 8, numbers(PLAIN), 32, failed)
        lib(driver, *args)
        order = np.argsort(keys, stable=True)
        assert not failed[0]
        if driver == "finish_keys":
            np.testing.assert_array_equal(out_keys, keys[order])
        else:
            np.testing.assert_array_equal(out_values, order)

    check()


def test_the_finish_gives_up_on_long_runs(kernels):
    lib = kernels("radix_onesweep")
    n = 4000
    keys = np.arange(n, dtype=np.uint64)[::-1].copy() & np.uint64(0xFFFF) | np.uint64(1 << 40)
    keys[0] = 0
    failed = np.zeros(1, np.int64)
    lib.schedule()
    lib("finish_keys", keys, keys, keys.copy(), np.zeros(n, np.int64), n, 8, numbers(PLAIN), 32, failed)
    assert failed[0]
