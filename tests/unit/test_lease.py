"""What killed jobs leave on object stores: it is undone by the next job, and that of living jobs is left alone."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

import fsspec
import pytest

from distsort.errors import OutputError
from distsort.io import lease
from distsort.io.commit import begin
from distsort.io.lease import BEAT, SILENCE, Lease
from distsort.io.storage import Store

DEAD = "/.out.distsort-0123abcd"


OUTPUT = ("part-a", "part-b", "_SUCCESS")


@pytest.fixture
def place():
    """Yield a folder of the memory file system, as file system and path."""
    fs, root = fsspec.filesystem("memory"), f"/lease-{uuid.uuid4().hex[:8]}"
    yield fs, root
    if fs.exists(root):
        fs.rm(root, recursive=True)


def fill(fs, folder, **files):
    for name, text in files.items():
        fs.pipe(f"{folder}/{name}", text.encode())


def content(fs, root):
    return {path[len(root) :]: fs.cat(path).decode() for path in fs.find(root)}


def whole(text):
    return {f"/out/{name}": text for name in OUTPUT}


def claim(fs, root, phase="staging", **says):
    """Write the lease of a job that this host ran, whose process is gone."""
    gone = {"owner": lease._this_host(), "pid": 2**22 + 1, "began": "1", "phase": phase, **says}
    fs.pipe(f"{root}{DEAD}.lease", json.dumps(gone).encode())


def start(root, overwrite=True):
    stage = begin(f"memory://{root}/out", [], overwrite)
    stage.abort()


def test_staging_of_a_process_that_is_gone_is_removed(place):
    fs, root = place
    fill(fs, root + DEAD, a="half")
    fill(fs, root + "/.other.distsort-0123abcd", a="of another output")
    fill(fs, root + "/out", **dict.fromkeys(OUTPUT, "old"))
    claim(fs, root)
    start(root)
    assert content(fs, root) == {**whole("old"), "/.other.distsort-0123abcd/a": "of another output"}


@pytest.mark.parametrize("moved", [("part-a",), ("_SUCCESS", "part-a", "part-b")])
def test_files_of_the_old_output_that_were_moved_away_come_back(place, moved):
    fs, root = place
    fill(fs, root + DEAD + ".old", **dict.fromkeys(moved, "old"))
    fill(fs, root + "/out", **{name: "old" for name in OUTPUT if name not in moved})
    fill(fs, root + DEAD, a="new", b="new")
    claim(fs, root)
    start(root)
    assert content(fs, root) == whole("old")


@pytest.mark.parametrize("existing", [False, True])
def test_half_of_a_new_output_goes_and_the_old_one_comes_back(place, existing):
    fs, root = place
    if existing:
        fill(fs, root + DEAD + ".old", **dict.fromkeys(OUTPUT, "old"))
    fill(fs, root + DEAD, b="new")
    fill(fs, root + "/out", a="new", c="new")
    claim(fs, root, "swapping")
    start(root, overwrite=existing)
    assert content(fs, root) == (whole("old") if existing else {})


def test_a_whole_new_output_stays(place):
    fs, root = place
    fill(fs, root + DEAD + ".old", b="old")
    fill(fs, root + "/out", **dict.fromkeys(OUTPUT, "new"))
    claim(fs, root, "swapping")
    start(root)
    assert content(fs, root) == whole("new")


@pytest.mark.parametrize("silent", [False, True])
def test_a_job_of_another_host_is_dead_once_it_has_been_silent_for_long(place, silent):
    fs, root = place
    fill(fs, root + DEAD, a="half")
    claim(fs, root, owner="another host")
    if silent:
        fs.store[f"{root}{DEAD}.lease"].modified -= SILENCE
    start(root)
    assert set(content(fs, root)) == (set() if silent else {f"{DEAD}/a", f"{DEAD}.lease"})
    assert timedelta(seconds=3 * BEAT) < SILENCE


def test_a_process_of_this_host_is_alive_however_silent_it_is(place):
    fs, root = place
    running = begin(f"memory://{root}/out", [], False)
    fill(fs, running.folder, a="half")
    fs.store[f"{running.folder}.lease"].modified -= 2 * SILENCE
    start(root)
    assert set(content(fs, root)) == {f"{running.folder[len(root) :]}{end}" for end in ("/a", ".lease")}
    running.publish(["a"], {})
    assert set(content(fs, root)) == {"/out/a", "/out/_manifest.json", "/out/_SUCCESS"}


@pytest.mark.parametrize("text", ["", "{}", "[1"])
def test_a_lease_that_says_nothing_is_left_alone(place, text):
    fs, root = place
    fill(fs, root + DEAD, a="half")
    fs.pipe(f"{root}{DEAD}.lease", text.encode())
    start(root)
    assert len(content(fs, root)) == 2


def test_a_refusal_leaves_no_lease(place):
    fs, root = place
    fill(fs, root + "/out", **dict.fromkeys(OUTPUT, "old"))
    with pytest.raises(OutputError, match="there is an output already"):
        start(root, overwrite=False)
    assert content(fs, root) == whole("old")


def test_a_lease_is_written_again_and_again_until_it_is_released(place, monkeypatch):
    fs, root = place
    monkeypatch.setattr(lease, "BEAT", 0.01)
    held = Lease(Store(fs), root + DEAD)
    first = fs.modified(held.path)
    while fs.modified(held.path) == first:
        pass
    held.enter("swapping")
    assert json.loads(fs.cat(held.path))["phase"] == "swapping"
    held.release()
    held._write()
    assert content(fs, root) == {}
