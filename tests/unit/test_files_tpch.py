"""TPC-H's lineitem beside DuckDB's ORDER BY; both packages are optional."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from distsort.files import sort_files

KEYS = ["l_shipdate", "l_orderkey", "l_linenumber"]


@pytest.fixture(scope="module")
def lineitem(tmp_path_factory):
    generator = shutil.which("tpchgen-cli") or shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if generator is None:
        pytest.skip("tpchgen-cli is not installed")
    folder = tmp_path_factory.mktemp("tpch")
    command = [generator, "parquet", "-s", "0.02", "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "lineitem.parquet"


def test_rows_are_those_of_order_by_and_statistics_prune_a_range(lineitem, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        query = f"copy (select * from '{lineitem}' order by {', '.join(KEYS)}) to '{tmp_path}/duck.parquet'"
        connection.execute(query)
    sort_files(lineitem, tmp_path / "out", KEYS, npartitions=8)
    ours, theirs = pq.read_table(tmp_path / "out"), pq.read_table(tmp_path / "duck.parquet")
    assert ours.num_rows == theirs.num_rows > 100_000
    for name in theirs.column_names:
        assert ours[name].cast(theirs[name].type).equals(theirs[name]), name

    date = ds.field("l_shipdate")
    march = (date >= dt.date(1995, 3, 1)) & (date < dt.date(1995, 4, 1))
    dataset = ds.dataset(tmp_path / "out")
    read = sum(len(fragment.subset(march).row_groups) for fragment in dataset.get_fragments())
    assert read == 1
    assert dataset.count_rows(filter=march) == ds.dataset(lineitem).count_rows(filter=march) > 0
