"""What people see of an exchange: events, a page and its JSON beside the scheduler's own routes."""

from __future__ import annotations

import json
import urllib.request

import pytest

from distsort.exchange.page import render
from tests.cluster import kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def fetch(client, path):
    port = kit.scheduler_of(client).http_server.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_page_and_events(pair):
    lazy, _ = kit.array(4, 2000)
    seen = []
    pair.subscribe_topic("distsort", lambda event: seen.append(event[1]))
    with kit.hold(pair, "make_part"):
        result = kit.start(kit.sort(lazy, npartitions=6))
        kit.until(lambda: (b := kit.barrier_of(pair)) is not None and b.state == "memory")
        overview = json.loads(fetch(pair, "/distsort-exchange.json"))
        page = fetch(pair, "/distsort-exchange")
    kit.finish(result)
    (sort,) = overview["sorts"]
    assert (sort["phase"], sort["runs"], sort["runs_made"], sort["parts"], sort["lost"]) == ("parts", 4, 4, 6, 0)
    # Reports come with the heartbeats of the workers.
    kit.until(lambda: len(json.loads(fetch(pair, "/distsort-exchange.json"))["workers"]) == 2, 20)
    assert sort["sort"] in page
    assert "4 of 4" in page
    kit.until(lambda: any(e["phase"] == "over" for e in seen), 30)
    assert [e["phase"] for e in seen] == ["runs", "cuts", "parts", "over"]
    assert len({e["sort"] for e in seen}) == 1
    assert seen[-1]["imbalance"] == pytest.approx(1, abs=0.7)
    pair.unsubscribe_topic("distsort")
    # The routes that were there answer as before.
    assert fetch(pair, "/health") == "ok"
    assert "dask_scheduler" in fetch(pair, "/metrics")
    assert "distsort" in fetch(pair, "/distsort-exchange")
    del result
    kit.assert_clean(pair)


def test_what_is_shown_is_escaped():
    worker = {"runs": 1, "memory": 1 << 20, "disk": 0, "spilled": 0, "pulled": 5}
    shown = {"sort": "<b>x</b>", "phase": "cuts", "runs": 2, "runs_made": 1, "parts": 1, "parts_made": 0}
    page = render({"sorts": [{**shown, "seconds": 1.0, "lost": 0}], "workers": {"<tcp>": worker}})
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page
    assert "1.0 MiB" in page
    assert "No sort is running." in render({"sorts": [], "workers": {}})
