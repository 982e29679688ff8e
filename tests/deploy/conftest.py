"""A service without a cluster: the real routes, queue and records, with a stand-in for the process of a job."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from distsort.service.client import SortClient
from distsort.service.http import application
from distsort.service.jobs import Limits
from distsort.service.manager import Manager
from distsort.service.records import Records
from distsort.service.roots import Roots

TOKEN = "a-token-for-tests"
PATIENCE = 30

# What the process of a job does is told by the output folder: /data/out/<what>. It starts in a few milliseconds.
STAND_IN = r"""
import json, os, signal, sys, time
orders = json.loads(sys.stdin.readline())
what = orders["spec"]["dst"].split("/")[3]
print(f"attempt {orders['attempt']} of {orders['id']}: {what} \u00e4\u20ac", flush=True)
def answer(**said):
    with open("answer.json", "w") as file:
        json.dump(said, file)
if what == "sleep" or (what == "second" and orders["attempt"] == 1):
    time.sleep(60)
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(60)
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "silent":
    sys.exit(3)
if what == "wrong":
    answer(ok=False, reason="the column is missing", again=False)
elif what == "once" and orders["attempt"] == 1 or what == "twice":
    answer(ok=False, reason="a worker was lost", again=True)
else:
    answer(ok=True, result={"rows": 6, "nbytes": 48, "seconds": 0.5, "balance": 1.0, "checksum": "00ff", "parts": 1,
        "output": orders["spec"]["dst"], "order": "k asc nulls last", "phases": [{"name": "sort", "busy": 0.25}],
        "environment": sorted(os.environ)})
"""


class FakeScheduler:
    """As much of a scheduler as the service looks at."""

    def __init__(self) -> None:
        self.address = "tcp://127.0.0.1:8786"
        self.extensions: dict[str, Any] = {}
        self.workers = {"tcp://127.0.0.1:1": SimpleNamespace(nthreads=2)}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def log_event(self, topic: str, event: dict[str, Any]) -> None:
        self.events.append((topic, event))


class Served:
    """A service that listens, in a thread of its own."""

    def __init__(self, directory: Any, token: str | None, limits: Limits, stop_timeout: float) -> None:
        self.scheduler = FakeScheduler()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.token = token

        async def start() -> int:
            runner = (sys.executable, "-I", "-S", "-c", STAND_IN)
            roots = Roots(["/data", "s3://bucket"])
            self.manager = Manager(self.scheduler, Records(directory), roots, limits, stop_timeout, runner)
            self.manager.start()
            self.server = HTTPServer(application(self.manager, token))
            sockets = bind_sockets(0, "127.0.0.1")
            self.server.add_sockets(sockets)
            return int(sockets[0].getsockname()[1])

        self.url = f"http://127.0.0.1:{self.run(start())}"
        self.client = SortClient(self.url, TOKEN, timeout=PATIENCE)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def submit(self, what: str, id: str | None = None, **options: Any) -> dict[str, Any]:
        return self.client.submit("/data/in", f"/data/out/{what}/{id}", "k", submission_id=id, **options)

    def close(self) -> None:
        async def stop() -> None:
            await self.manager.close()
            self.server.stop()
            await self.server.close_all_connections()

        self.run(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture
def serve(tmp_path: Any) -> Callable[..., Any]:
    """Return a context manager that starts a service; the directory is the same each time."""

    @contextmanager
    def start(
        token: str | None = TOKEN, limits: Limits | None = None, stop_timeout: float = 5.0, directory: Any = None
    ) -> Iterator[Served]:
        served = Served(directory or tmp_path / "jobs", token, limits or Limits(), stop_timeout)
        try:
            yield served
        finally:
            served.close()

    return start


@pytest.fixture
def served(serve: Callable[..., Any]) -> Iterator[Served]:
    """Start a service with the usual limits."""
    with serve() as started:
        yield started
