"""The evidence script where there is no GPU: what it calls evidence of this code, and what not."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.gpu import evidence as ev
from tests.gpu import exercise
from tests.gpu.ledger import Ledger


@pytest.fixture
def complete():
    """Return evidence of code "abc" with nothing missing."""
    return {
        "parts": {p: {"date": "2026-01-01", "code_sha256": "abc"} for p in ("tests", "sanitizer", "kernels")},
        "tests": {"passed": 9, "failed": 0, "skipped": 0},
        "sanitizer": {"memcheck": "clean", "racecheck": "clean"},
        "rows": [{"id": name, "code": "abc"} for name in ev.ONE_GPU],
    }


def test_complete_evidence_has_no_problems(complete):
    assert list(ev.problems(complete, "abc")) == []


def test_other_code_failures_and_gaps_are_problems(complete):
    assert len(list(ev.problems(complete, "def"))) == 3 + len(ev.ONE_GPU)
    complete["parts"]["cluster"] = {"date": "2025-01-01", "code_sha256": "old"}
    assert "cluster is of other code" in " ".join(ev.problems(complete, "abc"))
    del complete["parts"]["cluster"]
    complete["tests"]["failed"] = 2
    complete["sanitizer"]["racecheck"] = "exit status 7"
    complete["rows"].pop()
    complete["failures"], complete["skipped"] = {"skew": "OSError: no"}, {"balance": "5 s were left"}
    found = " ".join(ev.problems(complete, "abc"))
    assert "2 GPU tests failed" in found
    assert "racecheck: exit status 7" in found
    assert f"rows are missing: {ev.ONE_GPU[-1]}" in found
    assert "skew failures: OSError: no" in found
    assert "balance skipped: 5 s were left" in found
    assert len(list(ev.problems({}, "abc"))) == 4


def test_the_hash_is_of_names_and_bytes(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "distsort/backends").mkdir(parents=True)
    (tmp_path / "kernels/a.cu").write_text("one")
    first = ev.code_sha256(tmp_path)
    (tmp_path / "distsort/backends/numpy.py").write_text("no matter")
    assert ev.code_sha256(tmp_path) == first
    (tmp_path / "distsort/backends/cupy_radix.py").write_text("matters")
    second = ev.code_sha256(tmp_path)
    (tmp_path / "kernels/a.cu").rename(tmp_path / "kernels/b.cu")
    assert len({first, second, ev.code_sha256(tmp_path)}) == 3


def test_check_runs_on_a_bare_python(tmp_path):
    file = tmp_path / "evidence.json"

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "tests.gpu.evidence", "--check", "--file", str(file)]
        return subprocess.run(command, cwd=ev.ROOT, capture_output=True, text=True, check=False)

    assert check().returncode == 1
    parts = {p: {"date": "2026-01-01", "code_sha256": ev.code_sha256()} for p in ("tests", "sanitizer", "kernels")}
    file.write_text(
        json.dumps({"parts": parts, "rows": [{"id": name, "code": ev.code_sha256()[:12]} for name in ev.ONE_GPU]})
    )
    done = check()
    assert (done.returncode, done.stdout.strip()) == (0, "the evidence is of this code"), done.stderr


@pytest.fixture
def ledger(tmp_path):
    """Return a function: code, options to a ledger of one file."""
    return lambda code="abc" * 20, **options: Ledger(
        tmp_path / "evidence.json", code, {"gpus": ["a GPU"], "driver": "1"}, ["a", "b", "c"], **options
    )


def stored(ledger):
    return json.loads(ledger.file.read_text())


def test_each_row_is_in_the_file_at_once_and_stays(ledger):
    first = ledger()
    first.measure("b", 1, lambda: {"ours": 1.0})
    assert stored(first)["rows"] == [{"id": "b", "ours": 1.0, "code": "abcabcabcabc"}]
    second = ledger()
    second.measure("a", 1, lambda: {"ours": 2.0})
    second.measure("b", 1, lambda: {"ours": 3.0})
    assert [(r["id"], r["ours"]) for r in stored(second)["rows"]] == [("a", 2.0), ("b", 3.0)]
    assert list(stored(second))[:4] == ["date", "gpus", "driver", "code_sha256"]
    assert set(stored(second)["seconds"]) == {"a", "b"}


def test_a_row_that_fails_is_told_and_costs_no_other(ledger):
    made = ledger()

    def fails():
        raise OSError("no such GPU")

    made.measure("a", 1, fails)
    made.measure("b", 1, lambda: {"ours": 1.0})
    assert stored(made)["failures"] == {"a": "OSError: no such GPU"}
    assert [r["id"] for r in stored(made)["rows"]] == ["b"]
    made.measure("a", 1, lambda: {"ours": 5.0})
    assert "failures" not in stored(made)


def test_what_time_does_not_suffice_for_is_noted(ledger):
    made = ledger(budget=10)
    made.measure("a", 11, lambda: pytest.fail("there was no time for it"))
    made.measure("b", 1, lambda: {"ours": 1.0})
    assert stored(made)["skipped"] == {"a": "10 s were left, it needs 11 s"}
    again = ledger(resume=True)
    again.measure("a", 11, lambda: {"ours": 2.0})
    assert "skipped" not in stored(again)


def test_resume_makes_what_is_missing_failed_or_of_other_code(ledger):
    old = ledger("old" * 20)
    old.measure("a", 1, lambda: {"ours": 1.0})
    new = ledger()
    new.measure("b", 1, lambda: {"ours": 1.0})
    new.step("tests", 1, lambda: None, part=True)
    again = ledger(resume=True)
    assert [again.wants(n) for n in ("a", "b", "c", "tests", "sanitizer")] == [True, False, True, False, True]
    again.measure("b", 1, lambda: pytest.fail("it was made"))
    again.measure("a", 1, lambda: {"ours": 2.0})
    assert [(r["id"], r["ours"], r["code"][:3]) for r in stored(again)["rows"]] == [
        ("a", 2.0, "abc"),
        ("b", 1.0, "abc"),
    ]


def test_parts_run_in_the_order_given_and_a_failed_one_is_not_noted(ledger, monkeypatch):
    ran = []
    monkeypatch.setattr(ev, "code_sha256", lambda: "abc" * 20)
    monkeypatch.setattr(ev, "measure", lambda ledger, cub: ran.append("kernels"))
    monkeypatch.setattr(ev, "tests", lambda ledger: 1 / 0)
    monkeypatch.setattr(ev, "sanitizer", lambda ledger: ran.append("sanitizer"))
    made = ledger()
    ev.renew(made, ["sanitizer", "tests", "kernels"], None)
    assert ran == ["sanitizer", "kernels"]
    assert set(stored(made)["parts"]) == {"sanitizer", "kernels"}
    assert stored(made)["failures"] == {"tests": "ZeroDivisionError: division by zero"}


def test_a_suite_is_counted_and_added_to_the_others(ledger, tmp_path):
    made = ledger()
    made.evidence["suites"] = {"other": {"passed": 5, "failed": 0, "skipped": 1}}
    ev.count(made, "this", "slurm", ev.ONE_GPU_ONLY)
    assert made.evidence["suites"]["this"] == {"passed": 0, "failed": 0, "skipped": 0}
    assert made.evidence["tests"] == {"passed": 5, "failed": 0, "skipped": 1}


def test_a_command_that_hangs_or_fails_says_so():
    with pytest.raises(RuntimeError, match="stopped after 1 s: begun"):
        ev.run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], 1)
    with pytest.raises(RuntimeError, match="exit status 3: said"):
        ev.run([sys.executable, "-c", "print('said'); raise SystemExit(3)"], 20)


class Bench:
    """The cluster bench without a cluster: what the rows of two GPUs ask of it."""

    def __init__(self, monkeypatch, broken=()):
        from distsort.bench import cluster_evidence as module
        from distsort.bench.cluster import Measured

        self.started, self.broken = [], broken

        @contextmanager
        def cluster(workers, device, protocol):
            self.started.append((workers, protocol))
            if (workers, protocol) in broken:
                raise OSError("it does not start")
            yield SimpleNamespace(run=lambda *args: None)

        def measure(client, case, method, **options):
            if method in broken:
                raise RuntimeError(f"{method} is broken")
            times = {"pull": 10.0, "tasks": 60.0, "default": 5000.0}
            return Measured(case, method, [times[method]] * 3, {"run": (1.0, 2.0)}, 260.0, 1.0)

        def polars(case, folder):
            return Measured(case, "cudf-polars", [20.0])

        for name, stand_in in (("cluster", cluster), ("measure", measure), ("measure_cudf_polars", polars)):
            monkeypatch.setattr(module, name, stand_in)
        monkeypatch.setattr(module, "dask_share", lambda client, case: 21.5)
        self.rows = module.evidence_rows


def test_the_rows_of_two_gpus(ledger, monkeypatch):
    bench, made = Bench(monkeypatch), ledger()
    bench.rows(made.measure, made.wants)
    rows = {r["id"]: r for r in stored(made)["rows"]}
    assert set(rows) == set(ev.TWO_GPUS)
    assert rows["rows_int64_vs_default"]["ratio"] == 500.0
    assert rows["rows_int64_vs_cudf_polars"]["ratio"] == 2.0
    assert rows["two_vs_one"]["n"] == 1 << 32
    assert rows["dask_share_ms"]["ours"] == 21.5
    assert bench.started == [(2, None), (1, None), (2, "ucx")]
    again = ledger(resume=True)
    bench.rows(again.measure, again.wants)
    assert len(bench.started) == 3  # all is there: nothing is started


def test_a_broken_peer_or_cluster_costs_its_rows_only(ledger, monkeypatch):
    bench, made = Bench(monkeypatch, broken=("default", (2, "ucx"))), ledger()
    bench.rows(made.measure, made.wants)
    assert set(stored(made)["failures"]) == {"rows_int64_vs_default", "rows_int64_vs_tasks"}
    assert len(stored(made)["rows"]) == len(ev.TWO_GPUS) - 2


def test_without_a_first_cluster_every_row_says_why(ledger, monkeypatch):
    bench, made = Bench(monkeypatch, broken=((2, None),)), ledger()
    bench.rows(made.measure, made.wants)
    failures = stored(made)["failures"]
    assert set(failures) == set(ev.TWO_GPUS)
    assert "it does not start" in failures["skew"]
    assert "our own side, 'two'" in failures["two_vs_one"]


def test_the_exercise_knows_every_kernel():
    found = exercise.kernels_of(ev.ROOT / "kernels")
    assert {"merge_tiles", "radix_pass", "radix_repair", "sort_rows_by_block", "exclusive_scan"} <= found
    text = "".join(p.read_text() for p in (ev.ROOT / "kernels").glob("*.cu*"))
    assert len(found) == text.count("__global__ void ")
