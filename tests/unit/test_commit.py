from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from pathlib import Path

import fsspec
import pytest

from distsort.errors import InputError, OptionError, OutputError
from distsort.io import commit
from distsort.io.commit import begin, part_name, whole_file
from distsort.io.markers import MANIFEST, SUCCESS
from distsort.io.storage import Store, expand, resolve, same_place

OPERATIONS = ("info", "ls", "find", "open", "mv", "rm", "makedirs", "rm_file")


class Fault:
    """Makes the n-th operation of a file system fail once, before or after it was done."""

    def __init__(self, n, late=False):
        self.left = n
        self.late = late
        self.inside = False

    def around(self, operation):
        def counted(*args, **kwargs):
            if self.inside:
                return operation(*args, **kwargs)
            self.left -= 1
            if self.left == 0 and not self.late:
                raise OSError(5, "Input/output error")
            self.inside = True
            try:
                done = operation(*args, **kwargs)
            finally:
                self.inside = False
            if self.left == 0:
                if hasattr(done, "close"):
                    done.close()
                raise OSError(5, "Input/output error")
            return done

        return counted


def failing_store(protocol, fault, monkeypatch):
    fs = type(fsspec.filesystem(protocol))(skip_instance_cache=True)
    for name in OPERATIONS:
        monkeypatch.setattr(fs, name, fault.around(getattr(fs, name)), raising=False)
    monkeypatch.setattr(Path, "rename", fault.around(Path.rename))
    return Store(fs)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def write_output(target, text, *, overwrite=False, store=None):
    """Publish two parts that say `text`, as a job does."""
    stage = begin(target, [], overwrite) if store is None else begin_at(store, target, overwrite)
    try:
        for number in range(2):
            with whole_file(stage.store, stage.path(part_name(number, 2, ".txt"))) as file:
                file.write(f"{text} {number}".encode())
        stage.publish([part_name(number, 2, ".txt") for number in range(2)], {"text": text})
    except BaseException:
        stage.abort()
        raise


def begin_at(store, target, overwrite):
    original = commit.resolve
    commit.resolve = lambda _: (store, resolve(target)[1])
    try:
        return begin(target, [], overwrite)
    finally:
        commit.resolve = original


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def whole(text):
    return {
        "part-00000.txt": f"{text} 0",
        "part-00001.txt": f"{text} 1",
        MANIFEST: json.dumps({"text": text}, indent=1) + "\n",
        SUCCESS: "",
    }


def test_names_sort_as_text_in_data_order():
    names = [part_name(number, 123_456, ".parquet") for number in (0, 9, 10, 99_999, 123_455)]
    assert names == sorted(names)
    assert names[0] == "part-000000.parquet"
    assert part_name(3, 12, ".parquet") == "part-00003.parquet"


def test_output_appears_whole(tmp_path):
    write_output(tmp_path / "out", "new")
    assert content(tmp_path / "out") == whole("new")
    assert listing(tmp_path) == ["out"]


def test_an_existing_output_is_refused_and_left_alone(tmp_path):
    write_output(tmp_path / "out", "old")
    with pytest.raises(OutputError, match=str(tmp_path / "out")):
        write_output(tmp_path / "out", "new")
    assert content(tmp_path / "out") == whole("old")
    assert listing(tmp_path) == ["out"]


def test_overwrite_leaves_exactly_the_new_output(tmp_path):
    write_output(tmp_path / "out", "old")
    (tmp_path / "out" / "part-00007.txt").write_text("stale")
    write_output(tmp_path / "out", "new", overwrite=True)
    assert content(tmp_path / "out") == whole("new")
    assert listing(tmp_path) == ["out"]


@pytest.mark.parametrize("protocol", ["file", "memory"])
@pytest.mark.parametrize(
    ("held", "stranger"),
    [
        ({"x": "mine"}, "x"),
        ({"x/y": "mine"}, "x"),
        ({"part-00000.txt": "mine"}, "part-00000.txt"),
        ({MANIFEST: "{}", "z": "mine"}, MANIFEST),
        ({MANIFEST: '{"parts": [{"file": "a.txt"}]}', "a.txt": "", "notes": "mine", SUCCESS: ""}, "notes"),
        ({SUCCESS: "", "part-00000-0a1b.parquet": "", "thesis.docx": "mine"}, "thesis.docx"),
        ({SUCCESS: "", "sub/a": "mine"}, "sub"),
        ({SUCCESS: "", ".git/config=": "mine"}, ".git"),
    ],
)
def test_what_no_run_wrote_is_not_overwritten(tmp_path, protocol, held, stranger):
    target = f"{protocol}://{tmp_path}/out"
    fs = fsspec.filesystem(protocol)
    for name, text in held.items():
        fs.makedirs(f"{tmp_path}/out/{name}".rpartition("/")[0], exist_ok=True)
        fs.pipe(f"{tmp_path}/out/{name}", text.encode())
    shown = f"{tmp_path}/out" if protocol == "file" else target
    words = f"{shown}: no run of distsort wrote {stranger} in it, which overwriting would delete: remove it yourself"
    with pytest.raises(OutputError, match=f"^{re.escape(words)}, or choose another place$"):
        write_output(target, "new", overwrite=True)
    found = {path[len(f"{tmp_path}/") :]: fs.cat(path).decode() for path in fs.find(tmp_path)}
    assert found == {f"out/{name}": text for name, text in held.items()}


