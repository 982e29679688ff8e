"""Bare columns stand for the frames that they were taken from; here with NumPy's arrays and a stand-in for cudf."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort import blocks
from distsort.columns import Columns, Frame, take_apart
from distsort.exchange.spill import RunFile, join
from distsort.local import Run, Spec, sample
from distsort.merge import merge_runs
from distsort.order import make_order


def bare(frame, index=None):
    """Take a pandas frame apart as cudf's are."""
    arrays = [frame[name].to_numpy() for name in frame]
    if index is not None:
        arrays.append(frame.index.to_numpy())
    return Columns(tuple(arrays), Frame(frame.columns, False, None if index is None else (index,)))


def whole(columns):
    """Make the pandas frame of them."""
    frame = columns.frame
    arrays = list(columns.arrays)
    index = None if frame.index is None else pd.Index(arrays.pop(), name=frame.index[0])
    return pd.DataFrame(dict(zip(frame.names, arrays, strict=True)), index=index)


@pytest.fixture
def _pandas_for_cudf(monkeypatch):
    monkeypatch.setattr(Columns, "to_frame", whole)


def rows_of(rng, n):
    return pd.DataFrame(
        {
            "k": rng.integers(0, 9, n),
            "f": np.where(rng.random(n) < 0.3, np.nan, rng.random(n)),
            "b": rng.random(n) < 0.5,
        },
        index=pd.Index(rng.permutation(n), name="i"),
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 40), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_runs_of_columns_merge_to_the_rows_of_pandas(seed, lengths, labels, nulls_first):
    rng = np.random.default_rng(seed)
    frames = [rows_of(rng, n) for n in lengths]
    order = make_order(["f", "k"], [True, False], "first" if nulls_first else "last")
    spec = Spec(order, "rows", ignore_index=not labels)
    expected = pd.concat(frames).sort_values(
        ["f", "k"], ascending=[True, False], na_position="first" if nulls_first else "last", kind="stable"
    )
    runs = []
    for frame in frames:
        sort = frame.sort_values(
            ["f", "k"], ascending=[True, False], na_position="first" if nulls_first else "last", kind="stable"
        )
        runs.append(Run(bare(sort, "i" if labels else None)))
        assert spec.labels(runs[-1].rows) == labels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "to_frame", whole)
        found = merge_runs(list(runs), spec)
    pd.testing.assert_frame_equal(found, expected if labels else expected.reset_index(drop=True))


@pytest.mark.usefixtures("_pandas_for_cudf")
@pytest.mark.parametrize("descending", [False, True])
def test_a_single_column_is_merged_as_an_array_and_in_the_order_of_frames(descending):
    rng = np.random.default_rng(1)
    frames = [pd.DataFrame({"f": rng.integers(0, 5, 50) / 4}) for _ in range(3)]
    for frame in frames:
        frame.loc[::7, "f"] = np.nan
    by = {"ascending": not descending, "kind": "stable"}
    for nulls in ("first", "last"):
        spec = Spec(make_order("f", not descending, nulls), "rows", ignore_index=True)
        runs = [Run(bare(f.sort_values("f", na_position=nulls, **by))) for f in frames]
        assert (spec.bare(runs[0].rows) is None) == (nulls == "first")
        expected = pd.concat(frames).sort_values("f", na_position=nulls, ignore_index=True, **by)
        pd.testing.assert_frame_equal(merge_runs(runs, spec), expected)


@pytest.mark.usefixtures("_pandas_for_cudf")
def test_a_partition_with_nulls_makes_frames_of_the_others():
    """Its run is a frame, theirs are columns: keys are compared and rows are joined all the same."""
    plain = pd.DataFrame({"k": [2**60 + 1, 2**60 + 3], "v": [1, 2]})
    nulls = pd.DataFrame({"k": pd.array([2**60, 2**60 + 2, None], "Int64"), "v": [3, 4, 5]})
    spec = Spec(make_order("k"), "rows", ignore_index=True)
    runs = [Run(bare(plain)), Run(nulls)]
    keys = [sample(run, spec, 8).keys[0] for run in runs]
    assert list(blocks.concat_columns(keys)[:4]) == [2**60 + 1, 2**60 + 3, 2**60, 2**60 + 2]
    assert list(blocks.concat_columns(keys[::-1])[3:]) == [2**60 + 1, 2**60 + 3]
    found = merge_runs(list(runs), spec)
    assert found["v"].tolist() == [3, 1, 4, 2, 5]
    assert found["k"].tolist()[:4] == [2**60, 2**60 + 1, 2**60 + 2, 2**60 + 3]
    assert len(join([runs[0], Run(nulls.iloc[:1])])) == 3


