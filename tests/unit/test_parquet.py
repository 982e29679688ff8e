from __future__ import annotations

import datetime as dt
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distsort.errors import InputError
from distsort.io import parquet
from distsort.io.parquet_sink import ParquetSink, dictionary_columns
from distsort.io.sink import before, keys_with_nan, write_part
from distsort.io.source import join_neighbours, to_frame, to_table
from distsort.io.storage import expand, resolve
from distsort.order import make_order

EVERYTHING = pa.table(
    {
        "int": pa.array([3, None, 2**62 + 1], pa.int64()),
        "small": pa.array([1, None, -1], pa.int8()),
        "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "half": pa.array(np.array([1, 2, 3], "f2")),
        "bool": [True, None, False],
        "text": ["a", None, ""],
        "large": pa.array(["a", "b", None], pa.large_string()),
        "bytes": pa.array([b"\x00", None, b"\xff\x00"]),
        "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "decimal": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-3.00")], pa.decimal128(9, 2)),
        "date": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
        "time": pa.array([1, None, 3], pa.time64("us")),
        "stamp": pa.array([1, None, -1], pa.timestamp("us")),
        "zoned": pa.array([1, None, 3], pa.timestamp("ns", "Europe/Berlin")),
        "span": pa.array([1, None, 3], pa.duration("us")),
        "nothing": pa.nulls(3),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}]),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "codes": pa.array(["x", None, "y"]).dictionary_encode(),
        "a.b": [1, 2, 3],
        "": [1, 2, 3],
        'k:desc, "odd"\n name': [1, 2, 3],
        "ключ": [1, 2, 3],
    }
)


def scan(path, **options):
    return parquet.scan(expand(path), **options)


def write(folder, name, table, order=None):
    store, path = resolve(folder)
    nan = set() if order is None else keys_with_nan(table, order)
    claimed = None if order is None else before(order, nan)
    sink = ParquetSink()
    return write_part(store, f"{path}/{name}", sink, table.schema, [table], table.num_rows, claimed)


def read(source):
    return pa.concat_tables([source.reader(piece) for piece in source.pieces])


def test_every_type_and_name_makes_the_round_trip(tmp_path):
    pq.write_table(EVERYTHING, tmp_path / "in.parquet")
    source = scan(tmp_path / "in.parquet")
    frame = to_frame(read(source))
    assert frame.dtypes.equals(source.meta.dtypes)
    write(tmp_path, "out.parquet", to_table(frame, source.written))
    result = pq.read_table(tmp_path / "out.parquet")
    assert result.schema.equals(pq.read_schema(tmp_path / "in.parquet"))
    assert result.equals(pq.read_table(tmp_path / "in.parquet"))


def test_views_travel_as_strings(tmp_path):
    table = pa.table({"s": pa.array(["b", None], pa.string_view()), "b": pa.array([b"b", None], pa.binary_view())})
    pq.write_table(table, tmp_path / "in.parquet")
    frame = to_frame(read(scan(tmp_path / "in.parquet")))
    assert frame["s"].tolist() == ["b", pd.NA]


def test_pieces_are_row_groups_joined_to_a_size(tmp_path):
    table = pa.table({"k": np.arange(1000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    source = scan(tmp_path / "a.parquet", part_size=1 << 30)
    assert len(source.pieces) in (16, 17)
    assert source.rows == 1000
    assert source.nbytes == 8000
    assert read(source).equals(table)
    assert len(scan(tmp_path / "a.parquet", part_size=80).pieces) == 100


@pytest.mark.parametrize("distinct", [3, 10_000])
def test_sizes_are_near_what_a_piece_takes(tmp_path, distinct):
    rng = np.random.default_rng(0)
    texts = [f"a text of some length, number {i:06d}" for i in rng.integers(0, distinct, 10_000)]
    table = pa.table({"k": rng.random(10_000), "s": texts, "flag": rng.random(10_000) < 0.5})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2500)
    source = scan(tmp_path / "a.parquet", part_size=1)
    for piece, size in zip(source.pieces, source.sizes, strict=True):
        assert 0.8 < size / source.reader(piece).nbytes < 1.3


def test_files_of_a_folder_come_by_name_and_hidden_ones_not_at_all(tmp_path):
    for number, name in enumerate(["b", "a", "_c", ".d"]):
        pq.write_table(pa.table({"k": [number]}), tmp_path / f"{name}.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    assert read(scan(tmp_path))["k"].to_pylist() == [1, 0]


def test_null_columns_and_empty_files_take_the_type_of_the_others(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.list_(pa.int8()))])
    pq.write_table(pa.table({"k": [4, 2], "v": pa.nulls(2), "n": pa.nulls(2)}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"k": pa.nulls(0), "z": pa.nulls(0)}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"k": [3, None], "v": ["x", "y"], "n": [[1], None]}, schema=schema), tmp_path / "2.parquet")
    source = scan(tmp_path)
    assert source.written.equals(schema)
    assert read(source).to_pylist() == [
        {"k": 4, "v": None, "n": None},
        {"k": 2, "v": None, "n": None},
        {"k": 3, "v": "x", "n": [1]},
        {"k": None, "v": "y", "n": None},
    ]


