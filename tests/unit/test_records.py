from __future__ import annotations

import io
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distsort.errors import InputError, OptionError
from distsort.files import check_files, sort_files
from distsort.files.check import combine_checks
from distsort.io.lines import LineReader, scan_lines
from distsort.io.raw import Span, join_lines
from distsort.io.records import Layout, generate, scan_records
from distsort.io.storage import expand, resolve


def whole(folder, suffix):
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"part-*{suffix}")))


def records(data, length=100):
    return [data[i : i + length] for i in range(0, len(data), length)]


@pytest.mark.parametrize("memory", [None, "2 GiB"])
def test_records_are_the_stable_sort_by_key(tmp_path, memory):
    file = io.BytesIO()
    generate(file, 5000, seed=1, distinct=300)
    (tmp_path / "in.rec").write_bytes(file.getvalue())
    report = sort_files(tmp_path / "in.rec", tmp_path / "out", npartitions=7, memory=memory)
    assert whole(tmp_path / "out", ".rec") == b"".join(sorted(records(file.getvalue()), key=lambda r: r[:10]))
    assert [part.rows for part in report.parts] == [714, 714, 714, 715, 714, 714, 715]
    found = check_files(tmp_path / "out")
    assert (bool(found), found.rows, found.duplicates) == (True, 5000, 4700)
    assert f"{found.checksum:016x}" == report.checksum
    assert check_files(tmp_path / "in.rec").fault.startswith(f"{tmp_path}/in.rec, row 3: key=b")


def test_checks_of_parts_combine_to_that_of_the_whole(tmp_path):
    file = io.BytesIO()
    generate(file, 500, seed=2, distinct=60)
    (tmp_path / "in.rec").write_bytes(file.getvalue())
    sort_files(tmp_path / "in.rec", tmp_path / "out", npartitions=7)
    together = check_files(tmp_path / "out")
    parts = [check_files(path) for path in sorted((tmp_path / "out").glob("part-*"))]
    combined = combine_checks([combine_checks(parts[:3], "key"), combine_checks(parts[3:], "key")], "key")
    assert (combined.rows, combined.duplicates, combined.checksum) == (500, 440, together.checksum)
    assert combined.ends["key"].tolist() == together.ends["key"].tolist()
    assert bool(combined)
    assert combine_checks([parts[1], parts[0]], "key").fault.startswith("part 1: its first row")
    assert combine_checks([parts[0], check_files(tmp_path / "in.rec")], "key").fault is not None


def test_other_layouts_and_descending(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 3, (500, 7), np.uint8).tobytes()
    (tmp_path / "in.bin").write_bytes(data)
    layout = Layout(7, 2, 3)
    sort_files(tmp_path / "in.bin", tmp_path / "out", format="records", layout=layout, ascending=False)
    expected = sorted(records(data, 7), key=lambda r: r[2:5], reverse=True)
    assert whole(tmp_path / "out", ".rec") == b"".join(expected)
    assert bool(check_files(tmp_path / "out", layout=layout, ascending=False))


def test_altered_records_are_found_by_the_manifest(tmp_path):
    file = io.BytesIO()
    generate(file, 10)
    (tmp_path / "in.rec").write_bytes(file.getvalue())
    sort_files(tmp_path / "in.rec", tmp_path / "out")
    part = tmp_path / "out" / "part-00000.rec"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    with pytest.raises(InputError, match="checksums differ"):
        check_files(tmp_path / "out")


def test_torn_records_and_bad_layouts_are_refused(tmp_path):
    (tmp_path / "in.rec").write_bytes(b"x" * 150)
    with pytest.raises(InputError, match=r"in\.rec: has 150 bytes, which is no multiple of the 100"):
        sort_files(tmp_path / "in.rec", tmp_path / "out")
    for layout in ((10, 5, 6), (0, 0, 1), (10, -1, 2), (10, 0, 0)):
        with pytest.raises(OptionError, match="key of"):
            Layout(*layout)
    (tmp_path / "in.rec").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="the one key 'key'"):
        sort_files(tmp_path / "in.rec", tmp_path / "out", "k")
    with pytest.raises(OptionError, match="columns= is for files with columns"):
        sort_files(tmp_path / "in.rec", tmp_path / "out", columns=["record"])
    with pytest.raises(InputError, match="column 'key' is not a column of records"):
        sort_files(tmp_path / "in.rec", tmp_path / "out", columns=["key"])
    assert not (tmp_path / "out").exists()


def test_generated_rows_are_numbered_and_the_same_each_time():
    first, again, rest = io.BytesIO(), io.BytesIO(), io.BytesIO()
    generate(first, 100, seed=5)
    generate(again, 100, seed=5)
    assert first.getvalue() == again.getvalue()
    generate(rest, 2, first=100, seed=5)
    numbers = [int(record[12:44], 16) for record in records(first.getvalue() + rest.getvalue())]
    assert numbers == list(range(102))


