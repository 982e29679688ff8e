from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import ClassVar

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distsort.errors import NotSortedError, OptionError, OutputError, SortMemoryError
from distsort.files import budget, check_files, external, raw_runs, runs, sort_files, where
from distsort.files.budget import Budget, make_budget
from distsort.files.source import open_source
from distsort.memory import peak_bytes, resident_bytes
from distsort.search import Cuts


@pytest.fixture
def no_base(monkeypatch):
    """Count rows only, so that a budget of kilobytes makes many runs and slabs."""
    monkeypatch.setattr(budget, "resident_bytes", lambda: 0)
    monkeypatch.setattr(budget, "LIBRARIES", 0)
    monkeypatch.setattr(where, "LEAST_PIECE", 1)


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 50, rows), mask=rng.random(rows) < 0.1),
            "f": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(0, 3, rows).astype(float)),
            "s": [f"text {i}" for i in range(rows)],
            "seq": np.arange(rows),
        }
    )


def runs_and_slabs(report):
    lines = report.plan.splitlines()
    return int(lines[1].split()[2]), 1 if lines[4].endswith("at once") else int(lines[4].split()[-2])


@pytest.mark.parametrize("npartitions", [None, 1, 3])
def test_many_runs_and_slabs_make_the_stable_sort(tmp_path, no_base, npartitions):
    rows = table(30_000)
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=500)
    report = sort_files(
        tmp_path / "in.parquet",
        tmp_path / "out",
        ["k", "f"],
        ascending=[False, True],
        na_position="first",
        npartitions=npartitions,
        memory="1 MB",
    )
    runs, slabs = runs_and_slabs(report)
    assert runs > 4
    assert slabs > 1 or npartitions is None
    got = pq.read_table(tmp_path / "out")
    frame = rows.to_pandas(types_mapper=pd.ArrowDtype)
    expected = frame.sort_values(["k", "f"], ascending=[False, True], na_position="first", kind="stable")
    assert got["seq"].to_pylist() == expected["seq"].tolist()
    assert got.schema.equals(rows.schema)
    assert max(p.rows for p in report.parts) - min(p.rows for p in report.parts) <= 1
    assert {phase.name for phase in report.phases} == {"scan", "read", "sort", "cuts", "merge", "write", "publish"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-3, 3), max_size=200), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_any_runs_parts_and_ties(tmp_path, no_base, values, parts, unit, up):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "make_budget", lambda *a: Budget(0, 0, 2, unit * 160, len(values) * 16, 16.0, parts, 2))
        patch.setattr(external, "ROUND_ROWS", 100)
        patch.setattr(runs, "SAMPLES", 3)
        pq.write_table(pa.table({"k": values, "seq": range(len(values))}), tmp_path / "in.parquet", row_group_size=10)
        with dask.config.set({"distsort.files.part-size": "160 B", "distsort.files.minimum-partitions": 1}):
            sort_files(
                tmp_path / "in.parquet",
                tmp_path / "out",
                "k",
                ascending=up,
                npartitions=parts,
                memory="1 kB",
                overwrite=True,
            )
    expected = pd.DataFrame({"k": values}).sort_values("k", kind="stable", ascending=up).index.tolist()
    assert pq.read_table(tmp_path / "out")["seq"].to_pylist() == expected


def test_csv_and_categories(tmp_path, no_base):
    (tmp_path / "in.csv").write_text("k,v\n" + "".join(f'{i * 7 % 1000},"x{i}\n"\n' for i in range(20_000)))
    report = sort_files(tmp_path / "in.csv", tmp_path / "out", "k", memory="3 MB")
    assert runs_and_slabs(report)[0] > 1
    got = pd.read_parquet(tmp_path / "out")
    expected = pd.read_csv(tmp_path / "in.csv").sort_values("k", kind="stable")
    assert got["v"].tolist() == expected["v"].tolist()
    frame = pd.DataFrame({"k": pd.Categorical(["m", "z", "d"] * 4000, categories=["z", "d", "m"])})
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=1000)
    sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", memory="1 MB", overwrite=True)
    assert pd.read_parquet(tmp_path / "out")["k"].tolist() == ["z"] * 4000 + ["d"] * 4000 + ["m"] * 4000


