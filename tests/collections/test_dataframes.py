"""Dask dataframes and series: stable pandas' answer, balanced, lazy."""

from __future__ import annotations

import datetime as dt
import decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distsort
from distsort.errors import InputError, KeyTypeError, OptionError, ValidationError
from tests.collections.helpers import partitions, sizes, split, stable, whole

pytestmark = pytest.mark.usefixtures("sync")
D = decimal.Decimal


@pytest.fixture(autouse=True, params=[False, True], ids=["strings as given", "strings converted"])
def convert_strings(request):
    with dask.config.set({"dataframe.convert-string": request.param}):
        yield request.param


def frame_of(rng, n, ties):
    k = rng.integers(0, ties, n).astype(float)
    k[rng.random(n) < 0.2] = np.nan
    k[rng.random(n) < 0.1] = -0.0
    return pd.DataFrame(
        {
            "f": k,
            "i": rng.integers(-ties, ties, n),
            "s": rng.choice(["", "a", "ab", "b", "ä", "zz"], n),
            "t": pd.to_datetime(rng.integers(0, ties, n), unit="D").where(rng.random(n) < 0.9),
            "b": rng.random(n) < 0.5,
            "seq": np.arange(n),
        },
        index=rng.permutation(n),
    )


@given(
    seed=st.integers(0, 2**32),
    n=st.sampled_from([0, 1, 3, 50, 301]),
    ties=st.sampled_from([1, 2, 40]),
    by=st.lists(st.sampled_from(["f", "i", "s", "t", "b"]), min_size=1, max_size=3, unique=True),
    directions=st.lists(st.booleans(), min_size=3, max_size=3),
    na_position=st.sampled_from(["first", "last"]),
    pieces=st.integers(1, 6),
    parts=st.sampled_from([None, 1, 2, 5]),
    ignore_index=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_one_right_answer(seed, n, ties, by, directions, na_position, pieces, parts, ignore_index):
    rng = np.random.default_rng(seed)
    frame = frame_of(rng, n, ties)
    df = split(frame, *np.sort(rng.integers(0, n + 1, pieces - 1)).tolist())
    ascending = directions[: len(by)]
    options = {"ascending": ascending, "na_position": na_position, "ignore_index": ignore_index}
    result = distsort.sort_values(df, by, npartitions=parts, exchange="graph", **options)
    got = partitions(result)
    want = stable(frame.astype(dict(df.dtypes)), by, **options)
    pd.testing.assert_frame_equal(pd.concat(got), want, check_index_type=not ignore_index)
    assert np.signbit(pd.concat(got)["f"]).tolist() == np.signbit(want["f"]).tolist()
    assert np.ptp([len(p) for p in got]) <= 1
    assert len(got) == result.npartitions == (parts or pieces)


KEYS = {
    "Int64": pd.array([4, None, 1, 2**62 + 1, None, -(2**63)], dtype="Int64"),
    "UInt8": pd.array([4, None, 1, 255, None, 0], dtype="UInt8"),
    "boolean": pd.array([True, None, False, True, None, False], dtype="boolean"),
    "Float64": pd.array([None, 0.5, -0.0, 0.0, None, -1.5], dtype="Float64"),
    "object str": pd.Series([None, "m", None, "b", "z", ""], dtype=object),
    "string[python]": pd.array([None, "m", None, "b", "z", ""], dtype="string[python]"),
    "string[pyarrow]": pd.array([None, "m", None, "b", "z", ""], dtype="string[pyarrow]"),
    "str": pd.array([None, "m", None, "b", "z", ""], dtype="str"),
    "arrow string": pd.array([None, "m", None, "b", "z", ""], dtype=pd.ArrowDtype(pa.string())),
    "arrow int": pd.array([None, 3, None, 2**62 + 1, -5, 0], dtype=pd.ArrowDtype(pa.int64())),
    "arrow date": pd.array([dt.date(2020, 1, 2), None, dt.date(1890, 5, 1)] * 2, dtype=pd.ArrowDtype(pa.date32())),
    "arrow decimal": pd.array(
        [D("2.10"), D("-1.00"), None, D("2.1"), D("10"), D("9.99")], dtype=pd.ArrowDtype(pa.decimal128(10, 2))
    ),
    "arrow timestamp": pd.array(
        [dt.datetime(2020, 1, 2), None, dt.datetime(1890, 5, 1)] * 2, dtype=pd.ArrowDtype(pa.timestamp("us", "UTC"))
    ),
    "arrow binary": pd.array([b"b", None, b"", b"\xff", b"a\0", b"a"], dtype=pd.ArrowDtype(pa.binary())),
    "bytes": pd.Series([b"b", None, b"", b"\xff", b"a\0", b"a"], dtype=object),
    "dates": pd.Series([dt.date(2020, 1, 2), None, dt.date(1890, 5, 1)] * 2, dtype=object),
    "utc": pd.to_datetime(["2020-01-02", None, "1999-05-05"] * 2, utc=True),
    "timedelta": pd.to_timedelta([5, None, -3, 5, 0, None], unit="s"),
    "category": pd.Categorical(["m", "z", "d", None, "z", "m"], categories=["z", "d", "m"]),
    "ordered category": pd.Categorical(
        ["low", "high", "mid", None, "low", "mid"], ["low", "mid", "high"], ordered=True
    ),
    "float16": np.array([2, np.nan, 0, 1, np.inf, -np.inf], "f2"),
    "uint64": np.array([0, 2**64 - 1, 2**63, 2**63 - 1, 1, 2**63 + 1], "u8"),
    "period": pd.PeriodIndex(["2020-01", "2019-05", "NaT", "2020-01", "1999-12", "2030-01"], freq="M"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("na_position", ["first", "last"])
def test_every_key_dtype(name, ascending, na_position):
    frame = pd.DataFrame({"k": KEYS[name], "seq": range(6)})
    df = split(frame, 2, 4)
    result = whole(distsort.sort_values(df, "k", ascending=ascending, na_position=na_position))
    if name == "float16":
        want = frame.astype({"k": "f8"}).sort_values("k", kind="stable", ascending=ascending, na_position=na_position)
    else:
        want = stable(frame, "k", ascending=ascending, na_position=na_position)
    assert result["seq"].tolist() == want["seq"].tolist()
    kept = frame.dtypes["k"] if name in ("bytes", "dates") else df.dtypes["k"]
    assert result["k"].dtype == kept
    pd.testing.assert_series_equal(result["k"], frame.astype({"k": kept})["k"].loc[want.index])


def test_decimals_by_value():
    values = [D("2.10"), D("-1.00"), D("2.1"), D("10.00"), D("9.99")]
    for dtype in (object, pd.ArrowDtype(pa.decimal128(10, 2))):
        result = whole(
            distsort.sort_values(split(pd.DataFrame({"k": pd.Series(values, dtype=dtype), "seq": range(5)}), 2), "k")
        )
        assert result["seq"].tolist() == [1, 0, 2, 4, 3]
        assert isinstance(result["k"].iloc[0], D)


def test_big_endian_and_complex_columns():
    frame = pd.DataFrame({"k": np.array([300, 1, 256, 2], ">i4"), "v": np.array([1, 2, 3, 4], ">f8")})
    result = whole(distsort.sort_values(split(frame, 2), "k"))
    assert (result["k"].tolist(), result["v"].tolist()) == ([1, 2, 256, 300], [2, 4, 3, 1])
    frame = pd.DataFrame({"k": np.array([2j, 1 + 1j, 1, 1 - 1j, complex(np.nan, 0)])})
    assert whole(distsort.sort_values(split(frame, 2), "k")).index.tolist() == [0, 3, 2, 1, 4]


def test_integers_beyond_float_precision_stay_apart():
    n = 3000
    for base, dtype in ((2**62, "int64"), (2**63, "uint64"), (-(2**63), "int64")):
        frame = pd.DataFrame({"k": np.array([base + i for i in range(n)][::-1], dtype=dtype), "seq": np.arange(n)})
        result = distsort.sort_values(split(frame, 1000, 2000), "k")
        assert whole(result)["seq"].tolist() == list(range(n))[::-1]
        assert sizes(result) == [1000] * 3


@pytest.mark.parametrize(
    "values",
    [[1, "a"], [[1], [2]], [{"x": 1}, {"x": 2}], [1, dt.date(2020, 1, 1)]],
    ids=["mixed", "lists", "dicts", "int and date"],
)
def test_a_key_without_an_order_is_refused_by_name(values):
    frame = pd.DataFrame({"odd one": pd.Series(values, dtype=object), "v": range(2)})
    with pytest.raises(KeyTypeError, match="odd one"):
        distsort.sort_values(split(frame, 1), "odd one").compute()


def test_categories_that_differ_between_partitions_are_refused():
    pieces = [pd.DataFrame({"kind": pd.Categorical(v)}) for v in (["b", "c"], ["a", "b"])]
    df = dd.from_map(lambda i: pieces[i], [0, 1], meta=pieces[0].iloc[:0])
    with pytest.raises(InputError, match="the categories of 'kind' differ"):
        distsort.sort_values(df, "kind").compute()
    agreed = df.assign(kind=df.kind.cat.set_categories(["c", "b", "a"]))
    assert whole(distsort.sort_values(agreed, "kind"))["kind"].tolist() == ["c", "b", "b", "a"]


def test_arrow_lists_are_refused_by_name():
    frame = pd.DataFrame({"nested": pd.array([[1], [2]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "v": range(2)})
    with pytest.raises(KeyTypeError, match="nested"):
        distsort.sort_values(split(frame, 1), "nested").compute()


def test_payload_travels_whole():
    frame = pd.DataFrame(
        {
            "k": [3, 1, 2, 0],
            "c": pd.Categorical(["oak", "elm", "ash", "oak"]),
            "s": pd.array(["d", "b", "c", "a"], dtype="string[pyarrow]"),
            "z": np.arange(4) * 1j,
            "p": pd.period_range("2024-01", periods=4, freq="M"),
            "i": pd.interval_range(0, 4),
            "o": pd.Series([D(1), D(2), None, D(3)], dtype=object),
            "l": pd.array([[1], [], None, [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
        }
    )
    df = split(frame, 2)
    want = stable(frame.astype({**dict(df.dtypes), "o": object}), "k")
    pd.testing.assert_frame_equal(whole(distsort.sort_values(df, "k")), want)


def test_mixed_objects_travel():
    frame = pd.DataFrame({"k": [3, 1, 2, 0], "o": pd.Series([{"x": 1}, [1, 2], "t", None], dtype=object)})
    assert whole(distsort.sort_values(split(frame, 2), "k"))["o"].tolist() == [None, [1, 2], "t", {"x": 1}]


def test_a_partition_that_is_all_none():
    a, b = pd.DataFrame({"k": [5.0, 1.0], "v": [0.5, 1.5]}), pd.DataFrame({"k": [3.0, 2.0], "v": [None, None]})
    df = dd.from_map(lambda i: [a, b, a][i], range(3), meta=a.iloc[:0])
    result = whole(distsort.sort_values(df, "k"))
    assert result["k"].tolist() == [1, 1, 2, 3, 5, 5]
    assert result["v"].dtype == float


def test_nulls_in_int_key_by_partition():
    for dtype, values in (("Int64", [4, 9, 1, 3, None, None]), ("boolean", [True, None, False, True, None, None])):
        frame = pd.DataFrame({"k": pd.array(values, dtype=dtype), "seq": range(6)})
        result = whole(distsort.sort_values(split(frame, 2, 4), "k"))
        pd.testing.assert_frame_equal(result, stable(frame, "k"))


def test_series_by_values_and_by_index_level():
    series = pd.Series([3, 1, 2, 1], index=pd.Index([9, 7, 8, 6], name="id"), name="v")
    result = whole(distsort.sort_values(split(series, 2)))
    pd.testing.assert_series_equal(result, series.sort_values(kind="stable"))
    result = whole(distsort.sort_values(split(series, 2), "id", ascending=False))
    pd.testing.assert_series_equal(result, series.sort_index(kind="stable", ascending=False))


def test_index_level_and_multiindex():
    frame = pd.DataFrame(
        {"v": [1, 2, 3, 4]}, index=pd.MultiIndex.from_tuples([(2, "b"), (1, "z"), (2, "a"), (1, "a")], names=["x", "y"])
    )
    df = dd.from_map(lambda i: frame.iloc[2 * i : 2 * i + 2], [0, 1], meta=frame.iloc[:0])
    result = whole(distsort.sort_values(df, ["x", "y"]))
    want = frame.sort_values(["x", "y"], kind="stable")
    assert result["v"].tolist() == want["v"].tolist() == [4, 2, 3, 1]
    assert result.index.tolist() == want.index.tolist()
    assert result.index.names == ["x", "y"]


def test_running_index():
    frame = pd.DataFrame({"k": range(100)}, index=np.arange(100) * 10)
    for given_frame in (frame, frame.sample(frac=1, random_state=0)):
        df = split(given_frame, 25, 50, 75)
        assert whole(distsort.sort_values(df, "k", ignore_index=True)).index.tolist() == list(range(100))
        assert whole(distsort.sort_values(df, "k")).index.tolist() == stable(given_frame, "k").index.tolist()


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("na_position", ["first", "last"])
@pytest.mark.parametrize("dtype", ["i8", "u2", "f8", "f2", ">f4"])
def test_a_frame_of_nothing_but_its_key(dtype, ascending, na_position):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, 300).astype(dtype)
    if values.dtype.kind == "f":
        values[::7] = np.nan
        values[::5] = -0.0
    frame = pd.DataFrame({"k": values})
    options = {"ascending": ascending, "na_position": na_position, "ignore_index": True}
    result = whole(distsort.sort_values(split(frame, 100, 250), "k", **options))
    want = stable(frame.astype("f8"), "k", **options)["k"].to_numpy()
    assert result["k"].dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    assert result["k"].to_numpy().astype("f8").tobytes() == want.tobytes()
    assert result.index.tolist() == list(range(300))
    series = whole(distsort.sort_values(split(frame["k"], 100), **options))
    assert series.name == "k"
    assert series.to_numpy().astype("f8").tobytes() == want.tobytes()


def test_running_index_of_rows_sorted_by_their_labels():
    frame = pd.DataFrame({"v": [1, 2, 3, 4]}, index=pd.Index([4, 2, 3, 1], name="id"))
    result = whole(distsort.sort_values(split(frame, 1, 2), "id", ignore_index=True))
    assert (result["v"].tolist(), result.index.tolist()) == ([4, 2, 3, 1], [0, 1, 2, 3])


def test_names_and_column_labels_are_kept():
    frame = pd.DataFrame(
        [[3, 1], [1, 2], [2, 3]], columns=pd.Index([7, "seven"], name="cols"), index=pd.Index([5, 6, 7], name="id")
    )
    result = whole(distsort.sort_values(split(frame, 2), 7))
    pd.testing.assert_frame_equal(result, stable(frame, 7))
    assert result.columns.name == "cols"
    assert result.index.name == "id"


def test_attrs_are_kept():
    frame = pd.DataFrame({"k": [2, 1]})
    frame.attrs["unit"] = "m"
    result = partitions(distsort.sort_values(dd.from_map(lambda i: frame, [0], meta=frame.iloc[:0]), "k"))
    assert result[0].attrs == {"unit": "m"}


def test_key_function():
    frame = pd.DataFrame({"k": ["B", "a", "C", "b", "A"], "seq": range(5)})
    for pieces in ((), (2,), (1, 2, 3)):
        result = whole(distsort.sort_values(split(frame, *pieces), "k", key=lambda s: s.str.lower()))
        assert result["seq"].tolist() == stable(frame, "k", key=lambda s: s.str.lower())["seq"].tolist()
        assert list(result.columns) == ["k", "seq"]
    series = split(pd.Series([-3, 1, 2, -1]), 2)
    assert whole(distsort.sort_values(series, key=abs)).tolist() == [1, -1, 2, -3]


@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n: rng.random(n),
        lambda rng, n: np.full(n, 7),
        lambda rng, n: np.where(rng.random(n) < 0.9, 5, rng.integers(0, 1000, n)),
        lambda rng, n: np.minimum(rng.zipf(1.3, n), 10**6),
        lambda rng, n: rng.zipf(2.0, n),
        lambda rng, n: rng.standard_cauchy(n),
        lambda rng, n: rng.choice([-np.inf, np.inf, np.nan, 0.0], n),
    ],
    ids=["uniform", "constant", "ninety percent", "zipf 1.3", "zipf 2", "cauchy", "infinities"],
)
def test_partitions_differ_by_one_row_at_most(make):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": make(rng, 20_003), "second": rng.random(20_003), "seq": np.arange(20_003)})
    df = split(frame, *range(2500, 20_000, 2500))
    for by in ("k", ["k", "second"]):
        result = distsort.sort_values(df, by)
        got = partitions(result)
        pd.testing.assert_frame_equal(pd.concat(got), stable(frame, by))
        assert np.ptp([len(p) for p in got]) <= 1


def test_neighbouring_blocks_are_joined_to_runs():
    frame = pd.DataFrame({"k": np.random.default_rng(0).integers(0, 9, 400), "seq": np.arange(400)})
    df = split(frame, *range(10, 400, 10))
    with dask.config.set({"distsort.graph.slices": 100}):
        assert distsort.plan_sort_values(df, "k").runs == 16
        result = distsort.sort_values(df, "k")
        got = partitions(result)
    pd.testing.assert_frame_equal(pd.concat(got), stable(frame, "k"))
    assert {len(p) for p in got} == {10}


def test_blocks_are_counted_after_dask_has_joined_files(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": rng.integers(0, 9, 400), **{f"c{i}": 1.0 for i in range(30)}})
    for i in range(40):
        frame.iloc[10 * i : 10 * i + 10].to_parquet(tmp_path / f"{i:02}.parquet")
    with dask.config.set({"distsort.graph.slices": 100}):
        result = distsort.sort_values(dd.read_parquet(tmp_path), "k")[["k"]]
        assert result.compute()["k"].tolist() == stable(frame, "k")["k"].tolist()
    assert distsort.sort_values(dd.read_parquet(tmp_path), "k")["k"].compute().tolist() == sorted(frame["k"])


def test_partition_counts():
    frame = pd.DataFrame({"k": [40, 30, 4, 3, 20, 2]})
    assert sizes(distsort.sort_values(split(frame, 1, 2, 3, 4, 5), "k")) == [1] * 6
    for n in (1, 2, 6, 20):
        result = distsort.sort_values(split(frame, 3), "k", npartitions=n)
        assert whole(result)["k"].tolist() == [2, 3, 4, 20, 30, 40]
        assert max(sizes(result)) == -(-6 // min(n, 6))
        assert result.npartitions == len(result.divisions) - 1 == len(result.to_delayed()) == n


def test_empty_partitions_and_empty_frames():
    frame = pd.DataFrame({"k": [1, 2, 3, 4], "v": list("abcd")})
    df = split(frame, 3, 3, 4)
    result = whole(distsort.sort_values(df, "k"))
    assert result["v"].tolist() == list("abcd")
    assert result.dtypes.equals(df.dtypes)
    nothing = distsort.sort_values(split(frame.iloc[:0], 0), "k")
    assert sizes(nothing) == [0, 0]


def test_lazy_and_read_once():
    loads = []
    frame = pd.DataFrame({"k": np.arange(500)[::-1], "v": 1.0})
    df = dd.from_map(lambda i: loads.append(i) or frame.iloc[i * 100 : (i + 1) * 100], range(5), meta=frame.iloc[:0])
    loads.clear()
    result = distsort.sort_values(df, "k")
    assert repr(result)
    assert result.npartitions == 5
    assert distsort.plan_sort_values(df, "k").runs == 5
    assert loads == []
    assert result.compute()["k"].tolist() == list(range(500))
    assert sorted(loads) == list(range(5))


def test_length_needs_no_sort_and_projection_reaches_the_reader(tmp_path):
    pd.DataFrame({"k": np.arange(100)[::-1], "v": 1.0, "w": "x"}).to_parquet(tmp_path / "a.parquet")
    df = dd.read_parquet(tmp_path)
    result = distsort.sort_values(df, "k", npartitions=3)
    assert len(result) == 100
    assert "'w'" not in result["v"].optimize().expr.tree_repr()
    assert result[["v"]].compute().shape == (100, 1)
    assert result["k"].compute().tolist() == list(range(100))


def test_downstream_operations():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": rng.integers(0, 50, 400), "v": rng.random(400)})
    result = distsort.sort_values(split(frame, 100, 200, 300), "k")
    want = stable(frame, "k")
    pd.testing.assert_frame_equal(result.head(5), want.head(5))
    pd.testing.assert_frame_equal(result.tail(5), want.tail(5))
    pd.testing.assert_frame_equal(result.partitions[2].compute(), want.iloc[200:300])
    pd.testing.assert_frame_equal(result[result.v > 0.5].compute(), want[want.v > 0.5])
    pd.testing.assert_frame_equal(distsort.sort_values(result, "v").compute(), stable(want, "v"))
    assert result.v.sum().compute() == pytest.approx(want.v.sum())
    a, b = dask.compute(result, distsort.sort_values(split(frame, 7), "v", ascending=False))
    pd.testing.assert_frame_equal(a, want)
    pd.testing.assert_frame_equal(b, stable(frame, "v", ascending=False))
    pd.testing.assert_frame_equal(distsort.sort_values(split(frame, 100).persist(), "k").persist().compute(), want)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_other_schedulers(scheduler):
    frame = pd.DataFrame({"k": np.random.default_rng(0).integers(0, 9, 300), "seq": np.arange(300)})
    with dask.config.set(scheduler=scheduler):
        result = distsort.sort_values(split(frame, 100, 200), "k")
        pd.testing.assert_frame_equal(whole(result), stable(frame, "k"))


def test_validate():
    frame = pd.DataFrame({"k": [3, 1, 2, 2], "v": list("abcd")})
    df = split(frame, 2)
    result = distsort.sort_values(df, "k")
    answer = distsort.validate(result, df)
    assert (answer.rows, answer.partitions) == (4, (2, 2))
    assert distsort.validate(distsort.sort_values(df, "k", ignore_index=True), df).rows == 4
    with pytest.raises(ValidationError, match="not sorted by k asc nulls last: row 1 of partition 0"):
        distsort.validate(df, df, "k")
    with pytest.raises(ValidationError, match="the result has 2 rows, the source 4"):
        distsort.validate(result.partitions[0], df, "k")
    changed = result.map_partitions(lambda d: d.assign(v="a"), meta=result._meta)
    with pytest.raises(ValidationError, match="checksums differ"):
        distsort.validate(changed, df, "k")
    assert distsort.is_sorted(result, "k")
    assert not distsort.is_sorted(df, "k")
    backwards = dd.concat([result.partitions[1], result.partitions[0]])
    with pytest.raises(ValidationError, match="the first row of partition 1"):
        distsort.validate(backwards, df, "k")


def test_merge_sorted_frames():
    rng = np.random.default_rng(0)
    a = stable(pd.DataFrame({"k": rng.integers(0, 20, 100), "src": "a"}), "k")
    b = stable(pd.DataFrame({"k": rng.integers(0, 20, 70), "src": "b"}), "k")
    merged = distsort.merge_sorted([split(a, 30), split(b, 40)], "k", npartitions=3)
    want = stable(pd.concat([a, b]), "k")
    got = whole(merged)
    assert (got["k"].tolist(), got["src"].tolist()) == (want["k"].tolist(), want["src"].tolist())
    with pytest.raises(distsort.errors.NotSortedError, match="by k asc"):
        distsort.merge_sorted([split(a.sample(frac=1, random_state=1), 30), split(b, 40)], "k").compute()


def test_mistakes_are_named():
    df = split(pd.DataFrame({"price": [1], "size": [2]}), 1)
    with pytest.raises(InputError, match="by='prize' is no column and no index level: did you mean 'price' or 'size'"):
        distsort.sort_values(df, "prize")
    with pytest.raises(OptionError, match="na_position='top'"):
        distsort.sort_values(df, "price", na_position="top")
    with pytest.raises(OptionError, match="ascending= has 2 entries for 1 keys"):
        distsort.sort_values(df, "price", ascending=[True, False])
    with pytest.raises(OptionError, match="by= names price more than once"):
        distsort.sort_values(df, ["price", "price"])
    with pytest.raises(OptionError, match="by= is missing"):
        distsort.sort_values(df)
    with pytest.raises(TypeError, match="acsending"):
        distsort.sort_values(df, "price", acsending=False)
    with pytest.raises(InputError, match="not DataFrame"):
        distsort.sort_values(pd.DataFrame({"a": [1]}), "a")
    with pytest.raises(OptionError, match="key='lower'"):
        distsort.sort_values(df, "price", key="lower")


def test_plan_explains():
    text = distsort.plan_sort_values(split(pd.DataFrame({"k": range(8)}), 2, 4, 6), "k", npartitions=2).explain()
    assert "4 sorted where they lie on the numpy backend" in text
    assert "no distributed client is connected" in text