def test_columns_are_cut_taken_and_spilled(tmp_path):
    rng = np.random.default_rng(2)
    frame = rows_of(rng, 30_000).sort_values("k", kind="stable")
    columns = bare(frame, "i")
    assert (len(columns), columns.nbytes) == (30_000, 30_000 * 25)
    assert blocks.library(columns) == "columns"
    assert not blocks.is_frame(columns)
    assert not blocks.is_series(columns)
    assert not blocks.on_device(columns)
    pd.testing.assert_frame_equal(whole(blocks.cut(columns, 10, 20)), frame.iloc[10:20])
    places = np.array([5, 3, 3, 29_999])
    pd.testing.assert_frame_equal(whole(blocks.take(columns, places)), frame.iloc[places])
    spec = Spec(make_order("k"), "rows")
    file = RunFile(Run(columns), tmp_path / "run", spec)
    pd.testing.assert_frame_equal(whole(file.cut(9_000, 21_000).rows), frame.iloc[9_000:21_000])
    assert file.keys_at(places, spec)[0].tolist() == frame["k"].to_numpy()[places].tolist()
    file.close()
    pd.testing.assert_frame_equal(whole(pickle.loads(pickle.dumps(columns))), frame)


@pytest.mark.parametrize(("name", "place"), [("k", 0), ("b", 2), ("i", 3)])
def test_keys_are_columns_or_the_index(name, place):
    columns = bare(rows_of(np.random.default_rng(3), 10), "i")
    assert columns.column(name) is columns.arrays[place]
    (key,) = blocks.key_columns(blocks.pick_keys(columns, np.array([1, 2]), make_order(name)), make_order(name))
    assert key.tolist() == columns.arrays[place][1:3].tolist()


class Series:
    """A cudf series as far as it is asked here."""

    def __init__(self, values, nulls=False, name=None):
        self.values, self.dtype, self.has_nulls, self.name = values, values.dtype, nulls, name
        self.index = SimpleNamespace(dtype=np.dtype("i8"), hasnans=False, name="i", values=np.arange(len(values)))


class Table:
    """A cudf frame as far as it is asked here."""

    def __init__(self, columns, names=None, index=None):
        self.data, self.columns = columns, pd.Index(list(columns)) if names is None else names
        self.index = Series(np.arange(3)).index if index is None else index

    def __getitem__(self, name):
        return self.data[name]


@pytest.fixture
def _stand_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(Series=Series, MultiIndex=pd.MultiIndex))


@pytest.mark.usefixtures("_stand_in")
def test_only_plain_columns_are_taken_apart():
    numbers, floats = Series(np.arange(3)), Series(np.array([0.5, np.nan, 1]))
    apart = take_apart(Table({"a": numbers, "b": floats}), labels=True)
    assert apart.arrays[0] is numbers.values
    assert apart.arrays[1] is floats.values
    assert apart.arrays[2].tolist() == [0, 1, 2]
    assert (list(apart.frame.names), apart.frame.series, apart.frame.index) == (["a", "b"], False, ("i",))
    assert len(take_apart(Table({"a": numbers}), labels=False).arrays) == 1
    one = take_apart(Series(np.arange(3), name="s"), labels=False)
    assert (one.frame.series, list(one.frame.names), one.column(None).tolist()) == (True, ["s"], [0, 1, 2])

    other = SimpleNamespace(dtype=pd.CategoricalDtype(), has_nulls=False)
    for table in (
        Table({"a": numbers, "b": Series(np.arange(3), nulls=True)}),
        Table({"a": numbers, "c": other}),
        Table({"a": Series(np.array([1, 2, 3], "M8[ns]"))}),
        Table({}),
        Table({"a": numbers}, names=pd.Index(["a", "a"])),
        Table({"a": numbers}, names=pd.MultiIndex.from_tuples([("a", 1)])),
        Table({"i": numbers}),
        Table({"a": numbers}, index=SimpleNamespace(dtype=np.dtype("f8"), hasnans=False, name=None)),
    ):
        assert take_apart(table, labels=True) is None
