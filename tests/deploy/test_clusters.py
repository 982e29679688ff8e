"""Where `distsort sort` runs: schedulers that are there, clusters that it starts, GPUs that are told apart."""

from __future__ import annotations

import json
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from distsort import clusters
from distsort.cli import run
from distsort.errors import OptionError
from distsort.needs import identity


@pytest.fixture
def table(tmp_path):
    frame = pd.DataFrame({"k": np.random.default_rng(0).integers(0, 50, 3000), "v": np.arange(3000)})
    (tmp_path / "in").mkdir()
    for i in range(3):
        frame[i * 1000 : (i + 1) * 1000].to_parquet(tmp_path / "in" / f"{i}.parquet")
    return frame


def check(folder, table):
    expected = table.sort_values("k", kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(pd.read_parquet(folder), expected)


def test_a_cluster_for_one_sort(table, tmp_path):
    page = tmp_path / "performance.html"
    arguments = ["sort", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "-k", "k", "--workers", "2"]
    report = ["--report", str(tmp_path / "report.json"), "--performance-report", str(page), "-q"]
    assert run([*arguments, *report]) == 0
    check(tmp_path / "out", table)
    assert json.loads((tmp_path / "report.json").read_text())["scheduler"].startswith("2 workers with 2 threads")
    assert "Dask Performance Report" in page.read_text()


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"address": "nonsense"}, r"no scheduler answers at 'nonsense' \(missing port number"),
        ({"address": "http://host:1"}, r"no scheduler answers at 'http://host:1' \(unknown address scheme 'http'"),
        ({"address": "tcp://127.0.0.1:port"}, r"no scheduler answers at 'tcp://127\.0\.0\.1:port' \(invalid literal"),
        (
            {"address": "tls://127.0.0.1:9"},
            r"no scheduler answers at 'tls://127\.0\.0\.1:9' \(TLS expects a `ssl_context`",
        ),
        ({"scheduler_file": "{}"}, r"^--scheduler-file \S+scheduler\.json: it names no scheduler"),
        ({"scheduler_file": "[]"}, r"^--scheduler-file \S+scheduler\.json: it names no scheduler"),
        ({"scheduler_file": '{"address": 7}'}, r"^--scheduler-file \S+scheduler\.json: it names no scheduler"),
        ({"scheduler_file": "address"}, r"^--scheduler-file \S+scheduler\.json: it names no scheduler"),
        ({"scheduler_file": '{"address": "http://host:1"}'}, r"no scheduler answers at '\S+' \(unknown address scheme"),
    ],
)
def test_clients_of_no_scheduler_are_closed(where, told, tmp_path, monkeypatch):
    def loops():
        return {thread for thread in threading.enumerate() if thread.name == "IO loop"}

    if "scheduler_file" in where:
        (tmp_path / "scheduler.json").write_text(where["scheduler_file"])
        where = {"scheduler_file": str(tmp_path / "scheduler.json")}
    made = []
    started = Client.__init__
    monkeypatch.setattr(Client, "__init__", lambda self, *args, **kw: made.append(self) or started(self, *args, **kw))
    before = loops()
    with pytest.raises(OptionError, match=told):
        clusters.connect(**where, timeout="2s")
    # Left open, the garbage collector would close it, and another client that starts just then would fail.
    assert [client.status for client in made] == ["closed"]
    assert loops() <= before


def test_a_scheduler_file_that_is_being_written(tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text('{"type": "Sched')
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        text = json.dumps({"address": cluster.scheduler_address})
        late = threading.Timer(0.2, file.write_text, [text])
        late.start()
        client = clusters.connect(scheduler_file=str(file))
        assert client.scheduler.address == cluster.scheduler_address
        client.close()
        late.join()


def test_a_port_where_nothing_listens():
    began = time.monotonic()
    with pytest.raises(OptionError, match=r"'tcp://127\.0\.0\.1:9' \(Timed out .* after 1 s\)"):
        clusters.connect(address="tcp://127.0.0.1:9", timeout="1s")
    assert time.monotonic() - began < 10


def test_clusters_that_are_there(table, tmp_path):
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.write_scheduler_file(str(tmp_path / "scheduler.json"))
        address = cluster.scheduler_address
        for name, option in {
            "address": ["--scheduler", address],
            "file": ["--scheduler-file", str(tmp_path / "scheduler.json")],
        }.items():
            command = ["sort", str(tmp_path / "in"), "-o", str(tmp_path / name), "-k", "k", "-q", *option]
            assert run(command) == 0
            check(tmp_path / name, table)
        with dask.config.set({"scheduler-address": address}), clusters.attached(None, None, None, None) as found:
            assert found.scheduler.address == address
        spans = {span.name[:2] for span in cluster.scheduler.extensions["spans"].spans.values() if len(span.name) == 3}
    assert spans == {("distsort", str(tmp_path / "address")), ("distsort", str(tmp_path / "file"))}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("tcp://a:1", None, 2, None), "--scheduler and --workers: name one place"),
        ((None, "/no/such.json", None, None), "there is no such file"),
        ((None, None, None, 3), "--gpus 3: 0 can be used here: install"),
    ],
)
def test_places_that_are_not(where, message):
    with pytest.raises(OptionError, match=message), clusters.attached(*where):
        pass


def test_a_performance_report_needs_a_cluster():
    with pytest.raises(OptionError, match="only a cluster makes one"), clusters.observed(None, "page.html", "x"):
        pass


def test_gpus(monkeypatch):
    """What dask-cuda is asked for; dask-cuda and the GPUs themselves are stand-ins."""
    asked = {}

    class Runtime:
        CUDARuntimeError = RuntimeError

        @staticmethod
        def getDeviceCount():
            return 2

    class LocalCUDACluster(LocalCluster):
        def __init__(self, CUDA_VISIBLE_DEVICES, **options):
            asked.update(devices=CUDA_VISIBLE_DEVICES)
            super().__init__(n_workers=len(CUDA_VISIBLE_DEVICES), threads_per_worker=1, processes=False, **options)

    cuda = ModuleType("dask_cuda")
    cuda.LocalCUDACluster = LocalCUDACluster
    monkeypatch.setitem(sys.modules, "dask_cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=Runtime)))
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda name: name)
    assert clusters.count_gpus() == 2
    with clusters.attached(None, None, None, 2) as client:
        assert len(identity(client)["workers"]) == 2
    assert asked == {"devices": [0, 1]}
    with pytest.raises(OptionError, match=r"--gpus 3: 2 can be used here$"), clusters.attached(None, None, None, 3):
        pass
