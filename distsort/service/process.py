"""Starting and ending the process of a job."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config

from distsort.errors import DistsortError
from distsort.io.commit import clean_leftovers
from distsort.io.storage import resolve

logger = logging.getLogger("distsort.service")

RUNNER = (sys.executable, "-m", "distsort.service.runner")
SECRETS = ("DISTSORT_TOKEN",)


async def spawn(runner: Sequence[str], folder: Path) -> Process:
    """Start the process of a job in the job's folder; what it prints is added to the log there."""
    with (folder / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *runner, stdin=PIPE, stdout=log, stderr=log, cwd=folder, env=_environment(), start_new_session=True
        )


async def order(process: Process, orders: dict[str, Any]) -> None:
    """Tell a process what to do. Its input stays open: its end would tell it that the scheduler is gone."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        await process.stdin.drain()


def end(process: Process, patience: float) -> None:
    """Ask a process to end, and kill it if it has not after `patience` seconds."""
    with suppress(ProcessLookupError):
        process.terminate()
    asyncio.get_running_loop().call_later(patience, _kill, process)


def clean(dst: str) -> None:
    """Remove what a killed job has staged."""
    try:
        cleaned = clean_leftovers(*resolve(dst))
    except (OSError, DistsortError) as error:
        logger.error("%s: what a killed job left could not be removed: %s", dst, error)
    else:
        if cleaned:
            logger.info("%s: removed what a killed job left: %s", dst, ", ".join(cleaned))


def death(code: int) -> str:
    """Say how a process ended that gave no answer."""
    if code < 0:
        hint = ": perhaps its host ran out of memory" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    return f"its process ended with status {code} and gave no answer; see its log"


def _environment() -> dict[str, str]:
    """Return the environment of a job: that of the scheduler without its secrets, with its configuration."""
    inherited = {name: value for name, value in os.environ.items() if name not in SECRETS}
    # The way in which Dask itself hands its configuration to the workers that it starts.
    return {**inherited, "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(dask.config.global_config)}


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