def test_only_empty_files_keep_their_schema(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    for name in "ab":
        pq.write_table(schema.empty_table(), tmp_path / f"{name}.parquet")
    source = scan(tmp_path)
    assert source.rows == 0
    assert read(source).schema.equals(schema)


def test_string_layouts_may_differ(tmp_path):
    for number, kind in enumerate((pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))):
        pq.write_table(pa.table({"s": pa.array(["a", "b"]).cast(kind)}), tmp_path / f"{number}.parquet")
    source = scan(tmp_path)
    assert source.schema.field("s").type == pa.large_string()
    assert read(source)["s"].to_pylist() == ["a", "b"] * 3


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (pa.table({"k": ["x"], "v": [1]}), r"column 'k' is int64 in .*0\.parquet but string in .*1\.parquet"),
        (pa.table({"k": [1]}), r"1\.parquet: column 'v' is missing"),
        (pa.table({"k": [1], "v": [1], "w": [1]}), r"0\.parquet: column 'w' is missing"),
    ],
)
def test_schemas_that_disagree_are_refused_by_name(tmp_path, other, words):
    pq.write_table(pa.table({"k": [1], "v": [1]}), tmp_path / "0.parquet")
    pq.write_table(other, tmp_path / "1.parquet")
    with pytest.raises(InputError, match=words):
        scan(tmp_path)


def test_what_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_text("k,v\n1,2\n")
    with pytest.raises(InputError, match=r"a\.parquet: is not a whole Parquet file"):
        scan(tmp_path)
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    half = (tmp_path / "a.parquet").read_bytes()[:-20]
    (tmp_path / "a.parquet").write_bytes(half)
    with pytest.raises(InputError, match="whole"):
        scan(tmp_path)


def test_missing_columns_are_named_with_what_comes_close(tmp_path):
    pq.write_table(pa.table({"arrival": [1], "carrier": [2]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"key 'arival' is not a column of .*; did you mean 'arrival'\?"):
        scan(tmp_path, keys=["arival"])
    with pytest.raises(InputError, match=r"column 'zzz' .* its columns are 'arrival', 'carrier'"):
        scan(tmp_path, columns=["zzz"])


def test_projection_reads_the_columns_and_the_keys(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [2], "s": [{"a": 3}], "c": [4]}), tmp_path / "a.parquet")
    assert read(scan(tmp_path, columns=["c", "a"], keys=["b"])).to_pylist() == [{"c": 4, "a": 1, "b": 2}]


def test_hive_folders_become_columns(tmp_path):
    for folder, value in (("year=2024/city=New%20York", 1), ("year=2023/city=__HIVE_DEFAULT_PARTITION__", 2)):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"k": [value]}), tmp_path / folder / "p.parquet")
    rows = read(scan(tmp_path)).to_pylist()
    assert rows == [{"k": 2, "year": 2023, "city": None}, {"k": 1, "year": 2024, "city": "New York"}]
    assert read(scan(tmp_path, columns=["k"])).column_names == ["k"]


def test_hive_numbers_that_are_not_plain_stay_text(tmp_path):
    for folder in ("code=007", "code=12"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"k": [1]}), tmp_path / folder / "p.parquet")
    assert read(scan(tmp_path))["code"].to_pylist() == ["007", "12"]