def lines_of_all_kinds(count, seed):
    rng = np.random.default_rng(seed)
    lengths = np.where(rng.random(count) < 0.01, rng.integers(0, 3000, count), rng.integers(0, 12, count))
    letters = np.frombuffer(b"ab\t\0\xff", np.uint8)
    return [letters[rng.integers(0, 5, length)].tobytes() for length in lengths.tolist()]


@pytest.mark.parametrize(("ascending", "unique"), [(True, False), (False, False), (True, True)])
def test_lines_of_many_lengths_in_many_runs_and_slabs(tmp_path, no_base, monkeypatch, ascending, unique):
    monkeypatch.setattr(raw_runs, "GATHERED", 10_000)
    lines = lines_of_all_kinds(8_000, 3)
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    report = sort_files(
        tmp_path / "in.txt", tmp_path / "out", npartitions=3, memory="300 kB", ascending=ascending, unique=unique
    )
    runs, slabs = runs_and_slabs(report)
    assert runs > 3
    assert slabs > 1
    expected = sorted(set(lines) if unique else lines, reverse=not ascending)
    got = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*")))
    assert got == b"".join(line + b"\n" for line in expected)
    found = check_files(tmp_path / "out", ascending=ascending)
    assert (bool(found), found.rows, f"{found.checksum:016x}") == (True, len(expected), report.checksum)


def test_lines_shorter_than_was_thought_make_more_runs(tmp_path, no_base):
    # The windows that are looked at hold long lines only.
    data = (b"x" * 999 + b"\n") * 70 + b"y\n" * 200_000 + (b"x" * 999 + b"\n") * 70
    (tmp_path / "in.txt").write_bytes(data)
    source = open_source(tmp_path / "in.txt", part_size=1 << 15)
    form = raw_runs.RawForm(source.reader, 1000)
    found = [(len(rows), tally.rows) for rows, tally in form.read(source.pieces, 1 << 30, lambda: None)]
    assert sum(rows for rows, _ in found) == sum(rows for _, rows in found) == 200_140
    assert len(found) > 10


def test_records_in_order_are_merged_and_others_refused(tmp_path, no_base):
    rows = np.random.default_rng(5).integers(0, 256, (4000, 100), np.uint8)
    ordered = rows[np.lexsort(rows[:, 9::-1].T)]
    (tmp_path / "in").mkdir()
    for number in range(2):
        ordered[number::2].tofile(tmp_path / "in" / f"{number}.rec")
    sort_files(tmp_path / "in", tmp_path / "out", presorted=True, memory="300 kB")
    got = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*")))
    assert got == ordered.tobytes()
    rows.tofile(tmp_path / "in" / "0.rec")
    with pytest.raises(NotSortedError, match=r"/0\.rec, row \d+: key=.* stands below key=.*: it is not sorted by key"):
        sort_files(tmp_path / "in", tmp_path / "out2", presorted=True, memory="300 kB")


def test_a_run_is_not_shortened_before_all_parts_above_are_written(tmp_path):
    class Kept:
        cuts: ClassVar[list[int]] = []

        def forget(self, start):
            self.cuts.append(start)

    job = external.External.__new__(external.External)
    job.budget = Budget(0, 0, 2, 1, 1, 1.0, 4, 2)
    job._lock, job._finished = threading.Lock(), set()
    cuts = Cuts(np.arange(0, 90, 10)[None, :])
    seen = []
    for part in (2, 1, 3, 0):
        job._forget([Kept()], cuts, part)
        seen.append(list(Kept.cuts))
    assert seen == [[], [], [20], [20, 0]]


