from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distsort import cli
from distsort.cli.options import gnu_size, parse_key
from distsort.errors import OptionError
from distsort.order import Key


@pytest.fixture
def numbers(tmp_path):
    pq.write_table(
        pa.table({"k": [3, None, 1, 2], "a:desc": ["x", "y", "z", "w"]}), tmp_path / "in.parquet", row_group_size=2
    )
    return str(tmp_path / "in.parquet")


@pytest.fixture
def run(capsys):
    def run(*arguments):
        status = cli.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("k", Key("k", False, False)),
        ("k:asc", Key("k", False, False)),
        ("k:desc", Key("k", True, False)),
        ("k:desc:first", Key("k", True, True)),
        ("k:first:desc", Key("k", True, True)),
        ("k:first", Key("k", False, True)),
        ("a:b", Key("a:b", False, False)),
        ("a:b:last", Key("a:b", False, False)),
        (r"a\:desc", Key("a:desc", False, False)),
        (r"a\:desc:desc", Key("a:desc", True, False)),
        ("desc", Key("desc", False, False)),
        ("", Key("", False, False)),
        (":desc", Key("", True, False)),
    ],
)
def test_keys(text, key):
    assert parse_key(text) == key


def test_reverse_holds_for_keys_that_say_nothing():
    assert parse_key("k", reverse=True).descending
    assert not parse_key("k:asc", reverse=True).descending
    with pytest.raises(OptionError, match="'asc' says again"):
        parse_key("k:asc:desc")


def test_sort_prints_a_summary_and_the_first_rows(run, numbers, tmp_path):
    status, out, err = run("sort", numbers, "-o", tmp_path / "out", "-k", "k:desc:first", "--show", 3)
    assert (status, err) == (0, "")
    assert out.startswith("sorted 4 rows by k desc nulls first in ")
    assert f"output   {tmp_path}/out" in out
    assert out.splitlines()[-4:] == ["   k  a:desc", "null  y", "   3  x", "   2  w"]
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == [None, 3, 2, 1]


