"""The sorting networks on the host: in a thread, in groups of lanes, in shared memory; and their comparators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

NETWORKS = {"bitonic": 0, "odd-even merge": 1, "odd-even transposition": 2}
SEEDS = st.integers(0, 2**32 - 1)


def draw_keys(seed: int, n: int, dtype: str = "u4") -> np.ndarray:
    """Return random keys with ties and with the highest value among them."""
    rng = np.random.default_rng(seed)
    top = np.iinfo(dtype).max
    keys = rng.integers(0, [3, n + 1, top][seed % 3], n, dtype, endpoint=True)
    keys[rng.random(n) < 0.1] = top
    return keys


@pytest.mark.parametrize("items", [4, 7, 8, 16])
def test_registers_of_a_thread(kernels, items):
    lib = kernels("networks")

    @given(seed=SEEDS)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(seed):
        keys = draw_keys(seed, 32 * items)
        out = np.zeros_like(keys)
        lib("thread_sort", keys, out, items)
        np.testing.assert_array_equal(out.reshape(32, items), np.sort(keys.reshape(32, items), axis=1))

    check()


def test_registers_by_the_zero_one_principle(kernels):
    lib = kernels("networks")
    # A network that sorts all 2^n inputs of zeros and ones sorts everything (Knuth, vol. 3, 5.3.4, theorem Z).
    for inputs in zero_one_inputs(8):
        out = np.zeros_like(inputs)
        lib("thread_sort", inputs, out, 8)
        np.testing.assert_array_equal(out.reshape(32, 8), np.sort(inputs.reshape(32, 8), axis=1))


def zero_one_inputs(n: int) -> list[np.ndarray]:
    """Return all 2^n inputs of n zeros and ones, 32 inputs to an array."""
    every = (np.arange(2**n, dtype=np.uint32)[:, None] >> np.arange(n, dtype=np.uint32)) & 1
    return [np.ascontiguousarray(every[i : i + 32]).ravel() for i in range(0, 2**n, 32)]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("items", [2, 8])
def test_registers_of_lanes(kernels, lanes, items):
    lib = kernels("networks")

    @given(seed=SEEDS)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(seed):
        keys = draw_keys(seed, 64 * items)
        out = np.zeros_like(keys)
        lib("lanes_u32", keys, out, lanes, items)
        rows = keys.reshape(-1, lanes * items)
        np.testing.assert_array_equal(out.reshape(rows.shape), np.sort(rows, axis=1))

    check()


def test_wide_keys_of_lanes(kernels):
    lib = kernels("networks")

    @given(seed=SEEDS)
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(seed):
        rng = np.random.default_rng(seed)
        keys = np.empty((64 * 4, 2), np.uint64)
        keys[:, 0] = rng.integers(0, 5, 256)
        keys[:, 1] = rng.integers(0, 2**64, 256, np.uint64)
        out = np.zeros_like(keys)
        lib("lanes_u128", keys, out, 32)
        for half in (slice(0, 128), slice(128, 256)):
            order = np.lexsort((keys[half, 1], keys[half, 0]))
            np.testing.assert_array_equal(out[half], keys[half][order])

    check()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_a_block_in_shared_memory(kernels, schedules, flavour, network, dtype):
    lib = kernels("networks")
    top = 70 if network == "odd-even transposition" or flavour == "tsan" else 300

    @given(
        n=st.sampled_from([0, 1, 2, 3, 31, 32, 33, 63, 64, 65]) | st.integers(0, top), seed=SEEDS, schedule=schedules
    )
    @settings(deadline=None)  # switched off: the machine is shared, a pause is no fault
    def check(n, seed, schedule):
        keys = draw_keys(seed, n, dtype)
        out = np.zeros_like(keys)
        lib.schedule(**schedule)
        lib(f"network_u{8 * keys.itemsize}", keys, out, n, 64, NETWORKS[network])
        np.testing.assert_array_equal(out, np.sort(keys))

    check()
