"""Codes of every dtype order the rows as Python, NumPy and pandas do."""

from __future__ import annotations

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort.errors import InputError, KeyTypeError
from distsort.keys import encode
from distsort.order import Key, Order, array_order, make_order
from tests.unit.sort_oracle import CASES, order_of

KEYS = st.builds(Key, st.just("k"), st.booleans(), st.booleans())


def code_order(codes):
    """The order of the words, by NumPy."""
    for word in codes.words:
        assert word.dtype.kind == "u"
        assert word.shape == (len(codes),)
    assert int(codes.head.max(initial=0)).bit_length() <= codes.bits <= 64
    return np.lexsort(codes.words[::-1]).tolist()


def draw_column(data, name, n):
    values, nullable, build = CASES[name]
    if nullable:
        values = st.one_of(values, values, values, st.none())
    drawn = data.draw(st.lists(values, min_size=n, max_size=n))
    return drawn, build(drawn)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), key=KEYS)
def test_one_key(name, data, key):
    values, column = draw_column(data, name, data.draw(st.integers(0, 24)))
    codes = encode([column], Order((key,)))
    expected = order_of([values], [key])
    assert code_order(codes) == expected
    assert codes.ascends() == (expected == list(range(len(values)))) or len(set(map(repr, values))) < len(values)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), names=st.lists(st.sampled_from(sorted(CASES)), min_size=2, max_size=4), n=st.integers(0, 30))
def test_several_keys(data, names, n):
    drawn = [draw_column(data, name, n) for name in names]
    keys = [data.draw(KEYS) for _ in names]
    codes = encode([column for _, column in drawn], Order(tuple(keys)))
    assert code_order(codes) == order_of([values for values, _ in drawn], keys)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), n=st.integers(0, 40))
def test_first_descent(data, n):
    values = data.draw(st.lists(st.tuples(st.integers(0, 2), st.text("ab", max_size=20)), min_size=n, max_size=n))
    values = sorted(values)[: data.draw(st.integers(0, n))] + values
    codes = encode(
        [np.array([v[0] for v in values], "i8"), pd.Series([v[1] for v in values], dtype="str")], make_order(["a", "b"])
    )
    descents = [i for i in range(1, len(values)) if values[i] < values[i - 1]]
    assert codes.first_descent() == (descents[0] if descents else None)


PANDAS_NULLS = {
    # Without infinities: pandas 3.1 mixes them with NaN when there are several keys and nulls go first.
    "float64": [1.5, np.nan, -0.0, 0.0, 9.5, np.nan, -9.5, 1.5],
    "Float64": [1.5, None, -0.0, 0.0, 2.0, None, -2.0, 1.5],
    "complex128": [1 + 1j, complex(np.nan, 0), 1 - 1j, complex(0, np.nan), 0j, complex(np.nan, np.nan), -0j, 1 + 1j],
    "datetime64[ns]": pd.to_datetime(["2020", None, "2019", "2021", None, "2019", "2020", "1960"]),
    "timedelta64[s]": pd.to_timedelta([5, None, -5, 0, None, 5, 1, 2], unit="s"),
    "interval": pd.arrays.IntervalArray.from_tuples([(0, 2), (0, 1), None, (1, 2), (0, 1), None, (-1, 5), (0, 2)]),
    "category": pd.Categorical([*list("mzdzmd"), None, "z"], categories=["z", "d", "m"]),
    "ordered": pd.Categorical([*list("mzdzmd"), None, "z"], categories=["z", "d", "m"], ordered=True),
    "numbers": pd.Categorical([30, 2, 100, 2, 30, None, 100, 2]),
    "str": pd.array(["b", None, "a", "", "b", None, "ab", "aa"], dtype="str"),
    "arrow NaN": pd.arrays.ArrowExtensionArray(
        pa.chunked_array([pa.array([1.0, float("nan"), None, 2.0, float("nan"), None, 0.5, -np.inf])])
    ),
    "masked NaN": pd.arrays.FloatingArray(
        np.array([1.0, np.nan, 0, 2.0, np.nan, 0, 0.5, -np.inf]), np.array([0, 0, 1, 0, 0, 1, 0, 0], bool)
    ),
}


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("name", PANDAS_NULLS)
def test_as_pandas(name, ascending, place):
    frame = pd.DataFrame({"k": PANDAS_NULLS[name], "second": [3, 1, 2, 2, 1, 0, 1, 1]})
    for by in (["k"], ["k", "second"]):
        expected = frame.sort_values(by, kind="stable", ascending=ascending, na_position=place).index.tolist()
        codes = encode([frame[c] for c in by], make_order(by, ascending, place))
        assert code_order(codes) == expected