@pytest.mark.parametrize("data", [b"", b"\n", b"b\na\n", b"b\na", b"a\n\n\nb\n", b"a\tb\na\nab\n", b"\xff\n\x00\na\n"])
def test_lines_are_sorted_as_gnu_sort_does(tmp_path, data):
    (tmp_path / "in.txt").write_bytes(data)
    sort_files(tmp_path / "in.txt", tmp_path / "out", npartitions=2)
    gnu = subprocess.run(["sort", "-s", tmp_path / "in.txt"], env={"LC_ALL": "C"}, capture_output=True, check=True)
    assert whole(tmp_path / "out", ".txt") == gnu.stdout
    sort_files(tmp_path / "in.txt", tmp_path / "out", ascending=False, overwrite=True)
    gnu = subprocess.run(
        ["sort", "-s", "-r", tmp_path / "in.txt"], env={"LC_ALL": "C"}, capture_output=True, check=True
    )
    assert whole(tmp_path / "out", ".txt") == gnu.stdout


@pytest.mark.parametrize("memory", [None, "2 GiB"])
@pytest.mark.parametrize("parts", [1, 2, 5, 40])
@pytest.mark.parametrize("ascending", [True, False])
def test_unique_lines_are_those_of_gnu_sort(tmp_path, memory, parts, ascending):
    rng = np.random.default_rng(parts)
    (tmp_path / "in.txt").write_bytes(b"".join(b"%d\n" % i for i in rng.integers(0, 9, 30).tolist()))
    report = sort_files(
        tmp_path / "in.txt", tmp_path / "out", npartitions=parts, unique=True, memory=memory, ascending=ascending
    )
    flags = ["-u"] if ascending else ["-u", "-r"]
    gnu = subprocess.run(["sort", *flags, tmp_path / "in.txt"], env={"LC_ALL": "C"}, capture_output=True, check=True)
    assert whole(tmp_path / "out", ".txt") == gnu.stdout
    assert report.dropped == 30 - gnu.stdout.count(b"\n")
    found = check_files(tmp_path / "out", ascending=ascending)
    assert (bool(found), found.duplicates) == (True, 0)


def test_the_first_of_equal_keys_is_kept(tmp_path):
    pq.write_table(
        pa.table({"k": [2, 1, 2, 1, None, None], "seq": range(6)}), tmp_path / "in.parquet", row_group_size=2
    )
    report = sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", unique=True)
    assert pq.read_table(tmp_path / "out").to_pydict() == {"k": [1, 2, None], "seq": [1, 0, 4]}
    assert report.dropped == 3
    assert "dropped  3 rows" in str(report)
    np.save(tmp_path / "in.npy", np.arange(3))
    with pytest.raises(OptionError, match="unique="):
        sort_files(tmp_path / "in.npy", tmp_path / "out2", unique=True)


@given(st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_read_and_written_are_the_same(lines, ended):
    data = b"".join(line + b"\n" for line in lines)
    data = data if ended or not data else data[:-1]
    store, _ = resolve("memory://lines")
    store.write("/lines", data)
    table = LineReader()(Span(store, "/lines", 0, len(data)))
    expected = lines if ended or not lines or lines[-1] else lines[:-1]
    assert table["line"].to_pylist() == expected
    for chunk in table["line"].chunks:
        assert join_lines(chunk).tobytes() == b"".join(line + b"\n" for line in expected)
        if len(chunk) > 1:
            assert join_lines(chunk.slice(1)).tobytes() == b"".join(line + b"\n" for line in expected[1:])


@pytest.mark.parametrize("size", [1, 2, 5, 64, 10_000])
def test_pieces_hold_whole_lines_and_records(tmp_path, size):
    data = b"".join(b"line %d\n" % i for i in range(99)) + b"x" * 500 + b"\nlast"
    (tmp_path / "in.txt").write_bytes(data)
    source = scan_lines(expand(tmp_path / "in.txt"), part_size=size)
    table = pa.concat_tables([source.reader(piece) for piece in source.pieces])
    assert table["line"].to_pylist() == data.split(b"\n")
    assert len(source.pieces) == {1: 101, 2: 101, 5: 101, 64: 26, 10_000: 1}[size]
    (tmp_path / "in.rec").write_bytes(data[:700])
    source = scan_records(expand(tmp_path / "in.rec"), part_size=size)
    table = pa.concat_tables([source.reader(piece) for piece in source.pieces])
    assert table["record"].to_pylist() == records(data[:700])
    assert table["key"].to_pylist() == [record[:10] for record in records(data[:700])]
