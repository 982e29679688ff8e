"""What a GPU run showed, kept in evidence.json because CI has no GPU.

    python -m tests.gpu.evidence --cub tests/bench/cub_peer.cu      all that this machine can show
    python -m tests.gpu.evidence --part kernels                     renew these rows only
    python -m tests.gpu.evidence --check                            is the committed evidence of this code?

    part        fills
    tests       counts of `pytest -m gpu` (with two GPUs also multi_gpu)
    sanitizer   memcheck and racecheck of tests/gpu/exercise.py, which runs every kernel
    kernels     the rows that need one GPU
    cluster     the rows that need two, from distsort.bench.cluster

Each part carries the hash of the code it was made with: kernels/ and the modules that launch them. ``--check`` needs
nothing but Python. A row's `ratio` is above 1 when ours is better; `peer` is measured in the same run, on the same kind
of keys, medians of at least 7 between CUDA events, warm, behind a copy of 1 GiB.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("evidence.json")
CODE = ("kernels/*.cu", "kernels/*.cuh", "kernels/*.py", "distsort/backends/cupy*.py")
ONE_GPU = (
    "keys_u32",
    "keys_f32",
    "keys_u64",
    "keys_u64_24bit",
    "argsort_u32",
    "argsort_u64",
    "pairs_u32",
    "merge2_u32",
    "merge2_u64",
    "merge8_u64",
    "rows_f32",
    "small_u32",
)
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
    missing = set(ONE_GPU) - {row["id"] for row in evidence.get("rows", [])}
    if missing:
        yield f"rows are missing: {', '.join(sorted(missing))}"


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


def tests() -> dict[str, Any]:
    """Run the GPU tests and count."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu or multi_gpu", "tests/gpu", f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, check=False)
        suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"tests": {"passed": total - skipped - failed, "failed": failed, "skipped": skipped}}


