"""The codes of keys.cuh: they decode, they order as NumPy does, and they agree with the host's `distsort.keys`."""

from __future__ import annotations

import numpy as np
import pytest
from distsort.kernels import policy
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort.keys import encode
from distsort.order import Key, Order

DTYPES = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "M8[ns]", "m8[s]"]


def numbers(codec: policy.Codec) -> np.ndarray:
    return np.array([codec.negative, codec.flip, codec.lift, codec.infinity, codec.nan], np.uint64)


def draw(dtype: np.dtype, n: int, seed: int) -> np.ndarray:
    """Return values with random bits, and among them the ends and the special ones of the dtype."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, n, unsigned, endpoint=True)
    top = np.array(1, unsigned) << np.array(8 * dtype.itemsize - 1, unsigned)
    ends = [0, 1, top, top - np.array(1, unsigned), top + np.array(1, unsigned), np.iinfo(unsigned).max]
    if dtype.kind == "f":
        special = np.array([np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0], dtype)
        ends += special.view(unsigned).tolist()
    chosen = rng.choice(np.array(ends, unsigned), n)
    return np.where(rng.random(n) < 0.4, chosen, bits).view(dtype)


def coded(lib, values: np.ndarray, codec: policy.Codec, unified: bool) -> np.ndarray:
    bits = values.view(f"u{values.dtype.itemsize}")
    out = np.zeros_like(bits)
    lib(f"encode_{8 * values.dtype.itemsize}", bits, out, len(bits), numbers(codec), int(unified))
    return out


def ranks(words: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return dense ranks of rows of words."""
    table = np.stack([w.astype(np.uint64) for w in words], axis=1)
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_codes_decode_and_order(kernels, name, descending):
    lib = kernels("keys_cuh")
    dtype = np.dtype(name)
    codec = policy.codec(dtype.kind, dtype.itemsize, descending)

    @settings(deadline=None)
    @given(n=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
    def check(n, seed):
        values = draw(dtype, n, seed)
        out = coded(lib, values, codec, unified=False)
        back = np.zeros_like(out)
        lib(f"decode_{8 * dtype.itemsize}", out, back, n, numbers(codec))
        np.testing.assert_array_equal(back, values.view(out.dtype))
        moved = values[np.argsort(out, kind="stable")]
        null = np.isnan(moved) if dtype.kind == "f" else np.isnat(moved) if dtype.kind in "mM" else np.zeros(n, bool)
        assert not (null[:-1] & ~null[1:]).any(), "nulls stand last"
        kept = moved[~null]
        assert not (kept[1:] > kept[:-1] if descending else kept[1:] < kept[:-1]).any()

    check()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_device_and_host_agree(kernels, name, descending, nulls_first):
    lib = kernels("keys_cuh")
    dtype = np.dtype(name)
    codec = policy.codec(dtype.kind, dtype.itemsize, descending, nulls_first, unified=True)
    order = Order((Key(None, descending, nulls_first),))

    @settings(deadline=None)
    @given(n=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
    def check(n, seed):
        values = draw(dtype, n, seed)
        device = coded(lib, values, codec, unified=True)
        np.testing.assert_array_equal(ranks((device,)), ranks(encode((values,), order).words))

    check()


@pytest.mark.parametrize("name", ["f2", "f4", "f8"])
def test_special_floats(kernels, name):
    lib = kernels("keys_cuh")
    dtype = np.dtype(name)
    values = draw(dtype, 2000, 5)
    bits = values.view(f"u{dtype.itemsize}")
    seen, counts = np.zeros(2000, np.uint32), np.zeros(2000, np.uint32)
    codec = policy.codec("f", dtype.itemsize)
    lib(f"special_{8 * dtype.itemsize}", bits, seen, counts, 2000, numbers(codec))
    nan, zero = np.isnan(values), values == 0
    quiet = np.array(np.nan, dtype).view(bits.dtype)
    minus = np.array(-np.nan, dtype).view(bits.dtype)
    expected = np.select([zero & np.signbit(values), zero, bits == quiet, bits == minus, nan], [1, 2, 4, 8, 16], 0)
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(counts, zero + (nan.astype(np.uint32) << 16))


def test_unify_codec_is_the_code_for_positions():
    for size in (2, 4, 8):
        for descending in (False, True):
            plain = policy.codec("f", size, descending)
            assert policy.unify_codec(plain, size) == policy.codec("f", size, descending, unified=True)