def test_complex_arrays_follow_numpy():
    nan = np.nan
    parts = [nan, -np.inf, -1.0, -0.0, 0.0, 2.0, np.inf]
    values = np.array([complex(a, b) for a in parts for b in parts])
    values = np.random.default_rng(0).permutation(np.tile(values, 3))
    for dtype in ("c16", "c8", ">c16"):
        column = values.astype(dtype)
        assert code_order(encode([column], array_order())) == np.argsort(column, kind="stable").tolist()

    def classes(z):
        return 2 * np.isnan(z.real) + np.isnan(z.imag)

    def down(i):
        z = values[i]
        return (classes(z), *(0.0 if np.isnan(p) else -p for p in (z.real, z.imag)))

    assert code_order(encode([values], array_order(True))) == sorted(range(len(values)), key=down)


def test_nan_payloads_and_signs_are_one_value():
    for dtype, bits in (("f2", "u2"), ("f4", "u4"), ("f8", "u8")):
        top = np.array(np.inf, dtype).view(bits)
        sign = np.array(1, bits) << np.array(8 * np.dtype(bits).itemsize - 1, bits)
        odd = np.array([top + 1, (top + 1) | sign, top + 3, ~np.array(0, bits)], bits).view(dtype)
        values = np.concatenate([odd, np.array([1, -1, np.inf, -np.inf, -0.0, 0.0], dtype), odd])
        nans = [0, 1, 2, 3, 10, 11, 12, 13]
        assert code_order(encode([values], array_order())) == [7, 5, 8, 9, 4, 6, *nans]
        assert code_order(encode([values], array_order(True))) == [6, 4, 8, 9, 5, 7, *nans]


def test_masked_arrays_have_nulls():
    for values in (
        np.array([3, 1, 2]),
        np.array([3.0, 1, 2]),
        np.array(["c", "a", "b"]),
        np.array(["c", "a", "b"], object),
    ):
        column = np.ma.array(values, mask=[False, True, False])
        assert code_order(encode([column], array_order())) == [2, 0, 1]
        assert code_order(encode([column], array_order(True))) == [0, 2, 1]


def test_full_range_with_nulls_needs_a_bit_more():
    column = pd.Series([2**63 - 1, None, -(2**63), 0, None], dtype="Int64")
    for first in (False, True):
        codes = encode([column], Order((Key("k", False, first),)))
        assert len(codes.words) == 2
        assert code_order(codes) == ([1, 4, 2, 3, 0] if first else [2, 3, 0, 1, 4])


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.Series([1, "a", 2], dtype=object), ["column 'k'", "int and str"]),
        (pd.Series([b"x", "a"], dtype=object), ["column 'k'", "bytes and str"]),
        (
            pd.Series([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)], dtype=object),
            ["column 'k'", "date and datetime"],
        ),
        (
            pd.Series(
                [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], dtype=object
            ),
            ["column 'k'", "datetime"],
        ),
        (pd.Series([[1], [2]], dtype=object), ["column 'k'", "list"]),
        (pd.Series([{"x": 1}, None], dtype=object), ["column 'k'", "dict"]),
        (pd.Series([{1}, {2}], dtype=object), ["column 'k'", "set"]),
        (pd.Series([1j, 2j], dtype=object), ["column 'k'", "complex"]),
        (pd.Series([object(), object()], dtype=object), ["column 'k'", "object"]),
        (pd.Series([decimal.Decimal("sNaN"), decimal.Decimal(1)], dtype=object), ["column 'k'", "Decimal"]),
        (pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), ["column 'k'", "list"]),
        (pa.array([{"a": 1}]), ["column 'k'", "struct"]),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), ["column 'k'", "map"]),
        (pa.nulls(2, pa.month_day_nano_interval()), ["column 'k'", "interval"]),
        (np.zeros(2, [("a", "i4")]), ["column 'k'", "dtype"]),
        (np.zeros((2, 2)), ["column 'k'", "2 dimensions"]),
        ([1, 2], ["column 'k'", "list"]),
    ],
)
def test_no_order(column, words):
    with pytest.raises(KeyTypeError) as caught:
        encode([column], make_order("k"))
    assert all(w in str(caught.value) for w in words), str(caught.value)


def test_lengths_and_counts_are_checked():
    with pytest.raises(InputError, match="2 key columns were given for the 1 keys"):
        encode([np.zeros(1), np.zeros(1)], make_order("k"))
    with pytest.raises(InputError, match="column 'b' has 2 rows"):
        encode([np.zeros(1), np.zeros(2)], make_order(["a", "b"]))


