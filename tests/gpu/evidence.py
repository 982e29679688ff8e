"""What a GPU run showed, kept in evidence.json because CI has no GPU.

    python -m tests.gpu.evidence                                    all that this machine can show
    python -m tests.gpu.evidence --part kernels --budget 500        these rows only, as far as 500 s go
    python -m tests.gpu.evidence --resume                           what is missing, or of other code
    python -m tests.gpu.evidence --check                            is the committed evidence of this code?
    python -m tests.gpu.evidence --plot kernels/plots/scaling.png   the scaling that it holds, as a picture

    part        GPUs  fills
    kernels     1     the rows that need one GPU                                    (tests/gpu/rows.py)
    sanitizer   1     memcheck and racecheck of tests/gpu/exercise.py, which runs every kernel
    tests       1     counts of `pytest -m gpu`
    bench       1     that `distsort bench kernels --part merge` runs
    cluster     2     the rows that need two, each beside its peer                  (distsort.bench.cluster_evidence)
    multi       2     counts of `pytest -m multi_gpu`
    scaling     2     the table of `distsort bench cluster --scaling`

Results are written one by one and failures beside them (tests/gpu/ledger.py). Parts and rows carry the hash of the code
they were made with: kernels/ and the modules that launch them. ``--check`` needs nothing but Python. A row's `ratio` is
above 1 when ours is better; `peer` is measured in the same run, on the same kind of keys, medians of at least 7 between
CUDA events, warm, behind a copy of 1 GiB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.ledger import Ledger
from tests.gpu.rows import ONE_GPU, measure

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("evidence.json")
CODE = ("kernels/*.cu", "kernels/*.cuh", "kernels/*.py", "distsort/backends/cupy*.py")
TWO_GPUS = (
    "rows_int64_vs_cudf_polars",
    "rows_int64_f64_vs_cudf_polars",
    "rows_int64_vs_tasks",
    "rows_int64_vs_default",
    "exchange_gbs",
    "two_vs_one",
    "balance",
    "skew",
    "dask_share_ms",
)
PARTS = {"kernels": 1, "sanitizer": 1, "tests": 1, "bench": 1, "cluster": 2, "multi": 2, "scaling": 2}
"""For each part the GPUs that it needs."""
TOOL_SECONDS = {"memcheck": 150, "racecheck": 180}
"""For each sanitizer the seconds after which it is stopped."""


def code_sha256(root: Path = ROOT) -> str:
    """Return the hash of the kernels and of what launches them: names and bytes."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in CODE for p in root.glob(pattern)):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def problems(evidence: dict[str, Any], code: str) -> Iterator[str]:
    """Say what keeps this evidence from being evidence of the code with that hash."""
    for part in ("tests", "sanitizer", "kernels"):
        if part not in evidence.get("parts", {}):
            yield f"part {part} was never run"
    for part, made in evidence.get("parts", {}).items():
        if made["code_sha256"] != code:
            yield f"part {part} is of other code ({made['date']}, {made['code_sha256'][:12]}, now {code[:12]})"
    if evidence.get("tests", {}).get("failed"):
        yield f"{evidence['tests']['failed']} GPU tests failed"
    yield from (f"{tool}: {said}" for tool, said in evidence.get("sanitizer", {}).items() if said != "clean")
    for kind in ("failures", "skipped"):
        yield from (f"{name} {kind}: {said}" for name, said in evidence.get(kind, {}).items())
    rows = {row["id"]: row for row in evidence.get("rows", [])}
    missing = set(ONE_GPU) - set(rows)
    if missing:
        yield f"rows are missing: {', '.join(sorted(missing))}"
    yield from (f"row {name} is of other code" for name, row in rows.items() if not code.startswith(row["code"]))


def check(file: Path) -> int:
    """Print whether the evidence is of this code; return the exit status."""
    if not file.exists():
        print(f"{file} does not exist: run python -m tests.gpu.evidence on a machine with a GPU", file=sys.stderr)
        return 1
    found = list(problems(json.loads(file.read_text()), code_sha256()))
    for problem in found:
        print(f"{file.name}: {problem}", file=sys.stderr)
    print("the evidence is not of this code" if found else "the evidence is of this code")
    return bool(found)