def sanitizer() -> dict[str, Any]:
    """Run every kernel under memcheck and racecheck."""
    found = {}
    for tool in ("memcheck", "racecheck"):
        if shutil.which("compute-sanitizer") is None:
            found[tool] = "compute-sanitizer is not installed"
            continue
        command = [
            "compute-sanitizer",
            "--tool",
            tool,
            "--error-exitcode",
            "7",
            sys.executable,
            "-m",
            "tests.gpu.exercise",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(done.stdout[-3000:], done.stderr[-3000:])
        found[tool] = "clean" if done.returncode == 0 else f"exit status {done.returncode}: {done.stdout[-400:]}"
    return {"sanitizer": found}


def kernels(cub_path: str | None) -> list[dict[str, Any]]:
    """Measure the rows of one GPU."""
    import cupy
    from distsort.kernels import policy

    from distsort.backends import cupy_merge, cupy_radix, cupy_rows
    from distsort.bench.measure import Cub, Timer, draw

    timed, cub = Timer(repeats=9), Cub(cub_path)
    rows: list[dict[str, Any]] = []

    def add(row: str, n: int, ours_ms: float, peer: str, peer_ms: float | None, unit: str = "Gkeys/s") -> None:
        def value(ms: float) -> float:
            return round(n / ms / 1e6 if unit == "Gkeys/s" else ms * 1e3, 3)

        made = {"id": row, "n": n, "ours": value(ours_ms), "unit": unit, "peer": peer}
        if peer_ms is not None:
            made |= {"peer_value": value(peer_ms), "ratio": round(peer_ms / ours_ms, 3)}
        rows.append(made)
        print(made, flush=True)
        cupy.get_default_memory_pool().free_all_blocks()

    def sort(dtype: str, n: int, bits: int = 64) -> float:
        keys = draw(n, dtype, bits=bits)
        codec = policy.codec(keys.dtype.kind, keys.dtype.itemsize)
        return timed(lambda: cupy_radix.sort_keys(keys, codec))

    def argsort(dtype: str, n: int) -> tuple[float, float]:
        keys = draw(n, dtype)
        codec = policy.codec("u", keys.dtype.itemsize, unified=True)
        return timed(lambda: cupy_radix.argsort_keys(keys, codec)), timed(lambda: cupy.argsort(keys))

    n = 1 << 28
    for dtype in ("u32", "f32", "u64"):
        add(f"keys_{dtype}", n, sort(dtype, n), "CUB SortKeys", cub("sort_keys", dtype, n, repeats=9))
    add("keys_u64_24bit", n, sort("u64", n, 24), "CUB SortKeys", cub("sort_keys", "u64", n, bits=24, repeats=9))
    for dtype in ("u32", "u64"):
        ours, theirs = argsort(dtype, n)
        add(f"argsort_{dtype}", n, ours, "cupy.argsort", theirs)
    pairs = draw(n, "u32"), draw(n, "u32", seed=2)
    ours = timed(partial(cupy_radix.sort_pairs, *pairs, policy.codec("u", 4)))
    add("pairs_u32", n, ours, "CUB SortPairs", cub("sort_pairs", "u32", n, repeats=9))
    del pairs

    def merge(dtype: str, count: int, length: int) -> float:
        runs = [cupy.sort(draw(length, dtype, seed=seed)) for seed in range(count)]
        return timed(lambda: cupy_merge.merge(runs, False))

    for dtype in ("u32", "u64"):
        peer = cub("merge", dtype, 2 * n, repeats=9)
        add(f"merge2_{dtype}", 2 * n, merge(dtype, 2, n), "CUB DeviceMerge (unstable)", peer)
    peer = cub("merge8", "u64", n, repeats=9)
    add("merge8_u64", n, merge("u64", 8, n // 8), "three rounds of CUB DeviceMerge", peer)
    table = cupy.random.RandomState(1).standard_normal((1 << 20, 256), dtype=cupy.float32)
    ours = timed(lambda: cupy_rows.sort_rows(table))
    add("rows_f32", table.size, ours, "cupy.sort(axis=1)", timed(lambda: cupy.sort(table, axis=1)))
    small = 1 << 16
    add("small_u32", small, sort("u32", small), "CUB SortKeys", cub("sort_keys", "u32", small, repeats=9), "us")
    return rows


def cluster() -> list[dict[str, Any]]:
    """Measure the rows of two GPUs."""
    from distsort.bench.cluster import evidence_rows

    return evidence_rows()


def machine() -> dict[str, Any]:
    """Return the GPUs and the driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    gpus, drivers = zip(*(line.split(", ") for line in lines), strict=True)
    return {"gpus": list(gpus), "driver": drivers[0]}


def renew(file: Path, parts: list[str], cub: str | None) -> dict[str, Any]:
    """Run parts, put what they show into the file beside what is there, and return it all."""
    evidence: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    run: dict[str, Callable[[], dict[str, Any]]] = {
        "tests": tests,
        "sanitizer": sanitizer,
        "kernels": lambda: {"rows": kernels(cub)},
        "cluster": lambda: {"rows": cluster()},
    }
    for part in parts:
        code, made = code_sha256(), run[part]()
        if code != code_sha256():
            raise SystemExit("the code changed during the run")
        if "rows" in made:
            rows = {row["id"]: row for row in (*evidence.get("rows", []), *made["rows"])}
            made["rows"] = [rows[name] for name in (*ONE_GPU, *TWO_GPUS) if name in rows]
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()  # noqa: UP017 (--check runs on any Python)
        known = {**evidence.get("parts", {}), part: {"date": today, "code_sha256": code}}
        evidence |= made | machine() | {"date": today, "code_sha256": code, "parts": known}
        first = ("date", "gpus", "driver", "code_sha256", "parts", "tests", "sanitizer", "rows")
        evidence = {name: evidence[name] for name in first if name in evidence}
        file.write_text(json.dumps(evidence, indent=1) + "\n")
    return evidence


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.evidence", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when the evidence is not of this code")
    parser.add_argument("--part", action="append", choices=("tests", "sanitizer", "kernels", "cluster"))
    parser.add_argument("--cub", help="tests/bench/cub_peer.cu, or the program compiled from it")
    parser.add_argument("--file", type=Path, default=FILE)
    given = parser.parse_args()
    if given.check:
        return check(given.file)
    parts = given.part or ["tests", "sanitizer", "kernels"] + ["cluster"] * (len(machine()["gpus"]) > 1)
    evidence = renew(given.file, parts, given.cub or str(ROOT / "tests/bench/cub_peer.cu"))
    print(json.dumps(evidence, indent=1))
    return bool(list(problems(evidence, code_sha256())))


if __name__ == "__main__":
    sys.exit(main())
