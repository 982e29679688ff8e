from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsort.io import checksum
from distsort.io.checksum import row_hashes, strings_checksum, table_checksum

COLUMNS = {
    "int": pa.array([3, None, 1], pa.int64()),
    "small": pa.array([3, None, 1], pa.int8()),
    "half": pa.array([1, 2, 3], pa.float16()),
    "text": ["a", None, "c" * 20],
    "large": pa.array(["a", "", None], pa.large_string()),
    "view": pa.array(["a", None, "c" * 20], pa.string_view()),
    "bytes": pa.array([b"1", None, b"2"], pa.binary(1)),
    "bool": [True, None, False],
    "nulls": pa.nulls(3),
    "codes": pa.array(["x", "y", None]).dictionary_encode(),
    "decimal": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-1.10")]),
    "wide": pa.array([1, 2, None], pa.decimal256(50, 2)),
    "time": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
    "list": [[1], None, [2, 3]],
    "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "struct": [{"a": 1}, None, {"a": None}],
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_equal_hashes_mean_equal_values(name):
    table = pa.table({"c": COLUMNS[name]})
    hashes = row_hashes(table.to_batches()[0])
    values = table["c"].to_pylist()
    for i in range(3):
        for j in range(3):
            assert (hashes[i] == hashes[j]) == (values[i] == values[j])


def test_order_chunks_and_slices_do_not_matter():
    table = pa.table({name: values for name, values in COLUMNS.items() if name != "view"})
    whole = table_checksum(table)
    assert table_checksum(table.take([2, 0, 1])) == whole
    assert table_checksum(pa.concat_tables([table.slice(1), table.slice(0, 1)])) == whole
    assert sum(table_checksum(table.slice(i, 1)) for i in range(3)) % 2**64 == whole
    assert table_checksum(table.slice(0, 0)) == 0


def test_layout_does_not_matter():
    text = pa.array(["a", "bb", "a", None, ""])
    expected = table_checksum(pa.table({"s": text}))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert table_checksum(pa.table({"s": text.cast(kind)})) == expected


def test_bits_matter():
    zeros = [table_checksum(pa.table({"f": [z]})) for z in (0.0, -0.0)]
    assert zeros[0] != zeros[1]
    odd = np.array([0x7FF8000000000001, 0x7FF8000000000002], "u8").view("f8")
    assert (
        len({table_checksum(pa.table({"f": [x]})) for x in odd[:1]} | {table_checksum(pa.table({"f": odd[1:]}))}) == 2
    )


def test_values_may_not_move_between_rows_or_columns():
    base = table_checksum(pa.table({"a": [1, 2], "b": [3, 4]}))
    assert table_checksum(pa.table({"a": [2, 1], "b": [3, 4]})) != base
    assert table_checksum(pa.table({"a": [3, 4], "b": [1, 2]})) != base
    assert table_checksum(pa.table({"a": [1, 1], "b": [3, 4]})) != base


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=12), st.integers(0, 3), st.integers(0, 64))
def test_byte_strings_hash_by_value_wherever_they_lie(values, skipped, long):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "_LONG", long)
        check_byte_strings(values, skipped)


def check_byte_strings(values, skipped):
    array = pa.array([b"x"] * skipped + values, pa.binary()).slice(skipped)
    hashes = row_hashes(pa.record_batch({"b": array}))
    seen = {}
    for value, code in zip(values, hashes.tolist(), strict=True):
        assert seen.setdefault(value, code) == code
    assert len(set(seen.values())) == len(seen)


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=4)), max_size=12))
def test_lists_hash_by_value(values):
    array = pa.array(values, pa.list_(pa.int64()))
    hashes = row_hashes(pa.record_batch({"b": array})).tolist()
    seen = {}
    for value, code in zip(map(str, values), hashes, strict=True):
        assert seen.setdefault(value, code) == code
    assert len(set(seen.values())) == len(seen)


def test_strings_in_a_buffer_have_the_checksum_of_their_table():
    lines = [b"", b"a", b"a longer line", b"\0", b"x" * 600, b"seven b", b"eight by", b"nine byte"] * 5000
    data = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    lengths = np.array([len(line) for line in lines])
    starts = np.concatenate([[0], np.cumsum(lengths + 1)[:-1]])
    table = pa.table({"line": pa.array(lines, pa.large_binary())})
    assert strings_checksum(data, starts, lengths) == table_checksum(table)
    assert strings_checksum(data[:0], starts[:0], lengths[:0]) == 0


@pytest.mark.parametrize("width", [9, 10, 12, 16, 100, 4096])
def test_values_of_a_fixed_width_hash_by_their_bits_wherever_they_lie(width):
    rng = np.random.default_rng(width)
    values = rng.integers(0, 256, (3000, width), np.uint8)
    hashes = row_hashes(pa.record_batch({"b": pa.array([v.tobytes() for v in values], pa.binary(width))}))
    assert len(np.unique(hashes)) == len(values)
    odd = np.concatenate([np.zeros(1, np.uint8), values.ravel()])[1:]
    moved = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(odd)])
    np.testing.assert_array_equal(row_hashes(pa.record_batch({"b": moved})), hashes)
    np.testing.assert_array_equal(row_hashes(pa.record_batch({"b": moved.slice(7)})), hashes[7:])
    # The top bits of two places do not make up for each other.
    for one, other in ((3, 7), (0, width - 1), (7, width - 1)):
        changed = values.copy()
        changed[:, [one, other]] ^= 128
        array = pa.array([v.tobytes() for v in changed], pa.binary(width))
        assert (row_hashes(pa.record_batch({"b": array})) != hashes).all()
