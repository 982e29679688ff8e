"""Every kernel test once more, smaller: under AddressSanitizer with UBSan, and under ThreadSanitizer for races."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(p.name for p in HERE.glob("test_*.py") if "kernels(" in p.read_text() and p.name != Path(__file__).name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_clean(build, flavour, tmp_path, sanitizer, name):
    if flavour != "plain":
        pytest.skip("already in a sanitizer process")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / name)],
        env=build.environment(sanitizer, tmp_path / "report"),
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    reports = "\n".join(p.read_text()[:4000] for p in tmp_path.glob("report*"))
    assert done.returncode == 0, f"{reports}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert not reports
