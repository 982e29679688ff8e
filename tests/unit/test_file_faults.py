"""Whole jobs, in which the n-th file operation fails."""

from __future__ import annotations

import threading
from pathlib import Path

import dask
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from distsort.files import sort_files

OPERATIONS = ("info", "ls", "find", "open", "rm", "makedirs")


class NthFails:
    """Counts the file operations of all threads; the n-th one fails, once."""

    def __init__(self, monkeypatch, n):
        self.left = n
        self.lock = threading.Lock()
        self.within = threading.local()
        for owner, names in ((LocalFileSystem, OPERATIONS), (Path, ("rename",))):
            for name in names:
                monkeypatch.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, operation):
        def call(*args, **kwargs):
            if getattr(self.within, "operation", False):
                return operation(*args, **kwargs)
            with self.lock:
                self.left -= 1
                fails = self.left == 0
            if fails:
                raise OSError(5, "Input/output error")
            self.within.operation = True
            try:
                return operation(*args, **kwargs)
            finally:
                self.within.operation = False

        return call


@pytest.mark.parametrize("memory", [None, "2 GiB"])
def test_the_old_output_or_the_whole_new_one_is_there_and_nothing_else(tmp_path, memory):
    pq.write_table(pa.table({"k": list(range(30))[::-1]}), tmp_path / "in.parquet", row_group_size=10)
    (tmp_path / "spill").mkdir()
    failed = 0
    for n in range(1, 51):
        old = sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", ascending=False, npartitions=2, overwrite=True)
        assert old.rows == 30
        with (
            pytest.MonkeyPatch.context() as patch,
            dask.config.set({"distsort.temporary-directory": str(tmp_path / "spill")}),
        ):
            NthFails(patch, n)
            try:
                sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", overwrite=True, memory=memory)
                new = True
            except (OSError, ValueError):
                new = False
                failed += 1
        names = sorted(path.name for path in (tmp_path / "out").iterdir())
        parts = 2 if "part-00002.parquet" not in names else 3
        assert names == ["_SUCCESS", "_manifest.json", *(f"part-{i:05d}.parquet" for i in range(parts))]
        values = pq.read_table(tmp_path / "out")["k"].to_pylist()
        assert values == (list(range(30)) if parts == 3 else list(range(30))[::-1])
        assert parts == 3 or not new
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out", "spill"]
        assert list((tmp_path / "spill").iterdir()) == []
    assert failed > 20