def test_rows_wider_than_the_terminal_show_keys_first(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    pq.write_table(pa.table({f"column {i}": ["v" * 9] for i in range(9)}), tmp_path / "in.parquet")
    out = run("sort", tmp_path / "in.parquet", "-o", tmp_path / "out", "-k", "column 7", "--show", 1)[1]
    assert out.splitlines()[-3:] == ["column 7   column 0", "vvvvvvvvv  vvvvvvvvv", "... and 7 more columns"]


def test_column_names_with_colons(run, numbers, tmp_path):
    assert run("sort", numbers, "-o", tmp_path / "out", "-k", r"a\:desc", "-q") == (0, "", "")
    assert pq.read_table(tmp_path / "out")["a:desc"].to_pylist() == ["w", "x", "y", "z"]


def test_json_and_report_file(run, numbers, tmp_path):
    status, out, _ = run("sort", numbers, "-o", tmp_path / "out", "-k", "k", "--json", "--report", tmp_path / "r.json")
    assert status == 0
    assert json.loads(out)["rows"] == 4
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(out)


def test_options_reach_the_job(run, numbers, tmp_path):
    arguments = ("--npartitions", 3, "--columns", "a:desc", "--conf", "files.compression=snappy", "--exchange", "graph")
    assert run("sort", numbers, "-o", tmp_path / "out", "-k", "k", "-r", *arguments)[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").glob("part*"))[-1] == "part-00002.parquet"
    assert pq.read_table(tmp_path / "out").to_pydict() == {"a:desc": ["x", "w", "z", "y"]}
    codec = pq.read_metadata(tmp_path / "out" / "part-00000.parquet").row_group(0).column(0).compression
    assert codec == "SNAPPY"


def test_check_tells_by_its_exit_status(run, numbers, tmp_path):
    run("sort", numbers, "-o", tmp_path / "out", "-k", "k")
    assert run("check", tmp_path / "out", "-k", "k") == (
        0,
        "sorted: 4 rows, 0 with the keys of the row above them\n",
        "",
    )
    status, out, err = run("check", numbers, "-k", "k:asc:first")
    assert (status, out) == (1, "")
    assert err == f"not sorted: {numbers}, row 1: k=<NA> stands below k=3\n"
    status, out, err = run("check", numbers, "-k", "K")
    assert (status, out) == (2, "")
    assert "error: key 'K' is not a column" in err
    assert "did you mean 'k'?" in err
    assert json.loads(run("check", tmp_path / "out", "-k", "k", "--json")[1])["sorted"] is True
    assert run("check", tmp_path / "out", "-k", "k", "-q") == (0, "", "")
    assert run("sort", "-c", tmp_path / "out", "-k", "k")[0] == 0
    assert run("sort", "-c", numbers, "-k", "k:asc:first")[0] == 1


def test_sizes_are_those_of_gnu_sort():
    assert [gnu_size(text) for text in ("1", "1b", "1K", "1M", "1G", "1T")] == [1024, 1, 1024, 2**20, 2**30, 2**40]
    assert gnu_size("2 GB") == "2 GB"
    assert gnu_size(None) is None
    assert gnu_size("50%") * 2 == pytest.approx(gnu_size("100%"), abs=2)


def test_plan_reads_no_rows(run, numbers, tmp_path, monkeypatch):
    from distsort.io import parquet

    monkeypatch.setattr(parquet.Reader, "__call__", None)
    status, out, _ = run("plan", numbers, "-k", "k:desc")
    assert status == 0
    assert "sort rows by k desc nulls last" in out
    assert "  input     1 file, " in out
    assert "  place     this process\n" in out
    assert "  traffic   none\n" in out
    assert "where a core does 400.0 MiB/s of parquet\n" in out
    out = run("plan", numbers, "-k", "k", "-S", "2G")[1]
    assert "2.0 GiB given" in out
    facts = json.loads(run("plan", numbers, "-k", "k", "--json")[1])
    assert facts["plan"]["rows"] == 4
    assert [each["phase"] for each in facts["estimates"]] == ["read", "sort", "merge", "write"]
    alone = json.loads(run("plan", numbers, "-k", "k", "--json", "--conf", "files.minimum-partitions=1")[1])
    assert [each["phase"] for each in alone["estimates"]] == ["read", "sort", "write"]
    assert facts["seconds"] == pytest.approx(sum(each["seconds"] for each in facts["estimates"]))
    spilling = json.loads(run("plan", numbers, "-k", "k", "-S", "2G", "--json")[1])
    assert [each["phase"] for each in spilling["estimates"]] == ["read", "sort", "spill", "merge", "write"]
    assert spilling["budget"]["memory"] == 2 << 30
    assert spilling["peak"] < 2 << 30
    cluster = json.loads(run("plan", numbers, "-k", "k", "--conf", "files.in-process=1 B", "--json")[1])
    assert cluster["traffic"] == cluster["plan"]["nbytes"]
    assert cluster["processes"] >= 1
    assert run("plan", numbers, "-k", "k", "-S", "1M")[0] == 2


@pytest.mark.parametrize("kind", ["records", "text", "parquet"])
def test_generated_rows_sort(run, tmp_path, kind):
    ending = {"records": "rec", "text": "txt", "parquet": "parquet"}[kind]
    path = tmp_path / f"in.{ending}"
    assert run("generate", kind, path, "-n", 1000, "--distinct", 50) == (0, "", "")
    key = ["-k", "k"] if kind == "parquet" else []
    assert run("check", path, *key)[0] == 1
    assert run("sort", path, "-o", tmp_path / "out", *key, "--npartitions", 3, "-q") == (0, "", "")
    found = json.loads(run("check", tmp_path / "out", *key, "--json")[1])
    assert (found["sorted"], found["rows"], found["duplicates"]) == (True, 1000, 950)
    written = path.read_bytes()
    told = f"error: {path}: exists, and generate replaces nothing: remove it first, or choose another name\n"
    assert run("generate", kind, path, "-n", 1) == (2, "", told)
    assert path.read_bytes() == written
    assert run("generate", kind, tmp_path / "nowhere" / "in", "-n", 1)[0] == 2


def test_overwrite_spares_a_folder_of_others(run, numbers, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("x\n")
    status, out, err = run("sort", numbers, "-o", tmp_path / "mine", "-k", "k", "--overwrite")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}/mine: no run of distsort wrote x in it")
    assert [(path.name, path.read_text()) for path in (tmp_path / "mine").iterdir()] == [("x", "x\n")]
    (tmp_path / "mine" / "x").unlink()
    for _ in range(2):
        assert run("sort", numbers, "-o", tmp_path / "mine", "-k", "k", "--overwrite", "-q", "--metadata-file")[0] == 0


def test_merge_checks_and_merges(run, tmp_path):
    for name, lines in (("a", "1\n3\n5\n"), ("b", "2\n3\n"), ("c", "4\n0\n")):
        (tmp_path / f"{name}.txt").write_text(lines)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert run("merge", *files, "-o", tmp_path / "out", "--npartitions", 2, "-q")[0] == 0
    parts = sorted((tmp_path / "out").glob("part*"))
    assert [part.read_text() for part in parts] == ["1\n2\n", "3\n3\n5\n"]
    status, _, err = run("sort", "-m", *files, tmp_path / "c.txt", "-o", tmp_path / "out2", "-q")
    assert status == 2
    assert err.startswith(f"error: {tmp_path}/c.txt, row 1: line=0 stands below line=4: it is not sorted by line asc")
    assert "use sort_files, or distsort sort without -m" in err
    assert not (tmp_path / "out2").exists()


def test_report_page(run, numbers, tmp_path):
    run("sort", numbers, "-o", tmp_path / "out", "-k", "k", "--report", tmp_path / "r.html", "-q")
    text = (tmp_path / "r.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "Sorted 4 rows" in text
    assert "<script" not in text
    assert "http" not in text


def test_delimiters(run, tmp_path):
    (tmp_path / "in.tsv").write_text("k\tv\n2\ta,b\n1\tc\n")
    (tmp_path / "in.csv").write_text("k;v\n2;a,b\n1;c\n")
    assert run("sort", tmp_path / "in.tsv", "-o", tmp_path / "a", "-k", "k")[0] == 0
    assert run("sort", tmp_path / "in.csv", "-o", tmp_path / "b", "-k", "k", "--delimiter", ";")[0] == 0
    for name in "ab":
        assert pd.read_parquet(tmp_path / name).to_dict("list") == {"k": [1, 2], "v": ["c", "a,b"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sotr",), "Did you mean sort?"),
        (("sort", "IN"), "Missing option '-o'"),
        (("sort", "IN", "-o", "OUT"), "by= (-k) is missing"),
        (("sort", "nowhere", "-o", "OUT", "-k", "k"), "no such file"),
        (("sort", "IN", "-o", "IN", "-k", "k"), "the output is the input"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--conf", "pull.treshold=1"), "did you mean pull.threshold"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--conf", "files.part-size=much"), "is not a size"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--npartitions", "0"), "--npartitions"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--scheduler", "nonsense"), "no scheduler answers at 'nonsense'"),
    ],
)
def test_mistakes_are_named_with_status_2(run, numbers, tmp_path, arguments, words):
    places = {"IN": numbers, "OUT": str(tmp_path / "out")}
    status, out, err = run(*(places.get(word, word) for word in arguments))
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_verbose_shows_where(run, numbers, tmp_path):
    assert "Traceback" in run("sort", numbers, "-o", tmp_path / "out", "-k", "zz", "-v")[2]


def test_info(run):
    status, out, _ = run("info")
    assert status == 0
    for word in ("versions", "dask", "machine", "cores", "devices", "kernels", "schedulers", "pull.threshold"):
        assert word in out
    found = json.loads(run("info", "--json")[1])
    assert found["settings"]["cuts.samples"] == 256
    assert found["versions"]["pyarrow"] == pa.__version__


def test_help_lists_commands_without_loading_them():
    code = (
        "import sys\nfrom distsort.cli import run\nstatus = run(['--help'])\n"
        "heavy = {'dask', 'numpy', 'pandas', 'pyarrow', 'distributed', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else status)"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 10
    for name in ("sort", "check", "info"):
        assert f"\n  {name} " in done.stdout


def test_every_listed_command_loads():
    context = click.Context(cli.cli)
    names = cli.cli.list_commands(context)
    assert {"sort", "check", "info"} <= set(names)
    for name in names:
        command = cli.cli.get_command(context, name)
        assert command.help
        assert cli.COMMANDS[name][1].endswith(".")
    assert cli.cli.get_command(context, "nothing") is None


def test_dask_finds_the_sort_command():
    from importlib.metadata import entry_points

    found = entry_points(group="dask_cli")["sort"].load()
    assert isinstance(found, click.Command)
    assert found.name == "sort"


def test_module_runs():
    done = subprocess.run(
        [sys.executable, "-m", "distsort.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("distsort, version ")


def test_lines_are_shown_as_text(run, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"b\na\x08\n\xff\n")
    out = run("sort", tmp_path / "in.txt", "-o", tmp_path / "out", "--show", 3)[1]
    assert out.splitlines()[-4:] == ["line", "a\\x08", "b", "\\xff"]


def test_a_report_that_could_not_be_written_is_refused_before_the_sort(run, numbers, tmp_path):
    for option in ("--report", "--performance-report"):
        place = tmp_path / "nowhere" / "r.html"
        status, out, err = run("sort", numbers, "-o", tmp_path / "out", "-k", "k", option, place)
        assert (status, out) == (2, "")
        assert err.startswith(f"error: {option} {place}: there is no folder {tmp_path}/nowhere\n")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--report", "--performance-report"])
def test_a_report_takes_the_place_of_reports_only(run, numbers, tmp_path, option):
    (tmp_path / "r.d").mkdir()
    (tmp_path / "notes").write_text("mine")
    source = Path(numbers)
    bytes_before = source.read_bytes()
    for place, words in (
        (tmp_path / "r.d", f"that is a folder: name a file in it, as in {tmp_path}/r.d/report.html\n"),
        (tmp_path / "notes", "a file is there that is no report: remove it, or choose another name\n"),
        (source, "a file is there that is no report: remove it, or choose another name\n"),
    ):
        status, out, err = run("sort", numbers, "-o", tmp_path / "out", "-k", "k", option, place)
        assert (status, out) == (2, "")
        assert err.startswith(f"error: {option} {place}: {words}")
        assert not (tmp_path / "out").exists()
    assert source.read_bytes() == bytes_before
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("name", ["r.html", "r.json"])
def test_a_report_takes_the_place_of_an_older_one(run, numbers, tmp_path, name):
    (tmp_path / name).write_text("")
    for _ in range(2):
        arguments = ("-k", "k", "--overwrite", "-q", "--report", tmp_path / name)
        assert run("sort", numbers, "-o", tmp_path / "out", *arguments) == (0, "", "")
    assert "4" in (tmp_path / name).read_text()


def test_a_performance_report_needs_bokeh_before_the_sort(run, numbers, tmp_path, monkeypatch):
    class Client:
        def run_on_scheduler(self, function, *args):
            return function(*args)

    @contextlib.contextmanager
    def attached(*where):
        yield Client()

    monkeypatch.setattr("distsort.clusters.attached", attached)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "bokeh" else find(name, *more))
    status, out, err = run(
        "sort", numbers, "-o", tmp_path / "out", "-k", "k", "--performance-report", tmp_path / "p.html"
    )
    assert (status, out) == (2, "")
    assert err.startswith(
        f"error: --performance-report {tmp_path}/p.html: bokeh is not installed where the scheduler runs: "
        "pip install 'bokeh>=3.1'\n"
    )
    assert not (tmp_path / "out").exists()


def test_numbers_and_text_align(run, tmp_path):
    table = pa.table({"k": [10, 9], "x": [0.5, np.nan], "s": ["a\nb", "c" * 50]})
    pq.write_table(table, tmp_path / "in.parquet")
    status, out, err = run("sort", tmp_path / "in.parquet", "-o", tmp_path / "out", "-k", "k", "--show", 2)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[-3:] == [" k    x  s", f" 9  nan  {'c' * 37}...", "10  0.5  a b"]


def test_a_full_disk_leaves_nothing_of_what_is_generated(run, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("distsort.io.records.generate", full)
    status, out, err = run("generate", "records", tmp_path / "in.rec", "-n", 5)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}/in.rec: No space left on device; nothing is left of it\n")
    assert list(tmp_path.iterdir()) == []


def test_dask_sort_says_what_distsort_sort_says(numbers, tmp_path):
    def said(*program):
        command = [sys.executable, "-m", *program, "sort", str(numbers), "-o", str(tmp_path / "out"), "-k", "nope"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    assert said("dask") == said("distsort.cli")
    assert said("dask")[0] == 2


BROKEN = """
from distsort.files import parts
def fail(self, frame, number, above=None):
    raise RuntimeError("the disk is on fire")
parts.WritePart.__call__ = fail
"""


def test_a_task_that_fails_on_a_worker_is_told_once(tmp_path):
    (tmp_path / "in.txt").write_text("b\na\n")
    command = ["sort", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out"), "-q", "--workers", "1"]
    environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__PRELOAD": repr([BROKEN])}
    done = subprocess.run(
        [sys.executable, "-m", "distsort.cli", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: RuntimeError: the disk is on fire (-v shows where)"
    assert "Traceback" not in done.stderr
    assert "Compute Failed" not in done.stderr
