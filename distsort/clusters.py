"""Where a sort runs: on a scheduler that is there, or on a cluster of this machine, started and ended for it."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask

from distsort import config
from distsort.errors import OptionError
from distsort.io.scratch import scratch_folder

WRITING = 1.0
"""Seconds in which a scheduler's file that is there may still be written."""

# A terminal sends Ctrl-C, and that it was closed, to the workers too; the process that started them ends them.
_IGNORE_THE_TERMINAL = (
    "import signal, threading\n"
    "if threading.current_thread() is threading.main_thread():\n"
    "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "    signal.signal(signal.SIGHUP, signal.SIG_IGN)"
)
# What fails on a worker ends the job, and the error that it ends with says so.
_SAY_NO_FAILURES = "import logging\nlogging.getLogger('distributed.worker').setLevel(logging.CRITICAL)"


@contextmanager
def attached(scheduler: str | None, scheduler_file: str | None, workers: int | None, gpus: int | None) -> Iterator[Any]:
    """Yield a client of the cluster that was asked for, by option or in Dask's configuration; None if none was.

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
        scheduler = dask.config.get("scheduler-address", None)
        if scheduler is None:
            yield None
            return
    if scheduler is not None:
        with connect(address=scheduler) as client:
            yield client
    elif scheduler_file is not None:
        if not Path(scheduler_file).is_file():
            raise OptionError(f"--scheduler-file {scheduler_file}: there is no such file: is the scheduler up?")
        with connect(scheduler_file=scheduler_file) as client:
            yield client
    else:
        with local_cluster(workers, gpus) as client:
            client.wait_for_workers(workers or gpus or 1)
            yield client


@contextmanager
def observed(client: Any, report: str | None, *tags: str) -> Iterator[None]:
    """Tag the tasks of a sort with spans, one for each phase, and write Dask's performance report if it is wanted.

    Parameters
    ----------
    client
        Of the cluster; None for threads of this process, which have neither.
    report
        File to write.
    tags
        Of the spans, below "distsort".

    Raises
    ------
    OptionError
        A report is wanted, but there is no cluster, or its scheduler has no bokeh to draw it.
    """
    if client is None:
        if report is not None:
            raise OptionError(
                f"--performance-report {report}: only a cluster makes one: add --workers N or --scheduler"
            )
        yield
        return
    # The scheduler draws it, when all is done: what it lacks is to be known before.
    if report is not None and not client.run_on_scheduler(_installed, "bokeh"):
        raise OptionError(
            f"--performance-report {report}: bokeh is not installed where the scheduler runs: pip install 'bokeh>=3.1'"
        )
    from distributed import performance_report

    from distsort.spans import phase_spans

    with ExitStack() as stack:
        if report is not None:
            stack.enter_context(client.as_current())
            stack.enter_context(performance_report(filename=report))
        yield stack.enter_context(phase_spans("distsort", *tags))


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def connect(*, address: str | None = None, scheduler_file: str | None = None, timeout: str | None = None) -> Any:
    """Return a client of a scheduler that is up; it does not become the default of this process.

    Parameters
    ----------
    address
        Of the scheduler.
    scheduler_file
        Names the scheduler instead.
    timeout
        How long to try, Dask's own limit if None.

    Raises
    ------
    OptionError
        Nothing answers there, or the address or the file is none.
    """
    from distributed import Client

    place = address if scheduler_file is None else scheduler_file
    options = {} if timeout is None else {"timeout": timeout}
    # A client that fails while it starts stays open until the garbage collector closes it. Where that happens in the
    # thread of the loop that another client starts, each waits for the other, and that one fails after 10 s.
    client = Client.__new__(Client)
    if scheduler_file is not None:
        _until_written(Path(scheduler_file))
    try:
        client.__init__(address, scheduler_file=scheduler_file, set_as_default=False, **options)
    except Exception as error:  # of sockets, addresses, encryption, versions
        client.close()
        if scheduler_file is not None and not names_a_scheduler(Path(scheduler_file)):
            raise OptionError(
                f"--scheduler-file {scheduler_file}: it names no scheduler: is it what 'dask scheduler"
                " --scheduler-file' wrote?"
            ) from error
        raise OptionError(f"no scheduler answers at {place!r} ({error}): is the address right, is it up?") from error
    return client


def _until_written(file: Path) -> None:
    """Wait a moment for a scheduler that has made its file and not filled it: it is written in place."""
    end = time.monotonic() + WRITING
    while not names_a_scheduler(file) and time.monotonic() < end:
        time.sleep(WRITING / 50)


def names_a_scheduler(file: Path) -> bool:
    """Whether a file is there, whole, and has the address of a scheduler."""
    try:
        return isinstance(json.loads(file.read_text(encoding="utf-8"))["address"], str)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def temporary_directory() -> str | None:
    """Return the folder that is set for what spills; None for the system's."""
    found = config.get("temporary-directory") or dask.config.get("temporary-directory", None)
    return None if found is None else str(found)


@contextmanager
def local_cluster(
    workers: int | None = None, gpus: int | None = None, *, log_failures: bool = False, **options: Any
) -> Iterator[Any]:
    """Yield a client of a cluster of this machine, which is closed in the end; its spill folder goes too.

    Parameters
    ----------
    workers
        Processes with one thread each, as many as there are cores if None; not with `gpus`.
    gpus
        Workers with a GPU each.
    log_failures
        Whether workers log tasks that fail, besides the error that comes back.
    options
        Of the cluster.

    Raises
    ------
    OptionError
        The GPUs are not there, or dask-cuda is not installed.
    OutputError
        There is no place for what spills.
    """
    from distributed import Client

    preloads = [*dask.config.get("distributed.worker.preload"), _IGNORE_THE_TERMINAL]
    if not log_failures:
        preloads.append(_SAY_NO_FAILURES)
    options = {"dashboard_address": "127.0.0.1:0", **options}
    with (
        scratch_folder(temporary_directory()) as folder,
        # The nannies keep their locks below it, and workers what they spill.
        dask.config.set(
            {
                "distributed.worker.preload": preloads,
                "temporary-directory": str(folder),
                "distsort.temporary-directory": None,
            }
        ),
        _same_level(logging.getLogger("distributed")) as logger,
        _make(workers, gpus, {**options, "local_directory": str(folder)}) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        try:
            yield client
        except BaseException:
            logger.setLevel(logging.CRITICAL)  # workers that go now go on purpose
            raise


@contextmanager
def _same_level(logger: logging.Logger) -> Iterator[logging.Logger]:
    level = logger.level
    try:
        yield logger
    finally:
        logger.setLevel(level)


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
