from __future__ import annotations

import decimal
import json
import os
import signal
import subprocess
import sys
import time

import dask
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsort.errors import InputError, KeyTypeError, NotSortedError, OptionError, OutputError, ValidationError
from distsort.files import check_files, first_rows, sort_files
from distsort.files.parts import Read, WritePart, Written, check_whole
from distsort.files.plan import plan_files
from distsort.files.seen import Seen, Tally, first_fault
from distsort.files.where import piece_size
from distsort.io import csv
from distsort.needs import identity, room
from distsort.order import make_order


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def write_parquet(path, table, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


@pytest.fixture
def numbers(tmp_path):
    """240 rows in twelve row groups, descending."""
    write_parquet(tmp_path / "in" / "a.parquet", pa.table({"k": list(range(240))[::-1]}), row_group_size=20)
    return tmp_path / "in"


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask.dataframe.read_parquet, under pandas 3.1
def test_parts_read_back_in_order_by_every_reader(numbers, tmp_path):
    import dask.dataframe as dd

    report = sort_files(numbers, tmp_path / "out", "k")
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == list(range(240))
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == list(range(240))
    assert dd.read_parquet(tmp_path / "out").compute(scheduler="sync")["k"].tolist() == list(range(240))
    assert listing(tmp_path / "out") == [
        "_SUCCESS",
        "_manifest.json",
        *(f"part-{number:05d}.parquet" for number in range(12)),
    ]
    assert [part.rows for part in report.parts] == [20] * 12
    assert report.balance == 1.0
    assert listing(tmp_path) == ["in", "out"]


def test_manifest_and_sorting_columns(numbers, tmp_path):
    report = sort_files(numbers, tmp_path / "out", "k", ascending=False, na_position="first", npartitions=7)
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["rows"] == 240
    assert manifest["order"] == [{"column": "k", "direction": "desc", "nulls": "first"}]
    assert manifest["checksum"] == report.checksum
    assert [part["rows"] for part in manifest["parts"]] == [34, 34, 34, 35, 34, 34, 35]
    assert manifest["parts"][0]["first"] == {"k": 239}
    assert manifest["parts"][-1]["last"] == {"k": 0}
    group = pq.read_metadata(tmp_path / "out" / "part-00000.parquet").row_group(0)
    assert group.sorting_columns == (pq.SortingColumn(0, descending=True, nulls_first=True),)


def test_overwrite(numbers, tmp_path):
    sort_files(numbers, tmp_path / "out", "k")
    with pytest.raises(OutputError, match=str(tmp_path / "out")):
        sort_files(numbers, tmp_path / "out", "k", npartitions=2)
    assert len(listing(tmp_path / "out")) == 14
    sort_files(numbers, tmp_path / "out", "k", overwrite=True, npartitions=2)
    assert len(listing(tmp_path / "out")) == 4
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == list(range(240))


@pytest.mark.parametrize("memory", [None, "2 GiB"])
def test_merge_names_the_file_and_the_row_out_of_order(tmp_path, memory):
    # The first file ends below the beginning of the second, which is no fault; 2.5 widens the type of the column.
    (tmp_path / "a.csv").write_text("k,v\n3,x\n2,y\n1,z\n")
    (tmp_path / "b.csv").write_text("k,v\n9,x\n2.5,y\n7,z\n")
    write_parquet(tmp_path / "c.parquet", pa.table({"k": [5, 4, 4, 2, 1, 3]}), row_group_size=2)
    for name, fault in (
        ("*.csv", f"{tmp_path}/b.csv, row 2: k=7.0 stands below k=2.5"),
        ("*.parquet", f"{tmp_path}/c.parquet, row 5: k=3 stands below k=1"),
    ):
        with pytest.raises(NotSortedError) as caught:
            sort_files(str(tmp_path / name), tmp_path / "out", "k", ascending=False, presorted=True, memory=memory)
        assert str(caught.value) == (
            f"{fault}: it is not sorted by k desc nulls last: "
            "use sort_files, or distsort sort without -m, for files that are not sorted"
        )
    assert listing(tmp_path) == ["a.csv", "b.csv", "c.parquet"]


def test_merge_of_unsorted_files_that_are_gone_by_then(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("k\n2\n1\n")

    def gone(*args, **kwargs):
        raise InputError("gone")

    monkeypatch.setattr("distsort.files.check.open_source", gone)
    with pytest.raises(
        NotSortedError, match=r"^an input file has a row that stands too late: it is not sorted by k asc"
    ):
        sort_files(tmp_path / "a.csv", tmp_path / "out", "k", presorted=True)


@pytest.mark.parametrize("memory", [None, "2 GiB"])
@pytest.mark.parametrize(
    ("ascending", "place", "one", "two"),
    [
        (True, "last", "half more inf nan null", "half more inf nan null"),
        (True, "first", "null nan half more inf", "null half more inf nan"),
        (False, "last", "inf more half nan null", "nan inf more half null"),
        (False, "first", "null nan inf more half", "null nan inf more half"),
    ],
)
def test_nan_beside_null_stands_where_the_documentation_says(tmp_path, ascending, place, one, two, memory):
    table = pa.table(
        {"f": [1.5, None, float("nan"), 0.5, float("inf")], "r": range(5), "is": ["more", "null", "nan", "half", "inf"]}
    )
    write_parquet(tmp_path / "in.parquet", table)
    for by, directions, expected in (("f", ascending, one), (["f", "r"], [ascending, True], two)):
        options = {"ascending": directions, "na_position": place, "memory": memory, "overwrite": True}
        sort_files(tmp_path / "in.parquet", tmp_path / "out", by, **options)
        assert " ".join(pq.read_table(tmp_path / "out")["is"].to_pylist()) == expected


def test_input_as_output_is_refused(numbers):
    for target in (numbers, numbers / "deep" / "out", numbers.parent):
        with pytest.raises(OptionError, match=str(target)):
            sort_files(numbers, target, "k", overwrite=True)
    with pytest.raises(OptionError, match=r"a\.parquet"):
        sort_files(numbers / "a.parquet", numbers / "a.parquet", "k", overwrite=True)
    assert listing(numbers) == ["a.parquet"]


def test_quoted_line_breaks(tmp_path):
    (tmp_path / "in.csv").write_text('k,txt\n3,"a\nb"\n1,"c,\n\nd"\n2,plain\n', newline="")
    for size in ("1 B", "64 MiB"):
        with dask.config.set({"distsort.files.csv-block-size": size}):
            sort_files(tmp_path / "in.csv", tmp_path / "out", "k", overwrite=True)
        result = pd.read_parquet(tmp_path / "out").to_dict("list")
        assert result == {"k": [1, 2, 3], "txt": ["c,\n\nd", "plain", "a\nb"]}


def test_null_columns_and_empty_files(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    write_parquet(tmp_path / "in" / "0.parquet", pa.table({"k": [4, 2], "v": pa.nulls(2)}))
    write_parquet(tmp_path / "in" / "1.parquet", schema.empty_table())
    write_parquet(tmp_path / "in" / "2.parquet", pa.table({"k": [3, None], "v": ["x", "y"]}, schema=schema))
    sort_files(tmp_path / "in", tmp_path / "out", "k")
    table = pq.read_table(tmp_path / "out")
    assert table.to_pydict() == {"k": [2, 3, 4, None], "v": [None, "x", None, "y"]}
    assert table.schema.equals(schema)


def test_no_rows_give_an_output_of_no_rows(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string()))])
    write_parquet(tmp_path / "in" / "0.parquet", schema.empty_table())
    report = sort_files(tmp_path / "in", tmp_path / "out", "k")
    assert (report.rows, report.balance) == (0, 1.0)
    assert pq.read_table(tmp_path / "out").schema.equals(schema)
    assert bool(check_files(tmp_path / "out", "k"))
    (tmp_path / "in.csv").write_text("k,v\n")
    sort_files(tmp_path / "in.csv", tmp_path / "out2", "k")
    assert pd.read_parquet(tmp_path / "out2").columns.tolist() == ["k", "v"]


