"""Sort more than memory holds, and kill it on the way: ``python -m tests.bench.large``.

Records of 100 bytes (12 GB by default) are sorted in one process with ``-S 1G`` and on two workers of 1 GiB each, as a
user would. Said is how long it took, the peak of the fullest process that sorted (VmHWM) beside what the plan says,
what ``distsort check`` says of the result, and what is left beside the output and in the temporary folder. Then the
sort is killed with SIGKILL at 25, 50 and 75 % of its time, then started again; and on the cluster one worker is
killed in the middle, which its nanny starts again: the sort must end right. Nothing here is a test: it takes minutes
and 40 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# A cluster of two workers, and the command line beside it.
WORKERS = """
import sys
from distributed import LocalCluster
from distsort.cli import main
if __name__ == "__main__":
    limit = sys.argv.pop(1)
    folder = sys.argv[sys.argv.index("-T") + 1]
    options = {"threads_per_worker": 1, "memory_limit": limit, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, local_directory=folder, **options) as cluster:
        sys.argv += ["--scheduler", cluster.scheduler_address]
        main()
"""
DISTSORT = [sys.executable, "-c", "from distsort.cli import main; main()"]


@dataclass
class Seen:
    """How a command ended: its seconds, the most MiB that each process held, its status."""

    seconds: float
    peaks: dict[int, int]
    status: int


def family(pid: int) -> Iterator[int]:
    """Yield a process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def peaks_of(pid: int) -> dict[int, int]:
    """Return the most that a process and each below it has held, in MiB."""
    found = {}
    for each in family(pid):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                found[each] = int(line.split()[1]) // 1024
    return found


def watch(command: Sequence[str], whole: float | None = None, worker: float | None = None) -> Seen:
    """Run a command; after `whole` seconds kill all of it, after `worker` seconds one of its workers, with SIGKILL."""
    start = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        now = time.perf_counter() - start
        try:
            for pid, peak in peaks_of(process.pid).items():
                peaks[pid] = max(peaks.get(pid, 0), peak)
            if worker is not None and now > worker:
                fullest = max((pid for pid in peaks_of(process.pid) if pid != process.pid), key=peaks.__getitem__)
                os.kill(fullest, signal.SIGKILL)
                worker = None
        except (FileNotFoundError, ProcessLookupError):
            pass
        if whole is not None and now > whole:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.1)
    return Seen(time.perf_counter() - start, peaks, process.returncode)


def left(folder: Path) -> str:
    """Say what is beside the output and in the temporary folder, without what Dask keeps of itself."""
    known = {"in.rec", "tmp", "out", "report.json", "global.lock", "purge.lock", "dask-scratch-space"}
    places = [folder, folder / "tmp", folder / "tmp" / "dask-scratch-space"]
    names = {path.name for place in places if place.exists() for path in place.iterdir()}
    return ", ".join(sorted(names - known)) or "nothing"


class Bench:
    """One place to sort in, and the table of what was seen there."""

    def __init__(self, folder: Path, name: str, limit: str) -> None:
        self.folder, self.name = folder, name
        self.program = DISTSORT if name == "process" else [sys.executable, "-c", WORKERS, limit]
        self.memory = ["-S", "1G"] if name == "process" else []

    def run(self, label: str, whole: float | None = None, worker: float | None = None) -> float:
        """Sort once and say how it went."""
        folder, out, report = self.folder, self.folder / "out", self.folder / "report.json"
        for done in (out, report):
            shutil.rmtree(done, ignore_errors=True) if done.is_dir() else done.unlink(missing_ok=True)
        command = [*self.program, "sort", f"{folder}/in.rec", "-o", str(out), "-T", f"{folder}/tmp", "-q"]
        seen = watch([*command, *self.memory, "--report", str(report)], whole, worker)
        row = f"{self.name:8} {label:26} status {seen.status:3} {seen.seconds:7.1f} s"
        if seen.status == 0:
            found = json.loads(report.read_text())
            fullest = max(found["workers"], key=lambda worker: worker["peak"])
            # A worker that was started on the way has no base of its own.
            planned = max(worker["base"] for worker in found["workers"]) + (found["planned_memory"] or 0)
            row += f"  peak {fullest['peak'] >> 20:,} MiB = {fullest['peak'] / planned:.2f} x {planned >> 20:,} planned"
            row += f"  spilled {found['spilled'] / 2**30:.1f} GiB"
            done = subprocess.run([*DISTSORT, "check", str(out)], capture_output=True, text=True)
            row += f"  check {done.returncode}: {' '.join(done.stdout.split())} {done.stderr.strip()}"
        row += f"  left: {left(folder)}"
        print(row, flush=True)
        return seen.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=120_000_000)
    parser.add_argument("--only", choices=["process", "workers"])
    parser.add_argument("--limit", default="1 GiB", help="of a worker")
    parser.add_argument("--kills", type=float, nargs="*", default=[0.25, 0.5, 0.75], help="shares of the whole time")
    parser.add_argument("--seconds", type=float, help="what a whole run takes, if that is known")
    args = parser.parse_args()
    (args.folder / "tmp").mkdir(parents=True, exist_ok=True)
    if not (args.folder / "in.rec").exists():
        made = [*DISTSORT, "generate", "records", f"{args.folder}/in.rec", "-n", str(args.rows)]
        subprocess.run(made, check=True)
    for name in ("process", "workers"):
        if args.only not in (None, name):
            continue
        bench = Bench(args.folder, name, args.limit)
        seconds = bench.run("whole") if args.seconds is None else args.seconds
        for share in args.kills:
            bench.run(f"killed at {share:.0%}", whole=share * seconds)
        if args.kills:
            bench.run("started again")
        if args.kills and name == "workers":
            bench.run("one worker killed at 50%", worker=0.5 * seconds)
    shutil.rmtree(args.folder / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
