r"""Sort jobs as a service on a Dask scheduler: ``dask scheduler --preload distsort.service``.

    client.py                     submit, status, list, logs, follow, watch, wait, stop, delete
        |  HTTP
    http.py  page.html            routes beside those of the scheduler
        |
    manager.py                    the queue, one process per running job        metrics.py   /metrics
        |            \
    jobs.py           process.py  runner.py   the process of one job: sort_files on the scheduler's cluster
    records.py
    spec.py  roots.py             what a job is to sort, and where it may

Each room imports only from those below it.
"""

from __future__ import annotations

from typing import Any


async def dask_setup(scheduler: Any) -> None:
    """Add the service to a scheduler; Dask calls this for a preload."""
    from distsort.service.preload import setup

    await setup(scheduler)


async def dask_teardown(scheduler: Any) -> None:
    """End the service of a scheduler that closes; Dask calls this for a preload."""
    from distsort.service.preload import teardown

    await teardown(scheduler)