def test_more_parts_than_rows(tmp_path):
    write_parquet(tmp_path / "in.parquet", pa.table({"k": [2, 1]}))
    report = sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", npartitions=5)
    assert sorted(part.rows for part in report.parts) == [0, 0, 0, 1, 1]
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == [1, 2]
    assert bool(check_files(tmp_path / "out", "k"))


KEYS = {
    "int": st.integers(-3, 3),
    "big": st.integers(2**62, 2**62 + 3),
    "float": st.floats(width=16),
    "text": st.text(st.sampled_from("aé\U0001f600\x00"), max_size=3),
    "decimal": st.decimals(-9, 9, places=2),
    "date": st.dates(),
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_the_stable_sort_of_the_input(tmp_path, data):
    kinds = data.draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    rows = data.draw(st.integers(0, 30))
    columns = {
        f"k{i}": data.draw(st.lists(st.one_of(st.none(), KEYS[kind]), min_size=rows, max_size=rows))
        for i, kind in enumerate(kinds)
    }
    fixed = {"decimal": pa.decimal128(5, 2), "float": pa.float64(), "text": pa.string(), "date": pa.date32()}
    table = pa.table(
        {
            **{f"k{i}": pa.array(columns[f"k{i}"], fixed.get(kind, pa.int64())) for i, kind in enumerate(kinds)},
            "seq": np.arange(rows),
        }
    )
    up = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    place = data.draw(st.sampled_from(["first", "last"]))
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=data.draw(st.integers(1, 10)))
    sort_files(
        tmp_path / "in.parquet",
        tmp_path / "out",
        list(columns),
        ascending=up,
        na_position=place,
        overwrite=True,
        npartitions=data.draw(st.integers(1, 4)),
    )
    got = pq.read_table(tmp_path / "out")
    order = list(range(rows))
    for name, ascending in reversed(list(zip(columns, up, strict=True))):
        values = columns[name]
        nulls = [i for i in order if values[i] is None]
        nans = [i for i in order if values[i] is not None and values[i] != values[i]]
        kept = [i for i in order if values[i] is not None and values[i] == values[i]]
        # Python's sort keeps the order of ties under reverse=True, too.
        filled = sorted(kept, key=lambda i: values[i], reverse=not ascending)
        # pandas' rule for Arrow floats: a lone key has NaN beside the nulls, of several keys it is the largest number.
        last = place == "last" if len(kinds) == 1 else ascending
        filled = filled + nans if last else nans + filled
        order = nulls + filled if place == "first" else filled + nulls
    assert got["seq"].to_pylist() == order
    assert got.schema.equals(table.schema)


