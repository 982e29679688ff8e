"""Where a command runs: on a scheduler that is there, or on a cluster of this machine that it starts and ends."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from distsort.errors import OptionError


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where a command runs."""
    for decorate in (
        click.option("--workers", type=click.IntRange(min=1), metavar="N", help="A cluster of N processes, here."),
        click.option(
            "--gpus", type=click.IntRange(min=1), metavar="N", help="A cluster with a worker on each of N GPUs."
        ),
        click.option("--scheduler-file", metavar="FILE", help="Where a Dask scheduler has written its address."),
        click.option(
            "--scheduler", metavar="ADDRESS", help="Dask scheduler. [default: threads, or a cluster of this machine]"
        ),
    ):
        command = decorate(command)
    return command


@contextmanager
def attached(scheduler: str | None, scheduler_file: str | None, workers: int | None, gpus: int | None) -> Iterator[Any]:
    """Yield a client of the cluster that was asked for, None if none was.

    Raises
    ------
    OptionError
        Two places were named, the scheduler file is not one, or there are fewer GPUs.
    """
    named = {
        "--scheduler": scheduler,
        "--scheduler-file": scheduler_file,
        "--workers": workers,
        "--gpus": gpus,
    }
    given = [option for option, value in named.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)}: name one place to run")
    if not given:
        yield None
        return
    from distributed import Client

    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
    elif scheduler_file is not None:
        if not Path(scheduler_file).is_file():
            raise OptionError(f"--scheduler-file {scheduler_file}: there is no such file: is the scheduler up?")
        with Client(scheduler_file=scheduler_file) as client:
            yield client
    else:
        with local_cluster(workers, gpus, dashboard_address=None) as cluster, Client(cluster) as client:
            client.wait_for_workers(workers or gpus or 1)
            yield client


@contextmanager
def local_cluster(workers: int | None, gpus: int | None, **options: Any) -> Iterator[Any]:
    """Yield a cluster of this machine, closed in the end; its spill folder goes too.

    Parameters
    ----------
    workers
        Processes with one thread each; not with `gpus`.
    gpus
        Workers with a GPU each.
    options
        Of the cluster.

    Raises
    ------
    OptionError
        The GPUs are not there, or dask-cuda is not installed.
    """
    from distsort import config

    folder = tempfile.mkdtemp(prefix="distsort-", dir=config.get("temporary-directory"))
    try:
        with _make(workers, gpus, {"local_directory": folder, **options}) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def count_gpus() -> int:
    """Return how many GPUs a cluster of this machine can use: 0 without dask-cuda and cupy."""
    if any(importlib.util.find_spec(name) is None for name in ("cupy", "dask_cuda")):
        return 0
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def _make(workers: int | None, gpus: int | None, options: dict[str, Any]) -> Any:
    if gpus is None:
        from distributed import LocalCluster

        count = os.cpu_count() or 1 if workers is None else workers
        return LocalCluster(n_workers=count, threads_per_worker=1, **options)
    there = count_gpus()
    if gpus > there:
        extra = "" if there else ": install distsort[cuda13] or distsort[cuda12] on a machine with a GPU"
        raise OptionError(f"--gpus {gpus}: {there} can be used here{extra}")
    from dask_cuda import LocalCUDACluster

    return LocalCUDACluster(CUDA_VISIBLE_DEVICES=list(range(gpus)), **options)