def test_no_rows(tmp_path):
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "in.parquet")
    assert sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", memory="2 GiB").rows == 0
    assert bool(check_files(tmp_path / "out", "k"))


def test_too_little_memory_is_refused_with_the_number_that_would_do(tmp_path):
    pq.write_table(table(1000), tmp_path / "in.parquet")
    with pytest.raises(SortMemoryError, match=r"1\.0 MiB of memory are too few: .* give \d+\.\d MiB") as caught:
        sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", memory="1 MiB")
    assert not (tmp_path / "out").exists()
    enough = str(caught.value).split("give ")[1].split(",")[0]
    assert sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", memory=f"{float(enough[:-4]) + 20} MiB").rows
    for bad in ("much", 0, -1):
        with pytest.raises(OptionError, match="is not a size"):
            sort_files(tmp_path / "in.parquet", tmp_path / "out2", "k", memory=bad)


def test_pieces_larger_than_a_share_leave_fewer_threads(tmp_path):
    pq.write_table(table(2000), tmp_path / "in.parquet")
    source = open_source(tmp_path / "in.parquet")
    size = source.sizes[0] * budget._factor(source.nbytes / source.rows, budget.COPIES)
    assert make_budget(source, 1, int(4.5 * size), 4, base=0).threads == 4
    assert make_budget(source, 1, int(2.5 * size), 4, base=0).threads == 2
    assert make_budget(source, 1, int(1.5 * size), 4, base=0).threads == 1


def test_a_full_disk_ends_the_job_with_the_folder_named_and_nothing_left(tmp_path, no_base, monkeypatch):
    pq.write_table(table(20_000), tmp_path / "in.parquet", row_group_size=500)
    (tmp_path / "spill").mkdir()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with (
        dask.config.set({"distsort.temporary-directory": str(tmp_path / "spill")}),
        pytest.raises(OutputError, match=rf"{tmp_path}/spill/.*: cannot be written .*No space left"),
    ):
        sort_files(tmp_path / "in.parquet", tmp_path / "out", "k", memory="1 MB")
    assert list((tmp_path / "spill").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "spill"]


MEASURED = """
import json, sys
from distsort.files import sort_files
report = sort_files(sys.argv[1], sys.argv[2], sys.argv[4] if len(sys.argv) > 4 else None, memory=int(sys.argv[3]))
print(json.dumps({"peak": report.peak_memory, "rows": report.rows}))
"""


def test_a_child_does_not_inherit_the_peak_of_its_parent():
    ballast = np.ones(256 << 17)
    assert peak_bytes() >= resident_bytes() * 0.9 >= ballast.nbytes * 0.9
    code = "from distsort.memory import peak_bytes; print(peak_bytes())"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, close_fds=False)
    assert 1 << 20 < int(seen.stdout) < 200 << 20


def measured(*arguments):
    """Sort in a process of its own; return what it says."""
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_peak_is_what_the_plan_says(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(2):
        rows = pa.table({"k": rng.integers(0, 2**60, 3_000_000), "v": rng.random(3_000_000)})
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=200_000)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"{number}.parquet").rename(tmp_path / "in" / f"{number}.parquet")
    memory = 500 << 20
    found = measured(tmp_path / "in", tmp_path / "out", memory, "k")
    assert found["rows"] == 6_000_000
    assert found["peak"] <= 1.2 * memory
    assert bool(check_files(tmp_path / "out", "k"))


@pytest.mark.parametrize("width", [8, 100])
def test_the_peak_of_text_is_within_the_memory_given(tmp_path, width):
    rows = 160_000_000 // (width + 32)
    data = np.random.default_rng(width).integers(97, 123, (rows, width), np.uint8)
    data[:, -1] = ord("\n")
    data.tofile(tmp_path / "in.txt")
    memory = 240 << 20
    found = measured(tmp_path / "in.txt", tmp_path / "out", memory)
    assert found["rows"] == rows
    assert found["peak"] <= memory
