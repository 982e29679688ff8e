from __future__ import annotations

import json

import pytest

from distsort.service.view import SortJob, SortJobs

PHASES = [
    {"phase": "sort", "done": 4, "total": 4, "start": 0.1, "seconds": 2.0, "busy": 3.0},
    {"phase": "merge", "done": 1, "total": 8, "start": 2.1, "seconds": 0.5, "busy": 0.5},
]
RESULT = {
    "rows": 12345,
    "seconds": 3.2,
    "nbytes": 3 << 20,
    "parts": 8,
    "balance": 1.0,
    "output": "/data/<out>",
}


def job(state, **more):
    return SortJob({"id": "<b>1</b>", "state": state, "attempt": 1, "ahead": 0, "seconds": 7.0, "progress": [], **more})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (job("PENDING", ahead=3), "3 ahead of it"),
        (job("RUNNING", phase="merge", progress=PHASES), "merge 1/8, 7 s"),
        (job("RUNNING", phase="scan", attempt=2), "attempt 2, scan, 7 s"),
        (job("SUCCEEDED", result=RESULT), "12,345 rows in 3.2 s"),
        (job("FAILED", reason="no such column"), "no such column"),
    ],
)
def test_where_a_job_is(made, words):
    assert made.where == words
    assert json.loads(json.dumps(made)) == dict(made)


def test_a_running_job_in_html():
    text = job("RUNNING", phase="merge", attempt=2, progress=PHASES)._repr_html_()
    assert "Job &lt;b&gt;1&lt;/b&gt;" in text
    assert "<b>1" not in text
    assert "width:100.000%" in text
    assert "width:12.500%" in text
    assert "1 of 8, 500 ms" in text
    assert "<dt>attempt</dt><dd>2</dd>" in text
    assert "<script" not in text


def test_what_came_out_in_html():
    text = job("SUCCEEDED", result=RESULT)._repr_html_()
    for words in ("12,345", "3.2 s", "3.0 MiB", "to /data/&lt;out&gt;", "1.0000"):
        assert words in text


def test_several_jobs_are_a_table():
    jobs = SortJobs([job("PENDING", ahead=1), job("FAILED", reason="a < b")])
    text = jobs._repr_html_()
    assert "2 jobs" in text
    assert "a &lt; b" in text
    assert len(jobs) == 2
