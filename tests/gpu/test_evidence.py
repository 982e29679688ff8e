"""The evidence script where there is no GPU: what it calls evidence of this code, and what not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.gpu import evidence as ev
from tests.gpu import exercise


@pytest.fixture
def complete():
    """Return evidence of code "abc" with nothing missing."""
    return {
        "parts": {p: {"date": "2026-01-01", "code_sha256": "abc"} for p in ("tests", "sanitizer", "kernels")},
        "tests": {"passed": 9, "failed": 0, "skipped": 0},
        "sanitizer": {"memcheck": "clean", "racecheck": "clean"},
        "rows": [{"id": name} for name in ev.ONE_GPU],
    }


def test_complete_evidence_has_no_problems(complete):
    assert list(ev.problems(complete, "abc")) == []


def test_other_code_failures_and_gaps_are_problems(complete):
    assert len(list(ev.problems(complete, "def"))) == 3
    complete["parts"]["cluster"] = {"date": "2025-01-01", "code_sha256": "old"}
    assert "cluster is of other code" in " ".join(ev.problems(complete, "abc"))
    del complete["parts"]["cluster"]
    complete["tests"]["failed"] = 2
    complete["sanitizer"]["racecheck"] = "exit status 7"
    complete["rows"].pop()
    found = " ".join(ev.problems(complete, "abc"))
    assert "2 GPU tests failed" in found
    assert "racecheck: exit status 7" in found
    assert f"rows are missing: {ev.ONE_GPU[-1]}" in found
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
    file.write_text(json.dumps({"parts": parts, "rows": [{"id": name} for name in ev.ONE_GPU]}))
    done = check()
    assert (done.returncode, done.stdout.strip()) == (0, "the evidence is of this code"), done.stderr


def test_parts_are_renewed_one_by_one(tmp_path, monkeypatch):
    file = tmp_path / "evidence.json"
    monkeypatch.setattr(ev, "machine", lambda: {"gpus": ["a GPU"], "driver": "1"})
    monkeypatch.setattr(ev, "kernels", lambda cub: [{"id": "small_u32", "ours": 1.0}, {"id": "keys_u32", "ours": 1.0}])
    monkeypatch.setattr(ev, "cluster", lambda: [{"id": "balance", "ours": 1.0}])
    ev.renew(file, ["kernels"], None)
    ev.renew(file, ["cluster"], None)
    monkeypatch.setattr(ev, "kernels", lambda cub: [{"id": "keys_u32", "ours": 2.0}])
    evidence = ev.renew(file, ["kernels"], None)
    assert evidence == json.loads(file.read_text())
    assert [(row["id"], row["ours"]) for row in evidence["rows"]] == [
        ("keys_u32", 2.0),
        ("small_u32", 1.0),
        ("balance", 1.0),
    ]
    assert set(evidence["parts"]) == {"kernels", "cluster"}
    assert list(evidence)[:4] == ["date", "gpus", "driver", "code_sha256"]


def test_the_exercise_knows_every_kernel():
    found = exercise.kernels_of(ev.ROOT / "kernels")
    assert {"merge_tiles", "radix_pass", "radix_repair", "sort_rows_by_block", "exclusive_scan"} <= found
    text = "".join(p.read_text() for p in (ev.ROOT / "kernels").glob("*.cu*"))
    assert len(found) == text.count("__global__ void ")
