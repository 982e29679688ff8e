from __future__ import annotations

import gzip
import io
import zipfile
from itertools import pairwise

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsort.errors import InputError
from distsort.io import csv, csv_cuts
from distsort.io.storage import expand


def scan(path, **options):
    return csv.scan(expand(path), **options)


def read(source):
    """Read as a job does: again with wider types when a value asks for them."""
    while True:
        try:
            return pa.concat_tables([source.reader(piece) for piece in source.pieces])
        except csv.WiderTypes as wider:
            source = csv.widen(source, wider.types)


def small_blocks(size="64 B"):
    return dask.config.set({"distsort.files.csv-block-size": size})


@pytest.mark.parametrize("size", ["1 B", "7 B", "64 MiB"])
def test_quoted_line_breaks_stay_whole(tmp_path, size):
    (tmp_path / "a.csv").write_text('k,txt\n3,"a\nb"\n1,"c,\n\nd ""q"" "\n2,plain\n', newline="")
    with small_blocks(size):
        source = scan(tmp_path / "a.csv")
    assert len(source.pieces) == {"1 B": 3, "7 B": 3, "64 MiB": 1}[size]
    assert read(source).to_pydict() == {"k": [3, 1, 2], "txt": ["a\nb", 'c,\n\nd "q" ', "plain"]}


def test_irregular_quotes_are_read_whole_and_said(tmp_path):
    (tmp_path / "a.csv").write_text('k,size\n1,5" pipe\n2,6" pipe\n3,x\n')
    with small_blocks("4 B"):
        source = scan(tmp_path / "a.csv")
    assert len(source.pieces) == 1
    assert "has quotes inside fields, so it is read whole" in source.notes[0]
    assert read(source)["size"].to_pylist() == ['5" pipe', '6" pipe', "x"]


FIELD = st.text(st.sampled_from('ab",\n '), max_size=6)


@given(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=12), st.integers(1, 30), st.sampled_from(["\n", "\r\n"]))
def test_cuts_never_tear_a_record(rows, target, line_end):
    import csv as std

    text = io.StringIO(newline="")
    std.writer(text, lineterminator=line_end, quoting=std.QUOTE_MINIMAL).writerows([("k", "v"), *rows])
    data = text.getvalue().encode()
    start = len(f"k,v{line_end}")
    cuts = find_cuts(data, start, target)
    if cuts is not None:
        edges = [start, *cuts, len(data)]
        pieces = [data[a:b].decode() for a, b in pairwise(edges)]
        found = [tuple(row) for piece in pieces for row in std.reader(io.StringIO(piece, newline=""))]
        assert found == rows
        assert all(b - a >= target for a, b in pairwise(edges[:-1]))


def find_cuts(data, start, target):
    return csv_cuts.find_cuts(lambda a, b: data[a:b], start, len(data), target)


def test_cuts_across_blocks_and_chunks(monkeypatch):
    rows = b"".join(b'%d,"line\nbreak ""%d"""\n' % (i, i) for i in range(200))
    expected = find_cuts(rows, 0, 50)
    for size in (1, 2, 3, 7, 64):
        for blocks in (1, 2, 5):
            monkeypatch.setattr(csv_cuts, "_BLOCK", size)
            monkeypatch.setattr(csv_cuts, "_BLOCKS", blocks)
            assert find_cuts(rows, 0, 50) == expected
    assert len(expected) > 40


@pytest.mark.parametrize("at", [0, 1, 77, 199])
def test_an_irregular_quote_in_any_chunk_is_seen(monkeypatch, at):
    monkeypatch.setattr(csv_cuts, "_BLOCK", 8)
    monkeypatch.setattr(csv_cuts, "_BLOCKS", 3)
    for wrong in (b'x"y,1\n', b'"x"y,1\n', b'x,"\n'):
        lines = [b'%d,"a\nb"\n' % i for i in range(200)]
        assert find_cuts(b"".join(lines), 0, 50)
        lines[at] = wrong
        found = find_cuts(b"".join(lines), 0, 50)
        # What is never closed is regular to its end, if nothing after it opens.
        assert found is None or (wrong.startswith(b"x,") and at == 199)


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["18446744073709551615", "0", "", "18446744073709551613"], pa.uint64(), [2**64 - 1, 0, None, 2**64 - 3]),
        (["-1", "18446744073709551615", "NA"], pa.decimal128(38, 0), [-1, 2**64 - 1, None]),
        (["9" * 38, "1"], pa.decimal128(38, 0), [10**38 - 1, 1]),
        (["1.5", "18446744073709551615"], pa.float64(), [1.5, 2.0**64]),
        (["9223372036854775807", "-9223372036854775808"], pa.int64(), [2**63 - 1, -(2**63)]),
    ],
)
@pytest.mark.parametrize("head", [8, 1 << 20])
def test_integers_beyond_64_bits_are_exact(tmp_path, monkeypatch, texts, kind, values, head):
    monkeypatch.setattr(csv, "_HEAD", head)
    (tmp_path / "a.csv").write_text("k,t\n" + "".join(f"{text},x\n" for text in ["7", *texts]))
    column = read(scan(tmp_path / "a.csv"))["k"]
    assert column.type == kind
    assert column.to_pylist() == [7, *values]