def run(command: list[str], seconds: float) -> str:
    """Run a command for at most so long, its output on ours; return its end.

    Raises
    ------
    RuntimeError
        It failed, or ran out of time.
    """
    with tempfile.TemporaryFile("w+") as kept:
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT, timeout=max(seconds, 1), check=False
            )
            status = f"exit status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            status = f"stopped after {seconds:.0f} s"
        kept.seek(0)
        said = kept.read()[-6000:]
    print(said, flush=True)
    if status:
        raise RuntimeError(f"{status}: {said[-1500:]}")
    return said


def count(ledger: Ledger, suite: str, mark: str, options: Sequence[str] = ()) -> None:
    """Run the GPU tests of a mark, and add what was counted to the file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", mark, *options, "tests/gpu", f"--junitxml={report}"]
        failed = ""
        try:
            run(command, ledger.left())
        except RuntimeError as error:  # failed tests are counted
            failed = str(error)
        if not report.exists():
            raise RuntimeError(failed)
        found = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    assert found is not None
    total, skipped = int(found.get("tests", 0)), int(found.get("skipped", 0))
    bad = int(found.get("failures", 0)) + int(found.get("errors", 0))
    suites = ledger.evidence.setdefault("suites", {})
    suites[suite] = {"passed": total - skipped - bad, "failed": bad, "skipped": skipped}
    ledger.evidence["tests"] = {k: sum(s[k] for s in suites.values()) for k in ("passed", "failed", "skipped")}
    if bad:
        raise RuntimeError(failed or f"{bad} tests failed")


ONE_GPU_ONLY = ["--ignore=tests/gpu/test_pull.py"]


def tests(ledger: Ledger) -> None:
    """Run the tests of one GPU: those of small memory side by side, for they wait for compilers."""
    side_by_side = ["-n", "6", "-p", "no:benchmark"] if _importable("xdist") else []
    errors = []
    for suite, mark, options in (("gpu", "gpu and not slow", side_by_side), ("gpu, large", "gpu and slow", [])):
        try:
            count(ledger, suite, mark, [*options, *ONE_GPU_ONLY])
        except RuntimeError as error:
            errors.append(str(error))
        ledger.write()
    if errors:
        raise RuntimeError(errors[0])


def _importable(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def sanitizer(ledger: Ledger) -> None:
    """Run every kernel under memcheck and racecheck; racecheck, which is slow, on smaller inputs."""
    found = ledger.evidence.setdefault("sanitizer", {})
    for tool, seconds in TOOL_SECONDS.items():
        if shutil.which("compute-sanitizer") is None:
            found[tool] = "compute-sanitizer is not installed"
            continue
        watched = [sys.executable, "-u", "-m", "tests.gpu.exercise", *(["--small"] if tool == "racecheck" else [])]
        command = ["compute-sanitizer", "--tool", tool, "--print-limit", "30", "--error-exitcode", "7", *watched]
        try:
            run(command, min(seconds, ledger.left()))
            found[tool] = "clean"
        except RuntimeError as error:
            found[tool] = str(error)
        ledger.write()
    if any(said != "clean" for said in found.values()):
        raise RuntimeError(f"not clean: {', '.join(tool for tool, said in found.items() if said != 'clean')}")


def bench(ledger: Ledger, name: str, options: list[str]) -> None:
    """Run a benchmark of the command line as a user would."""
    said = run([sys.executable, "-m", "distsort.cli", "bench", *options], ledger.left())
    ledger.evidence.setdefault("benches", {})[name] = said[-3000:].splitlines()


def scaling(ledger: Ledger) -> None:
    """Measure from one GPU to all, and keep the numbers of the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scaling.json"
        options = ["cluster", "--scaling", "--gpu", "--rows", "2**28", "--repeats", "3", "--json", str(file)]
        try:
            run([sys.executable, "-m", "distsort.cli", "bench", *options], ledger.left())
        finally:
            found = json.loads(file.read_text())["rows"] if file.exists() else []
            ledger.evidence["scaling"] = [_scaled(row) for row in found]


