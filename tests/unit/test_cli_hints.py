from __future__ import annotations

import json
import re

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distsort import cli, errors
from distsort.cli.hints import BY_CLASS, CASES, MOST, hints, near_files

# What hints name of other programs.
FOREIGN = {"--memory-limit"}


@pytest.fixture
def numbers(tmp_path):
    pq.write_table(pa.table({"k": [3, 1, 2], "pair": [[1], [2], [3]]}), tmp_path / "numbers.parquet")
    return str(tmp_path / "numbers.parquet")


def all_hints():
    return [hint for case in CASES for hint in case.hints] + [hint for told in BY_CLASS.values() for hint in told]


def test_options_that_hints_name_are_there():
    context = click.Context(cli.cli)
    commands = [cli.cli.get_command(context, name) for name in cli.cli.list_commands(context)]
    there = {word for command in commands for option in command.params for word in option.opts}
    named = {word for hint in all_hints() for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", hint)}
    assert named
    assert named - FOREIGN - {"--help"} <= there


def test_hints_are_short_and_said_once():
    said = [hint for hint in all_hints() if hint != "the name itself ends like an option: write \\: for its colon"]
    assert all(len(hint) <= 112 and not hint.endswith(".") for hint in said)
    for told in [case.hints for case in CASES] + list(BY_CLASS.values()):
        assert len(told) == len(set(told))
        assert len(told) >= MOST


@pytest.mark.parametrize(
    ("arguments", "kind", "first"),
    [
        (("sort", "IN", "-o", "OUT"), "OptionError", "no key was given: add -k COLUMN"),
        (("sort", "IN", "-o", "OUT", "-k", "K"), "InputError", "capitals and blanks count"),
        (("sort", "IN", "-o", "OUT", "-k", "2,2"), "InputError", "GNU's -k 2,2 takes numbers of fields"),
        (("sort", "IN", "-o", "OUT", "-k", "k,pair"), "InputError", "several keys need several -k"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--report", "no/r.html"), "OptionError", "the folder is not there"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--report", "IN"), "OptionError", "the name is that of an input"),
        (("sort", "IN", "-o", "TEXT", "-k", "k", "--overwrite"), "OutputError", "the place is yours"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--where", "kk > 3"), "InputError", "a text needs no quotes"),
        (("sort", "IN", "-o", "OUT", "-k", "pair"), "KeyTypeError", "the column holds lists or structs"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--columns", "k,k"), "OptionError", "a column is kept once"),
        (("sort", "IN", "-o", "IN", "-k", "k"), "OptionError", "GNU's -o may be its input"),
        (("sort", "IN", "-o", "TAKEN", "-k", "k"), "OutputError", "an earlier run made it"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "-S", "2"), "SortMemoryError", "a number without a unit counts in KiB"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "-S", "much"), "OptionError", "the unit is unknown"),
        (("sort", "IN", "-o", "OUT", "-k", "k:asc:desc"), "OptionError", "each key takes one direction"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--conf", "x"), "OptionError", "the key is misspelt"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--scheduler", "nonsense"), "OptionError", "the port is that of"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--scheduler-file", "no"), "OptionError", "the scheduler has not"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--workers", "1", "--gpus", "1"), "OptionError", "several places"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--gpus", "99"), "OptionError", "cupy or dask-cuda is not installed"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--performance-report", "p"), "OptionError", "threads of this process"),
        (("sort", "IN", "-o", "OUT", "-m", "-k", "k"), "NotSortedError", "it is sorted by another key"),
        (("sort", "CSV", "-o", "OUT", "-k", "k"), "InputError", "the delimiter is another"),
        (("sort", "HOLLOW", "-o", "OUT", "-k", "k"), "InputError", "what writes the file has failed"),
        (("sort", "SQUARE", "-o", "OUT"), "InputError", "the array is to be sorted as a whole: save it flat"),
        (("sort", "IN", "-o", "OUT", "-k", "k", "--conf", "cuts.probes=0"), "OptionError", "the default is good"),
        (("sort", "LATIN", "-o", "OUT", "-k", "k"), "InputError", "the file is no CSV"),
        (("sort", "TEXT", "-o", "OUT", "--format", "parquet", "-k", "k"), "InputError", "the file is of another"),
        (("sort", "TEXT", "-o", "OUT", "--format", "records"), "InputError", "records have another length"),
        (("sort", "ODD", "-o", "OUT"), "InputError", "the ending is unusual"),
        (("sort", "IN", "TEXT", "-o", "OUT"), "InputError", "other files lie in the folder"),
        (("sort", "EMPTY", "-o", "OUT"), "InputError", "names that begin with a dot"),
        (("sort", "NUMMERS", "-o", "OUT", "-k", "k"), "InputError", "the name is misspelt: there is"),
    ],
)
def test_mistakes_on_the_command_line(numbers, tmp_path, capsys, monkeypatch, arguments, kind, first):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("b\na\n")
    (tmp_path / "lines.odd").write_text("b\na\n")
    (tmp_path / "ragged.csv").write_text("k,v\n1,2\n3,4,5\n")
    (tmp_path / "hollow.csv").touch()
    np.save(tmp_path / "square.npy", np.eye(2))
    (tmp_path / "latin.csv").write_bytes("k,größe\n1,2\n".encode("latin-1"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "_SUCCESS").touch()
    (tmp_path / "taken" / "part-00000.parquet").touch()
    (tmp_path / "empty").mkdir()
    places = {
        "IN": numbers,
        "OUT": "out",
        "TAKEN": "taken",
        "TEXT": "lines.txt",
        "ODD": "lines.odd",
        "CSV": "ragged.csv",
        "HOLLOW": "hollow.csv",
        "SQUARE": "square.npy",
        "LATIN": "latin.csv",
        "EMPTY": "empty",
        "NUMMERS": "nummers.parquet",
    }
    words = [places.get(word, word) for word in arguments]
    assert cli.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1] == "likely:"
    assert lines[2].startswith(f"  - {first}")
    assert len(lines) == 2 + MOST
    assert not (tmp_path / "out").exists()
    # Programs get the same as a field.
    assert cli.run([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["kind"] == kind
    assert [f"  - {hint}" for hint in told["hints"]] == lines[2:]
    # Sizes of this process grow on the way.
    assert re.sub(r"\d", "", err) == re.sub(r"\d", "", lines[0]) + "\n"
    assert err == f"error: {told['error']}\n"


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("sort",), "no input was named"),
        (("sort", "x"), "no output was named"),
        (("sort", "x", "--numeric-sort"), "the option belongs to another command"),
        (("sort", "x", "-o", "y", "--format", "parqet"), "the word is misspelt: parquet comes close"),
        (("status", "x", "--url", "http://127.0.0.1:9"), "the port is that of the scheduler"),
    ],
)
def test_wrong_usage(capsys, arguments, first):
    assert cli.run(list(arguments)) == 2
    assert f"likely:\n  - {first}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (errors.ServiceError(401, "the token is missing or wrong: send ..."), "your shell has no token"),
        (errors.ServiceError(403, "src='/etc' is outside the allowed roots (/data)"), "the service reads and writes"),
        (errors.ServiceError(404, "there is no job 'x': see the list of jobs"), "the id is misspelt"),
        (errors.OutputError("/out: cannot be written (No space left on device): ..."), "the disk of the output"),
        (PermissionError(13, "Permission denied"), "the folder belongs to another user"),
        (errors.ValidationError("part-0 does not follow"), "an input file was changed"),
        (errors.ExchangeError("run 1 on worker tcp://a could not be read"), "a worker ran out of memory"),
        (RuntimeError("NoCredentialsError: Unable to locate credentials"), "the bucket wants credentials"),
        (errors.OptionError("columns= is for files with columns, the input is records"), "records, text and .npy"),
        (errors.OptionError("--performance-report p.html: bokeh is not installed where ..."), "bokeh is not installed"),
        (MemoryError(), "the input is larger than memory"),
        (ConnectionResetError("gone"), "the scheduler or a worker was closed"),
    ],
)
def test_mistakes_behind_other_errors(error, first):
    assert hints(error)[0].startswith(first)
    assert len(hints(error)) == MOST


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("backend=foo", "another word was meant: the choices are numpy and cupy"),
        ("backend=numpi", "the word is misspelt: numpy comes close"),
        ("exchange=foo", "another word was meant: the choices are graph and pull"),
        ("files.compression=zsdt", "the word is misspelt: zstd comes close"),
        ("files.compression=7z", "another word was meant: the choices are none, snappy, gzip, brotli, lz4 and zstd"),
    ],
)
def test_words_that_are_no_choice(numbers, tmp_path, capsys, setting, told):
    assert cli.run(["sort", numbers, "-o", str(tmp_path / "out"), "-k", "k", "--conf", setting]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["likely:", f"  - {told}"]


def test_words_of_a_message_are_no_choices():
    assert hints(errors.OptionError("ascending='a': it must be True or False, or a list of one per key")) == []


def test_of_what_is_not_known_nothing_is_said(capsys):
    assert hints(RuntimeError("?")) == []
    assert cli.run(["nothing-like-it"]) == 2
    assert "likely" not in capsys.readouterr().err


def test_errors_of_any_library_are_one_line(numbers, tmp_path, capsys, monkeypatch):
    class StrangeError(Exception):
        pass

    def refuse(*args, **kwargs):
        raise StrangeError("Unable to locate credentials")

    monkeypatch.setattr("distsort.files.sort_files", refuse)
    command = ["sort", numbers, "-o", str(tmp_path / "out"), "-k", "k"]
    assert cli.run(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: StrangeError: Unable to locate credentials (-v shows where)\nlikely:\n  - the bucket")
    assert cli.run([*command, "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_files_that_come_close(tmp_path):
    (tmp_path / "flights.csv").touch()
    assert near_files(str(tmp_path / "flight.csv")) == [str(tmp_path / "flights.csv")]
    assert near_files(str(tmp_path / "zzz")) == []
    assert near_files("s3://bucket/flight.csv") == []
    assert near_files(str(tmp_path / "no" / "flight.csv")) == []
