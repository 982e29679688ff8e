from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import distsort
from distsort.progress import ORDER, PHASES, Count, Progress, phase_of, watch


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
