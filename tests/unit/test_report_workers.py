from __future__ import annotations

from distsort.memory import peak_bytes
from distsort.needs import identity
from distsort.report_workers import THIS, watch_workers


def test_this_process_is_asked():
    after = watch_workers(None)
    (worker,) = after()
    assert worker.name == THIS
    assert 0 < worker.base <= worker.peak <= peak_bytes()
    assert (worker.limit, worker.spilled, worker.pulled) == (None, 0, 0)


class Cluster:
    """Workers that answer what they are told to; each answer is for one question."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def sync(self, *args, **kwargs):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def held(**values):
    return {"held": 10, "peak": 20, "limit": 99, "spilled": 0, "pulled": 0, **values}


def test_counters_are_those_of_the_job():
    before = {"a": held(spilled=5, pulled=7), "gone": held()}
    now = {"new": held(peak=8, spilled=3), "a": held(held=15, peak=30, spilled=9, pulled=7)}
    first, second = watch_workers(Cluster(before, now))()
    assert (first.name, first.base, first.peak, first.limit, first.spilled, first.pulled) == ("a", 10, 30, 99, 4, 0)
    assert (second.name, second.base, second.peak, second.spilled) == ("new", 0, 8, 3)


def test_a_cluster_that_does_not_answer_has_no_workers():
    assert watch_workers(Cluster(TimeoutError(), OSError()))() == ()


def test_workers_that_are_there_answer():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        (worker,) = watch_workers(client)()
        assert worker.name in identity(client)["workers"]
        assert 0 < worker.base <= worker.peak
