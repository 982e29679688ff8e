from __future__ import annotations

import datetime as dt

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsort import cli
from distsort.errors import InputError, OptionError
from distsort.files import check_files, sort_files
from distsort.files.plan import plan_files


@pytest.fixture
def days(tmp_path):
    """1,000 rows in 10 row groups, each of ten days of its own; returns the path and the table."""
    rng = np.random.default_rng(0)
    first = dt.date(2024, 1, 1)
    table = pa.table(
        {
            "day": [first + dt.timedelta(days=i // 10) for i in range(1000)],
            "k": rng.permutation(1000),
            "x": pa.array(rng.random(1000), mask=rng.random(1000) < 0.1),
            "s": [f"text {i % 7}" for i in range(1000)],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=100)
    return tmp_path / "in.parquet", table


def groups_read(report):
    note = next(note for note in report.notes if "row groups are read" in note)
    return [int(word) for word in note.split() if word.isdigit()]


@pytest.mark.parametrize("memory", [None, "2 GiB"])
def test_rows_are_filtered_exactly_and_row_groups_skipped(tmp_path, days, memory):
    path, table = days
    low, high = dt.date(2024, 1, 5), dt.date(2024, 1, 22)
    wanted = [("day", ">=", low), ("day", "<", high), ("s", "!=", "text 3")]
    report = sort_files(path, tmp_path / "out", "k", filters=wanted, columns=["k", "x"], memory=memory)
    frame = table.to_pandas()
    frame = frame[(frame.day >= low) & (frame.day < high) & (frame.s != "text 3")].sort_values("k")
    got = pq.read_table(tmp_path / "out")
    assert got.column_names == ["k", "x"]
    assert got["k"].to_pylist() == frame["k"].tolist()
    assert got["x"].to_pandas().tolist() == pytest.approx(frame["x"].tolist(), nan_ok=True)
    assert report.rows == len(frame)
    assert groups_read(report) == [3, 10]
    assert bool(check_files(tmp_path / "out", "k"))
    assert "3 of 10 row groups" in plan_files(path, "k", filters=wanted).explain()


def test_row_groups_left_out_are_not_touched(tmp_path, days):
    path, _ = days
    data = bytearray(path.read_bytes())
    # Ruin the bytes of all row groups but the fourth.
    footer = pq.read_metadata(path)
    for number in set(range(10)) - {3}:
        for column in range(footer.num_columns):
            chunk = footer.row_group(number).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    sort_files(path, tmp_path / "out", "k", filters=[("day", "in", [dt.date(2024, 2, 1), dt.date(2024, 2, 3)])])
    days_kept = pq.read_table(tmp_path / "out")["day"].to_pylist()
    assert sorted(set(days_kept)) == [dt.date(2024, 2, 1), dt.date(2024, 2, 3)]
    assert len(days_kept) == 20


VALUES = st.one_of(st.none(), st.integers(-3, 3))
CONDITIONS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="]), st.integers(-4, 4)
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=3,
)
COMPARE = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=30), CONDITIONS, st.booleans())
def test_any_filter_keeps_what_python_keeps(tmp_path, rows, any_of, floats):
    kind = pa.float64() if floats else pa.int64()
    table = pa.table({"a": pa.array([a for a, _ in rows], kind), "b": pa.array([b for _, b in rows], kind)})
    table = table.append_column("seq", pa.array(range(len(rows))))
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=4)
    sort_files(tmp_path / "in.parquet", tmp_path / "out", "seq", filters=any_of, overwrite=True)

    def passes(row):
        held = dict(zip("ab", row, strict=True))
        return any(all(held[c] is not None and COMPARE[op](held[c], v) for c, op, v in every) for every in any_of)

    expected = [i for i, row in enumerate(rows) if passes(row)]
    assert pq.read_table(tmp_path / "out")["seq"].to_pylist() == expected


def test_nan_passes_unequal_and_hive_folders_are_ends_too(tmp_path):
    for year in (2023, 2024):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1.0, float("nan"), 1.0]}), tmp_path / "in" / f"year={year}" / "a.parquet")
    report = sort_files(tmp_path / "in", tmp_path / "out", "x", filters=[("x", "!=", 1.0), ("year", "=", 2024)])
    got = pq.read_table(tmp_path / "out").to_pandas()
    assert got["x"].isna().tolist() == [True]
    assert got["year"].tolist() == [2024]
    assert groups_read(report) == [1, 2]


def test_nothing_passes(tmp_path, days):
    path, table = days
    report = sort_files(path, tmp_path / "out", "k", filters=[("x", ">", 2.0)])
    assert (report.rows, groups_read(report)) == (0, [0, 10])
    assert pq.read_table(tmp_path / "out").schema.equals(table.schema)


def test_wrong_filters_are_refused_by_name(tmp_path, days):
    path, _ = days
    for filters, error, message in (
        ([("dya", "=", 1)], InputError, "filter column 'dya' is not a column .* did you mean 'day'"),
        ([("k", "~", 1)], OptionError, r"'k', '~', 1.*one of =, =="),
        ([("k", ">", "many")], OptionError, "the column is int64, and the value is not"),
        ([("s", ">", 3)], OptionError, "the column is string, and the value is not"),
        ([], OptionError, "no condition"),
    ):
        with pytest.raises(error, match=message):
            sort_files(path, tmp_path / "out", "k", filters=filters)
    (tmp_path / "in.csv").write_text("k\n1\n")
    with pytest.raises(OptionError, match=r"filters= \(--where\) is for Parquet files"):
        sort_files(tmp_path / "in.csv", tmp_path / "out", "k", filters=[("k", ">", 0)])
    assert not (tmp_path / "out").exists()


# Dask's own reader warns with the newest pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_metadata_names_each_part_for_dask_and_pyarrow(tmp_path, days):
    path, _ = days
    sort_files(path, tmp_path / "out", "k", npartitions=4, metadata_file=True)
    whole = pq.read_metadata(tmp_path / "out" / "_metadata")
    assert whole.num_rows == 1000
    names = [whole.row_group(i).column(0).file_path for i in range(whole.num_row_groups)]
    assert names == [f"part-{i:05d}.parquet" for i in range(4)]
    frame = dd.read_parquet(tmp_path / "out", ignore_metadata_file=False, filters=[("k", "<", 300)])
    assert sorted(frame["k"].compute()) == list(range(300))
    pieces = ds.parquet_dataset(tmp_path / "out" / "_metadata")
    assert pieces.to_table(columns=["k"])["k"].to_pylist() == list(range(1000))
    (tmp_path / "in.txt").write_text("b\na\n")
    with pytest.raises(OptionError, match=r"metadata_file= .* is for Parquet output"):
        sort_files(tmp_path / "in.txt", tmp_path / "out2", metadata_file=True)


def test_the_command_line_filters_and_projects(tmp_path, days, capsys):
    path, table = days
    command = ["sort", str(path), "-o", str(tmp_path / "out"), "-k", "k", "--columns", "k,s", "--metadata-file"]
    assert cli.run([*command, "--where", "day >= 2024-04-01", "--where", "s = 'text 1'"]) == 0
    assert "1 of 10 row groups are read" in capsys.readouterr().out
    frame = table.to_pandas()
    expected = frame[(frame.day >= dt.date(2024, 4, 1)) & (frame.s == "text 1")].sort_values("k")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "out"), expected[["k", "s"]].reset_index(drop=True), check_dtype=False
    )
    assert (tmp_path / "out" / "_metadata").exists()
    assert cli.run([*command, "--where", "day"]) == 2
    assert "--where 'day': write a column" in capsys.readouterr().err