def test_nested_and_odd_columns_travel(tmp_path):
    table = pa.table(
        {
            "k": [2, 1, None],
            "list": [[1], None, []],
            "struct": [{"a": 1}, None, {"a": None}],
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "price:desc": [decimal.Decimal("1.50"), None, decimal.Decimal("-1.00")],
            "": [1, None, 3],
            "codes": pa.array(["x", None, "y"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    sort_files(tmp_path / "in.parquet", tmp_path / "out", ["price:desc"], na_position="first")
    stored, result = pq.read_table(tmp_path / "in.parquet"), pq.read_table(tmp_path / "out")
    assert result.schema.equals(stored.schema)
    assert result.to_pylist() == stored.take([1, 2, 0]).to_pylist()


def test_categories_order_a_key(tmp_path):
    frame = pd.DataFrame({"k": pd.Categorical(["m", "z", "d", "z", "m"], categories=["z", "d", "m"]), "seq": range(5)})
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=2)
    sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", npartitions=2)
    got = pd.read_parquet(tmp_path / "out")
    pd.testing.assert_frame_equal(got, frame.sort_values("k", kind="stable", ignore_index=True))
    # Parquet would read "sorted" as sorted by text.
    assert not pq.read_metadata(tmp_path / "out" / "part-00000.parquet").row_group(0).sorting_columns
    assert bool(check_files(tmp_path / "out", "k"))


def test_columns_project_and_keys_need_not_be_kept(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": [2, 1], "c": [3, 4]}), tmp_path / "in.parquet")
    sort_files(tmp_path / "in.parquet", tmp_path / "out", "b", columns=["c"])
    assert pq.read_table(tmp_path / "out").to_pydict() == {"c": [4, 3]}
    assert not pq.read_metadata(tmp_path / "out" / "part-00000.parquet").row_group(0).sorting_columns


def test_frames_of_one_part_must_follow_each_other():
    seen = Seen(make_order("k"), "part")
    for values in ([1, 2], [], [2, 3]):
        frame = pd.DataFrame({"k": pd.array(values, "int64")})
        assert seen.look(frame, pa.table({"k": values})).num_rows == len(values)
    assert seen.ends["k"].tolist() == [1, 3]
    assert seen.tally.rows == 4
    frame = pd.DataFrame({"k": [2, 5]})
    with pytest.raises(ValidationError, match="part: row 4 is out of order"):
        seen.look(frame, pa.table({"k": [2, 5]}))


def test_input_is_read_once(numbers, tmp_path, monkeypatch):
    from distsort.io import parquet

    calls = []
    read = parquet.Reader._read
    monkeypatch.setattr(parquet.Reader, "_read", lambda self, unit: calls.append(unit.groups) or read(self, unit))
    sort_files(numbers, tmp_path / "out", "k")
    assert sorted(calls) == [(number,) for number in range(12)]


def test_types_found_below_the_head_start_the_job_again(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "_HEAD", 16)
    (tmp_path / "in.csv").write_text("k,v\n" + "".join(f"{i},1\n" for i in range(9, 0, -1)) + "x,y\n")
    report = sort_files(tmp_path / "in.csv", tmp_path / "out", "k")
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == [*"123456789", "x"]
    assert "read again" in report.notes[0]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"by": "kk"}, InputError, "key 'kk' .* did you mean 'k'"),
        ({"by": "k", "columns": ["zz"]}, InputError, "column 'zz'"),
        ({"by": []}, OptionError, "no column"),
        ({"by": ["k", "k"]}, OptionError, "more than once"),
        ({"by": "k", "npartitions": 0}, OptionError, "npartitions=0"),
        ({"by": "k", "format": "orc"}, OptionError, "format='orc'"),
        ({"by": "k", "delimiter": ";"}, OptionError, "delimiter="),
        ({"by": "k", "exchange": "post"}, OptionError, "post"),
        ({"by": 3}, OptionError, "by=3"),
        ({"by": "k", "npartitions": "4"}, OptionError, r"^npartitions='4': it must be a whole number of at least 1"),
        ({"by": "k", "npartitions": 2.5}, OptionError, r"^npartitions=2\.5: it must be a whole number"),
        ({"by": "k", "client": 5}, OptionError, r"^client=5: give a distributed\.Client, or the address"),
        ({"by": "k", "memory": [1]}, OptionError, r"^memory=\[1\] is not a size"),
        ({"by": "k", "columns": "k"}, OptionError, r"^columns='k': give a list of names"),
        ({"by": "k", "columns": 5}, OptionError, r"^columns=5: give a list of names"),
        ({"by": "k", "columns": ["k", "x", "k"]}, OptionError, r"^columns= \(--columns\) names 'k' more than once"),
    ],
)
def test_bad_options_are_refused_and_leave_nothing(numbers, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        sort_files(numbers, tmp_path / "out", **options)
    assert listing(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"npartitions": "4"}, "^npartitions='4'"),
        ({"npartitions": 0}, "^npartitions=0"),
        ({"columns": "k"}, "^columns="),
    ],
)
def test_plans_refuse_what_sorts_refuse(numbers, options, words):
    with pytest.raises(OptionError, match=words):
        plan_files(numbers, "k", **options)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"files.csv-block-size": 0}, "files.csv-block-size=0: it must be more than 0"),
        ({"files.row-group-rows": 0}, "files.row-group-rows=0: it must be more than 0"),
        ({"files.compression": "foo"}, "files.compression='foo': it must be one of none, snappy"),
        ({"rates.rows": 0}, "rates.rows=0: it must be more than 0"),
    ],
)
def test_wrong_settings_are_refused_before_the_sort(numbers, tmp_path, setting, words):
    with dask.config.set({f"distsort.{path}": value for path, value in setting.items()}):
        with pytest.raises(OptionError, match=f"^distsort.{words}"):
            sort_files(numbers, tmp_path / "out", "k")
        with pytest.raises(OptionError, match=f"^distsort.{words}"):
            plan_files(numbers, "k")
    assert listing(tmp_path) == ["in"]


