"""What the right order is, said in plain Python: a stable sort per key, the last key first."""

from __future__ import annotations

import datetime
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

UTC = datetime.UTC


def order_of(columns, keys):
    """columns: lists of Python values, None is null; keys: Key records. Returns the list of input positions."""
    rows = list(range(len(columns[0])))
    for values, key in reversed(list(zip(columns, keys, strict=True))):
        nulls = [i for i in rows if values[i] is None]
        rest = sorted((i for i in rows if values[i] is not None), key=values.__getitem__, reverse=key.descending)
        rows = nulls + rest if key.nulls_first else rest + nulls
    return rows


def bits_equal(a, b):
    """Same dtype, shape and bits; objects by identity."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype == object:
        return all(x is y for x, y in zip(a, b, strict=True))
    return a.tobytes() == b.tobytes()


def _integers(bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [low, low + 1, high, high - 1, max(low, -1), 0, 1]
    return st.one_of(st.sampled_from(edges), st.integers(low, high), st.integers(max(low, -3), 3))


def _floats(width):
    tiny = {16: 6e-8, 32: 1.4e-45, 64: 5e-324}[width]
    edges = [0.0, -0.0, math.inf, -math.inf, tiny, -tiny, 1.0, -1.0]
    edges = [float(np.dtype(f"f{width // 8}").type(e)) for e in edges]
    return st.one_of(st.sampled_from(edges), st.floats(width=width, allow_nan=False))


TEXT = st.one_of(
    st.text("ab\x00", max_size=9),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.builds(lambda head, tail: "prefix-of-many/" * head + tail, st.integers(0, 3), st.text("01é", max_size=4)),
)
PLAIN_TEXT = TEXT.filter(lambda s: "\x00" not in s)
BYTES = st.one_of(st.binary(max_size=20), st.text("ab\x00", max_size=9).map(str.encode))
DECIMALS = st.one_of(
    st.sampled_from([decimal.Decimal(v) for v in ("2.10", "2.1", "-1.00", "0", "-0.0", "99999999.99")]),
    st.decimals(-99999999, 99999999, places=2, allow_nan=False, allow_infinity=False),
)
DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
NEAR_DATES = st.dates(datetime.date(1700, 1, 1), datetime.date(2200, 1, 1))
MOMENTS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
SPANS = st.timedeltas(datetime.timedelta(-10000), datetime.timedelta(10000))
TIMES = st.times()


def _arrow(kind):
    return lambda values: pa.array(values, kind)


def _chunked(kind):
    def build(values):
        half = len(values) // 2
        return pa.chunked_array([pa.array(values[:half], kind), pa.array(values[half:], kind)], kind)

    return build


def _arrow_series(kind):
    return lambda values: pd.Series(pd.array(pa.array(values, kind), dtype=pd.ArrowDtype(kind)))


def _sliced(kind):
    """An array that begins inside its buffers."""
    return lambda values: pa.array([None, None, None, *values, None], kind).slice(3, len(values))


def _numpy(dtype):
    return lambda values: np.array(values, dtype)


def _strided(dtype):
    def build(values):
        wide = np.zeros(3 * len(values), dtype)
        wide[::3] = values
        return wide[::3]

    return build


def _objects(values):
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _series(dtype):
    return lambda values: pd.Series(values, dtype=dtype)


def _object_series(values):
    return pd.Series(_objects(values), dtype=object)


def _nan(dtype):
    """None becomes NaN."""
    return lambda values: np.array([math.nan if v is None else v for v in values], dtype)


def _nat(kind):
    return lambda values: np.array(["NaT" if v is None else v for v in values], kind)


# name -> (strategy of values, whether nulls may occur, how the values become a column)
CASES = {
    **{f"numpy i{b // 8}": (_integers(b, True), False, _numpy(f"i{b // 8}")) for b in (8, 16, 32, 64)},
    **{f"numpy u{b // 8}": (_integers(b, False), False, _numpy(f"u{b // 8}")) for b in (8, 16, 32, 64)},
    **{f"numpy f{b // 8}": (_floats(b), True, _nan(f"f{b // 8}")) for b in (16, 32, 64)},
    "numpy longdouble": (_floats(64), True, _nan(np.longdouble)),
    "numpy >i4": (_integers(32, True), False, _numpy(">i4")),
    "numpy >u8": (_integers(64, False), False, _numpy(">u8")),
    "numpy >f8": (_floats(64), True, _nan(">f8")),
    "numpy strided i8": (_integers(64, True), False, _strided("i8")),
    "numpy strided >f4": (_floats(32), False, _strided(">f4")),
    "numpy reversed i2": (_integers(16, True), False, lambda v: np.array(v[::-1], "i2")[::-1]),
    "numpy bool": (st.booleans(), False, _numpy(bool)),
    "numpy M8[us]": (MOMENTS, True, _nat("M8[us]")),
    "numpy M8[D]": (DATES, True, _nat("M8[D]")),
    "numpy m8[us]": (SPANS, True, _nat("m8[us]")),
    "numpy >m8[us]": (SPANS, True, lambda v: _nat("m8[us]")(v).astype(">m8[us]")),
    "numpy U": (PLAIN_TEXT, False, lambda v: np.array(v, "U") if v else np.array([], "U3")),
    "numpy >U": (PLAIN_TEXT, False, lambda v: np.array(v, ">U60")),
    "numpy S": (st.binary(max_size=20).map(lambda b: b.rstrip(b"\0")), False, lambda v: np.array(v, "S21")),
    "numpy strings": (TEXT, False, lambda v: np.array(v, np.dtypes.StringDType())),
    "numpy strings NaN": (
        TEXT,
        True,
        lambda v: np.array([math.nan if x is None else x for x in v], np.dtypes.StringDType(na_object=math.nan)),
    ),
    "numpy object str": (TEXT, True, _objects),
    "numpy object int": (_integers(70, True), True, _objects),
    "objects int": (_integers(64, True), True, _object_series),
    "objects uint64": (_integers(64, False), True, _object_series),
    "objects int and float": (st.one_of(_integers(80, True), _floats(64)), True, _object_series),
    "objects small int and float": (st.one_of(_integers(16, True), _floats(64)), True, _object_series),
    "objects bool": (st.booleans(), True, _object_series),
    "objects bool and int": (st.one_of(st.booleans(), _integers(8, True)), True, _object_series),
    "objects float": (_floats(64), True, _object_series),
    "objects str": (TEXT, True, _object_series),
    "objects str with surrogates": (st.text("a\ud800\udfff\ue000\U00010000\x00", max_size=4), True, _object_series),
    "objects bytes": (BYTES, True, _object_series),
    "objects date": (DATES, True, _object_series),
    "objects time": (TIMES, True, _object_series),
    "objects datetime": (st.datetimes(), True, _object_series),
    "objects datetime UTC": (MOMENTS.map(lambda t: t.replace(tzinfo=UTC)), True, _object_series),
    "objects Timestamp": (
        st.integers(-(2**62), 2**62).map(pd.Timestamp),
        True,
        _object_series,
    ),
    "objects timedelta": (SPANS, True, _object_series),
    "objects Decimal": (DECIMALS, True, _object_series),
    "objects any Decimal": (st.decimals(allow_nan=False), True, _object_series),
    "objects Decimal and int": (st.one_of(DECIMALS, _integers(8, True)), True, _object_series),
    "objects tuple": (st.tuples(_integers(8, True), st.text("ab", max_size=2)), True, _object_series),
    "objects Period": (NEAR_DATES.map(lambda d: pd.Period(d, "D")), True, _object_series),
    **{
        f"pandas {t}": (_integers(int(t.lstrip("UIntf")), t[0] == "I"), True, _series(t))
        for t in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    },
    "pandas Float32": (_floats(32), True, _series("Float32")),
    "pandas Float64": (_floats(64), True, _series("Float64")),
    "pandas boolean": (st.booleans(), True, _series("boolean")),
    "pandas str": (TEXT, True, _series("str")),
    "pandas string python": (TEXT, True, _series("string[python]")),
    "pandas string pyarrow": (TEXT, True, _series("string[pyarrow]")),
    "pandas datetime tz": (
        MOMENTS.map(lambda t: pd.Timestamp(t, tz="UTC")),
        True,
        _series("datetime64[us, Europe/Rome]"),
    ),
    "pandas period": (NEAR_DATES.map(lambda d: pd.Period(d, "M")), True, _series("period[M]")),
    "pandas sparse": (_integers(8, True), False, lambda v: pd.Series(pd.arrays.SparseArray(np.array(v, "i8")))),
    "pandas index": (_integers(64, True), False, lambda v: pd.Index(v, dtype="int64")),
    "pandas index str": (TEXT, True, lambda v: pd.Index(v, dtype="str")),
    "pandas extension array": (_integers(64, True), True, lambda v: pd.array(v, dtype="Int64")),
    **{
        f"arrow {kind}": (values, True, build(kind))
        for kind, values in (
            (pa.int8(), _integers(8, True)),
            (pa.uint64(), _integers(64, False)),
            (pa.int64(), _integers(64, True)),
            (pa.float32(), _floats(32)),
            (pa.float64(), _floats(64)),
            (pa.bool_(), st.booleans()),
            (pa.string(), TEXT),
            (pa.large_string(), TEXT),
            (pa.string_view(), TEXT),
            (pa.binary(), BYTES),
            (pa.large_binary(), BYTES),
            (pa.binary_view(), BYTES),
            (pa.binary(3), st.binary(min_size=3, max_size=3)),
            (pa.date32(), DATES),
            (pa.date64(), DATES),
            (pa.time32("s"), TIMES.map(lambda t: t.replace(microsecond=0))),
            (pa.time64("us"), TIMES),
            (pa.timestamp("us"), MOMENTS),
            (pa.timestamp("us", "Europe/Rome"), MOMENTS.map(lambda t: t.replace(tzinfo=UTC))),
            (pa.duration("us"), SPANS),
            (pa.decimal32(9, 1), st.decimals(-9999999, 9999999, places=1)),
            (pa.decimal64(18, 2), DECIMALS),
            (pa.decimal128(38, 2), st.one_of(DECIMALS, st.decimals(-(10**35), 10**35, places=2))),
            (pa.decimal256(76, 2), st.one_of(DECIMALS, st.decimals(-(10**70), 10**70, places=2))),
        )
        for build in (_arrow,)
    },
    "arrow chunked string": (TEXT, True, _chunked(pa.string())),
    "arrow chunked int": (_integers(32, True), True, _chunked(pa.int32())),
    "arrow chunked dictionary": (TEXT, True, _chunked(pa.dictionary(pa.int32(), pa.string()))),
    "arrow dictionary": (TEXT, True, lambda v: pa.array(v, pa.string()).dictionary_encode()),
    "arrow run ends": (
        _integers(8, True),
        True,
        lambda v: pc.run_end_encode(pa.array(v, pa.int8())),
    ),
    "arrow sliced string": (TEXT, True, _sliced(pa.string())),
    "arrow sliced int": (_integers(64, True), True, _sliced(pa.int64())),
    "arrow sliced bool": (st.booleans(), True, _sliced(pa.bool_())),
    "arrow sliced decimal": (DECIMALS, True, _sliced(pa.decimal128(20, 2))),
    "arrow series string": (TEXT, True, _arrow_series(pa.string())),
    "arrow series date": (DATES, True, _arrow_series(pa.date32())),
    "arrow series decimal": (DECIMALS, True, _arrow_series(pa.decimal128(20, 2))),
    "arrow series dictionary": (TEXT, True, _arrow_series(pa.dictionary(pa.int32(), pa.string()))),
}
