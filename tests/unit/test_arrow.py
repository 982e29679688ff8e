from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from distsort.errors import InputError
from distsort.files import check_files, sort_files


def write_ipc(path, table, rows):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def read_ipc(folder):
    tables = []
    for path in sorted(folder.glob("part-*.arrow")):
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables)


@pytest.mark.parametrize("memory", [None, "2 GiB"])
def test_arrow_files_stay_arrow_files(tmp_path, memory):
    table = pa.table(
        {
            "k": [3, None, 1, 2, 1],
            "s": pa.array(["c", None, "a", "b", "a"]).dictionary_encode(),
            "l": [[1], None, [], [2, 3], [4]],
            "v": pa.array(["x", "y", None, "z", ""], pa.string_view()),
        }
    )
    write_ipc(tmp_path / "in.arrow", table, 2)
    report = sort_files(tmp_path / "in.arrow", tmp_path / "out", "k", npartitions=2, memory=memory)
    assert [part.rows for part in report.parts] == [2, 3]
    got = read_ipc(tmp_path / "out")
    assert got.drop_columns("v").to_pylist() == table.drop_columns("v").take([2, 4, 3, 0, 1]).to_pylist()
    assert got["v"].to_pylist() == [None, "", "z", "x", "y"]
    assert got.schema.field("s").type == table.schema.field("s").type
    assert bool(check_files(tmp_path / "out", "k"))


def test_arrow_columns_project_and_mistakes_are_named(tmp_path):
    write_ipc(tmp_path / "a.arrow", pa.table({"k": [2, 1], "v": [1, 2]}), 1)
    sort_files(tmp_path / "a.arrow", tmp_path / "out", "k", columns=["v"])
    assert read_ipc(tmp_path / "out").to_pydict() == {"v": [2, 1]}
    write_ipc(tmp_path / "b.arrow", pa.table({"k": ["x"], "v": [1]}), 1)
    with pytest.raises(InputError, match=r"b\.arrow: its schema is not that of .*a\.arrow"):
        sort_files([tmp_path / "a.arrow", tmp_path / "b.arrow"], tmp_path / "out2", "k")
    (tmp_path / "c.arrow").write_bytes(b"ARROW1")
    with pytest.raises(InputError, match=r"c\.arrow: is not a whole Arrow file"):
        sort_files(tmp_path / "c.arrow", tmp_path / "out2", "k")
    write_ipc(tmp_path / "d.arrow", pa.table({"k": pa.array([], pa.int64())}), 1)
    assert sort_files(tmp_path / "d.arrow", tmp_path / "out2", "k").rows == 0


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float64", "float32", "bool", "datetime64[ms]", ">i4"])
def test_npy_files_are_sorted_as_numpy_does(tmp_path, dtype):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 50, 1000).astype(dtype)
    if values.dtype.kind == "f":
        values[::7] = np.nan
    if values.dtype.kind == "M":
        values[::7] = np.datetime64("NaT")
    np.save(tmp_path / "in.npy", values)
    sort_files(tmp_path / "in.npy", tmp_path / "out", npartitions=3)
    parts = [np.load(path) for path in sorted((tmp_path / "out").glob("part-*.npy"))]
    assert [len(part) for part in parts] == [333, 333, 334]
    np.testing.assert_array_equal(np.concatenate(parts), np.sort(values))
    assert parts[0].dtype == values.dtype.newbyteorder("=")
    assert bool(check_files(tmp_path / "out"))


def test_npy_files_that_cannot_be_sorted_are_named(tmp_path):
    np.save(tmp_path / "two.npy", np.zeros((2, 2)))
    np.save(tmp_path / "complex.npy", np.zeros(2, complex))
    np.save(tmp_path / "a.npy", np.zeros(2))
    np.save(tmp_path / "b.npy", np.zeros(2, "i4"))
    (tmp_path / "bad.npy").write_bytes(b"bad")
    for names, words in (
        (["two"], "2 dimensions"),
        (["complex"], "dtype complex128"),
        (["a", "b"], r"b\.npy: has the dtype int32, but the first file has float64"),
        (["bad"], r"bad\.npy: is not a \.npy file"),
    ):
        with pytest.raises(InputError, match=words):
            sort_files([tmp_path / f"{name}.npy" for name in names], tmp_path / "out")
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-1])
    with pytest.raises(InputError, match="shorter than its header says"):
        sort_files(tmp_path / "a.npy", tmp_path / "out")
    assert not (tmp_path / "out").exists()
