"""Sort more than memory holds, and kill it on the way: ``python -m tests.bench.large``.

Records of 100 bytes (12 GB by default) are sorted in one process with ``-S 1G`` and on two workers of 1 GiB each, as a
user would. Said is how long it took, the peak of every process (VmHWM) beside what the plan says, what ``distsort
check`` says of the result, and what is left in the temporary folder. Then the sort is killed with SIGKILL at three
points and started again. Nothing here is a test: it takes minutes and 40 GB of disk.
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
from pathlib import Path

# A cluster of two workers of 1 GiB each, and the command line beside it.
WORKERS = """
import sys
from distributed import LocalCluster
from distsort.cli import main
if __name__ == "__main__":
    folder = sys.argv[sys.argv.index("-T") + 1]
    options = {"threads_per_worker": 1, "memory_limit": "1 GiB", "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, local_directory=folder, **options) as cluster:
        sys.argv += ["--scheduler", cluster.scheduler_address]
        main()
"""
DISTSORT = [sys.executable, "-c", "from distsort.cli import main; main()"]


def family(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def watch(command: list[str], kill_after: float | None = None) -> tuple[float, dict[int, int], int]:
    """Run a command, or kill it after some seconds; return its seconds, the peak of each process, and its status."""
    start = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        try:
            for pid in family(process.pid):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM"):
                        peaks[pid] = max(peaks.get(pid, 0), int(line.split()[1]) // 1024)
        except (FileNotFoundError, ProcessLookupError):
            pass
        if kill_after is not None and time.perf_counter() - start > kill_after:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.1)
    return time.perf_counter() - start, peaks, process.returncode


def left(folder: Path) -> str:
    """Say what is below the temporary folder and beside the output."""
    names = sorted(path.name for place in (folder, folder / "tmp") for path in place.iterdir())
    return ", ".join(name for name in names if name not in ("in.rec", "tmp", "out", "report.json")) or "nothing"


def run(folder: Path, program: list[str], label: str, kill_after: float | None = None) -> float:
    """Sort once and say how it went."""
    out = folder / "out"
    if out.exists():
        shutil.rmtree(out)
    report = folder / "report.json"
    command = [*program, "sort", f"{folder}/in.rec", "-o", str(out), "-T", f"{folder}/tmp", "-q"]
    if program == DISTSORT:
        command += ["-S", "1G"]
    seconds, peaks, status = watch([*command, "--report", str(report)], kill_after)
    shown = " ".join(f"{peak:,}" for peak in sorted(peaks.values(), reverse=True)[:4])
    print(f"{label}: status {status}, {seconds:.1f} s, peaks {shown} MiB, left: {left(folder)}", flush=True)
    if status == 0:
        found = json.loads(report.read_text())
        planned = found.get("planned_memory")
        shown = "-" if planned is None else f"{planned / 2**20:,.0f}"
        held = "; ".join(f"{w['name']} {w['base'] >> 20:,} -> {w['peak'] >> 20:,}" for w in found["workers"])
        print(f"  planned beside the base {shown} MiB; {held}; spilled {found['spilled'] / 2**30:.1f} GiB")
        print("  " + found["plan"].replace("\n", "\n  "), flush=True)
        done = subprocess.run([*DISTSORT, "check", str(out)], capture_output=True, text=True)
        print(f"  check: status {done.returncode}: {done.stdout.strip()} {done.stderr.strip()}", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=120_000_000)
    parser.add_argument("--only", choices=["process", "workers"])
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="what a whole run takes, if that is known")
    args = parser.parse_args()
    (args.folder / "tmp").mkdir(parents=True, exist_ok=True)
    if not (args.folder / "in.rec").exists():
        made = [*DISTSORT, "generate", "records", f"{args.folder}/in.rec", "-n", str(args.rows)]
        subprocess.run(made, check=True)
    places = {
        "process": DISTSORT,
        "workers": [sys.executable, "-c", WORKERS],
    }
    for name, program in places.items():
        if args.only in (None, name):
            seconds = run(args.folder, program, name) if args.seconds is None else args.seconds
            for number in range(args.kills):
                share = (number + 1) / (args.kills + 1)
                run(args.folder, program, f"{name}, killed at {share:.0%}", share * seconds)
                if number == args.kills - 1:
                    run(args.folder, program, f"{name}, started again")
    shutil.rmtree(args.folder / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
