from __future__ import annotations

import sys
import time
import types

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import distsort
from distsort.progress import ORDER, PHASES, Count, Progress, phase_of
from distsort.progress_watch import TOPIC, ClusterWatch, in_notebook, watch


@pytest.fixture
def frame():
    rows = pd.DataFrame({"k": np.arange(40)[::-1]})
    return dd.from_pandas(rows, npartitions=4)


def test_names_tell_phases():
    assert phase_of(("sort-run-0a1b", 3)) == "sort"
    assert phase_of("sort-search-0a1b-2") == "cuts"
    assert phase_of(("sort-slice-0a1b", 1, 2)) == "exchange"
    assert phase_of(("read-fused-sort-run-0a1b", 0)) == "sort"
    assert phase_of(("sort-sort-0a1b", 0)) == "sort"
    for other in ("sum-1", ("from_pandas-0a1b", 0), 7, ()):
        assert phase_of(other) is None
    assert set(PHASES.values()) < set(ORDER)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_tasks_of_in_process_schedulers_are_counted(frame, scheduler):
    progress = Progress()
    parts = distsort.sort_values(frame, "k", exchange="graph").to_delayed()
    with watch(progress), dask.config.set(scheduler=scheduler):
        dask.compute(*parts)
    counts = progress.snapshot()
    assert counts["exchange"] == (16, 16)
    assert counts["merge"] == (4, 4)
    assert counts["sort"] == (4, 4)
    assert all(done == total for done, total in counts.values())
    phases = progress.phases(merge=(40, 320))
    assert [phase.name for phase in phases] == ["sort", "cuts", "exchange", "merge"]
    assert phases[-1].rows == 40
    assert all(0 <= phase.start <= phase.stop for phase in phases)
    assert all(phase.busy >= 0 for phase in phases)


def test_tasks_of_a_cluster_are_counted(frame):
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        before = client.compute(distsort.sort_values(frame, "k", exchange="graph").to_delayed())
        wait(before)
        progress = Progress()
        with watch(progress, client) as refresh:
            futures = client.compute(distsort.sort_values(frame, "k", ascending=False, exchange="graph").to_delayed())
            wait(futures)
            refresh()
    counts = progress.snapshot()
    assert counts["exchange"] == (16, 16)
    # The parts are what the client asked for, under their own names.
    assert counts["merge"] == (4, 4)
    assert {phase.name for phase in progress.phases()} >= {"sort", "cuts", "exchange", "merge"}


def test_stages_of_the_caller_are_phases():
    progress = Progress()
    with progress.stage("publish"):
        pass
    with progress.stage("scan"):
        pass
    assert [phase.name for phase in progress.phases()] == ["scan", "publish"]
    progress.replace({"merge": Count(total=3, done=1)})
    assert progress.snapshot() == {"scan": (1, 1), "merge": (1, 3), "publish": (1, 1)}
    assert [phase.name for phase in progress.phases()] == ["scan", "publish"]