def test_categories_of_a_key_keep_their_order(tmp_path):
    frame = pd.DataFrame({"k": pd.Categorical(["m", "z", None, "d"], categories=["z", "d", "m", "unused"])})
    frame["k2"] = frame["k"].cat.as_ordered()
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=2)
    source = scan(tmp_path, keys=["k", "k2"])
    got = to_frame(read(source))
    assert got["k"].cat.categories.tolist() == ["z", "d", "m", "unused"]
    assert got["k2"].cat.ordered
    assert got["k"].dtype == source.meta["k"].dtype
    assert to_table(got, source.written).schema.field("k2").type.ordered
    assert to_frame(read(scan(tmp_path)))["k"].dtype == pd.ArrowDtype(pa.string())


def test_categories_that_differ_between_files(tmp_path):
    for name, values in (("a", ["z", "d"]), ("b", ["d", "q"])):
        pd.DataFrame({"k": pd.Categorical(values, categories=values)}).to_parquet(tmp_path / f"{name}.parquet")
    source = scan(tmp_path, keys=["k"])
    assert "sorted as values" in source.notes[0]
    assert read(source)["k"].to_pylist() == ["z", "d", "d", "q"]
    for name, values in (("a", ["z", "d"]), ("b", ["d", "q"])):
        column = pd.Categorical(values, categories=values, ordered=True)
        pd.DataFrame({"k": column}).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="'k': the files order its categories differently"):
        scan(tmp_path, keys=["k"])


def test_pandas_labels_are_columns_but_ranges_are_not(tmp_path):
    frame = pd.DataFrame({"k": pd.array([2, 1, None], "Int64")})
    frame.to_parquet(tmp_path / "range.parquet")
    frame.set_axis(pd.Index(["x", "y", "z"], name="label")).to_parquet(tmp_path / "named.parquet")
    for name, expected in (("range", frame), ("named", frame.set_axis(pd.Index(["x", "y", "z"], name="label")))):
        source = scan(tmp_path / f"{name}.parquet")
        table = to_table(to_frame(read(source)), source.written)
        write(tmp_path, "out.parquet", table)
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), expected)
    labels = json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[b"pandas"])["index_columns"]
    assert labels == ["label"]


def test_sorting_columns_say_what_parquet_can_say(tmp_path):
    table = pa.table(
        {
            "nest": [{"a": 1, "b": [1]}, {"a": 1, "b": []}],
            "map": pa.array([[], []], pa.map_(pa.string(), pa.int64())),
            "k": [1, 2],
            "f": [np.nan, 1.0],
            "v": ["a", "b"],
        }
    )
    order = make_order(["k", "v", "f"], [True, False, True], ["last", "first", "last"])
    write(tmp_path, "a.parquet", table, order)
    claims = pq.read_metadata(tmp_path / "a.parquet").row_group(0).sorting_columns
    # Leaves nest.a, nest.b and the two of map come before k; NaN has no place in Parquet's order.
    assert claims == (pq.SortingColumn(4), pq.SortingColumn(6, descending=True, nulls_first=True))
    write(tmp_path, "b.parquet", table)
    assert not pq.read_metadata(tmp_path / "b.parquet").row_group(0).sorting_columns


def test_neighbours_join():
    assert join_neighbours([1, 2, 3], [5, 5, 5], 10, 1) == [[1, 2], [3]]
    assert join_neighbours([], [], 10, 1) == []
    assert join_neighbours([1], [100], 10, 16) == [[1]]


def test_no_dictionary_is_begun_that_would_be_given_up():
    rng = np.random.default_rng(0)
    rows = 200_000
    table = pa.table(
        {
            "unique": np.arange(rows),
            "few": rng.integers(0, 1000, rows),
            "text": [f"text {i}" for i in range(rows)],
            "word": ["a", "b"] * (rows // 2),
            "null": pa.nulls(rows),
        }
    )
    assert dictionary_columns(table) == ["few", "word", "null"]
    assert dictionary_columns(table.slice(0, 100)) is True
    assert dictionary_columns(table.append_column("list", pa.array([[1]] * rows))) is True
