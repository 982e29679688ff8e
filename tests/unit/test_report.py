from __future__ import annotations

import json

from distsort.report import Part, Phase, Report, Worker, bytes_text, seconds_text


def report(**changes):
    values = {
        "output": "/data/out",
        "order": "k desc nulls last",
        "rows": 7,
        "nbytes": 56,
        "stored_in": 2048,
        "files_in": 1,
        "seconds": 1.5,
        "phases": (Phase("read", 0.0, 0.5, 2, 0.9, 7, 56), Phase("cuts", 0.5, 0.5, 1, 0.0)),
        "parts": (Part("part-00000.parquet", 3, 100), Part("part-00001.parquet", 4, 120)),
        "checksum": "00ff",
        "scheduler": "2 threads",
    }
    return Report(**{**values, **changes})


def test_summary_says_what_was_done_and_where():
    text = report(notes=("in.csv: is compressed",)).summary()
    lines = text.splitlines()
    assert lines[0] == "sorted 7 rows by k desc nulls last in 1.5 s on 2 threads"
    assert lines[2].split() == ["phase", "seconds", "busy", "tasks", "rows", "bytes", "rows/s"]
    assert lines[3].split() == ["read", "500", "ms", "900", "ms", "2", "7", "56", "B", "14"]
    assert lines[4].split() == ["cuts", "0", "ms", "0", "ms", "1"]
    assert "input    1 file, 2.0 KiB stored, 56 B in memory" in text
    assert "output   /data/out" in text
    assert "2 parts, 220 B stored, 3 to 4 rows each (largest / mean 1.1429)" in text
    assert "checked  order, row count and checksum 00ff" in text
    assert "note     in.csv: is compressed" in text


def test_numbers_survive_json():
    plain = json.loads(report().to_json())
    assert plain["balance"] == 8 / 7
    assert plain["stored_out"] == 220
    assert plain["phases"][0] == {
        "name": "read",
        "start": 0.0,
        "stop": 0.5,
        "tasks": 2,
        "busy": 0.9,
        "rows": 7,
        "nbytes": 56,
        "seconds": 0.5,
    }
    assert plain["parts"][1] == {"name": "part-00001.parquet", "rows": 4, "nbytes": 120}


def test_memory_stands_beside_the_plan():
    workers = (Worker("a", 1 << 20, 5 << 20, 8 << 20, 7, 0), Worker("b", 2 << 20, 6 << 20, None, 9, 4))
    done = report(workers=workers, planned_memory=5 << 20)
    assert (done.peak_memory, done.spilled) == (6 << 20, 16)
    words = "memory   6.0 MiB at the peak in the fullest of 2 processes, 7.0 MiB by the plan; 16 B spilled"
    assert words in done.summary()
    plain = json.loads(done.to_json())
    assert (plain["peak_memory"], plain["spilled"], plain["planned_memory"]) == (6 << 20, 16, 5 << 20)
    assert plain["workers"][1] == {
        "name": "b",
        "base": 2 << 20,
        "peak": 6 << 20,
        "limit": None,
        "spilled": 9,
        "pulled": 4,
    }
    assert (report().peak_memory, report().spilled) == (0, 0)
    assert "memory   " not in report().summary()


def test_notebooks_show_the_summary():
    assert report(order="<k>")._repr_html_().startswith("<pre>sorted 7 rows by &lt;k&gt; in 1.5 s")


def test_no_rows():
    empty = report(rows=0, parts=(Part("part-00000.parquet", 0, 100),))
    assert empty.balance == 1.0
    assert "1 part, 100 B stored, no rows" in str(empty)


def test_columns_of_markup_are_printed_as_they_are():
    assert "[bold]k" in report(order="[bold]k asc", output="/tmp/[red]x").summary()
    assert "/tmp/[red]x" in report(output="/tmp/[red]x").summary()


def test_units():
    assert [bytes_text(n) for n in (0, 1023, 1024, 3 * 2**30, 2**42)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 GiB",
        "4.0 TiB",
    ]
    assert [seconds_text(s) for s in (0.0004, 0.5, 59.94, 119, 121, 8000)] == [
        "0 ms",
        "500 ms",
        "59.9 s",
        "119.0 s",
        "2 min 1 s",
        "2 h 13 min",
    ]