def test_bad_input_is_refused_and_leaves_nothing(numbers, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        sort_files(tmp_path / "nowhere", tmp_path / "out", "k")
    (tmp_path / "in" / "b.csv").write_text("k\n1\n")
    with pytest.raises(InputError, match="mixes csv and parquet"):
        sort_files(numbers, tmp_path / "out", "k")
    (tmp_path / "in" / "b.csv").rename(tmp_path / "data.bin")
    with pytest.raises(InputError, match="does not tell its format"):
        sort_files(tmp_path / "data.bin", tmp_path / "out", "k")
    pq.write_table(pa.table({"k": [[1], [2]]}), tmp_path / "lists.parquet")
    with pytest.raises(KeyTypeError, match="k"):
        sort_files(tmp_path / "lists.parquet", tmp_path / "out", "k")
    assert listing(tmp_path) == ["data.bin", "in", "lists.parquet"]


def test_a_failing_write_leaves_the_old_output(numbers, tmp_path, monkeypatch):
    sort_files(numbers, tmp_path / "out", "k")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    write = WritePart.__call__

    def full(self, frame, number, above):
        if number == 5:
            raise OSError(28, "No space left on device")
        return write(self, frame, number, above)

    monkeypatch.setattr(WritePart, "__call__", full)
    with pytest.raises(OSError, match="No space left"):
        sort_files(numbers, tmp_path / "out", "k", overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert listing(tmp_path) == ["in", "out"]


def test_a_full_disk_names_the_output_and_what_to_do(numbers, tmp_path, monkeypatch):
    from distsort.files import parts as files_parts

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files_parts, "write_part", full)
    with pytest.raises(OutputError, match=r"out.*No space left on device.*free some space") as caught:
        sort_files(numbers, tmp_path / "out", "k")
    assert caught.value.errno == 28


def test_urls(numbers, tmp_path):
    fs = fsspec.filesystem("memory")
    sort_files(numbers, "memory://sort-urls/first", "k", ascending=False)
    report = sort_files("memory://sort-urls/first/*.parquet", "memory://sort-urls/second", "k", npartitions=3)
    assert report.output == "memory:///sort-urls/second"
    names = [name.rsplit("/", 1)[1] for name in fs.ls("/sort-urls/second", detail=False)]
    assert sorted(names) == ["_SUCCESS", "_manifest.json", *(f"part-{n:05d}.parquet" for n in range(3))]
    assert bool(check_files("memory://sort-urls/second", "k"))
    assert [name for name in fs.ls("/sort-urls", detail=False) if "." in name] == []
    sort_files("memory://sort-urls/second", tmp_path / "out", "k")
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == list(range(240))
    fs.rm("/sort-urls", recursive=True)


def test_several_inputs_keep_their_order_among_ties(tmp_path):
    for name, seq in (("b", [0, 1]), ("a", [2, 3])):
        pq.write_table(pa.table({"k": [1, 1], "seq": seq}), tmp_path / f"{name}.parquet")
    sort_files([tmp_path / "b.parquet", tmp_path / "a.parquet"], tmp_path / "out", "k")
    assert pq.read_table(tmp_path / "out")["seq"].to_pylist() == [0, 1, 2, 3]


def test_check_finds_the_first_row_out_of_order(tmp_path):
    write_parquet(tmp_path / "in" / "0.parquet", pa.table({"k": [1, 2, 3], "v": ["a"] * 3}), row_group_size=2)
    write_parquet(tmp_path / "in" / "1.parquet", pa.table({"k": [3, 5, 4], "v": ["a"] * 3}), row_group_size=1)
    found = check_files(tmp_path / "in", "k")
    assert not found
    assert found.fault == f"{tmp_path}/in/1.parquet, row 2: k=4 stands below k=5"
    assert found.rows == 5
    assert check_files(tmp_path / "in" / "0.parquet", "k").rows == 3
    assert "0.parquet, row 1" in check_files(tmp_path / "in", "k", ascending=False).fault
    write_parquet(tmp_path / "in" / "1.parquet", pa.table({"k": [2, 5], "v": ["a"] * 2}))
    assert "1.parquet, row 0: k=2 stands below k=3" in check_files(tmp_path / "in", "k").fault


def test_check_reads_csv_and_manifests(tmp_path):
    (tmp_path / "in.csv").write_text("k,v\n1,x\n2,\n3,x\n1,x\n")
    assert "row 3: k=1 stands below k=3" in check_files(tmp_path / "in.csv", "k").fault
    sort_files(tmp_path / "in.csv", tmp_path / "out", "k", npartitions=2)
    assert bool(check_files(tmp_path / "out", "k"))
    (tmp_path / "out" / "part-00001.parquet").unlink()
    with pytest.raises(InputError, match="has 2 rows, but its manifest says 4"):
        check_files(tmp_path / "out", "k")


def test_first_rows(numbers):
    assert first_rows(numbers, 30)["k"].to_pylist() == list(range(239, 209, -1))
    assert first_rows(numbers, 0).num_rows == 0
    assert first_rows(numbers, 1000).num_rows == 240


def test_first_fault_looks_at_all_keys():
    frame = pd.DataFrame({"a": [1, 1, 2], "b": [1.0, 2.0, 0.0]})
    assert first_fault(frame, make_order(["a", "b"])) is None
    assert first_fault(frame, make_order(["a", "b"], [True, False])) == 1
    assert first_fault(frame.iloc[:1], make_order(["a"])) is None


def test_lost_altered_and_disordered_parts_are_found():
    order = make_order("k")
    read = [Read(Tally(2, 0, 7), 0, 1), Read(Tally(1, 0, 5), 0, 1)]

    def part(name, rows, checksum, *ends):
        return Written(name, Tally(rows, 0, checksum), 0, pd.DataFrame({"k": list(ends)}))

    good = [part("a", 2, 10, 1, 2), part("b", 0, 0), part("c", 1, 2, 2, 2)]
    assert check_whole(read, good, order) == Tally(3, 0, 12)
    with pytest.raises(ValidationError, match="3 rows were read, but 2"):
        check_whole(read, good[:2], order)
    with pytest.raises(ValidationError, match="are not those that were read"):
        check_whole(read, [good[0], part("c", 1, 3, 2, 2)], order)
    with pytest.raises(ValidationError, match="c does not follow"):
        check_whole(read, [good[0], part("c", 1, 2, 1, 1)], order)


def test_an_unsorted_part_is_not_written(tmp_path, numbers, monkeypatch):
    from distsort import dataframes

    monkeypatch.setattr(dataframes, "sort_values", lambda frame, by, **options: frame)
    with pytest.raises(ValidationError, match=r"part-0000\d\.parquet: row 1 is out of order by k asc"):
        sort_files(numbers, tmp_path / "out", "k")
    assert listing(tmp_path) == ["in"]


STALL = """
import os, pathlib, time
from distsort.files import parts as files_parts
def stall(self, frame, number, above):
    pathlib.Path(os.environ["MARK"]).touch()
    time.sleep(60)
files_parts.WritePart.__call__ = stall
"""
STALLED = f"""{STALL}
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[1] == "dask":
    del sys.argv[1]
    from dask.__main__ import main
else:
    from distsort.cli import main
main()
"""


def stalled_job(numbers, tmp_path, *arguments, program=(), **options):
    """Start a job that hangs while it writes, and wait until it does."""
    mark = numbers / ".mark"
    command = [*program, "sort", str(numbers), "-o", str(tmp_path / "out"), "-k", "k", *arguments]
    environment = {**os.environ, "MARK": str(mark), "DASK_DISTRIBUTED__WORKER__PRELOAD": repr([STALL])}
    job = subprocess.Popen(
        [sys.executable, "-c", STALLED, *command],
        env=environment,
        **{"stderr": subprocess.PIPE, "text": True, **options},
    )
    deadline = time.monotonic() + 60
    while not mark.exists():
        if job.poll() is not None or time.monotonic() > deadline:
            job.kill()
            pytest.fail(job.communicate()[1])
        time.sleep(0.05)
    assert [name for name in listing(tmp_path) if name.startswith(".out.distsort-")]
    return job


@pytest.mark.parametrize("program", [(), ("dask",)])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_job_leaves_nothing(numbers, tmp_path, number, status, program):
    job = stalled_job(numbers, tmp_path, program=program)
    job.send_signal(number)
    try:
        message = job.communicate(timeout=30)[1]
    finally:
        job.kill()
    assert job.returncode == status
    assert message == "\nstopped; nothing was written\n"
    assert listing(tmp_path) == ["in"]


def test_a_job_whose_terminal_is_closed_leaves_nothing(numbers, tmp_path):
    """All of its processes are told of it, as by Ctrl-C."""
    (tmp_path / "spill").mkdir()
    mine, its = os.openpty()
    job = stalled_job(
        numbers,
        tmp_path,
        *("--workers", "2", "-T", str(tmp_path / "spill")),
        **dict.fromkeys(("stdin", "stdout", "stderr"), its),
        preexec_fn=lambda: os.login_tty(its),
    )
    os.close(its)
    os.close(mine)
    os.killpg(job.pid, signal.SIGHUP)  # as a shell does
    try:
        assert job.wait(30) == 129
    finally:
        job.kill()
    assert listing(tmp_path) == ["in", "spill"]
    assert listing(tmp_path / "spill") == []


HUNG_UP = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from distsort.files import parts as files_parts
write = files_parts.WritePart.__call__
def hang_up(self, *arguments):
    os.kill(os.getpid(), signal.SIGHUP)
    return write(self, *arguments)
files_parts.WritePart.__call__ = hang_up
from distsort.cli import main
main()
"""


def test_under_nohup_a_job_goes_on(numbers, tmp_path):
    command = [sys.executable, "-c", HUNG_UP, "sort", str(numbers), "-o", str(tmp_path / "out"), "-k", "k", "-q"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == list(range(240))


def test_a_killed_job_is_cleaned_up_by_the_next(numbers, tmp_path):
    job = stalled_job(numbers, tmp_path)
    job.kill()
    job.communicate()
    assert len(listing(tmp_path)) == 2
    sort_files(numbers, tmp_path / "out", "k")
    assert listing(tmp_path) == ["in", "out"]


def test_larger_input_starts_a_cluster_and_closes_it(numbers, tmp_path):
    with dask.config.set({"distsort.files.in-process": "1 B", "temporary-directory": str(tmp_path)}):
        report = sort_files(numbers, tmp_path / "out", "k")
    assert "workers with" in report.scheduler
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == list(range(240))
    assert {"read", "merge", "write"} <= {phase.name for phase in report.phases}
    assert listing(tmp_path) == ["in", "out"]


def test_a_client_is_used_and_memory_files_are_refused_there(numbers, tmp_path):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        report = sort_files(numbers, tmp_path / "out", "k", client=client)
        assert report.scheduler.startswith("1 workers with 2 threads")
        limit = next(iter(identity(client)["workers"].values()))["memory_limit"]
        with dask.config.set({"distsort.files.part-size": limit}):
            assert piece_size(client, None) == room(limit, 2)
        assert piece_size(None, 3200 << 20) == 100 << 20
        assert piece_size(None, 1) == 1 << 20
        with pytest.raises(OptionError, match="memory://"):
            sort_files(numbers, "memory://refused/out", "k", client=client)
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == list(range(240))


@pytest.mark.parametrize(("text", "shown"), [("b\na\n", "line=a stands below line=b"), ("é\nz\tz\n", "line=b'z\\tz'")])
def test_lines_that_are_not_in_order_are_shown_as_text(tmp_path, text, shown):
    path = tmp_path / "in.txt"
    path.write_text(text)
    assert shown in check_files(path).fault