def test_numbers_below_zero_come_last(tmp_path, monkeypatch):
    """First all fit int64, then uint64, then neither."""
    monkeypatch.setattr(csv, "_HEAD", 8)
    values = [*range(20), 2**64 - 1, *range(20), -5]
    (tmp_path / "a.csv").write_text("k\n" + "".join(f"{value}\n" for value in values))
    with small_blocks("16 B"):
        column = read(scan(tmp_path / "a.csv"))["k"]
    assert column.type == pa.decimal128(38, 0)
    assert column.to_pylist() == values


def test_integers_that_nothing_holds_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text(f"k\n{'1' * 39}\n")
    with pytest.raises(InputError, match=r"a\.csv: column 'k' holds integers of 39 digits, but numbers may have 38"):
        scan(tmp_path / "a.csv")


@pytest.mark.parametrize("size", ["4 B", "64 MiB"])
def test_a_quote_that_is_never_closed_is_refused(tmp_path, size):
    (tmp_path / "a.csv").write_text('a,b\n1,"p,q"\n3,"x\n2,y\n1,z\n')
    with small_blocks(size), pytest.raises(InputError, match=r"a\.csv: the quote before '\"x.n2,y.*' is never closed"):
        read(scan(tmp_path / "a.csv"))


def test_types_agree_over_pieces_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "_HEAD", 40)
    lines = [f"{i},{i},{i},2024-01-0{1 + i % 9}," for i in range(1000)]
    lines[700] = "700,1.5,x,2024-01-01 10:00:00,late"
    (tmp_path / "a.csv").write_text("k,f,s,d,n\n" + "\n".join(lines) + "\n")
    (tmp_path / "b.csv").write_text("k,f,s,d,n\n" + "\n".join(lines[:10]) + "\n")
    with small_blocks("1 kiB"):
        source = scan(tmp_path)
        assert len(source.pieces) > 10
        table = read(source)
    assert table.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.timestamp("s"), pa.string()]
    assert table["s"].to_pylist()[699:702] == ["699", "x", "701"]
    assert table["n"].to_pylist()[699:702] == [None, "late", None]
    expected = pd.read_csv(tmp_path / "a.csv")["f"]
    np.testing.assert_array_equal(table["f"].to_numpy()[:1000], expected)


def test_widening_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "_HEAD", 8)
    (tmp_path / "a.csv").write_text("k\n1\n2\n3\n4\nx\n")
    source = scan(tmp_path / "a.csv")
    with pytest.raises(csv.WiderTypes) as caught:
        source.reader(source.pieces[0])
    widened = csv.widen(source, caught.value.types)
    assert "'k' is string" in widened.notes[0]
    assert widened.reader(widened.pieces[0])["k"].to_pylist() == ["1", "2", "3", "4", "x"]


def test_empty_fields_are_null_and_spellings_only_in_numbers(tmp_path):
    (tmp_path / "a.csv").write_text('k,s\n1,NA\nNA,\n,""\n3,b\n')
    assert read(scan(tmp_path / "a.csv")).to_pydict() == {"k": [1, None, None, 3], "s": ["NA", None, None, "b"]}


def test_columns_may_stand_in_another_order_in_other_files(tmp_path):
    (tmp_path / "a.csv").write_text("k,v\n1,a\n")
    (tmp_path / "b.csv").write_text("v,k\nb,2\n")
    assert read(scan(tmp_path)).to_pydict() == {"k": [1, 2], "v": ["a", "b"]}
    (tmp_path / "b.csv").write_text("v,w\nb,2\n")
    with pytest.raises(InputError, match=r"b\.csv: column 'k' is not in every file"):
        scan(tmp_path)


def test_compressed_files_are_read_whole(tmp_path):
    text = "k,v\n" + "".join(f"{i},{i}\n" for i in range(100))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(tmp_path / "b.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.csv", text)
    with small_blocks():
        source = scan(tmp_path)
    assert len(source.pieces) == 2
    assert "is compressed, so it is read whole" in source.notes[0]
    assert read(source)["k"].to_pylist() == [*range(100), *range(100)]


def test_other_delimiters_marks_and_line_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfk;v\r\n2;x\r\n1;y")
    assert read(scan(tmp_path / "a.csv", delimiter=";")).to_pydict() == {"k": [2, 1], "v": ["x", "y"]}


def test_odd_headers(tmp_path):
    (tmp_path / "a.csv").write_text('"a:b","c,\nd",\n1,2,3\n')
    assert read(scan(tmp_path / "a.csv")).to_pydict() == {"a:b": [1], "c,\nd": [2], "": [3]}


def test_header_only(tmp_path):
    (tmp_path / "a.csv").write_text("k,v\n")
    assert read(scan(tmp_path / "a.csv")).to_pydict() == {"k": [], "v": []}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"k,k\n1,2\n", "column 'k' is there twice"),
        (b"k,v\r1,2\r", "carriage return only"),
        (b"k,v\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        (b"\xff\xfe,\xff\n1,2\n", "not UTF-8"),
    ],
)
def test_bad_files_are_named(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.csv: .*{words}"):
        read(scan(tmp_path / "a.csv"))


def test_a_bad_row_below_the_head_is_an_input_error(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "_HEAD", 8)
    (tmp_path / "a.csv").write_text("k\n1\n2\n3\n4,5\n")
    with pytest.raises(InputError, match=r"a\.csv: .*Expected 1 columns, got 2"):
        read(scan(tmp_path / "a.csv"))


def test_projection(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    assert read(scan(tmp_path / "a.csv", columns=["c"], keys=["b"])).to_pydict() == {"c": [3], "b": [2]}
    with pytest.raises(InputError, match=r"key 'B' .*did you mean 'b'"):
        scan(tmp_path / "a.csv", keys=["B"])
