"""Measure sorts of files beside GNU sort, DuckDB and polars, all in one run: ``python -m tests.bench.files``.

Every contestant is a process of its own, reads the same files from a warm page cache, and gets the same memory limit
and number of threads where it knows such a thing. The records are the sort benchmark's in their printable form: a key
of 10 characters, 100 bytes with a line feed at the end, so one file is records to one and lines of text to the other.
Seconds depend on the machine; the ratios are what counts. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

BLOCK = 1 << 18

DISTSORT = "import sys; from distsort.cli import main; main()"

DUCKDB = """
import duckdb, sys
memory, threads, folder, read, out = sys.argv[1:]
con = duckdb.connect()
con.execute(f"SET memory_limit='{memory}MiB'; SET threads={threads}; SET temp_directory='{folder}'")
con.execute(f"COPY (SELECT * FROM {read} ORDER BY k) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
"""

POLARS = """
import polars, sys
read, out = sys.argv[1:]
scan = polars.scan_csv if read.endswith("csv") else polars.scan_parquet
scan(read).sort("k", maintain_order=True).sink_parquet(out, compression="zstd")
"""


def write_records(path: Path, rows: int) -> None:
    """Printable records of 100 bytes."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            block = np.full((count, 100), ord("."), np.uint8)
            block[:, :10] = rng.integers(ord(" "), ord("~") + 1, (count, 10), np.uint8)
            numbers = np.array([f"  {start + i:032X}  " for i in range(count)], "S36")
            block[:, 10:46] = numbers.view(np.uint8).reshape(count, 36)
            block[:, 98:] = (13, 10)
            file.write(block.tobytes())


def write_tables(folder: Path, rows: int) -> None:
    """A key, two numbers and a text, as Parquet and as CSV."""
    rng = np.random.default_rng(1)
    writers = None
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        numbers = rng.integers(0, 10**9, count)
        table = pa.table(
            {
                "k": rng.integers(-(2**62), 2**62, count),
                "x": rng.random(count),
                "n": np.arange(start, start + count),
                "s": [f"order {number}" for number in numbers],
            }
        )
        if writers is None:
            writers = (
                pq.ParquetWriter(folder / "in.parquet", table.schema, compression="zstd"),
                pa.csv.CSVWriter(folder / "in.csv", table.schema),
            )
        for writer in writers:
            writer.write_table(table)
    for writer in writers or ():
        writer.close()


def measured(command: list[str], env: dict[str, str]) -> tuple[float, float, float]:
    """Run a command and return its seconds, its CPU seconds, and its peak memory in MiB as /proc tells it."""
    # What the one before has left to be written is not this one's burden.
    os.sync()
    before = os.times()
    start = time.perf_counter()
    peak = 0
    process = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                peak = int(line.split()[1])
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    after = os.times()
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(f"{command[0]} failed: {process.stderr.read().decode()[-2000:]}")
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, busy, peak / 1024


def contestants(kind: str, folder: Path, memory: int, threads: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the command and the environment of everyone who sorts this kind of file."""
    ours = [sys.executable, "-c", DISTSORT, "sort"]
    rest = ["-o", f"{folder}/out", "-S", f"{memory}M", "-T", f"{folder}/tmp", "-q"]
    if kind == "records":
        gnu = ["sort", "-s", f"-S{memory}M", f"--parallel={threads}", "-T", f"{folder}/tmp"]
        gnu += ["-o", f"{folder}/out", f"{folder}/in.txt"]
        return {
            "distsort records": ([*ours, f"{folder}/in.txt", "--format", "records", *rest], {}),
            "distsort text": ([*ours, f"{folder}/in.txt", *rest], {}),
            "GNU sort": (gnu, {"LC_ALL": "C"}),
        }
    path = f"{folder}/in.{kind}"
    read = f"read_{kind}('{path}')"
    duck = [sys.executable, "-c", DUCKDB, str(memory), str(threads), f"{folder}/tmp", read, f"{folder}/out"]
    return {
        "distsort": ([*ours, path, "-k", "k", *rest], {}),
        "DuckDB": (duck, {}),
        "polars streaming, no limit": (
            [sys.executable, "-c", POLARS, path, f"{folder}/out"],
            {"POLARS_MAX_THREADS": str(threads)},
        ),
    }


def gone(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["records", "parquet", "csv"])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", help="contestants whose name holds this")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the input there, or find it there")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="distsort-bench-"))
    folder.mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    try:
        for kind in args.kinds:
            if kind == "records" and not (folder / "in.txt").exists():
                write_records(folder / "in.txt", args.records)
            elif kind != "records" and not (folder / f"in.{kind}").exists():
                write_tables(folder, args.rows)
            found = contestants(kind, folder, args.memory, args.threads)
            turns: dict[str, list[tuple[float, float, float]]] = {
                name: [] for name in found if (args.only or "") in name
            }
            for _ in range(args.repeat):
                for name in turns:
                    gone(folder / "out")
                    turns[name].append(measured(*found[name]))
            base = None
            for name, times in turns.items():
                seconds, busy, peak = (statistics.median(values) for values in zip(*times, strict=True))
                base = base or seconds
                print(
                    f"{kind:8} {name:28} {seconds:8.2f} s {seconds / base:6.2f} x {busy:8.2f} s of CPU "
                    f"{peak:7,.0f} MiB at the peak",
                    flush=True,
                )
    finally:
        gone(folder / "out")
        if args.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