def test_all_null_columns_tie():
    for column in (
        np.array([None, None, None], object),
        pd.Series([None] * 3, dtype=object),
        pd.Series([pd.NaT] * 3),
        pd.Series([None] * 3, dtype="Int64"),
        pd.Series([None] * 3, dtype="str"),
        pd.Series([None] * 3, dtype="category"),
        pa.nulls(3),
        pa.nulls(3, pa.string()),
        pa.nulls(3, pa.float64()),
        np.full(3, np.nan),
    ):
        assert code_order(encode([column], make_order("k"))) == [0, 1, 2]


def test_partition_of_none_among_others():
    """Blocks that disagree in dtype become objects when they are put together."""
    for other in (
        pd.Series([3.0, 1.0, np.nan]),
        pd.Series([3, 1, 2]),
        pd.Series(pd.to_datetime(["2020", "2019", None])),
        pd.Series(pd.to_datetime(["2020", "2019", None]).tz_localize("UTC")),
        pd.Series(pd.to_timedelta([3, 1, None], unit="s")),
        pd.Series([3, 1, None], dtype="Int64"),
        pd.Series(["c", "a", None], dtype="str"),
        pd.Series([decimal.Decimal(3), decimal.Decimal(1), None], dtype=object),
    ):
        whole = pd.Series([None, None, *other.astype(object)], dtype=object)
        expected = [3, 2, 0, 1, 4] if other.isna().any() else [3, 4, 2, 0, 1]
        assert code_order(encode([whole], make_order("k"))) == expected


def test_narrow_keys_share_one_narrow_word():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 100, 1000), rng.integers(-500, 500, 1000), rng.integers(10**12, 10**12 + 30, 1000)]
    codes = encode(columns, make_order(list("abc"), [True, False, True]))
    assert [w.dtype for w in codes.words] == [np.uint32]
    assert codes.bits == 7 + 10 + 5
    assert encode([columns[0].astype("i1")], make_order("a")).head.dtype == np.uint8


def test_bits_that_never_vary_are_dropped():
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 10**8, 5000)
    text = pd.Series([f"https://example.org/item/{d:08d}" for d in digits], dtype="str")
    codes = encode([text], make_order("s"))
    assert len(codes.words) == 1
    assert codes.bits <= 32
    assert code_order(codes) == np.argsort(digits, kind="stable").tolist()
    whole = encode([rng.integers(0, 1000, 5000).astype(float)], make_order("x"))
    assert whole.bits <= 20


def test_few_distinct_wide_values_become_ranks():
    rng = np.random.default_rng(0)
    pool = rng.integers(-(2**62), 2**62, 50)
    a, b = pool[rng.integers(0, 50, 20000)], rng.integers(-(2**62), 2**62, 20000)
    codes = encode([a, b], make_order(["a", "b"], [False, True]))
    assert code_order(codes) == np.lexsort((b, -a)).tolist()
    assert codes.head.dtype == np.uint64
    assert codes.tail
    assert codes.tail[0].bits < 8


def test_other_python_values():
    values = [fractions.Fraction(1, 3), 0.5, 2**200, decimal.Decimal(-1)]
    assert code_order(encode([pd.Series(values, dtype=object)], make_order("k"))) == [3, 0, 1, 2]


def test_columns_are_not_written_to():
    values = np.array([2.0, np.nan, -0.0, 1.0])
    values.flags.writeable = False
    integers = np.array([3, 1, 2], "u8")
    integers.flags.writeable = False
    encode([values], array_order(True))
    encode([integers], array_order())


@pytest.mark.parametrize(("place", "size"), [(0, 10), (90, 10), (3, 7), (50, 8), (99, 1), (84, 16)])
@pytest.mark.parametrize("rows", [0, 1, 2, 300])
def test_a_field_of_records_is_read_where_it_lies(rows, place, size):
    data = np.random.default_rng(rows).integers(0, 4, (rows, 100), np.uint8)
    field = np.dtype({"names": ["k"], "formats": [f"S{size}"], "offsets": [place], "itemsize": 100})
    keys = data.reshape(-1).view(field)["k"]
    for descending in (False, True):
        order = make_order(["k"], not descending)
        words = encode([keys], order).words
        copied = encode([np.ascontiguousarray(keys)], order).words
        plain = encode([keys], order, squeeze=False).words
        expected = np.array(sorted(range(rows), key=lambda i: bytes(data[i, place : place + size])), np.intp)
        if not descending:
            np.testing.assert_array_equal(np.lexsort(words[::-1]), expected)
            np.testing.assert_array_equal(np.lexsort(plain[::-1]), expected)
        for one, other in zip(words, copied, strict=True):
            np.testing.assert_array_equal(one, other)
