"""What every backend must do. A test module per backend inherits `BackendContract` and says how blocks get there."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort.errors import KeyTypeError
from distsort.order import Key, Order, array_order, make_order
from tests.unit.sort_oracle import CASES, bits_equal, order_of

# Sizes around the edges of blocks, digits and tiles.
SIZES = (0, 1, 2, 3, 17, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4097, 65535, 65537, 140_000)

PATTERNS = {
    "random": lambda n, rng: rng.integers(0, 2**64, n, dtype=np.uint64),
    "sorted": lambda n, rng: np.arange(n, dtype=np.uint64) << np.uint64(40),
    "reversed": lambda n, rng: np.arange(n, dtype=np.uint64)[::-1] << np.uint64(40),
    "falls with ties": lambda n, rng: (np.arange(n, dtype=np.uint64) // np.uint64(3))[::-1] << np.uint64(40),
    "organ pipe": lambda n, rng: np.minimum(np.arange(n), np.arange(n)[::-1]).astype(np.uint64) << np.uint64(45),
    "all equal": lambda n, rng: np.full(n, 2**64 - 1, np.uint64),
    "two values": lambda n, rng: rng.integers(0, 2, n).astype(np.uint64) * np.uint64(2**63 + 1),
    "one outlier": lambda n, rng: np.where(np.arange(n) == n // 2, 0, 2**64 - 1).astype(np.uint64),
    "24 bits": lambda n, rng: rng.integers(0, 2**24, n).astype(np.uint64) << np.uint64(32),
    "few wide": lambda n, rng: rng.integers(0, 2**64, 1000, dtype=np.uint64)[rng.integers(0, 1000, n)],
    "zipf": lambda n, rng: rng.zipf(1.3, n).astype(np.uint64),
    "nearly sorted": lambda n, rng: (
        np.arange(n, dtype=np.uint64) * np.uint64(2**40) + rng.integers(0, 2**44, n, dtype=np.uint64)
    ),
    # Groups that share the top 40 bits and differ below: a window sort leaves all of them to be repaired.
    "shared tops": lambda n, rng: (
        (rng.integers(0, n // 100 + 1, n, dtype=np.uint64) << np.uint64(24))
        | rng.integers(0, 2**24, n, dtype=np.uint64)
        | np.uint64(1 << 63) * rng.integers(0, 2, n, dtype=np.uint64)
    ),
    # The same in a tenth of the rows only.
    "few shared tops": lambda n, rng: np.where(
        rng.random(n) < 0.03, rng.integers(0, 2**20, n, dtype=np.uint64), rng.integers(0, 2**64, n, dtype=np.uint64)
    ),
}


def cut_at(rng, n, slices):
    """Ascending bounds of slices, empty ones among them."""
    return np.concatenate([[0], np.sort(rng.integers(0, n + 1, slices - 1)), [n]]).astype(np.int64)


class BackendContract:
    """Inherit, and give the backend; override the two moves where blocks live on a device."""

    backend = None

    def put(self, column):
        """Bring a host column to where the backend sorts it."""
        return column

    def get(self, array):
        """Bring an array of the backend to the host."""
        return array

    def argsort(self, columns, order):
        return self.get(self.backend.argsort([self.put(c) for c in columns], order))

    def merge_order(self, columns, bounds, order):
        return self.get(self.backend.merge_order([self.put(c) for c in columns], bounds, order))

    def sort(self, values, descending=False):
        return self.get(self.backend.sort(self.put(values), descending))

    # The largest n of the patterns, for backends that have larger tiles.
    sizes = SIZES

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_patterns(self, pattern):
        rng = np.random.default_rng(7)
        for n in self.sizes:
            values = PATTERNS[pattern](n, rng)
            index = self.argsort([values], array_order())
            assert index.dtype.kind in "iu"
            assert index.shape == (n,)
            assert np.array_equal(index, np.argsort(values, kind="stable"))
            assert np.array_equal(self.argsort([values], array_order(True)), np.argsort(~values, kind="stable"))
            assert bits_equal(self.sort(values), np.sort(values))
            assert bits_equal(self.sort(values, True), np.sort(values)[::-1].copy())

    @pytest.mark.parametrize("slices", [1, 2, 3, 8, 64, 200])
    @pytest.mark.parametrize("pattern", ["random", "all equal", "few wide", "zipf", "24 bits", "shared tops"])
    def test_merge_of_patterns(self, pattern, slices):
        rng = np.random.default_rng(slices)
        for n in (0, 1, 5, 1000, 300_000):
            values = PATTERNS[pattern](n, rng)
            bounds = cut_at(rng, n, slices)
            for a, b in itertools.pairwise(bounds):
                values[a:b].sort()
            expected = np.argsort(values, kind="stable")
            assert np.array_equal(self.merge_order([values], bounds, array_order()), expected)
            runs = [self.put(values[a:b]) for a, b in itertools.pairwise(bounds)]
            assert bits_equal(self.get(self.backend.merge(runs, False)), values[expected])

    @settings(deadline=None, max_examples=300)
    @given(data=st.data(), n=st.integers(0, 40), slices=st.integers(1, 5))
    def test_every_dtype(self, data, n, slices):
        names = data.draw(st.lists(st.sampled_from(sorted(CASES)), min_size=1, max_size=3))
        keys = [Key(f"k{i}", data.draw(st.booleans()), data.draw(st.booleans())) for i in range(len(names))]
        drawn, columns = [], []
        for name in names:
            values, nullable, _ = CASES[name]
            values = st.one_of(values, values, st.none()) if nullable else values
            drawn.append(data.draw(st.lists(values, min_size=n, max_size=n)))
        for name, values in zip(names, drawn, strict=True):
            columns.append(CASES[name][2](values))
        order = Order(tuple(keys))
        assert self.argsort(columns, order).tolist() == order_of(drawn, keys)
        bounds = sorted(data.draw(st.lists(st.integers(0, n), min_size=slices - 1, max_size=slices - 1)))
        bounds = [0, *bounds, n]
        rows = [a + i for a, b in itertools.pairwise(bounds) for i in order_of([values[a:b] for values in drawn], keys)]
        sliced = [[values[i] for i in rows] for values in drawn]
        columns = [CASES[name][2](values) for name, values in zip(names, sliced, strict=True)]
        assert self.merge_order(columns, bounds, order).tolist() == order_of(sliced, keys)

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "c8", "c16", "M8[ns]", "m8[s]", "bool", "i1", ">u2"])
    def test_sort_keeps_every_bit(self, dtype, descending):
        rng = np.random.default_rng(3)
        dtype = np.dtype(dtype)
        for n in (0, 1, 2, 30, 3000, 70_000):
            raw = (
                rng.integers(0, 2, n * dtype.itemsize)
                if dtype.kind == "b"
                else rng.integers(0, 256, n * dtype.itemsize)
            )
            values = raw.astype("u1").view(dtype)
            if dtype.kind in "fc":
                special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype)
                values = np.where(rng.random(n) < 0.5, special[rng.integers(0, 6, n)], values)
            if dtype.kind in "mM" and n:
                values[rng.random(n) < 0.2] = np.array("NaT", dtype)
            before = values.copy()
            index = self.argsort([values], array_order(descending))
            found = self.sort(values, descending)
            assert bits_equal(found, values[index])
            assert bits_equal(values, before)
            assert found.flags.writeable
            if not descending:
                assert np.array_equal(index, stable_argsort(values))
            bounds = cut_at(rng, n, 5)
            runs = [self.put(self.sort(values[a:b], descending)) for a, b in itertools.pairwise(bounds)]
            assert bits_equal(self.get(self.backend.merge(runs, descending)), found)

    @pytest.mark.parametrize("ascending", [True, False])
    @pytest.mark.parametrize("place", ["first", "last"])
    def test_frames_as_pandas(self, ascending, place):
        rng = np.random.default_rng(11)
        n = 50_000
        frame = pd.DataFrame(
            {
                "small": rng.integers(0, 100, n),
                "null": pd.array(np.where(rng.random(n) < 0.05, None, rng.integers(0, 100, n)), dtype="Int64"),
                "float": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 50, n) / 7),
                "wide": rng.integers(-(2**62), 2**62, n),
                "text": pd.array([f"{v:x}" if v % 9 else None for v in rng.integers(0, 2**40, n)], dtype="str"),
                "cat": pd.Categorical.from_codes(rng.integers(-1, 5, n), list("zebra"[:2]) + list("xyq")),
            }
        )
        for by in (
            ["float"],
            ["small", "null", "float"],
            ["float", "wide"],
            ["cat", "text"],
            ["text", "small"],
            ["null"],
        ):
            expected = frame.sort_values(by, kind="stable", ascending=ascending, na_position=place).index
            order = make_order(by, ascending, place)
            assert np.array_equal(self.argsort([frame[c] for c in by], order), expected)

    def test_long_strings(self):
        rng = np.random.default_rng(5)
        stems = ["x" * 1000, "x" * 999 + "y", "x" * 1000 + "\x00", "", "é" * 700, "x" * 3]
        values = [stems[i] for i in rng.integers(0, len(stems), 3000)]
        values += [stems[i] + str(j) for i, j in zip(rng.integers(0, 6, 3000), rng.integers(0, 99, 3000), strict=True)]
        column = pd.Series(values, dtype="str")
        assert self.argsort([column], make_order("k")).tolist() == order_of([values], [Key("k")])
        down = Key("k", True)
        assert self.argsort([column], Order((down,))).tolist() == order_of([values], [down])

    @pytest.mark.parametrize("size", [1000, 300_000, 5_000_000])
    def test_strings_that_agree_for_long(self, size):
        stems = ["a" + "x" * size, "b" + "y" * size, "b" + "y" * size + "z" * 70, "c"]
        values = [stems[i % 4] + "cab"[i % 3] for i in range(24)]
        column = pd.Series(values, dtype="str")
        for key in (Key("k"), Key("k", True)):
            assert self.argsort([column], Order((key,))).tolist() == order_of([values], [key])
            both = Order((key, Key("n", True)))
            numbers = [i % 5 for i in range(24)]
            found = self.argsort([column, np.array(numbers)], both).tolist()
            assert found == order_of([values, numbers], both.keys)

    def test_no_order_names_the_column(self):
        mixed = pd.Series([1, "a"], dtype=object)
        with pytest.raises(KeyTypeError, match=r"'k'.*int and str"):
            self.backend.argsort([mixed], make_order("k"))

    # Known faults of other sorts, each with the right answer.
    def test_float_corners(self):
        def check(values, index=None, result=None, dtype="f4"):
            values = np.array(values, dtype)
            if index is not None:
                assert self.argsort([values], array_order()).tolist() == index
                assert bits_equal(self.sort(values), values[index])
            if result is not None:
                assert np.array_equal(self.sort(values), np.array(result, dtype), equal_nan=True)

        nan, inf = np.nan, np.inf
        odd = np.array([np.uint32(0xFFC00000), np.uint32(0x7FC00000)], "u4").view("f4")
        mixed = np.concatenate([odd, np.array([-inf, inf, -1, 1], "f4")])
        assert self.argsort([mixed], array_order()).tolist() == [2, 4, 5, 3, 0, 1]
        assert self.sort(mixed).view("u4").tolist()[-2:] == [0xFFC00000, 0x7FC00000]
        check([0.77, 0, nan, 0.5, 0.85], result=[0, 0.5, 0.77, 0.85, nan], dtype="f8")
        check([0.0, -0.0], [0, 1])
        check([0, -0.0, 0, -0.0], [0, 1, 2, 3])
        check(
            [-0.0, 1.4e-45, 1.1, -0.0, 5.96e-8, -2.00001, 1e6, 722801.4, 0, -1.1],
            [5, 9, 0, 3, 8, 1, 4, 2, 7, 6],
        )
        for n in range(20):
            check([nan] * n, list(range(n)), dtype="f8")
        check([nan, 65504, inf, -inf, -0.0, 6e-8], result=[-inf, -0.0, 6e-8, 65504, inf, nan], dtype="f2")
        half = np.random.default_rng(0).permutation(np.arange(17)).astype("f2")
        for n in range(18):
            assert np.array_equal(self.sort(half[:n]), np.sort(half[:n].astype("f4")).astype("f2"))
        many = np.random.default_rng(0).random(1 << 18).astype("f4")
        many[1234] = -nan
        assert np.isnan(self.sort(many)[-1])
        assert not np.isnan(self.sort(many)[:-1]).any()
        assert self.sort(np.array([nan, 1, 2]), True).tolist()[:2] == [2, 1]

    def test_integer_corners(self):
        def order(values, dtype, descending=False):
            return self.argsort([np.array(values, dtype)], array_order(descending)).tolist()

        assert order([2**63, 2**64 - 1, 0, 2**63 - 1], "u8") == [2, 3, 0, 1]
        assert order([1, 2, 3, 3, 2, 1], "i8") == [0, 5, 1, 4, 2, 3]
        assert order([0, 1, 0], "i8", True) == [1, 0, 2]
        rng = np.random.default_rng(1)
        for values in (rng.integers(-(2**15), 2**16, 5000), rng.integers(-(2**31), 2**31, 3000).astype("i4")):
            assert self.argsort([values], array_order()).tolist() == np.argsort(values, kind="stable").tolist()
        base = np.array([1, 0, 2, 3])
        assert self.argsort([base[::2]], array_order()).tolist() == [0, 1]
        assert self.argsort([base[::-1]], array_order()).tolist() == [2, 3, 1, 0]
        for n in range(6):
            assert self.sort(np.arange(n)[::-1].copy()).tolist() == list(range(n))
        for n in (1792, 1793):
            assert bits_equal(self.sort(np.full(n, 0xFFFFFFFF, "u4")), np.full(n, 0xFFFFFFFF, "u4"))
        assert self.get(
            self.backend.merge([self.put(np.array([], "i8")), self.put(np.array([1, 2]))], False)
        ).tolist() == [1, 2]

    def test_sorted_across_a_block_edge(self):
        values = np.random.default_rng(2).integers(0, 2**32, 1_048_581, dtype=np.uint32)
        assert np.array_equal(self.argsort([values], array_order()), np.argsort(values, kind="stable"))

    def test_times_and_complex_corners(self):
        moments = np.array(["NaT", 1, 2, 3], "M8[ns]")
        assert self.sort(moments).astype("i8").tolist()[:3] == [1, 2, 3]
        assert np.isnat(self.sort(moments)[3])
        assert np.isnat(self.sort(moments, True)[3])
        spans = np.array([3, "NaT", -5], "m8[s]")
        assert self.argsort([spans], array_order()).tolist() == [2, 0, 1]
        big = np.array([1 + 3j, 2 + 2j, 3 + 1j], ">c16")
        assert self.sort(big).tolist() == [1 + 3j, 2 + 2j, 3 + 1j]
        assert self.sort(big).dtype == np.dtype(">c16")

    @pytest.mark.skipif("descending" not in inspect.signature(np.sort).parameters, reason="came with NumPy 2.5")
    @pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "M8[s]", "i8", "u1"])
    def test_descending_as_numpy(self, dtype):
        rng = np.random.default_rng(4)
        values = rng.integers(-3, 3, 500).astype(dtype)
        if values.dtype.kind == "c":
            parts = np.array([np.nan, -1.0, -0.0, 0.0, 2.0])
            values = parts[rng.integers(0, 5, 500)] + 0j
            values.imag = parts[rng.integers(0, 5, 500)]
        elif values.dtype.kind in "fM":
            values[::7] = np.array("NaT" if values.dtype.kind == "M" else np.nan, values.dtype)
        expected = np.argsort(values, stable=True, descending=True)
        assert np.array_equal(self.argsort([values], array_order(True)), expected)
        assert bits_equal(self.sort(values, True), values[expected])


def stable_argsort(values):
    """NumPy's, except for float16, whose NaN order was wrong in old versions."""
    if values.dtype == np.float16:
        return np.argsort(values.astype(np.float32), kind="stable")
    return np.argsort(values, kind="stable")
