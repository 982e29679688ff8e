"""Hashes of rows: the same in whatever block a row stands, and others for other rows."""

from __future__ import annotations

import datetime
import decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import distsort
from distsort.errors import ValidationError
from distsort.hashes import row_hashes

DAY = datetime.date(2024, 1, 1)
ARROW = {
    "int64": (pa.int64(), [1, 2, None, 4]),
    "bool": (pa.bool_(), [True, False, None, None]),
    "double": (pa.float64(), [1.5, -0.0, None, float("nan")]),
    "binary": (pa.binary(), [b"b", b"\xff", None, b"c"]),
    "string": (pa.string(), ["a", "", None, "c"]),
    "decimal": (pa.decimal128(5, 2), [decimal.Decimal("1.50"), decimal.Decimal(2), None, decimal.Decimal(-4)]),
    "list": (pa.list_(pa.int64()), [[1], [2, 3], None, []]),
    "struct": (pa.struct([("x", pa.int64())]), [{"x": 1}, None, {"x": None}, {"x": 3}]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None, "c"]),
    "date": (pa.date32(), [DAY, None, None, DAY + datetime.timedelta(1)]),
}
OTHERS = {
    "object strings": pd.Series(["a", None, "b", "None"], dtype=object),
    "object mixed": pd.Series(["1", 1, None, 1.0], dtype=object),
    "object bytes": pd.Series([b"a", b"\xff", None, "a"], dtype=object),
    "object nested": pd.Series([(1, 2), [1, 2], {"a": 1}, ("1", 2)], dtype=object),
    "object arrays": pd.Series([np.arange(2), np.arange(2.0), np.array(["a", None], object), None], dtype=object),
    "Int64": pd.Series([1, None, 3, 4], dtype="Int64"),
    "str": pd.Series(["a", None, "None", ""], dtype="str"),
    "category": pd.Series(["a", None, "b", "c"], dtype="category"),
    "category of numbers": pd.Series([1.5, None, 2.5, 3.5], dtype="category"),
    "zones": pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-02", "2024-01-03"], utc=True)),
    "interval": pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2), (2, 3), (0, 3)])),
    "period": pd.Series(pd.PeriodIndex(["2024-01", "2024-02", "2024-03", "NaT"], freq="M")),
}


def arrow(name, times=1):
    kind, values = ARROW[name]
    return pa.chunked_array([pa.array(values * times, kind)]).to_pandas(types_mapper=pd.ArrowDtype)


SERIES = {**{f"Arrow {name}": pd.Series(arrow(name)) for name in ARROW}, **OTHERS}


@pytest.mark.parametrize("name", SERIES)
def test_a_row_has_one_hash_wherever_it_stands(name):
    series = SERIES[name]
    whole = row_hashes(series, with_index=False)
    pieces = [row_hashes(series.iloc[i : i + 1], with_index=False) for i in range(4)]
    assert whole.tolist() == np.concatenate(pieces).tolist()
    assert row_hashes(series[::-1], with_index=False).tolist() == whole[::-1].tolist()
    nulls = series.isna().to_numpy()
    assert len(set(whole[~nulls].tolist())) == (~nulls).sum()
    assert len(set(whole[nulls].tolist())) <= 1 + (series.dtype == "double[pyarrow]")
    assert not set(whole[nulls].tolist()) & set(whole[~nulls].tolist())


def test_categories_do_not_count_but_values_do():
    a = pd.Series(["x", "y", None], dtype=pd.CategoricalDtype(["y", "x"]))
    b = pd.Series(["x", "y", None], dtype=pd.CategoricalDtype(["w", "x", "y"]))
    assert row_hashes(a).tolist() == row_hashes(b).tolist()


@pytest.mark.parametrize("name", ["binary", "struct", "int64", "bool"])
def test_validate_takes_what_was_sorted_right(name):
    column = arrow(name, 5)
    frame = dd.from_pandas(pd.DataFrame({"v": column, "r": np.arange(20)[::-1]}), npartitions=3, sort=False)
    assert distsort.validate(distsort.sort_values(frame, "r", npartitions=4), frame).rows == 20


def test_damage_in_the_middle_of_a_long_cell_is_seen():
    cells = [np.arange(5000) + i for i in range(4)]
    frame = pd.DataFrame({"k": [3, 1, 2, 0], "v": pd.Series(cells, dtype=object)})
    other = frame.copy()
    other["v"] = pd.Series([cell.copy() for cell in cells], dtype=object)
    other["v"].iloc[2][2500] += 1
    source = dd.from_pandas(frame, npartitions=2, sort=False)
    damaged = dd.from_pandas(other, npartitions=2, sort=False)
    assert distsort.validate(distsort.sort_values(source, "k"), source).rows == 4
    with pytest.raises(ValidationError, match="checksums differ"):
        distsort.validate(distsort.sort_values(damaged, "k"), source)
