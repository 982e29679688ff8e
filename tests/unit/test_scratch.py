from __future__ import annotations

import os
import subprocess
import sys

import pytest

from distsort.errors import OutputError
from distsort.io.scratch import clean, scratch_folder


def test_the_folder_goes_with_the_block(tmp_path):
    def fail():
        with scratch_folder(str(tmp_path)) as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "run").write_bytes(b"rows")
            assert oct(folder.stat().st_mode)[-3:] == "700"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_job_left_goes_and_what_runs_stays(tmp_path):
    code = (
        "import os, sys\nfrom distsort.io.scratch import scratch_folder\n"
        "with scratch_folder(sys.argv[1]) as folder:\n"
        "    (folder / 'run').write_bytes(b'rows')\n"
        "    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "distsort-spill-of-mine").mkdir()
    with scratch_folder(str(tmp_path)) as first, scratch_folder(str(tmp_path)) as second:
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {first.name, second.name, "distsort-spill-of-mine"}
        assert clean(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["distsort-spill-of-mine"]


def test_a_place_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(OutputError, match=rf"{tmp_path}/nowhere: no temporary folder .* -T"),
        scratch_folder(os.fspath(tmp_path / "nowhere")),
    ):
        pass
