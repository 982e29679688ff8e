"""The service on a scheduler: set up from the configuration when the scheduler starts, ended when it closes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask.config

from distsort import config
from distsort.errors import OptionError
from distsort.service.http import application
from distsort.service.jobs import Limits
from distsort.service.manager import Manager
from distsort.service.records import Records
from distsort.service.roots import Roots

logger = logging.getLogger("distsort.service")

NAME = "distsort-service"
TOKEN = "DISTSORT_TOKEN"
SHORTEST_TOKEN = 16


@dataclass
class Service:
    """What was added to a scheduler; kept in its extensions."""

    manager: Manager
    read_only: bool
    collector: Any = None


def check_settings() -> None:
    """Raise what `setup` would: Dask logs what a preload raises, and goes on without it.

    Raises
    ------
    OptionError
        A setting is wrong.
    """
    read_token()
    Roots(config.get("service.roots"))
    limits()
    config.get_seconds("service.stop-timeout")
    Records(directory()).close()


async def setup(scheduler: Any) -> None:
    """Start the queue and add routes and metrics to those of the scheduler.

    Raises
    ------
    OptionError
        A setting is wrong, or this is not a scheduler.
    """
    if (
        not hasattr(scheduler, "http_application")
        or not hasattr(scheduler, "log_event")
        or hasattr(scheduler, "nthreads")
    ):
        raise OptionError("distsort.service is a preload for the scheduler, not for workers")
    _show_log()
    token = read_token()
    roots = Roots(config.get("service.roots"))
    records = Records(directory())
    manager = Manager(scheduler, records, roots, limits(), config.get_seconds("service.stop-timeout"))
    manager.start()
    # Beside the routes that are there: an application of its own, which is asked for what those do not know.
    scheduler.http_application.add_application(application(manager, token))
    service = scheduler.extensions[NAME] = Service(manager, token is None)
    if find_spec("prometheus_client") is not None:
        from distsort.service.metrics import Collector

        service.collector = Collector(manager)
        service.collector.register()
    logger.info(
        "sort jobs at /distsort/ of the dashboard, %s; records in %s; roots: %s",
        "read-only (no token is set)" if token is None else "writing needs the token",
        records.directory,
        ", ".join(roots.texts) or "none, so no job is taken",
    )


async def teardown(scheduler: Any) -> None:
    """Stop what runs, and free the records for the next scheduler."""
    service = scheduler.extensions.pop(NAME, None)
    if service is not None:
        if service.collector is not None:
            service.collector.unregister()
        await service.manager.close()


def limits() -> Limits:
    """Return the limits of the queue that are configured."""
    return Limits(
        running=config.get("service.running"),
        queued=config.get("service.queued"),
        attempts=config.get("service.attempts"),
        keep=config.get("service.keep"),
        keep_for=config.get_seconds("service.keep-for"),
    )


def directory() -> Path:
    """Return where records are kept."""
    configured = config.get("service.directory")
    if configured is not None:
        return Path(configured)
    return Path(dask.config.get("temporary-directory", None) or Path.cwd()) / "distsort-jobs"


def read_token() -> str | None:
    """Return the token from the environment, else from the configured file; None if neither is there.

    Raises
    ------
    OptionError
        The file cannot be read, or the token is too short or has characters that HTTP does not carry.
    """
    token, place = os.environ.get(TOKEN), TOKEN
    path = config.get("service.token-file")
    if token is None and path is not None:
        place = f"distsort.service.token-file={path}"
        try:
            token = Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
        except OSError as error:
            raise OptionError(f"{place}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise OptionError(f"{place}: the token must be printable ASCII") from error
    if token is None:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise OptionError(f"{place}: a token is {SHORTEST_TOKEN} or more printable ASCII characters without spaces")
    return token


def _show_log() -> None:
    """Print our events beside the scheduler's own log, unless the logging of this process says where they go."""
    ours = logging.getLogger("distsort")
    if ours.hasHandlers() or ours.level:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(dask.config.get("distributed.admin.log-format")))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