def test_bars_are_drawn_on_stderr_only_where_wanted(frame, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for show in (False, True):
        with watch(Progress(), show=show), dask.config.set(scheduler="sync"):
            dask.compute(*distsort.sort_values(frame, "k", exchange="graph").to_delayed())
        out, err = capsys.readouterr()
        assert out == ""
        assert ("exchange" in err) == show


GROUPS = {
    "sort-run-0a": (4, 4, 10.0, 12.0, 5.0),
    "sort-sort-0a": (1, 2, 11.0, 13.0, 1.0),
    "sort-part-0a": (0, 3, 0.0, 0.0, 0.0),
    "sum-1": (7, 7, 1.0, 2.0, 3.0),
}


class Client:
    """A cluster that answers what it is told to, and counts how often it is asked."""

    def __init__(self, *futures):
        self.futures = dict.fromkeys(futures)
        self.asked = 0
        self.topics = {}

    def run_on_scheduler(self, function):
        self.asked += 1
        return {"sort-run-old": (1, 1, 1.0, 2.0, 1.0)} if self.asked == 1 else GROUPS | {"sort-run-old": (1,) * 5}

    def subscribe_topic(self, topic, handler):
        self.topics[topic] = handler

    def unsubscribe_topic(self, topic):
        del self.topics[topic]


def event(**changes):
    facts = {"tasks": GROUPS, "pulled": 0, "spilled": 0, "lost": 0, "imbalance": None, **changes}
    return (0.0, facts)


def test_nobody_sees_and_nobody_asks():
    client, progress = Client(), Progress()
    with dask.config.set({"distsort.progress.interval": "1 ms"}), watch(progress, client, exchange="graph") as refresh:
        assert client.topics == {}
        refresh()
    assert client.asked == 2
    # Stderr of a test is no terminal: what nobody could see is not drawn, and not asked for.
    with watch(Progress(), client, show=True, exchange="pull"):
        assert client.topics == {}
    assert client.asked == 3
    assert progress.snapshot() == {"sort": (5, 6), "merge": (0, 3)}
    assert progress.counts["sort"].start == 10
    assert (progress.counts["sort"].stop, progress.counts["sort"].busy) == (13, 6)


def test_events_are_heard_and_nothing_is_asked():
    client, progress = Client(("sort-part-0a", 0), "other-1"), Progress()
    with ClusterWatch(progress, client, "events"):
        hear = client.topics[TOPIC]
        hear(event(pulled=3 << 20, spilled=5, lost=2, imbalance=1.25))
        assert progress.snapshot() == {"sort": (5, 6), "merge": (0, 3)}
        assert progress.notes == {"sort": "5 B spilled", "merge": "3.0 MiB pulled, imbalance 1.25, 2 runs lost"}
        hear(event(tasks={"sort-part-of-another": (9, 9, 1.0, 2.0, 3.0)}))
        assert progress.snapshot() == {"sort": (5, 6), "merge": (0, 3)}
    assert client.topics == {}
    assert client.asked == 1
    hear(event(tasks={"sort-part-0a": (3, 3, 1.0, 2.0, 3.0)}))
    assert progress.snapshot()["merge"] == (0, 3)


def test_a_notebook_shows_a_progress_that_renews_itself(frame, monkeypatch):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what._repr_html_())

    def display(what, display_id):
        shown.append(what._repr_html_())
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    modules = {"IPython": types.SimpleNamespace(get_ipython=lambda: shell)}
    modules["IPython.display"] = types.SimpleNamespace(display=display)
    assert not in_notebook()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert in_notebook()
    with watch(Progress(), show=True), dask.config.set(scheduler="sync"):
        dask.compute(*distsort.sort_values(frame, "k", exchange="graph").to_delayed())
    assert "16 of 16" not in shown[0]
    assert "16 of 16" in shown[-1]


def test_progress_in_html_is_escaped_and_to_scale():
    progress = Progress()
    progress.replace({"merge": Count(total=4, done=1)}, merge="<b>1 GiB</b>")
    text = progress._repr_html_()
    assert "width:25.000%" in text
    assert "1 of 4, &lt;b&gt;1 GiB&lt;/b&gt;" in text
    assert "<script" not in text


def test_the_pull_exchange_tells_how_far_it_is(frame):
    from distributed import Client, LocalCluster, wait

    with (
        dask.config.set({"distsort.progress.interval": "0 ms"}),
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        progress, heard = Progress(), []
        with ClusterWatch(progress, client, "events") as watching:
            client.subscribe_topic(TOPIC, lambda event: (watching.hear(event), heard.append(event[1])))
            futures = client.compute(distsort.sort_values(frame, "k", exchange="pull", npartitions=5).to_delayed())
            wait(futures)
            told = client.get_events(TOPIC)[-1][1]
            watchdog = time.monotonic() + 60
            while told not in heard and time.monotonic() < watchdog:
                time.sleep(0.01)
    assert {"runs", "parts"} <= {each["phase"] for each in heard}
    assert told["lost"] == 0
    done, total = zip(*(group[:2] for name, group in told["tasks"].items() if "sort-part" in name), strict=True)
    assert sum(total) == 5
    assert 0 <= sum(done) <= 5
    assert progress.snapshot()["merge"][1] == 5
