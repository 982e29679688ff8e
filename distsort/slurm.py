"""One sort on the tasks of one Slurm job: ``srun python -m distsort.slurm IN... -o OUT -k KEY``.

dask-jobqueue's runner gives each task its part by its rank, with no more to set up than a file that all of them see:

    rank 0   scheduler          writes scheduler-JOB.json
    rank 1   distsort sort      leaves its exit status in distsort-JOB.status; srun's own is the worst of all tasks,
                                but the sort goes on when a worker is lost
    rank 2.. workers            one for each further task; of the GPUs of a node, one for each worker

All options but those below are those of ``distsort sort``. Where there is a fast network beside a slow one,
``--interface ib0`` sends the rows over the fast one.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config

from distsort.cli import run
from distsort.clusters import names_a_scheduler
from distsort.errors import OptionError

PATIENCE = 120
"""Seconds to wait for all workers; then the sort begins with those that are there."""

FORSAKEN = 60
"""Seconds without a client after which the scheduler ends the job: the task that sorts has died (of memory, say)."""

_BEFORE_WORKERS = 2
_DEVICES = "CUDA_VISIBLE_DEVICES"


def main(arguments: Sequence[str]) -> int:
    """Take this task's part, and return its exit status.

    Parameters
    ----------
    arguments
        Of the command line.
    """
    from distributed import Client

    # That comms are closed in the end is no news.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser("python -m distsort.slurm", usage="%(prog)s [options] [options of distsort sort]")
    parser.allow_abbrev = False
    parser.add_argument("--interface", help="network interface of scheduler and workers, such as ib0")
    parser.add_argument("--protocol", help="of Dask's comms: tcp, or ucx where that is installed")
    own, sort = parser.parse_known_args(arguments)
    network = {name: value for name, value in vars(own).items() if value is not None}
    visible = os.environ.get(_DEVICES, "")
    try:
        os.environ[_DEVICES] = device_of(os.environ)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if os.environ[_DEVICES]:
        print(f"worker {os.environ['SLURM_PROCID']} has GPU {os.environ[_DEVICES]}", file=sys.stderr)
    place = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    with _runner()(
        scheduler_file="scheduler-{job_id}.json",
        scheduler_options={**network, "dashboard_address": ":0"},
        worker_options={**network, **worker_options(os.environ), "local_directory": place, "dashboard": False},
    ) as runner:
        # Only the task that sorts comes here.
        backend = ["--backend", "cupy"] if visible and not any(word.startswith("--backend") for word in sort) else []
        with Client(runner) as client, suppress(TimeoutError):
            client.wait_for_workers(runner.n_workers, timeout=PATIENCE)
        status = run(["sort", *sort, *backend, "--scheduler-file", str(runner.scheduler_file)])
        Path(runner.scheduler_file).unlink(missing_ok=True)
        Path(f"distsort-{runner.job_id}.status").write_text(f"{status}\n", encoding="ascii")
        return status


def _runner() -> Any:
    """Return dask-jobqueue's runner, made to end with the sort.

    Its tasks read the scheduler's file once it is whole, since that is written in place; and a scheduler whose sort has
    died closes, and its workers with it. Else the job would hold its nodes until its time limit.
    """
    from dask_jobqueue.slurm import SLURMRunner
    from distributed import Scheduler
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Forsaken(SchedulerPlugin):
        name = "distsort-forsaken"
        departures = 0

        def remove_client(self, scheduler: Scheduler, client: str) -> None:
            self.departures += 1
            scheduler.loop.call_later(FORSAKEN, self.look, scheduler, self.departures)

        async def look(self, scheduler: Scheduler, departures: int) -> None:
            if departures == self.departures and not scheduler.client_comms:
                print("error: the task that sorts is gone, and so ends the job", file=sys.stderr, flush=True)
                await scheduler.close(reason="the sort is gone")

    class Runner(SLURMRunner):
        async def on_scheduler_start(self, scheduler: Scheduler) -> None:
            scheduler.add_plugin(Forsaken())

        async def get_scheduler_address(self) -> str:
            while not names_a_scheduler(self.scheduler_file):
                await asyncio.sleep(0.2)
            return str(await super().get_scheduler_address())

    return Runner


def device_of(environment: Mapping[str, str]) -> str:
    """Return the GPU of a task, as CUDA_VISIBLE_DEVICES names it; nothing for a task that is no worker.

    Slurm shows every task of a node all of the node's GPUs, unless it was told to deal them out itself.

    Raises
    ------
    OptionError
        A node has more workers than GPUs.

    Examples
    --------
    >>> slurm = {"SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NODEID": "0"}
    >>> device_of({**slurm, "CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    '5'
    """
    devices = [device for device in environment.get(_DEVICES, "").split(",") if device]
    if not devices or int(environment["SLURM_PROCID"]) < _BEFORE_WORKERS:
        return ""
    if len(devices) == 1:
        return devices[0]
    # Scheduler and sort are the first two tasks of the first node.
    local = int(environment["SLURM_LOCALID"]) - (_BEFORE_WORKERS if environment["SLURM_NODEID"] == "0" else 0)
    if local >= len(devices):
        raise OptionError(f"--ntasks: a node has more workers than its {len(devices)} GPUs: start one for each GPU")
    return devices[local]


def worker_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return threads and memory of a worker, as Slurm has granted them.

    Examples
    --------
    >>> worker_options({"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_CPU": "2048"})
    {'nthreads': 4, 'memory_limit': 8589934592}
    """
    threads = int(environment.get("SLURM_CPUS_PER_TASK", "1"))
    per_cpu = environment.get("SLURM_MEM_PER_CPU")
    return {"nthreads": threads, "memory_limit": "auto" if per_cpu is None else int(per_cpu) * threads * 2**20}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
