from __future__ import annotations

import re
from html.parser import HTMLParser

from distsort.report import Part, Phase, Report, Worker
from distsort.report_page import balance, memory, page, timeline


class Reader(HTMLParser):
    """Checks that tags close in order, and collects texts and attributes."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.texts = []
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def report(**changes):
    values = {
        "output": "/data/<out>",
        "order": "k & l asc",
        "rows": 7,
        "nbytes": 56,
        "stored_in": 2048,
        "files_in": 1,
        "seconds": 2.0,
        "phases": (Phase("read", 0.0, 0.5, 2, 0.9, 7, 56), Phase("merge", 0.5, 2.0, 1, 1.5)),
        "parts": (Part("part-00000.parquet", 3, 100), Part("part-00001.parquet", 4, 120)),
        "checksum": "00ff",
        "scheduler": "2 threads",
        "plan": "sort <rows>",
        "notes": ('in.csv: 5" pipe',),
        "workers": (Worker("<this>", 1 << 18, 1 << 20, None, 3 << 10, 0),),
        "planned_memory": 1 << 20,
    }
    return Report(**{**values, **changes})


def test_everything_is_there_and_escaped():
    reader = read(page(report()))
    text = " ".join(reader.texts)
    for words in ("Sorted 7 rows in 2.0 s", "/data/<out>", "k & l asc", "sort <rows>", '5" pipe', "1.1429", "1.0 MiB"):
        assert words in text
    assert not any("src" in attrs or "href" in attrs for _, attrs in reader.tags)


def bars(text, tag="i"):
    """The styles of what is drawn, as numbers in per cent."""
    styles = [attrs["style"] for name, attrs in read(text).tags if name == tag]
    return [{key: float(value) for key, value in re.findall(r"(\w+):([\d.]+)%", style)} for style in styles]


def test_phases_are_drawn_to_scale():
    first, second = bars(timeline(report().phases, 2.0))
    assert first == {"left": 0, "width": 25}
    assert second == {"left": 25, "width": 75}
    assert "500 ms" in timeline(report().phases, 2.0)


def test_parts_are_drawn_to_scale_and_many_share_bars():
    assert [bar["height"] for bar in bars(balance(report().parts))] == [75, 100]
    assert bars(balance(report().parts), "u") == [{"bottom": 87.5}]
    many = [Part(f"part-{i}", 10 + (i == 999), 1) for i in range(1000)]
    heights = [bar["height"] for bar in bars(balance(many))]
    assert len(heights) == 112
    assert heights[-1] == max(heights) > heights[0]
    assert "9 parts to a bar" in balance(many)


def test_memory_is_drawn_beside_what_the_plan_said():
    workers = [Worker(f"tcp://w{i}", 100 << 10, (i + 1) << 20, 8 << 20, i << 10, 0) for i in range(40)]
    text = memory(workers, 20 * (1 << 20) - (100 << 10))
    widths = [bar["width"] for bar in bars(text)]
    assert widths == [100 * (40 - i) / 40 for i in range(32)]
    assert bars(text, "u") == [{"left": 50}] * 32
    words = " ".join(read(text).texts)
    assert "The dashed line is what the plan said: 20.0 MiB." in words
    assert "The 32 fullest of 40 are drawn." in words
    assert words.index("tcp://w39") < words.index("tcp://w0")
    assert "39.0 KiB" in words
    assert "plan said" not in memory(workers, None)
    assert "No process could be asked" in memory([], 7)


def test_no_rows_no_parts_no_time():
    empty = (Part("part-00000.parquet", 0, 100),)
    for case in (report(rows=0, parts=empty, seconds=0.0, phases=()), report(rows=0, parts=(), phases=())):
        read(page(case))