def _scaled(row: dict[str, Any]) -> dict[str, Any]:
    """Return one measurement of the scaling as it stands in the file."""
    return {
        "case": row["name"],
        "gpus": row["workers"],
        "rows": row["case"]["rows"] * row["case"]["partitions"],
        "ms": round(row["median_ms"], 2),
        "grows_per_s": round(row["grows_per_s"], 3),
        **{phase: round(stop - start, 2) for phase, (start, stop) in row["phases"].items()},
        "balance": row["balance"],
        "gbs_pulled": None if row["gbs"] is None else round(row["gbs"], 1),
        "gib": round(row["device_bytes"] / 2**30, 1),
    }


def cluster(ledger: Ledger) -> None:
    """Measure the rows of two GPUs."""
    from distsort.bench.cluster_evidence import evidence_rows

    evidence_rows(ledger.measure, ledger.wants)


def plot(file: Path, picture: Path) -> int:
    """Draw the scaling in an evidence file; return the exit status."""
    from distsort.bench.cluster_command import scaling_plot

    rows = json.loads(file.read_text()).get("scaling", [])
    if not rows:
        print(f"{file} holds no scaling: run python -m tests.gpu.evidence --part scaling", file=sys.stderr)
        return 1
    scaling_plot([{**row, "name": row["case"], "workers": row["gpus"]} for row in rows], picture)
    return 0


def machine() -> dict[str, Any]:
    """Return the GPUs and the driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    gpus, drivers = zip(*(line.split(", ") for line in lines), strict=True)
    return {"gpus": list(gpus), "driver": drivers[0]}


def renew(ledger: Ledger, parts: list[str], cub: str | None) -> dict[str, Any]:
    """Run parts, one after the other; return what the file then holds."""
    work: dict[str, Callable[[], None]] = {
        "kernels": lambda: measure(ledger, cub),
        "sanitizer": lambda: sanitizer(ledger),
        "tests": lambda: tests(ledger),
        "bench": lambda: bench(
            ledger,
            "kernels --part merge",
            ["kernels", "--part", "merge", "--sizes", "2^28", *(["--cub", cub] if cub else [])],
        ),
        "cluster": lambda: cluster(ledger),
        "multi": lambda: count(ledger, "multi_gpu", "multi_gpu"),
        "scaling": lambda: scaling(ledger),
    }
    for part in parts:
        in_rows = part in ("kernels", "cluster")  # asked for one by one
        ledger.step(part, 0 if in_rows else 20, work[part], part=True, always=in_rows)
    if ledger.code != code_sha256():
        raise SystemExit("the code changed during the run: what is in the file is of neither")
    return ledger.evidence


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.evidence", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when the evidence is not of this code")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the scaling of the file, and do nothing else")
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="repeatable, in the order given")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="leave out what this time does not suffice for")
    parser.add_argument("--resume", action="store_true", help="leave out what the file has of this code")
    parser.add_argument("--cub", help="tests/bench/cub_peer.cu, or the program compiled from it")
    parser.add_argument("--file", type=Path, default=FILE)
    given = parser.parse_args()
    if given.check:
        return check(given.file)
    if given.plot:
        return plot(given.file, given.plot)
    here = machine()
    parts = given.part or [part for part, gpus in PARTS.items() if gpus <= len(here["gpus"])]
    ledger = Ledger(given.file, code_sha256(), here, (*ONE_GPU, *TWO_GPUS), given.budget, given.resume)
    evidence = renew(ledger, parts, given.cub or str(ROOT / "tests/bench/cub_peer.cu"))
    for problem in problems(evidence, ledger.code):
        print(f"not yet: {problem[:300]}")
    for row in evidence.get("rows", []):
        print(json.dumps(row))
    print({k: evidence.get(k) for k in ("tests", "sanitizer", "seconds")})
    return bool(list(problems(evidence, ledger.code)))


if __name__ == "__main__":
    sys.exit(main())
