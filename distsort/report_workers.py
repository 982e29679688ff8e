"""What the processes of a job hold: each is asked once before the job and once after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsort.memory import peak_bytes, resident_bytes
from distsort.report import Worker

PATIENCE = 10.0
"""Seconds for all workers to answer; a report is not worth waiting longer for."""

THIS = "this process"


def watch_workers(client: Any) -> Callable[[], tuple[Worker, ...]]:
    """Ask the processes that will sort, and return what asks them again when they have.

    Parameters
    ----------
    client
        Of a cluster; None where this process sorts.

    Returns
    -------
    callable
        Returns a `Worker` for each process that is there then. One that joined on the way has no share of its memory
        from before the job, so that its base is 0.
    """
    before = _ask(client)

    def after() -> tuple[Worker, ...]:
        return tuple(_difference(name, before.get(name, {}), now) for name, now in sorted(_ask(client).items()))

    return after


def _difference(name: str, before: dict[str, int], now: dict[str, Any]) -> Worker:
    spilled, pulled = (max(now[field] - before.get(field, 0), 0) for field in ("spilled", "pulled"))
    return Worker(name, before.get("held", 0), now["peak"], now["limit"], spilled, pulled)


def _ask(client: Any) -> dict[str, dict[str, Any]]:
    if client is None:
        return {THIS: _held()}
    try:
        answers: dict[str, dict[str, Any]] = client.sync(_ask_workers, client, callback_timeout=PATIENCE)
    except (TimeoutError, OSError):
        return {}
    return answers


async def _ask_workers(client: Any) -> Any:
    """Ask them on the client's own loop, where `run` is awaited: `run` itself knows no time limit."""
    return await client.run(_held_by_worker, on_error="ignore")


def _held_by_worker(dask_worker: Any = None) -> dict[str, Any]:
    """Return what a worker holds; runs there. Its run store reports through its metrics, if it has one."""
    store = dask_worker.metrics.get("distsort")
    found = _held() if store is None else {**_held(), **store(dask_worker)}
    return {**found, "limit": dask_worker.memory_manager.memory_limit}


def _held() -> dict[str, Any]:
    return {"held": resident_bytes(), "peak": peak_bytes(), "limit": None, "spilled": 0, "pulled": 0}
