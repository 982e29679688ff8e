"""The numpy backend: the contract with both engines, and the choice of a backend."""

from __future__ import annotations

import numpy as np
import pytest

from distsort.backends import get_backend
from distsort.backends import numpy_words as words
from distsort.errors import OptionError
from distsort.order import array_order
from tests.unit.backend_contract import BackendContract

MEASURED = words.vectorised


@pytest.fixture(params=["packed", "radix"], autouse=True, scope="class")
def engine(request):
    """Run everything as on processors with and without a fast sort."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "vectorised", lambda: request.param == "packed")
        yield request.param


class TestNumpy(BackendContract):
    backend = get_backend("numpy", None)

    def test_arrays_of_other_kinds(self):
        for values in (
            np.array(["b", "a", "c", "a"]),
            np.array([b"b", b"a", b""]),
            np.array(["b", None, "a"], object),
            np.array(["b", "", "a"], np.dtypes.StringDType()),
        ):
            index = self.argsort([values], array_order())
            assert self.sort(values).tolist() == values[index].tolist()
            assert self.sort(values).dtype == values.dtype
        masked = np.ma.array([3.0, 1.0, 2.0], mask=[0, 1, 0])
        found = self.sort(masked)
        assert found.mask.tolist() == [False, False, True]
        assert found.data[:2].tolist() == [2.0, 3.0]
        runs = [np.ma.array([1, 9], mask=[0, 1]), np.ma.array([0, 5], mask=[0, 0])]
        assert self.backend.merge(runs, False).tolist() == [0, 1, 5, None]


def test_index_is_intp_and_input_is_left_alone():
    values = np.random.default_rng(0).integers(0, 2**63, 10_000)
    values.flags.writeable = False
    index = get_backend(None, values).argsort([values], array_order())
    assert index.dtype == np.intp
    assert index.flags.writeable


def test_words_of_every_width():
    rng = np.random.default_rng(0)
    for bits in range(65):
        for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
            if bits > 8 * np.dtype(dtype).itemsize:
                continue
            for n in (0, 1, 600, 3000):
                word = (rng.integers(0, 2**64, n, dtype=np.uint64) >> np.uint64(64 - bits if bits else 63)).astype(
                    dtype
                )
                word = word if bits else np.zeros(n, dtype)
                assert np.array_equal(words.argsort_word(word, bits), np.argsort(word, kind="stable"))


@pytest.mark.parametrize("bits", [17, 20, 27, 32, 40, 64])
@pytest.mark.parametrize("shape", ["uniform", "one bucket", "half in one bucket", "heavy", "few values", "low bits"])
def test_buckets(bits, shape):
    """More rows than one bucket holds, dealt out evenly and not."""
    rng = np.random.default_rng(bits)
    n = 100_000
    word = rng.integers(0, 2**64, n, dtype=np.uint64) >> np.uint64(64 - bits)
    if shape == "one bucket":
        word >>= np.uint64(words.BUCKET_BITS)
        word[n // 2] = (1 << bits) - 1
    elif shape == "half in one bucket":
        word[rng.random(n) < 0.5] &= np.uint64((1 << bits - words.BUCKET_BITS) - 1)
    elif shape == "heavy":
        word = np.minimum(rng.zipf(1.3, n).astype(np.uint64), np.uint64((1 << bits) - 1))
    elif shape == "few values":
        word = rng.choice(word[:5], n)
    elif shape == "low bits":
        word = (word & np.uint64(3)) | np.uint64(1 << bits - 1)
    word = word.astype(np.uint32) if bits <= 32 else word
    assert np.array_equal(words.argsort_word(word, bits), np.argsort(word, kind="stable"))


@pytest.mark.parametrize("bits", [40, 64])
def test_repair_by_digits(bits):
    """Half of the rows share their top bits with a neighbour."""
    rng = np.random.default_rng(0)
    n = 60_000
    word = (rng.integers(0, 500, n, dtype=np.uint64) << np.uint64(bits - 9)) | rng.integers(0, 4, n, dtype=np.uint64)
    word |= rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(bits - 40)
    assert np.array_equal(words.argsort_word(word, bits), np.argsort(word, kind="stable"))


def test_get_backend():
    assert get_backend(None, np.zeros(1)).name == "numpy"
    assert get_backend("numpy", np.zeros(1)).name == "numpy"
    with pytest.raises(OptionError, match="'polars' is unknown"):
        get_backend("polars", np.zeros(1))


def test_device_block_with_numpy_backend():
    class Fake:
        pass

    Fake.__module__ = "cupy._core"
    with pytest.raises(OptionError, match="GPU memory"):
        get_backend("numpy", Fake())


def test_cupy_without_cupy_or_gpu(monkeypatch):
    from distsort import backends

    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    backends._cupy.cache_clear()
    with pytest.raises(OptionError, match=r"distsort\[cuda13\]"):
        get_backend("cupy", np.zeros(1))


def test_measured_choice_of_the_engine():
    assert MEASURED() in (True, False)