def test_what_no_run_wrote_and_appears_meanwhile_is_not_overwritten(tmp_path):
    write_output(tmp_path / "out", "old")
    (tmp_path / "out" / MANIFEST).write_text('{"parts": []}')
    stage = begin(tmp_path / "out", [], overwrite=True)
    (tmp_path / "out" / "theirs").write_text("theirs")
    with pytest.raises(OutputError, match="no run of distsort wrote theirs in it"):
        stage.publish([], {})
    stage.abort()
    assert content(tmp_path / "out") == {**whole("old"), MANIFEST: '{"parts": []}', "theirs": "theirs"}
    assert listing(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "held",
    [
        [],
        [SUCCESS, "part-00000-0a1b.snappy.parquet", "._SUCCESS.crc", "year=2024/part-00000.parquet"],
        [MANIFEST, "part-00000.txt", "part-000001.parquet", "_metadata"],
    ],
)
def test_an_empty_folder_and_what_runs_wrote_are_overwritten(tmp_path, held):
    (tmp_path / "out").mkdir()
    for name in held:
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text('{"parts": []}')
    write_output(tmp_path / "out", "new", overwrite=True)
    assert content(tmp_path / "out") == whole("new")
    assert listing(tmp_path) == ["out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_not_overwritten_by_a_folder(tmp_path, overwrite):
    (tmp_path / "out").write_text("my notes")
    with pytest.raises(OutputError, match=str(tmp_path / "out")):
        write_output(tmp_path / "out", "new", overwrite=overwrite)
    assert (tmp_path / "out").read_text() == "my notes"
    assert listing(tmp_path) == ["out"]


def test_an_empty_folder_is_no_output(tmp_path):
    (tmp_path / "out").mkdir()
    write_output(tmp_path / "out", "new")
    assert content(tmp_path / "out") == whole("new")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("n", range(1, 61))
def test_after_the_nth_failing_operation_old_or_new_is_there_and_nothing_else(tmp_path, n, existing, late, monkeypatch):
    if existing:
        write_output(tmp_path / "out", "old")
    failed = False
    with monkeypatch.context() as patch:
        store = failing_store("file", Fault(n, late), patch)
        try:
            write_output(tmp_path / "out", "new", overwrite=existing, store=store)
        except OSError:
            failed = True
    found = content(tmp_path / "out") if (tmp_path / "out").exists() else {}
    assert found in (whole("new"), whole("old") if existing else {})
    assert [name for name in listing(tmp_path) if name != "out"] == []
    if not failed:
        assert found == whole("new")


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("n", range(1, 51))
def test_the_same_in_memory(n, existing, monkeypatch):
    fs = fsspec.filesystem("memory")
    root = f"/commit-{n}-{existing}"
    if existing:
        write_output(f"memory://{root}/out", "old")
    with monkeypatch.context() as patch, contextlib.suppress(OSError):
        store = failing_store("memory", Fault(n), patch)
        write_output(f"memory://{root}/out", "new", overwrite=existing, store=store)
    found = {path[len(root) :]: fs.cat(path).decode() for path in fs.find(root)}
    allowed = [{f"/out/{name}": text for name, text in whole(t).items()} for t in ("old", "new")]
    assert found in (allowed if existing else [allowed[1], {}])
    if fs.exists(root):
        fs.rm(root, recursive=True)


def test_what_a_killed_job_left_is_cleaned(tmp_path):
    dead = tmp_path / ".out.distsort-0123abcd"
    dead.mkdir()
    (dead / "part-00000.txt").write_text("half")
    other = tmp_path / ".other.distsort-0123abcd"
    other.mkdir()
    write_output(tmp_path / "out", "new")
    assert listing(tmp_path) == [".other.distsort-0123abcd", "out"]


def test_an_old_output_that_a_killed_job_had_moved_away_comes_back(tmp_path):
    write_output(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / ".out.distsort-0123abcd.old")
    with pytest.raises(OutputError, match="there is an output already"):
        write_output(tmp_path / "out", "new")
    assert content(tmp_path / "out") == whole("old")
    assert listing(tmp_path) == ["out"]


def test_the_folder_of_a_running_job_is_left_alone(tmp_path):
    running = tmp_path / ".out.distsort-0123abcd"
    running.mkdir()
    handle = os.open(running, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_output(tmp_path / "out", "new")
        assert running.exists()
    finally:
        os.close(handle)


def test_an_output_that_appears_meanwhile_is_not_replaced(tmp_path):
    stage = begin(tmp_path / "out", [], overwrite=False)
    with whole_file(stage.store, stage.path("part-00000.txt")) as file:
        file.write(b"ours")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "theirs").write_text("theirs")
    with pytest.raises(OutputError, match="meanwhile"):
        stage.publish(["part-00000.txt"], {})
    stage.abort()
    assert content(tmp_path / "out") == {"theirs": "theirs"}
    assert listing(tmp_path) == ["out"]


def test_strangers_in_the_staging_folder_are_not_published(tmp_path):
    stage = begin(tmp_path / "out", [], overwrite=False)
    stage.store.write(stage.path("part-00000.txt"), b"")
    stage.store.write(stage.path("part-00000.txt.0123.tmp"), b"half")
    stage.publish(["part-00000.txt"], {})
    assert sorted(content(tmp_path / "out")) == [SUCCESS, MANIFEST, "part-00000.txt"]


def test_a_missing_part_is_not_published(tmp_path):
    stage = begin(tmp_path / "out", [], overwrite=False)
    with pytest.raises(OutputError, match=r"part-00000\.txt was not written"):
        stage.publish(["part-00000.txt"], {})
    stage.abort()
    assert listing(tmp_path) == []


def test_a_failed_write_leaves_no_file(tmp_path):
    store, folder = resolve(tmp_path)

    def fail():
        with whole_file(store, f"{folder}/part") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert listing(tmp_path) == []


def test_output_and_input_must_not_overlap(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    source = [resolve(tmp_path / "in")]
    for target, words in (
        ("in", "the input itself"),
        ("link", "the input itself"),
        ("in/deep/out", "inside the input"),
        (".", "would replace the input"),
    ):
        with pytest.raises(OptionError, match=words):
            begin(tmp_path / target, source, overwrite=True)
    assert listing(tmp_path) == ["in", "link"]


def test_a_place_that_cannot_be_written_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file") as caught:
        begin(tmp_path / "file" / "out", [], overwrite=False)
    assert caught.value.errno == 20
    with pytest.raises(OptionError, match="root of a file system"):
        begin("/", [], overwrite=True)


def test_places():
    store = Store(fsspec.filesystem("memory"))
    assert same_place(store, "/a/b", store, "/a/b") == "equal"
    assert same_place(store, "/a/b/c", store, "/a/b") == "inside"
    assert same_place(store, "/a", store, "/a/b") == "around"
    assert same_place(store, "/a/bc", store, "/a/b") is None
    assert same_place(store, "/a/b", resolve("/a/b")[0], "/a/b") is None


def test_what_is_no_file_is_said_to_be_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.parquet").symlink_to("gone.parquet")
    with pytest.raises(
        InputError, match=f"^{tmp_path}/pipe.txt: it is neither a file nor a folder: write what it gives"
    ):
        expand(tmp_path / "pipe.txt")
    with pytest.raises(
        InputError, match=f"^{tmp_path}/link.parquet: the link leads to nothing: there is no {tmp_path}/"
    ):
        expand(tmp_path / "link.parquet")


def test_expand_skips_hidden_names_and_keeps_the_order_of_lists(tmp_path):
    for name in ("b.csv", "a.csv", "_manifest.json", ".hidden", "x/c.csv", "_x/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = [path[len(str(tmp_path)) + 1 :] for _, path, _ in expand(tmp_path)]
    assert names == ["a.csv", "b.csv", "x/c.csv"]
    listed = [path[len(str(tmp_path)) + 1 :] for _, path, _ in expand([tmp_path / "b.csv", tmp_path / "a.csv"])]
    assert listed == ["b.csv", "a.csv"]
    assert [path for _, path, _ in expand(str(tmp_path / "*.csv"))] == [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]
