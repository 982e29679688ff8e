from __future__ import annotations

from html.parser import HTMLParser

from distsort.report import Part, Phase, Report
from distsort.report_page import balance, page, timeline


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
        "peak_memory": 1 << 20,
    }
    return Report(**{**values, **changes})


def test_everything_is_there_and_escaped():
    reader = read(page(report()))
    text = " ".join(reader.texts)
    for words in ("Sorted 7 rows in 2.0 s", "/data/<out>", "k & l asc", "sort <rows>", '5" pipe', "1.1429", "1.0 MiB"):
        assert words in text
    assert not any("src" in attrs or "href" in attrs for _, attrs in reader.tags)


def test_phases_are_drawn_to_scale():
    rects = [attrs for tag, attrs in read(timeline(report().phases, 2.0)).tags if tag == "rect"]
    assert float(rects[1]["width"]) / float(rects[0]["width"]) == 3
    assert float(rects[1]["x"]) == float(rects[0]["x"]) + float(rects[0]["width"])


def test_parts_are_drawn_to_scale_and_many_share_bars():
    rects = [attrs for tag, attrs in read(balance(report().parts)).tags if tag == "rect"]
    assert float(rects[0]["height"]) / float(rects[1]["height"]) == 0.75
    many = [Part(f"part-{i}", 10 + (i == 999), 1) for i in range(1000)]
    reader = read(balance(many))
    heights = [float(attrs["height"]) for tag, attrs in reader.tags if tag == "rect"]
    assert len(heights) == 112
    assert heights[-1] == max(heights) > heights[0]
    assert "9 parts to a bar" in " ".join(reader.texts)


def test_no_rows_no_parts_no_time():
    empty = (Part("part-00000.parquet", 0, 100),)
    for case in (report(rows=0, parts=empty, seconds=0.0, phases=()), report(rows=0, parts=(), phases=())):
        read(page(case))
